"""Clusters for stories: a store, what serves it, and a client; in this process or over HTTPS.

A third one is real, and told stories only where `WARREN_TEST_KUBECONFIG` names it: `named.py`.
"""

import asyncio
import functools
import inspect
import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness import virtual
from warren.base.clock import Clock, SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.daemons.clusterobjects import definitions
from warren.dws import kinds
from warren.journal import Journal, MemoryJournal
from warren.journal.committer import rewrite_limit
from warren.kube import http, kubeconfig
from warren.kube.admission import Admission, Denied, Operation, Review, User
from warren.kube.client import Client, WatchEvent
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.access import tls
from warren.kube.server.access.authentication import Authenticator
from warren.kube.server.access.authorization import MASTERS, Authorizer
from warren.kube.server.access.roles import default_roles
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.history import History
from warren.kube.server.local import LocalClient
from warren.kube.server.logs import PodLogSource
from warren.kube.server.rest.app import ApiServer
from warren.kube.server.rest.watches import BOOKMARK_INTERVAL
from warren.kube.server.store import Store

HOST = "127.0.0.1"
TOKEN = "open-sesame"
NAMED: Final = os.environ.get("WARREN_TEST_KUBECONFIG", "")
"""The kubeconfig of a real cluster that is to keep the same promises; empty where there is none."""


class Doorman:
    """Admits everything but evil, and signs what comes in."""

    async def admit(self, review: Review) -> Object | None:
        kind, new = review.kind, review.new
        spec = (new or {}).get("spec")
        if kind != CRD and isinstance(spec, Mapping) and spec.get("evil"):
            raise Denied("evil is not let in.", "conscience")
        if (
            new is not None
            and review.operation is Operation.CREATE
            and kind == kinds.DIRECTIVE_RULE
        ):
            return {**new, "signed": True}
        return new


@asynccontextmanager
async def alongside(part: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a part for the length of a block. What it dies of is raised at the end."""
    running = asyncio.ensure_future(part)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
    if not running.cancelled():
        running.result()


def loose() -> Iterator[Object]:
    """Return all definitions, of objects with any fields: what the API does, it does with any."""
    for crd in definitions():
        versions = [
            {**version, "schema": {"openAPIV3Schema": _any_fields(version)}}
            for version in crd["spec"]["versions"]
        ]
        yield {**crd, "spec": {**crd["spec"], "versions": versions}}


def _any_fields(version: Mapping[str, Any]) -> Object:
    return {
        "type": "object",
        "description": version["schema"]["openAPIV3Schema"]["description"],
        "x-kubernetes-preserve-unknown-fields": True,
    }


@asynccontextmanager
async def stored(
    journal: Journal | None = None,
    clock: Clock | None = None,
    history: History | None = None,
    limit: Callable[[int], int] = rewrite_limit,
    admission: Admission | None = None,
) -> AsyncIterator[Store]:
    """A store with all kinds, for the length of a block."""
    clock = clock or virtual.VirtualClock()
    admission = admission or Doorman()
    store = Store(
        journal or MemoryJournal(), clock, admission, history=history, rewrite_limit=limit
    )
    async with alongside(store.run()):
        await _define(store)
        yield store


@asynccontextmanager
async def embedded(
    journal: Journal | None = None, clock: Clock | None = None, history: History | None = None
) -> AsyncIterator[Store]:
    """A store with all kinds and what works behind it, for the length of a block."""
    clock = clock or virtual.VirtualClock()
    whole = EmbeddedApi(journal or MemoryJournal(), clock, [Doorman()], history=history)
    async with alongside(whole.run()):
        await whole.create_defaults()
        await _define(whole.store)
        yield whole.store


async def _define(store: Store) -> None:
    for crd in loose():
        if store.resource(crd["spec"]["group"], crd["spec"]["names"]["plural"]) is None:
            await store.create(CRD, crd)


@asynccontextmanager
async def served(
    store: Store,
    pki: Path,
    port: int = 0,
    quiet: float = BOOKMARK_INTERVAL,
    logs: PodLogSource | None = None,
) -> AsyncIterator[ClusterAccess]:
    """An API server for the length of a block, on a port of its own or one that it had before."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    users = Authenticator({TOKEN: User("admin", frozenset({MASTERS}))})

    def roles(kind: Kind) -> list[Object]:
        return [
            *store.objects_of(kind),
            *(obj for obj in default_roles() if obj["kind"] == kind.name),
        ]

    authorizer = Authorizer(roles)
    store.listen(lambda _: authorizer.forget_policy())
    server = ApiServer(
        store, SystemClock(), users, authorizer, bookmark_interval=quiet, pod_logs=logs
    )
    url = f"https://{HOST}:{listener.getsockname()[1]}"
    context = tls.server_context(pki)
    async with alongside(server.run(listener, context)):
        yield ClusterAccess(server=url, authority=tls.authority(pki), token=TOKEN)


@contextmanager
def beside(
    pki: Path,
    directory: Path,
    having: Callable[..., AbstractAsyncContextManager[Store]] = embedded,
    quiet: float = BOOKMARK_INTERVAL,
    logs: PodLogSource | None = None,
) -> Iterator[Path]:
    """Serve a cluster from a thread, for clients that block; gives its kubeconfig."""
    started: Future[Path] = Future()
    stopping = asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with (
            having(clock=SystemClock()) as store,
            served(store, pki, quiet=quiet, logs=logs) as access,
        ):
            path = directory / "kubeconfig"
            kubeconfig.write(path, access)
            started.set_result(path)
            await stopping.wait()
        async with asyncio.timeout(60):
            # Connections end with the goodbyes of both sides; what is left is the loop's own.
            while len(loop._selector.get_map()) > 1:  # type: ignore[attr-defined] # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield started.result(60)
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()


class Cluster(ABC):
    """Something that a story is told to. Each `life` has a client of its own."""

    patience = 60.0
    """How many seconds it may take until what is promised for some time has come."""

    @abstractmethod
    def life(self) -> AbstractAsyncContextManager[Client]:
        """Return a client for as long as a server lives."""

    @abstractmethod
    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a story to its end."""


class OurCluster(Cluster):
    """What outlives our server: its journal."""

    def __init__(self, pki: Path) -> None:
        self.pki = pki
        self.journal = MemoryJournal()
        self.history: Callable[[], History] = History


class LocalCluster(OurCluster):
    @asynccontextmanager
    async def life(self) -> AsyncIterator[Client]:
        async with embedded(self.journal, history=self.history()) as store:
            yield LocalClient(store)

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        virtual.run(story)


class HttpsCluster(OurCluster):
    @asynccontextmanager
    async def life(self) -> AsyncIterator[Client]:
        async with (
            embedded(self.journal, SystemClock(), self.history()) as store,
            served(store, self.pki) as access,
            http.connect(access) as client,
        ):
            yield client

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(story, 300))


Story = Callable[..., Coroutine[Any, Any, None]]


def wanting(story: Story, *names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a test of a story: it asks pytest for `names`, and for all that the story wants."""

    def named(told: Callable[..., None]) -> Callable[..., None]:
        others = [*inspect.signature(story).parameters][1:]
        told.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*names, *others)]
        )
        told.__name__, told.__doc__ = story.__name__, story.__doc__
        return told

    return named


_OURS: Final = ["local", "https"]
_ALL: Final = [*_OURS, *(["named"] if NAMED else [])]


def _told_to(clusters: list[str], story: Story) -> Callable[..., None]:
    @pytest.mark.parametrize("cluster", clusters, indirect=True)
    @wanting(story, "cluster")
    def told(cluster: Cluster, **others: Any) -> None:
        cluster.tell(story(cluster, **others))

    test: Callable[..., None] = told
    return test


def _alive(story: Story) -> Story:
    @functools.wraps(story)
    async def lived(cluster: Cluster, **others: Any) -> None:
        async with cluster.life() as client:
            await story(client, **others)

    return lived


def each_cluster(story: Story) -> Callable[..., None]:
    """Tell a story of what every cluster does."""
    return _told_to(_ALL, story)


def each_client(story: Story) -> Callable[..., None]:
    """Tell a story of what every cluster promises its clients."""
    return _told_to(_ALL, _alive(story))


def our_clusters(story: Story) -> Callable[..., None]:
    """Tell a story of what cannot be done to a cluster of others: stopping it, for one."""
    return _told_to(_OURS, story)


def our_clients(story: Story) -> Callable[..., None]:
    """Tell a story of what our clusters alone do: their admission is ours."""
    return _told_to(_OURS, _alive(story))


# Objects, and what is often asked


def workflow(name: str = "w", namespace: str = "default", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, **rest.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"desiredState": "Proposal"}, **rest}


def storage(name: str = "rabbit-0", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", **rest.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"state": "Enabled"}, **rest}


def change(kind: Kind, obj: Object, patch: Object, **rest: Any) -> Change:
    return Change(kind=kind, key=key_of(obj), patch=patch, **rest)


def remove(kind: Kind, obj: Object) -> Remove:
    return Remove(kind=kind, key=key_of(obj))


def key(name: str, namespace: str = "default") -> Key:
    return Key(namespace, name)


def version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


async def space(client: Client, name: str) -> None:
    """Make a namespace."""
    await client.create(NAMESPACE, {"metadata": {"name": name}})


async def taken(events: AsyncIterator[WatchEvent], count: int) -> list[WatchEvent]:
    """Return the next events of a watch, and close it."""
    found: list[WatchEvent] = []
    async with aclosing(events), asyncio.timeout(60):  # type: ignore[type-var]
        while len(found) < count:
            event = await anext(events)
            if event.type != "BOOKMARK":
                found.append(event)
    return found


def told(events: list[WatchEvent]) -> Iterator[tuple[str, str]]:
    """Return the short of events: what has happened to whom."""
    return ((event.type, event.object["metadata"]["name"]) for event in events)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; for what has no other way to say that it is done."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)


async def settled(cluster: Cluster, condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so that a cluster promises for some time."""
    async with asyncio.timeout(cluster.patience):
        while not await condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)


def watchers(store: Store) -> list[Any]:
    """Return the watches that are open."""
    watched = store._history._subscriptions.values()
    return [each for some in watched for watchers in some.values() for each in watchers]
