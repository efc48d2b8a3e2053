"""NnfStorages: shares on rabbits, and what their Servers say (`dws.storage` decides)."""

from collections.abc import Callable, Sequence
from functools import partial

from warren.base.clock import Clock
from warren.base.objects import Key, Object, Write, key_of
from warren.controllers.live import REQUEUE_DELAY, orphan_removals
from warren.controllers.users import user_getter
from warren.dws import changes, kinds, labels, reports
from warren.dws.breakdown import servers
from warren.dws.node import LUSTRE
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import NnfLustreMGT
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import NnfNode
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME
from warren.dws.storage import lustrestorage, nnfstorage, storageprofiles
from warren.dws.storage.lustrestorage import LustreSnapshot
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
        self._block_storages = informers.of(kinds.NNF_NODE_BLOCK_STORAGE)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self._servers = informers.of(kinds.SERVERS)
        self._mgts = informers.of(kinds.LUSTRE_MGT)
        self._nnf_nodes = informers.of(kinds.NNF_NODE)
        self._instances = informers.of(kinds.PERSISTENT_INSTANCE)
        self.reconciler: Reconciler[Key] = Reconciler(
            "storage", self.reconcile, user=user_getter(self._storages)
        )
        self._storages.listen_to_changes(self._storage_changed)
        self._node_storages.listen_to_changes(
            partial(self._dependent_changed, changes.is_relevant_node_storage_change)
        )
        self._block_storages.listen_to_changes(
            partial(self._dependent_changed, changes.is_relevant_block_storage_change)
        )
        self._mgts.listen(self._mgt_changed)
        self._nnf_nodes.listen(self._nnf_node_changed)
        self._instances.listen(self._pool_changed)
        self._servers.listen_to_changes(self._servers_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfStorage."""
        delay = None
        raw = self._storages.get(key)
        owner = f"{kinds.NNF_STORAGE.name} {key}"
        raw_shares = self._node_storages.by_index("owner", owner)
        raw_blocks = self._block_storages.by_index("owner", owner)
        if raw is None:
            removals: list[Write] = [
                removal
                for kind, objects in (
                    (kinds.NNF_NODE_STORAGE, raw_shares),
                    (kinds.NNF_NODE_BLOCK_STORAGE, raw_blocks),
                )
                for removal in await orphan_removals(
                    self._client, kinds.NNF_STORAGE, key, kind, objects
                )
            ]
            removals += await self._orphaned_mgt_writes(key, owner)
            servers_release = await self._servers_release(key)
            written = await perform(
                self._client, [*removals, *servers_release, *self._assignment_report(key)]
            )
            self.reconciler.note_written(key, written)
        else:
            current = read(raw, NnfStorage)
            if current.metadata.deleting and not (raw_shares or raw_blocks):
                # About to let go: a share that was just made may not have been seen yet.
                owner_labels = labels.of_owner(kinds.NNF_STORAGE, current.metadata)
                raw_shares = (
                    await self._client.list(kinds.NNF_NODE_STORAGE, labels=owner_labels)
                ).items
                raw_blocks = (
                    await self._client.list(kinds.NNF_NODE_BLOCK_STORAGE, labels=owner_labels)
                ).items
                delay = REQUEUE_DELAY if raw_shares or raw_blocks else None
            node_storages = [read(obj, NnfNodeStorage) for obj in raw_shares]
            block_storages = [read(obj, NnfNodeBlockStorage) for obj in raw_blocks]
            if current.spec.file_system_type == LUSTRE:
                storage_writes = lustrestorage.decide(
                    self._lustre_snapshot(current, node_storages, block_storages)
                )
            else:
                storage_writes = nnfstorage.decide(
                    current, node_storages, block_storages, self._profile(current)
                )
            writes = [
                *storage_writes,
                *self._report(current, node_storages),
            ]
            written = await perform(self._client, writes)
            # What is next of Lustre may be decided on what was just written.
            if current.spec.file_system_type != LUSTRE:
                self.reconciler.note_written(key, written)
        return delay

    def _lustre_snapshot(
        self,
        current: NnfStorage,
        shares: Sequence[NnfNodeStorage],
        block_storages: Sequence[NnfNodeBlockStorage],
    ) -> LustreSnapshot:
        pools: dict[str, list[tuple[PersistentStorageInstance, NnfStorage]]] = {}
        for obj in self._instances.by_index("pooled", lustrestorage.POOLED):
            raw_storage = self._storages.get(key_of(obj))
            if raw_storage is not None:
                member = (read(obj, PersistentStorageInstance), read(raw_storage, NnfStorage))
                pool = obj["metadata"]["labels"][labels.STANDALONE_MGT]
                pools.setdefault(pool, []).append(member)
        profile = self._profile(current)
        nodes = {
            node.name: self._nnf_nodes.get(Key(node.name, NNF_NODE_NAME))
            for each in current.spec.allocation_sets
            for node in each.nodes
        }
        return LustreSnapshot(
            storage=current,
            shares=shares,
            block_storages=block_storages,
            profile=profile,
            mgts=self._mgts_for(
                current,
                lustrestorage.external_mgs(profile),
                *(each.status.mgs_address for members in pools.values() for _, each in members),
            ),
            mgs_address_by_rabbit={
                name: read(obj, NnfNode).status.lnet_nid
                for name, obj in nodes.items()
                if obj is not None
            },
            pools=pools,
        )

    def _mgts_for(self, current: NnfStorage, *addresses: str) -> list[NnfLustreMGT]:
        """Return the MGTs that may give out the name of a storage's file system."""
        own_mgt = self._mgts.get(lustrestorage.own_mgt_key(current))
        raw_mgts = [] if own_mgt is None else [own_mgt]
        for value in (str(current.metadata.key), current.status.mgs_address, *addresses):
            raw_mgts += self._mgts.by_index("mgt", value)
        return [read(obj, NnfLustreMGT) for obj in {key_of(obj): obj for obj in raw_mgts}.values()]

    async def _orphaned_mgt_writes(self, key: Key, owner: str) -> list[Write]:
        """Return the writes that remove the NnfLustreMGT of a storage that is gone without it."""
        raw_mgts = self._mgts.by_index("owner", owner)
        metas = [read(obj, NnfLustreMGT).metadata for obj in raw_mgts]
        return [
            *await orphan_removals(
                self._client, kinds.NNF_STORAGE, key, kinds.LUSTRE_MGT, raw_mgts
            ),
            *(
                reports.remove_finalizer(kinds.LUSTRE_MGT, meta, labels.LUSTRE_MGT_FINALIZER)
                for meta in metas
                if meta.deleting and labels.LUSTRE_MGT_FINALIZER in meta.finalizers
            ),
        ]

    def _mgt_changed(self, obj: Object) -> None:
        """Wake the storages that are named by an MGT, or wait for it."""
        for each in read(obj, NnfLustreMGT).spec.claim_list:
            self.reconciler.add(each.key)
        for owner in labels.owner_keys(obj):
            self.reconciler.add(owner)
        self._wake_failed()

    def _pool_changed(self, obj: Object) -> None:
        """Wake the storages that wait for an MGT of a pool, or to be a user of one."""
        if labels.STANDALONE_MGT in (obj["metadata"].get("labels") or {}):
            self._wake_failed()
            for each in read(obj, PersistentStorageInstance).spec.consumer_references:
                if each.kind == kinds.NNF_STORAGE.name:
                    self.reconciler.add(each.key)

    def _nnf_node_changed(self, obj: Object) -> None:
        if (obj.get("status") or {}).get("lnetNid"):
            self._wake_failed()

    def _wake_failed(self) -> None:
        for each in self._storages.by_index("in error", reports.IN_ERROR):
            if (each.get("spec") or {}).get("fileSystemType") == LUSTRE:
                self.reconciler.add(key_of(each))

    def _profile(self, current: NnfStorage) -> NnfStorageProfile | None:
        """Return the profile that was pinned for a storage, if one was."""
        key = storageprofiles.pinned_profile_key(current.metadata)
        raw = self._profiles.get(key) if key is not None else None
        return None if raw is None else read(raw, NnfStorageProfile)

    async def _servers_release(self, key: Key) -> list[Write]:
        """Return the release of Servers that are deleted, once they have no storage any more."""
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
            return [reports.remove_finalizer(kinds.SERVERS, meta, labels.SERVERS_FINALIZER)]
        return []

    def _assignment_report(self, key: Key) -> list[Write]:
        """Return the report of the rabbits that are assigned, before anything is made on them."""
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
        labels_by_share = {
            key.name: label for key, label in nnfstorage.label_by_share(current).items()
        }
        now = self._clock.now()
        change = servers.report(read(raw, Servers), node_storages, labels_by_share, now)
        return [] if change is None else [change]

    def _storage_changed(self, before: Object | None, after: Object | None) -> None:
        key = key_of(after or before or {})
        if after is None:
            if self._has_leftovers(key):
                self.reconciler.add(key)
        elif changes.is_relevant_storage_change(before, after):
            self.reconciler.add(key, after)

    def _has_leftovers(self, key: Key) -> bool:
        """Return whether there is anything yet of an NnfStorage that is gone, or told of it."""
        owner = f"{kinds.NNF_STORAGE.name} {key}"
        if any(
            each.is_indexed("owner", owner)
            for each in (self._node_storages, self._block_storages, self._mgts)
        ):
            return True
        raw_servers = self._servers.get(key)
        if raw_servers is None:
            return False
        was_ready = bool((raw_servers.get("status") or {}).get("ready"))
        return not was_ready or "deletionTimestamp" in raw_servers["metadata"]

    def _servers_changed(self, before: Object | None, after: Object | None) -> None:
        key = key_of(after or before or {})
        # They may be seen after what was made from them.
        seen_late = before is None and self._storages.get(key) is not None
        if seen_late or changes.is_relevant_servers_change(before, after):
            self.reconciler.add(key, after)

    def _dependent_changed(
        self,
        is_relevant: Callable[[Object | None, Object | None], bool],
        before: Object | None,
        after: Object | None,
    ) -> None:
        for key in labels.owner_keys(after or before or {}):
            if self._storages.get(key) is None or is_relevant(before, after):
                self.reconciler.add(key)
