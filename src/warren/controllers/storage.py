"""NnfStorages: shares on rabbits, and what the Servers say of them (decided in `dws.storage`)."""

from warren.base.clock import Clock
from warren.base.objects import Key, Object, Write, key_of
from warren.controllers.live import REQUEUE_DELAY, orphans
from warren.dws import kinds, labels, reports, servers, storage
from warren.dws.objects import (
    NnfNodeBlockStorage,
    NnfNodeStorage,
    NnfStorage,
    NnfStorageProfile,
    Servers,
    read,
)
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class StorageController:
    """Reconciles every NnfStorage, and the status of the Servers of the same name."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._storages = informers.of(kinds.NNF_STORAGE)
        self._node_storages = informers.of(kinds.NNF_NODE_STORAGE)
        self._blocks = informers.of(kinds.NNF_NODE_BLOCK_STORAGE)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self._servers = informers.of(kinds.SERVERS)
        self.reconciler: Reconciler[Key] = Reconciler("storage", self.reconcile)
        self._storages.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._node_storages.listen(self._node_storage_changed)
        self._blocks.listen(self._node_storage_changed)
        self._servers.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfStorage."""
        again = None
        raw = self._storages.get(key)
        owner = f"{kinds.NNF_STORAGE.name} {key}"
        found = self._node_storages.by("owner", owner)
        blocks = self._blocks.by("owner", owner)
        if raw is None:
            gone = [
                removal
                for kind, objects in (
                    (kinds.NNF_NODE_STORAGE, found),
                    (kinds.NNF_NODE_BLOCK_STORAGE, blocks),
                )
                for removal in await orphans(self._client, kinds.NNF_STORAGE, key, kind, objects)
            ]
            released = await self._released(key)
            await perform(self._client, [*gone, *released, *self._report_assigned(key)])
        else:
            current = read(raw, NnfStorage)
            if current.metadata.deleting and not (found or blocks):
                # About to let go: a share that was just made may not have been seen yet.
                own = labels.of_owner(kinds.NNF_STORAGE, current.metadata)
                found = (await self._client.list(kinds.NNF_NODE_STORAGE, labels=own)).items
                blocks = (await self._client.list(kinds.NNF_NODE_BLOCK_STORAGE, labels=own)).items
                again = REQUEUE_DELAY if found or blocks else None
            node_storages = [read(obj, NnfNodeStorage) for obj in found]
            writes = [
                *storage.decide(
                    current,
                    node_storages,
                    [read(obj, NnfNodeBlockStorage) for obj in blocks],
                    self._profile(current),
                ),
                *self._report(current, node_storages),
            ]
            await perform(self._client, writes)
        return again

    def _profile(self, current: NnfStorage) -> NnfStorageProfile | None:
        """Return the profile that was pinned for a storage, if one was."""
        carried = current.metadata.labels
        if labels.PINNED_PROFILE_NAME not in carried:
            return None
        namespace = carried.get(labels.PINNED_PROFILE_NAMESPACE, current.metadata.namespace)
        raw = self._profiles.get(Key(namespace, carried[labels.PINNED_PROFILE_NAME]))
        return None if raw is None else read(raw, NnfStorageProfile)

    async def _released(self, key: Key) -> list[Write]:
        """Let go of Servers that are deleted, once there is no storage that they speak of."""
        raw = self._servers.get(key)
        if raw is None:
            return []
        meta = read(raw, Servers).metadata
        if not meta.deleting or labels.SERVERS_FINALIZER not in meta.finalizers:
            return []
        try:
            # It may have been made, and not been seen.
            await self._client.get(kinds.NNF_STORAGE, key)
        except NotFound:
            return [reports.finalized(kinds.SERVERS, meta, labels.SERVERS_FINALIZER)]
        return []

    def _report_assigned(self, key: Key) -> list[Write]:
        """Name the rabbits that are assigned, before anything is made on them."""
        raw = self._servers.get(key)
        if raw is None:
            return []
        current = read(raw, Servers)
        # Once they were ready, what is missing has been given back.
        change = (
            None if current.status.ready else servers.report(current, [], {}, self._clock.now())
        )
        return [] if change is None or current.metadata.deleting else [change]

    def _report(self, current: NnfStorage, node_storages: list[NnfNodeStorage]) -> list[Write]:
        raw = self._servers.get(current.metadata.key)
        if raw is None or current.metadata.deleting:
            return []
        sets = {key.name: label for key, label in storage.node_storage_keys(current).items()}
        now = self._clock.now()
        change = servers.report(read(raw, Servers), node_storages, sets, now)
        return [] if change is None else [change]

    def _node_storage_changed(self, obj: Object) -> None:
        for owner in labels.owner_of(obj):
            self.reconciler.add(Key(*owner.split(" ", 1)[1].split("/", 1)))
