"""PersistentStorageInstances (decided in `dws.persistent`)."""

from functools import partial
from typing import Final, TypeVar

from warren.base.clock import Clock
from warren.base.objects import Key, Kind, Object, key_of
from warren.controllers.live import REQUEUE_DELAY, read_live
from warren.dws import kinds
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta, Reference
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.persistent import instances
from warren.dws.persistent.instances import InstanceSnapshot
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

T = TypeVar("T")

DEPENDENT_KINDS: Final = (kinds.SERVERS, kinds.NNF_STORAGE, kinds.NNF_STORAGE_PROFILE)
"""The kinds of what is made for an instance: an object of each, with its name."""

_MAX_DELAY: Final = 3600.0
"""Seconds after which it is looked at again when an instance expires: clocks are set."""


class InstanceReader:
    """Reads instances with their dependents: as they were seen, or as the API has them now."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = {
            kind: informers.of(kind) for kind in (kinds.PERSISTENT_INSTANCE, *DEPENDENT_KINDS)
        }

    def read_cached(self, key: Key) -> InstanceSnapshot | None:
        """Return an instance as it was seen, and None where none was."""
        return _instance_snapshot({kind: each.get(key) for kind, each in self._informers.items()})

    async def read_live(self, key: Key) -> InstanceSnapshot | None:
        """Return an instance as it is, and None where there is none."""
        objects = {
            kinds.PERSISTENT_INSTANCE: await read_live(self._client, kinds.PERSISTENT_INSTANCE, key)
        }
        if objects[kinds.PERSISTENT_INSTANCE] is not None:
            objects |= {kind: await read_live(self._client, kind, key) for kind in DEPENDENT_KINDS}
        return _instance_snapshot(objects)


def _instance_snapshot(objects: dict[Kind, Object | None]) -> InstanceSnapshot | None:
    raw, profile = objects[kinds.PERSISTENT_INSTANCE], objects.get(kinds.NNF_STORAGE_PROFILE)
    if raw is None:
        return None

    def dependent(kind: Kind, type_: type[T]) -> T | None:
        obj = objects.get(kind)
        return None if obj is None else read(obj, type_)

    return InstanceSnapshot(
        object=read(raw, PersistentStorageInstance),
        servers=dependent(kinds.SERVERS, Servers),
        storage=dependent(kinds.NNF_STORAGE, NnfStorage),
        profile=None if profile is None else read(profile["metadata"], Meta),
    )


class PersistentController:
    """Reconciles every PersistentStorageInstance."""

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, max_lifetime: float | None = None
    ) -> None:
        """`max_lifetime` is for how many seconds an instance is kept; None is without end."""
        self._client = client
        self._clock = clock
        self._max_lifetime = max_lifetime
        self._instances = informers.of(kinds.PERSISTENT_INSTANCE)
        self._consumers = {kind: informers.of(kind) for kind in (kinds.WORKFLOW, kinds.NNF_STORAGE)}
        self._reader = InstanceReader(client, informers)
        self.reconciler: Reconciler[Key] = Reconciler("persistent", self.reconcile)
        self._instances.listen(lambda obj: self.reconciler.add(key_of(obj)))
        for kind in self._consumers:
            self._consumers[kind].listen(partial(self._consumer_changed, kind))
        for kind in DEPENDENT_KINDS:
            informers.of(kind).listen(self._dependent_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a PersistentStorageInstance."""
        snapshot = self._reader.read_cached(key)
        if snapshot is None:
            return None
        lost_consumers = await self._lost_consumers(snapshot.object)
        if lost_consumers:
            await perform(
                self._client,
                [instances.change_to_remove_consumers(snapshot.object, lost_consumers)],
            )
            return None
        expiry_changes, seconds_to_expiry = instances.decide_expiry(
            snapshot.object, self._clock.now(), self._max_lifetime
        )
        if expiry_changes:
            await perform(self._client, expiry_changes)
            return None
        delay = None if seconds_to_expiry is None else min(seconds_to_expiry, _MAX_DELAY)
        if instances.is_about_to_go(snapshot):
            # About to let go: what was just made may not have been seen yet.
            snapshot = await self._reader.read_live(key)
            if snapshot is None:
                return None
            delay = REQUEUE_DELAY if snapshot.dependents else None
        await perform(self._client, instances.decide(snapshot))
        return delay

    async def _lost_consumers(self, obj: PersistentStorageInstance) -> list[Reference]:
        """Return the consumers that are gone.

        A consumer takes itself off before it goes. One is left over when the request that adds it
        arrives late, after its maker has given it up, or is not seen yet by what takes it off.
        """
        lost = []
        for each in obj.spec.consumer_references:
            consumer = instances.consumer_of(each)
            if consumer is None or self._consumers[consumer[0]].get(consumer[1]) is not None:
                continue
            try:
                await self._client.get(*consumer)
            except NotFound:
                lost.append(each)
        return lost

    def _consumer_changed(self, kind: Kind, obj: Object) -> None:
        key = key_of(obj)
        if self._consumers[kind].get(key) is None:
            for each in self._instances.by_index(
                "consumer", instances.consumer_index_key(kind, key)
            ):
                self.reconciler.add(key_of(each))

    def _dependent_changed(self, obj: Object) -> None:
        # By name, whatever owns it: that a name is free again is an event, too.
        if self._instances.get(key_of(obj)) is not None:
            self.reconciler.add(key_of(obj))
