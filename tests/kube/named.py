"""A real cluster, which a kubeconfig names, as one more that stories are told to.

It belongs to others. Ours there are some namespaces and API groups, whose names are of one run:
a client's words are translated on the way out and back, so that stories are the same for all.
"""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.kube.clusters import Cluster, loose
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.kube import http, kubeconfig
from warren.kube.client import Client, Listing, NotFound, WatchEvent
from warren.kube.http import HttpClient
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.resources import from_crd

SECONDS = 120.0
"""How long a real cluster may take for what goes on behind its API."""


@dataclass(frozen=True)
class Words:
    """What groups and namespaces are called there. Those of Kubernetes keep their names."""

    run: str
    space: str = ""

    def group(self, name: str) -> str:
        return name if "." not in name or name.endswith(".k8s.io") else f"{self.run}.{name}"

    def namespace(self, name: str) -> str:
        return f"{self.space}-{name}" if name and not name.startswith("kube-") else name

    def ours(self, obj: Object) -> bool:
        """Return whether an object is in a namespace of ours, or is one."""
        metadata = obj["metadata"]
        return str(metadata.get("namespace") or metadata["name"]).startswith(f"{self.space}-")

    def out(self, kind: Kind, obj: Object) -> Object:
        """Return an object in their words."""
        return _retold(kind, obj, self.group, self.namespace)

    def back(self, kind: Kind, obj: Object) -> Object:
        """Return an object in ours."""
        return _retold(
            kind,
            obj,
            lambda group: group.removeprefix(f"{self.run}."),
            lambda name: name.removeprefix(f"{self.space}-"),
        )

    def kind(self, kind: Kind) -> Kind:
        return replace(kind, group=self.group(kind.group))

    def key(self, kind: Kind, key: Key) -> Key:
        if kind == NAMESPACE:
            return Key("", self.namespace(key.name))
        return Key(self.namespace(key.namespace), _name(kind, key.name, self.group))


Rename = Callable[[str], str]


def _name(kind: Kind, name: str, group: Rename) -> str:
    """Return the name of an object: that of a definition ends in its group."""
    plural, _, place = name.partition(".")
    return f"{plural}.{group(place)}" if kind == CRD and place else name


def _retold(kind: Kind, obj: Object, group: Rename, namespace: Rename) -> Object:
    new = dict(obj)
    if "apiVersion" in obj:
        new["apiVersion"] = _api_version(obj["apiVersion"], group)
    if kind == CRD and "spec" in obj:
        new["spec"] = {**obj["spec"], "group": group(obj["spec"]["group"])}
    metadata = obj.get("metadata")
    if isinstance(metadata, Mapping):
        told = dict(metadata)
        if isinstance(told.get("name"), str):
            name = told["name"]
            told["name"] = namespace(name) if kind == NAMESPACE else _name(kind, name, group)
        if isinstance(told.get("namespace"), str):
            told["namespace"] = namespace(told["namespace"])
        if told.get("ownerReferences"):
            told["ownerReferences"] = [
                {**each, "apiVersion": _api_version(each["apiVersion"], group)}
                for each in told["ownerReferences"]
            ]
        new["metadata"] = told
    return new


def _api_version(spelled: str, group: Rename) -> str:
    place, slash, version = spelled.rpartition("/")
    return f"{group(place)}{slash}{version}"


class Translated:
    """A `Client` that says everything in other words."""

    def __init__(self, client: Client, words: Words) -> None:
        self._client = client
        self._words = words
        self.written: set[Kind] = set()
        """The kinds of which there may be objects now."""
        self.defined: set[Key] = set()
        """The definitions that a story has made."""

    async def get(self, kind: Kind, key: Key) -> Object:
        words = self._words
        return words.back(kind, await self._client.get(words.kind(kind), words.key(kind, key)))

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        words = self._words
        found = await self._client.list(words.kind(kind), words.namespace(namespace), labels)
        return Listing(
            [words.back(kind, obj) for obj in found.items if words.ours(obj)],
            found.resource_version,
        )

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        words = self._words
        events = self._client.watch(words.kind(kind), since, words.namespace(namespace))
        async with aclosing(events) as told:  # type: ignore[type-var]
            async for event in told:
                if event.type == "BOOKMARK" or words.ours(event.object):
                    yield WatchEvent(event.type, words.back(kind, event.object))

    async def create(self, kind: Kind, obj: Object) -> Object:
        words = self._words
        self.written.add(kind)
        made = await self._client.create(words.kind(kind), words.out(kind, obj))
        if kind == CRD:
            self.defined.add(key_of(obj))
        return words.back(kind, made)

    async def patch(self, change: Change) -> Object:
        words, kind = self._words, change.kind
        told = replace(
            change,
            kind=words.kind(kind),
            key=words.key(kind, change.key),
            patch=words.out(kind, change.patch),
        )
        return words.back(kind, await self._client.patch(told))

    async def delete(self, remove: Remove) -> None:
        words, kind = self._words, remove.kind
        told = replace(remove, kind=words.kind(kind), key=words.key(kind, remove.key))
        await self._client.delete(told)


class NamedCluster(Cluster):
    """The real cluster, for one story: with namespaces of its own."""

    patience = SECONDS

    def __init__(self, stay: "Stay", words: Words) -> None:
        self._stay = stay
        self._words = words

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Client]:
        async with self._stay.connected() as connected:
            client = Translated(connected, self._words)
            await client.create(NAMESPACE, {"metadata": {"name": "default"}})
            try:
                yield client
            finally:
                await _swept(client)

    def tell(self, story: Any) -> None:
        asyncio.run(asyncio.wait_for(story, 2 * SECONDS))


async def _swept(client: Translated) -> None:
    """Let go of all that a story has made; namespaces go with what is in them."""
    for definition in client.defined:
        with suppress(NotFound):
            await client.delete(Remove(kind=CRD, key=definition))
            # The next story may define it anew.
            while await client.get(CRD, definition):  # noqa: ASYNC110 - it is far away
                await asyncio.sleep(0.05)
    for kind in client.written - {CRD}:
        try:
            listing = await client.list(kind)
        except NotFound:
            continue  # the story has taken its definition away
        for obj in listing.items:
            if obj["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                await client.patch(Change(kind=kind, key=key_of(obj), patch=patch))
            if kind == NAMESPACE:
                await client.delete(Remove(kind=kind, key=key_of(obj)))


class Stay:
    """A run's stay at the real cluster."""

    def __init__(self, path: Path) -> None:
        self._access = kubeconfig.load(path)
        self.run = f"w{uuid.uuid4().hex[:7]}"
        self._numbers = count(1)
        self._words = Words(self.run, self.run)

    def connected(self) -> Any:
        """Connect for the length of a block, as whom the kubeconfig says."""
        return http.connect(self._access, component="tests")

    def cluster(self) -> NamedCluster:
        """Return the cluster for one more story."""
        return NamedCluster(
            self, dataclasses.replace(self._words, space=f"{self.run}-{next(self._numbers)}")
        )

    async def arrive(self) -> None:
        """Define all kinds, and wait until they are served."""
        async with self.connected() as client, asyncio.timeout(SECONDS):
            ours = Translated(client, self._words)
            made = [await ours.create(CRD, crd) for crd in loose()]
            for crd in made:
                await _served(client, self._words, crd)

    async def leave(self) -> None:
        """Take away all that was made here. Raises TimeoutError, with what will not go."""
        async with self.connected() as client:
            for crd in await self._left(client, CRD):
                await client.delete(Remove(kind=CRD, key=key_of(crd)))
            ends = asyncio.get_running_loop().time() + SECONDS
            while left := [
                f"{kind.plural}/{obj['metadata']['name']}"
                for kind in (NAMESPACE, CRD)
                for obj in await self._left(client, kind)
            ]:
                if asyncio.get_running_loop().time() > ends:
                    raise TimeoutError(f"{', '.join(left)} will not go")
                await asyncio.sleep(0.2)

    async def _left(self, client: Client, kind: Kind) -> list[Object]:
        """Return the objects of ours that are there: their names say it."""
        listing = await client.list(kind)
        return [obj for obj in listing.items if self.run in obj["metadata"]["name"]]


async def _served(client: HttpClient, words: Words, crd: Object) -> None:
    resource = from_crd(crd)
    for version in resource.versions:
        while True:
            try:
                await client.list(words.kind(resource.kind(version)), "default")
                break
            except NotFound:
                await asyncio.sleep(0.05)
