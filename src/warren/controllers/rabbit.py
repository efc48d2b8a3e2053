"""NnfNodeStorages, on their rabbit; and the rabbit's own word, its NnfNode."""

import asyncio

from warren.base.objects import Change, Create, Key, Object, key_of
from warren.controllers.machine import Machine
from warren.dws import kinds, labels, system
from warren.dws.node import NodeTrouble, Volume
from warren.dws.objects import NnfNode, NnfNodeStorage, read
from warren.dws.storage import volume
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class _GivenUp(Exception):
    """What was being made is to be deleted."""


class RabbitReconciler:
    """Makes one rabbit's volumes what its NnfNodeStorages say."""

    def __init__(self, client: Client, informers: Informers, machine: Machine, rabbit: str) -> None:
        self._client = client
        self._machine = machine
        self._rabbit = rabbit
        self._shares = informers.of(kinds.NNF_NODE_STORAGE)
        self._nodes = informers.of(kinds.NNF_NODE)
        self.reconciler: Reconciler[Key] = Reconciler("rabbit", self.reconcile)
        self.announcer: Reconciler[Key] = Reconciler("rabbit node", self.announce, workers=1)
        self._making: dict[Key, asyncio.Future[NodeTrouble | None]] = {}
        self._shares.listen(self._share_changed)
        self._nodes.listen(lambda obj: self.announcer.add(key_of(obj)))
        self.announcer.add(Key(rabbit, system.NODE_NAME))

    async def announce(self, key: Key) -> float | None:
        """Say that the rabbit is here, and what it has."""
        raw = self._nodes.get(key)
        carried = {labels.RAW_VOLUMES: await self._machine.raw_volumes()}
        if raw is None:
            node = {
                "metadata": {"name": key.name, "namespace": key.namespace, "labels": carried},
                "spec": {"name": self._rabbit, "pod": self._rabbit, "state": "Enable"},
            }
            await perform(self._client, [Create(kind=kinds.NNF_NODE, object=node)])
            return None
        seen = read(raw, NnfNode)
        if seen.metadata.labels.get(labels.RAW_VOLUMES) != carried[labels.RAW_VOLUMES]:
            change = Change(
                kind=kinds.NNF_NODE,
                key=key,
                patch={"metadata": {"labels": carried}},
                seen=seen.metadata.resource_version,
            )
            await perform(self._client, [change])
            return None
        capacity = await self._machine.capacity()
        if (seen.status.status, seen.status.capacity) != ("Ready", capacity):
            status = {"status": "Ready", "health": "OK", "capacity": capacity}
            change = Change(
                kind=kinds.NNF_NODE,
                key=key,
                patch={"status": status},
                seen=seen.metadata.resource_version,
                status=True,
            )
            await perform(self._client, [change])
        return None

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over an NnfNodeStorage."""
        raw = self._shares.get(key)
        if raw is None:
            return None
        seen = read(raw, NnfNodeStorage)
        if seen.metadata.deleting:
            await self._give_back(seen)
            return None
        try:
            trouble = await self._make_unless_deleted(seen)
        except _GivenUp:
            return None
        await self._report(seen, trouble)
        if trouble is not None and not trouble.fatal:
            raise trouble
        return None

    async def _give_back(self, seen: NnfNodeStorage) -> None:
        # First the flash, then the record of it: whoever dies in between leaves the
        # record behind, and the next pass releases once more, which is harmless.
        try:
            for number in range(seen.spec.count):
                await self._machine.release(*volume(seen, number))
        except NodeTrouble as trouble:
            await self._report(seen, trouble)
            raise
        await self._write(seen, labels.finalized(seen.metadata, labels.NODE_STORAGE_FINALIZER))

    def _share_changed(self, obj: Object) -> None:
        key = key_of(obj)
        if obj["metadata"].get("deletionTimestamp") and key in self._making:
            self._making[key].cancel()
        self.reconciler.add(key)

    async def _make_unless_deleted(self, seen: NnfNodeStorage) -> NodeTrouble | None:
        """Make the volumes. Raises _GivenUp once nobody wants them: mkfs may take its time."""
        key = seen.metadata.key
        making = self._making[key] = asyncio.ensure_future(self._make(seen))
        try:
            return await making
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _GivenUp from None
        finally:
            del self._making[key]

    async def _make(self, seen: NnfNodeStorage) -> NodeTrouble | None:
        """Make the volumes, all at a time; return the gravest trouble."""
        made = await asyncio.gather(
            *(self._machine.make(_volume(seen, number)) for number in range(seen.spec.count)),
            return_exceptions=True,
        )
        troubles = []
        for result in made:
            if isinstance(result, NodeTrouble):
                troubles.append(result)
            elif result is not None:
                raise result
        return max(troubles, key=lambda trouble: trouble.fatal, default=None)

    async def _report(self, seen: NnfNodeStorage, trouble: NodeTrouble | None) -> None:
        known = seen.status.error
        if trouble is None and seen.status.ready and known is None:
            return
        if trouble is not None and known is not None and known.debug_message == str(trouble):
            return
        error = trouble.as_status() if trouble is not None else None
        ready = trouble is None
        allocations = [{"ready": ready} for _ in range(seen.spec.count)]
        status = {"ready": ready, "allocations": allocations, "error": error}
        await self._write(seen, {"status": status}, status=True)

    async def _write(self, seen: NnfNodeStorage, patch: Object, *, status: bool = False) -> None:
        change = Change(
            kind=kinds.NNF_NODE_STORAGE,
            key=seen.metadata.key,
            patch=patch,
            seen=seen.metadata.resource_version,
            status=status,
        )
        await perform(self._client, [change])


def _volume(share: NnfNodeStorage, number: int) -> Volume:
    group, name = volume(share, number)
    return Volume(
        group=group,
        name=name,
        size=share.spec.capacity,
        file_system=share.spec.file_system_type,
        userid=share.spec.user_id,
        groupid=share.spec.group_id,
    )
