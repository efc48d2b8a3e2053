"""The client port onto a store of this process: no network, no copies, the same promises."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.client import Event, Listing
from warren.kube.server.store import Store


class LocalClient:
    """A `Client` of a `Store`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, kind: Kind, key: Key) -> Object:
        return self._store.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        return self._store.list(kind, namespace, labels)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[Event]:
        watch = self._store.watch(kind, since, namespace)
        async with aclosing(watch) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._store.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        return await self._store.patch(change)

    async def delete(self, remove: Remove) -> None:
        await self._store.delete(remove)
