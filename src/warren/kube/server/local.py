"""The `Client` protocol on a store of this process: no network, no copies, the same promises."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, closing

from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.client import Listing, NotFound, WatchEvent
from warren.kube.server.builtin import POD
from warren.kube.server.logs import PodLogSource, check_started, container_of
from warren.kube.server.store import Store
from warren.kube.server.writing import WriteOptions


class LocalClient:
    """A `Client` of a `Store`, and a `LogReader` of what pods have printed, if that is here."""

    def __init__(self, store: Store, pod_logs: PodLogSource | None = None) -> None:
        self._store = store
        self._pod_logs = pod_logs

    async def get(self, kind: Kind, key: Key) -> Object:
        return self._store.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        return self._store.list(kind, namespace, labels)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        watch = self._store.watch(kind, since, namespace)
        async with aclosing(watch) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def log(self, pod: Key, container: str, lines: int) -> AsyncIterator[bytes]:
        obj = self._store.get(POD, pod)
        check_started(obj, container_of(obj, container))
        if self._pod_logs is None:
            raise NotFound("what pods print is not kept by this cluster")
        with closing(self._pod_logs.open(obj, container, lines)) as log:
            while piece := await log.read():
                yield piece

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._store.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        return await self._store.patch(change)

    async def delete(self, remove: Remove) -> None:
        await self._store.delete(remove, WriteOptions(uid=remove.uid))
