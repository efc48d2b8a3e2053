"""A local copy of the objects of one kind, kept up to date by a watch."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing

import structlog

from warren.base.errors import Retryable
from warren.base.objects import Key, Kind, Object, key_of
from warren.kube.client import Client

log = structlog.get_logger()

Listener = Callable[[Object], None]
"""Told of every object that was added, changed or deleted, in its last known form."""

Indexer = Callable[[Object], Iterable[str]]
"""Gives the values under which an index files an object."""


class Informer:
    """The objects of one kind in one namespace, or in all.

    Lists, watches, and lists again after a gap; what vanished during a gap is
    noticed. `run` lives until cancelled.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str = "",
        indexes: Mapping[str, Indexer] | None = None,
    ) -> None:
        self.kind = kind
        self._client = client
        self._namespace = namespace
        self._objects: dict[Key, Object] = {}
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in self._indexers}
        self._listeners: list[Listener] = []
        self._synced = asyncio.Event()

    def listen(self, listener: Listener) -> None:
        """Tell `listener` of every change from now on, and of what is known already."""
        self._listeners.append(listener)
        for obj in self._objects.values():
            listener(obj)

    async def wait_synced(self) -> None:
        """Return once the first list is complete."""
        await self._synced.wait()

    def get(self, key: Key) -> Object | None:
        """Give an object, as of now."""
        return self._objects.get(key)

    def all(self) -> list[Object]:
        """Give all objects, as of now."""
        return list(self._objects.values())

    def keys(self) -> list[Key]:
        """Give the keys of all objects, as of now."""
        return list(self._objects)

    def by(self, index: str, value: str) -> list[Object]:
        """Give the objects that an index files under `value`, in the order of their keys."""
        return [self._objects[key] for key in sorted(self._indexes[index].get(value, ()))]

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        while True:
            try:
                await self._follow()
            except Retryable as error:
                log.info("watch begins again", kind=self.kind.plural, reason=str(error))
                await asyncio.sleep(error.delay)

    async def _follow(self) -> None:
        listing = await self._client.list(self.kind, self._namespace)
        fresh = {key_of(obj): obj for obj in listing.items}
        for key in [key for key in self._objects if key not in fresh]:
            self._forget(key, self._objects[key])
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is None or _version(known) != _version(obj):
                self._remember(key, obj)
        self._synced.set()
        version = listing.version
        while True:
            watch = self._client.watch(self.kind, version, self._namespace)
            async with aclosing(watch) as events:  # type: ignore[type-var]
                async for event in events:
                    version = _version(event.object)
                    if event.type == "BOOKMARK":
                        continue
                    key = key_of(event.object)
                    if event.type == "DELETED":
                        self._forget(key, event.object)
                    else:
                        self._remember(key, event.object)

    def _remember(self, key: Key, obj: Object) -> None:
        self._file(key, self._objects.get(key), obj)
        self._objects[key] = obj
        self._tell(obj)

    def _forget(self, key: Key, obj: Object) -> None:
        self._file(key, self._objects.pop(key, None), None)
        self._tell(obj)

    def _file(self, key: Key, before: Object | None, after: Object | None) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in set(indexer(before)) if before is not None else ():
                index[value].discard(key)
                if not index[value]:
                    del index[value]
            for value in set(indexer(after)) if after is not None else ():
                index.setdefault(value, set()).add(key)

    def _tell(self, obj: Object) -> None:
        for listener in self._listeners:
            listener(obj)


def _version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))


class Informers:
    """One informer a kind, shared by all who read that kind from one client."""

    def __init__(
        self, client: Client, namespace: str = "", indexes: Mapping[str, Indexer] | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._indexes = indexes
        self._informers: dict[Kind, Informer] = {}

    def of(self, kind: Kind) -> Informer:
        """Give the informer of a kind."""
        if kind not in self._informers:
            self._informers[kind] = Informer(self._client, kind, self._namespace, self._indexes)
        return self._informers[kind]

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as running:
            for informer in self._informers.values():
                running.create_task(informer.run(), name=f"informer {informer.kind.plural}")

    async def wait_synced(self) -> None:
        """Return once every informer is complete."""
        for informer in self._informers.values():
            await informer.wait_synced()
