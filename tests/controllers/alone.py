"""One reconciler alone: a store, informers that may lag behind it, and what was asked of it."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from tests.harness import virtual
from tests.kube.clusters import alongside, stored
from warren.base.errors import WarrenError
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.daemons.rungroup import INDEXES
from warren.dws import labels
from warren.dws.objects.meta import Meta
from warren.kube.client import Client, Listing, WatchEvent
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store

WORKFLOW: Final = {
    labels.WORKFLOW_NAME: "wf",
    labels.WORKFLOW_NAMESPACE: "default",
    labels.WORKFLOW_UID: "uid-wf",
}


Hidden = Collection[Kind | tuple[Kind, Key]]


class _Watched:
    """What informers have: a client that lags, to which kinds are empty, or objects not there."""

    def __init__(self, client: Client, hidden: Hidden) -> None:
        self._client = client
        self._hidden = hidden

    async def list(self, kind: Kind, namespace: str = "", labels: Any = None) -> Listing:
        found = await self._client.list(kind, namespace, labels)
        return Listing(
            [each for each in found.items if self._sees(kind, each)], found.resource_version
        )

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        if kind in self._hidden:
            await asyncio.Event().wait()
        async for event in self._client.watch(kind, since, namespace):
            if self._sees(kind, event.object):
                yield event

    def _sees(self, kind: Kind, obj: Object) -> bool:
        return kind not in self._hidden and (kind, key_of(obj)) not in self._hidden


class Api(LocalClient):
    """The client of a reconciler. Notes what it is asked, and raises what it is told to."""

    def __init__(self, store: Store, hidden: Hidden) -> None:
        super().__init__(store)
        self.store = store
        self.clock = virtual.VirtualClock()
        self.asked: list[tuple[str, Kind]] = []
        """What was read past the informers."""
        self.written: list[tuple[str, Kind, Key]] = []
        self.refusals: dict[tuple[str, Kind], WarrenError] = {}
        """What to raise for a verb on a kind, once."""
        self.informers = Informers(
            _Watched(LocalClient(store), hidden),  # type: ignore[arg-type]
            indexes=INDEXES,
        )

    # The client

    async def get(self, kind: Kind, key: Key) -> Object:
        self.asked.append(("get", kind))
        self._refuse("get", kind)
        return await super().get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        self.asked.append(("list", kind))
        self._refuse("list", kind)
        return await super().list(kind, namespace, labels)

    async def create(self, kind: Kind, obj: Object) -> Object:
        self.written.append(("create", kind, key_of(obj)))
        self._refuse("create", kind)
        return await super().create(kind, obj)

    async def patch(self, change: Change) -> Object:
        self.written.append(("status" if change.status else "patch", change.kind, change.key))
        self._refuse("patch", change.kind)
        return await super().patch(change)

    async def delete(self, remove: Remove) -> None:
        self.written.append(("delete", remove.kind, remove.key))
        await super().delete(remove)

    def _refuse(self, verb: str, kind: Kind) -> None:
        refusal = self.refusals.pop((verb, kind), None)
        if refusal is not None:
            raise refusal

    # What others do

    async def add(self, kind: Kind, obj: Object) -> Object:
        """Make an object with its status; with a deletionTimestamp, it is on its way out."""
        metadata = {k: v for k, v in obj["metadata"].items() if k != "deletionTimestamp"}
        metadata.pop("resourceVersion", None)
        await self.store.create(kind, {**obj, "metadata": metadata})
        if obj.get("status"):
            status = {"status": obj["status"]}
            await self.store.patch(Change(kind=kind, key=key_of(obj), patch=status, status=True))
        if obj["metadata"].get("deletionTimestamp"):
            await self.store.delete(Remove(kind=kind, key=key_of(obj)))
        await caught_up()
        return self.store.get(kind, key_of(obj))

    async def change(self, kind: Kind, key: Key, patch: Object, *, status: bool = False) -> None:
        await self.store.patch(Change(kind=kind, key=key, patch=patch, status=status))
        await caught_up()

    async def remove(self, kind: Kind, key: Key) -> None:
        await self.store.delete(Remove(kind=kind, key=key))
        await caught_up()

    # What is there

    def find(self, kind: Kind, key: Key) -> Any:
        """Return an object; None if there is none."""
        return next((obj for obj in self.store.objects_of(kind) if key_of(obj) == key), None)

    def keys(self, kind: Kind) -> Sequence[str]:
        return sorted(str(key_of(obj)) for obj in self.store.objects_of(kind))


async def caught_up() -> None:
    """Return when informers have heard of all that was written."""
    await asyncio.sleep(1)


class Counting:
    """Notes the reconciles that a reconciler has made."""

    def __init__(self, passes: list[Any]) -> None:
        self._passes = passes

    def waited(self, seconds: float) -> None: ...

    def reconciled(self, outcome: Any, seconds: float) -> None:
        self._passes.append(outcome)


def alone(
    story: Callable[[Api], Awaitable[None]],
    *,
    hidden: Hidden = (),
) -> None:
    """Tell a story of an API whose informers never see what is `hidden`, on virtual time."""

    async def main() -> None:
        async with opened(hidden) as api:
            await story(api)

    virtual.run(main())


@asynccontextmanager
async def opened(hidden: Hidden = ()) -> AsyncIterator[Api]:
    async with stored() as store:
        yield Api(store, hidden)


@asynccontextmanager
async def informed(api: Api) -> AsyncIterator[None]:
    """Run the informers that a reconciler has asked for."""
    async with alongside(api.informers.run()):
        await api.informers.wait_synced()
        await caught_up()
        yield


@asynccontextmanager
async def running(api: Api, *parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run what a reconciler consists of, and the informers that it has asked for."""
    async with informed(api), AsyncExitStack() as stack:
        for part in parts:
            await stack.enter_async_context(alongside(part))
        await caught_up()
        yield


def owned_by(kind: Kind, name: str, uid: str | None = None) -> dict[str, str]:
    """Return the labels of what an object of the Workflow owns in other namespaces."""
    meta = Meta(name=name, namespace="default", uid=uid or f"uid-{name}")
    return {**WORKFLOW, **labels.of_owner(kind, meta)}
