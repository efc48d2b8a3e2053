"""NnfNodeStorages, on their rabbit; and the NnfNode, by which the rabbit reports itself."""

import asyncio
from typing import Final

from warren.base.objects import Change, Create, Key, Object, key_of
from warren.controllers.localnode import LocalNode
from warren.controllers.profilecommands import commands_of
from warren.controllers.users import user_getter
from warren.dws import kinds, labels, reports
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import InUse, Kept, LustreTarget, NodeTrouble, Volume, raise_in_use
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.dws.objects.storages import NnfNode
from warren.dws.rabbits import rabbitstorages
from warren.dws.storage.nnfstorage import health, volume_group_and_name, volume_size
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import RECONCILE_SECONDS, Reconciler

_PROBE_SECONDS: Final = 60.0
"""Seconds after which a rabbit looks again whether its flash can be used."""

WORKERS: Final = 16
"""Shares of one user that are worked on at a time, so that a few whose commands hang hold up no
others. One costs 2 KiB; but all volumes of each are made at a time, and wait for the lock of their
disk, for so long. There are as many workers again, of which other users find one free."""

_BLOCK_WORKERS: Final = 4
"""Records of flash that are let go of at a time: a request each."""


class _GivenUp(Exception):
    """What was being made is to be deleted."""


class NodeStorageReconciler:
    """Makes one rabbit's volumes what its NnfNodeStorages say."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        local_node: LocalNode,
        rabbit: str,
        *,
        over_network: bool = False,
        timeout: float = RECONCILE_SECONDS,
    ) -> None:
        """`over_network` says that compute nodes reach its volumes so.

        `timeout` is in seconds: more than the commands take that make and release volumes, and
        those that tell what the rabbit has.
        """
        self._client = client
        self._local_node = local_node
        self._rabbit = rabbit
        self._over_network = over_network
        self._shares = informers.of(kinds.NNF_NODE_STORAGE)
        self._block_storages = informers.of(kinds.NNF_NODE_BLOCK_STORAGE)
        self._nnf_nodes = informers.of(kinds.NNF_NODE)
        self.reconciler: Reconciler[Key] = Reconciler(
            "node storage",
            self.reconcile,
            workers=WORKERS,
            timeout=timeout,
            user=user_getter(self._shares),
        )
        self.block_reconciler: Reconciler[Key] = Reconciler(
            "node block storage", self.reconcile_block, workers=_BLOCK_WORKERS
        )
        self.nnf_node_reconciler: Reconciler[Key] = Reconciler(
            "rabbit node", self.reconcile_nnf_node, workers=1, timeout=timeout
        )
        self._making: dict[Key, asyncio.Future[NodeTrouble | None]] = {}
        self._shares.listen(self._share_changed)
        self._block_storages.listen(self._block_changed)
        self._nnf_nodes.listen(lambda obj: self.nnf_node_reconciler.add(key_of(obj)))
        self.nnf_node_reconciler.add(Key(rabbit, rabbitstorages.NNF_NODE_NAME))

    async def reconcile_nnf_node(self, key: Key) -> float | None:
        """Reconcile the NnfNode: what the rabbit has, and ever again whether that can be used."""
        raw = self._nnf_nodes.get(key)
        if raw is None:
            metadata = {
                field: {name: value for name, value in values.items() if value is not None}
                for field, values in (await self._metadata()).items()
            }
            node = {
                "metadata": {"name": key.name, "namespace": key.namespace, **metadata},
                "spec": {"name": self._rabbit, "pod": self._rabbit, "state": "Enable"},
            }
            await perform(self._client, [Create(kind=kinds.NNF_NODE, object=node)])
            return None
        current = read(raw, NnfNode)
        wanted: dict[str, dict[str, str | None]] = {}
        failure, status = None, None
        try:
            wanted = await self._metadata()
            capacity, nid = await self._local_node.capacity(), await self._local_node.lnet_nid()
            status = rabbitstorages.ready_status(self._rabbit, capacity, current.status, nid)
        except NodeTrouble as trouble:
            failure = str(trouble)
            status = rabbitstorages.failed_status(current.status)
        # First the reason: what it is the reason for is not seen without.
        wanted = {
            **wanted,
            "annotations": {**wanted.get("annotations", {}), labels.FAILURE: failure},
        }
        current_metadata = {
            "labels": current.metadata.labels,
            "annotations": current.metadata.annotations,
        }
        changed = {
            field: values
            for field, values in wanted.items()
            if any(current_metadata[field].get(name) != value for name, value in values.items())
        }
        if changed:
            change = Change(
                kind=kinds.NNF_NODE,
                key=key,
                patch={"metadata": changed},
                resource_version=current.metadata.resource_version,
            )
            await perform(self._client, [change])
            return None
        if status is not None:
            change = reports.status(kinds.NNF_NODE, current.metadata, status)
            await perform(self._client, [change])
            return None
        return _PROBE_SECONDS

    async def _metadata(self) -> dict[str, dict[str, str | None]]:
        """Return the labels and annotations of the rabbit's NnfNode. Raises NodeTrouble."""
        return {
            "labels": {labels.RAW_VOLUMES: await self._local_node.raw_volume_access()},
            "annotations": {
                labels.UNSUPPORTED_TYPES: rabbitstorages.encode_unsupported_types(
                    await self._local_node.unsupported_types()
                ),
                labels.NETWORK: "true" if self._over_network else None,
            },
        }

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfNodeStorage, and the NnfNodeBlockStorage of the same name."""
        raw_share, raw_block = self._shares.get(key), self._block_storages.get(key)
        block = None if raw_block is None else read(raw_block, NnfNodeBlockStorage)
        if raw_share is None:
            return None  # what it had is released, and its record is another reconciler's
        current = read(raw_share, NnfNodeStorage)
        if current.metadata.deleting:
            return await self._finalize(current)
        if current.spec.block_reference is not None and (block is None or block.metadata.deleting):
            return None  # its size is not known yet, or it is about to go: an event of either comes
        try:
            trouble = await self._make_unless_deleted(current, block)
        except _GivenUp:
            return None
        await self._report_block(block, trouble)
        await self._report(current, trouble)
        if trouble is not None and not trouble.fatal:
            raise trouble
        return None

    async def reconcile_block(self, key: Key) -> float | None:
        """Reconcile an NnfNodeBlockStorage whose share is gone.

        It waits for no volumes: not for those of its user, nor for those of others.
        """
        raw_block = self._block_storages.get(key)
        if raw_block is not None and self._shares.get(key) is None:
            await self._finalize_block(read(raw_block, NnfNodeBlockStorage))
        return None

    async def _finalize(self, current: NnfNodeStorage) -> float | None:
        # First the flash, then the record of it: an agent that dies in between leaves the
        # record behind, and the next reconcile releases once more, which is harmless.
        try:
            commands = _commands(current)
            in_use: list[NodeTrouble] = []
            for number in range(current.spec.count):
                # All wait at the same time, and not one after the other.
                try:
                    await self._local_node.release(
                        *volume_group_and_name(current, number), commands
                    )
                except (InUse, Kept) as trouble:
                    in_use.append(trouble)
            raise_in_use(in_use)
        except InUse as trouble:
            await self._report(current, trouble)
            return trouble.delay
        except NodeTrouble as trouble:
            await self._report(current, trouble)
            raise
        change = reports.remove_finalizer(
            kinds.NNF_NODE_STORAGE, current.metadata, labels.NODE_STORAGE_FINALIZER
        )
        await perform(self._client, [change])
        return None

    async def _finalize_block(self, block: NnfNodeBlockStorage) -> None:
        """Let go of a record of flash, whose volumes have none any more."""
        own_finalizers = {labels.NODE_BLOCK_STORAGE_FINALIZER, labels.NODE_STORAGE_FINALIZER}
        if block.metadata.deleting and own_finalizers & {*block.metadata.finalizers}:
            other_finalizers = [
                each for each in block.metadata.finalizers if each not in own_finalizers
            ]
            change = Change(
                kind=kinds.NNF_NODE_BLOCK_STORAGE,
                key=block.metadata.key,
                patch={"metadata": {"finalizers": other_finalizers}},
                resource_version=block.metadata.resource_version,
            )
            await perform(self._client, [change])

    async def _report_block(
        self, block: NnfNodeBlockStorage | None, trouble: NodeTrouble | None
    ) -> None:
        if block is None or block.status.ready or trouble is not None:
            return
        allocations = [{"capacityAllocated": each.capacity} for each in block.spec.allocations]
        status: Object = {"ready": True, "allocations": allocations}
        change = reports.status(kinds.NNF_NODE_BLOCK_STORAGE, block.metadata, status)
        await perform(self._client, [change])

    def _share_changed(self, obj: Object) -> None:
        key = key_of(obj)
        if obj["metadata"].get("deletionTimestamp") and key in self._making:
            self._making[key].cancel()
        self._enqueue(key)

    def _block_changed(self, obj: Object) -> None:
        # What is ready has nothing new for a rabbit, which would look at its volumes for nothing.
        is_deleting = "deletionTimestamp" in obj["metadata"]
        if is_deleting or not obj.get("status", {}).get("ready"):
            self._enqueue(key_of(obj))

    def _enqueue(self, key: Key) -> None:
        is_record_alone = self._shares.get(key) is None
        (self.block_reconciler if is_record_alone else self.reconciler).add(key)

    async def _make_unless_deleted(
        self, current: NnfNodeStorage, block: NnfNodeBlockStorage | None
    ) -> NodeTrouble | None:
        """Make the volumes. Raises _GivenUp once they are not wanted: mkfs may take its time."""
        key = current.metadata.key
        making = self._making[key] = asyncio.ensure_future(self._make(current, block))
        try:
            return await making
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _GivenUp from None
        finally:
            del self._making[key]

    async def _make(
        self, current: NnfNodeStorage, block: NnfNodeBlockStorage | None
    ) -> NodeTrouble | None:
        """Make the volumes, all at a time; return the gravest trouble."""
        try:
            volumes = [_volume(current, block, number) for number in range(current.spec.count)]
        except NodeTrouble as trouble:
            return trouble
        results = await asyncio.gather(
            *(self._local_node.make(volume) for volume in volumes),
            return_exceptions=True,
        )
        troubles = []
        for result in results:
            if isinstance(result, NodeTrouble):
                troubles.append(result)
            elif result is not None:
                raise result
        return max(troubles, key=lambda trouble: trouble.fatal, default=None)

    async def _report(self, current: NnfNodeStorage, trouble: NodeTrouble | None) -> None:
        error = trouble.as_error() if trouble is not None else None
        ready = trouble is None
        if (error is not None or current.status.ready) and reports.same_error(
            current.status.error, error
        ):
            return
        state = health(None if error is None else error["severity"])
        allocation = {"ready": ready, "health": state}
        status: Object = {
            "ready": ready,
            "health": state,
            "allocations": [allocation] * current.spec.count,
            "error": error,
        }
        change = reports.status(kinds.NNF_NODE_STORAGE, current.metadata, status)
        await perform(self._client, [change])


def _commands(share: NnfNodeStorage) -> ProfileCommands:
    """Return what the profile has the rabbit run. Raises NodeTrouble."""
    return commands_of(share.metadata).outside("computeCommands")


def _volume(share: NnfNodeStorage, block: NnfNodeBlockStorage | None, number: int) -> Volume:
    rabbit, name = volume_group_and_name(share, number)
    targets = share.spec.lustre_storage
    return Volume(
        rabbit=rabbit,
        name=name,
        size=volume_size(share, block, number),
        file_system=share.spec.file_system_type,
        userid=share.spec.user_id,
        groupid=share.spec.group_id,
        commands=_commands(share),
        target=None
        if targets is None
        else LustreTarget(
            kind=targets.target_type,
            index=targets.start_index + number,
            file_system_name=targets.file_system_name,
            mgs_address=targets.mgs_address,
            back_fs=targets.back_fs,
        ),
    )
