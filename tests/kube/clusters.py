"""Clusters for stories: a store, what serves it, and a client; in this process or over HTTPS."""

import asyncio
import functools
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import virtual
from warren.base.clock import Clock, SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.daemons.cluster import manifests
from warren.dws import kinds
from warren.journal import Journal, MemoryJournal
from warren.kube import http
from warren.kube.admission import AdmitAll, Denied
from warren.kube.client import Client, Event
from warren.kube.kubeconfig import Access
from warren.kube.local import LocalClient
from warren.kube.server import tls
from warren.kube.server.app import ApiServer
from warren.kube.server.resources import CRD
from warren.kube.server.store import Store

HOST = "127.0.0.1"
TOKEN = "open-sesame"


class Doorman(AdmitAll):
    """Admits everything but evil, and signs what comes in."""

    def create(self, kind: Kind, obj: Object) -> Object:
        self.update(kind, {}, obj)
        if kind != kinds.RULE:
            return obj
        return {**obj, "signed": True}

    def update(self, kind: Kind, old: Object, new: Object) -> None:
        if kind != CRD and isinstance(new.get("spec"), Mapping) and new["spec"].get("evil"):
            raise Denied("evil is not let in.")


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


@asynccontextmanager
async def stored(
    journal: Journal | None = None, clock: Clock | None = None
) -> AsyncIterator[Store]:
    """A store with all kinds, for the length of a block."""
    store = Store(journal or MemoryJournal(), clock or virtual.VirtualClock(), Doorman())
    async with alongside(store.run()):
        for name in ("crds-dws.yaml", "crds-nnf.yaml", "crds-lus.yaml"):
            for crd in manifests(name):
                if store.resource(crd["spec"]["group"], crd["spec"]["names"]["plural"]) is None:
                    await store.create(CRD, crd)
        yield store


@asynccontextmanager
async def served(store: Store, pki: Path, port: int = 0) -> AsyncIterator[Access]:
    """An API server for the length of a block, on a port of its own or one that it had before."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((HOST, port))
    listener.listen()
    server = ApiServer(store, SystemClock(), {TOKEN: "admin"})
    url = f"https://{HOST}:{listener.getsockname()[1]}"
    context = tls.ensure(pki)
    async with alongside(server.run(listener, context)):
        yield Access(server=url, authority=tls.authority(pki), token=TOKEN)


class Cluster:
    """What outlives a server: its journal. Each `life` has a client of its own."""

    def __init__(self, pki: Path) -> None:
        self.pki = pki
        self.journal = MemoryJournal()

    def life(self) -> AbstractAsyncContextManager[Client]:
        raise NotImplementedError

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError


class LocalCluster(Cluster):
    @asynccontextmanager
    async def life(self) -> AsyncIterator[Client]:
        async with stored(self.journal) as store:
            yield LocalClient(store)

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        virtual.run(story)


class HttpsCluster(Cluster):
    @asynccontextmanager
    async def life(self) -> AsyncIterator[Client]:
        async with (
            stored(self.journal, SystemClock()) as store,
            served(store, self.pki) as access,
            http.connect(access) as client,
        ):
            yield client

    def tell(self, story: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(story, 30))


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


def each_cluster(story: Story) -> Callable[..., None]:
    """Tell a story of both clusters."""

    @pytest.mark.parametrize("made", [LocalCluster, HttpsCluster], ids=["local", "https"])
    @wanting(story, "made", "pki")
    def told(made: Callable[[Path], Cluster], pki: Path, **others: Any) -> None:
        cluster = made(pki)
        cluster.tell(story(cluster, **others))

    return told


def each_client(story: Story) -> Callable[..., None]:
    """Tell a story of both clients."""

    @functools.wraps(story)
    async def lived(cluster: Cluster, **others: Any) -> None:
        async with cluster.life() as client:
            await story(client, **others)

    return each_cluster(lived)


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


async def taken(events: AsyncIterator[Event], count: int) -> list[Event]:
    """Give the next events of a watch, and close it."""
    found: list[Event] = []
    async with aclosing(events), asyncio.timeout(10):  # type: ignore[type-var]
        while len(found) < count:
            event = await anext(events)
            if event.type != "BOOKMARK":
                found.append(event)
    return found


def told(events: list[Event]) -> Iterator[tuple[str, str]]:
    """Give the short of events: what has happened to whom."""
    return ((event.type, event.object["metadata"]["name"]) for event in events)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; for what has no other way to say that it is done."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)


def watchers(store: Store) -> list[Any]:
    """Give the watches that are open."""
    return [each for some in store._watchers.values() for each in some]
