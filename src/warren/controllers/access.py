"""NnfAccesses: ClientMounts on nodes (decided in `dws.access`)."""

import asyncio
from collections.abc import Sequence
from typing import Final

from warren.base.objects import Key, Object, key_of
from warren.controllers.live import REQUEUE_DELAY, orphan_removals, read_live
from warren.controllers.users import user_getter
from warren.dws import changes, kinds, labels, reports
from warren.dws.access import clientmounts, nnfaccess, outofreach, storagelock
from warren.dws.access.accesssnapshot import AccessSnapshot, is_persistent, names_clients
from warren.dws.objects.accesses import ClientMount, NnfAccess
from warren.dws.objects.assignments import Computes
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow
from warren.dws.persistent import sharing
from warren.dws.persistent.sharing import Sharing
from warren.dws.rabbits import systemstatus
from warren.dws.storage import locks, storageprofiles
from warren.dws.storage.locks import Holding
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

OUT_OF_REACH_SECONDS: Final = 60.0
"""How long a node that is out of reach is waited for to unmount: its agent may be well, as when its
broker is started anew, and what is not unmounted is not copied. It is more than an unmount takes
of what is in use, which is taken away after 30 s unless a site says otherwise."""

_SYSTEM_STATUS_KEY: Final = Key(kinds.DEFAULT_NAMESPACE, "default")
"""The key of the SystemStatus."""


class AccessController:
    """Reconciles every NnfAccess."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        *,
        out_of_reach_seconds: float = OUT_OF_REACH_SECONDS,
    ) -> None:
        """A node that is out of reach is waited for to unmount, `out_of_reach_seconds` long."""
        self._out_of_reach_seconds = out_of_reach_seconds
        self._client = client
        self._accesses = informers.of(kinds.NNF_ACCESS)
        self._instances = informers.of(kinds.PERSISTENT_INSTANCE)
        self._storages = informers.of(kinds.NNF_STORAGE)
        self._node_storages = informers.of(kinds.NNF_NODE_STORAGE)
        self._block_storages = informers.of(kinds.NNF_NODE_BLOCK_STORAGE)
        self._computes = informers.of(kinds.COMPUTES)
        self._mounts = informers.of(kinds.CLIENT_MOUNT)
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self._configurations.listen(lambda obj: self._wake_failed())
        self._profiles.listen(lambda obj: self._wake_failed())
        self._system_statuses = informers.of(kinds.SYSTEM_STATUS)
        self._workflows = informers.of(kinds.WORKFLOW)
        self._out_of_reach_since: dict[Key, dict[str, float]] = {}
        """Since when nodes are seen to be out of reach that an access waits for. A controller that
        starts anew gives them the time once more."""
        self.reconciler: Reconciler[Key] = Reconciler(
            "access", self.reconcile, user=user_getter(self._accesses)
        )
        self._accesses.listen(self._access_changed)
        self._mounts.listen_to_changes(self._mount_changed)
        self._system_statuses.listen_to_changes(self._system_status_changed)
        self._instances.listen_to_changes(self._instance_changed)
        for informer in (self._storages, self._node_storages, self._block_storages, self._computes):
            informer.listen(self._dependency_changed)
        self._storages.listen(lambda obj: self._storage_changed(key_of(obj), obj))
        self._storages.listen(self._holders_changed)
        self._node_storages.listen(self._node_storage_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfAccess."""
        delay = None
        raw = self._accesses.get(key)
        mounts = self._mounts.by_index("owner", f"{kinds.NNF_ACCESS.name} {key}")
        if raw is None:
            self._out_of_reach_since.pop(key, None)
            removals = await orphan_removals(
                self._client, kinds.NNF_ACCESS, key, kinds.CLIENT_MOUNT, mounts
            )
            await perform(self._client, removals)
            if not _own_mounts(key, mounts):
                await self._release_deleted(key)
        else:
            current = read(raw, NnfAccess)
            mounts = _own_mounts(key, mounts)
            storage = self._storages.get(current.spec.storage_reference.key)
            if current.metadata.deleting and not mounts:
                # About to let go: what was just written may not have been seen yet.
                owner_labels = labels.of_owner(kinds.NNF_ACCESS, current.metadata)
                live = await self._client.list(kinds.CLIENT_MOUNT, labels=owner_labels)
                mounts = _own_mounts(key, live.items)
                storage = await read_live(
                    self._client, kinds.NNF_STORAGE, current.spec.storage_reference.key
                )
                delay = REQUEUE_DELAY if mounts else None
            snapshot = await self._snapshot(current, storage, mounts)
            changes_to_leave = outofreach.changes_to_leave_behind(snapshot)
            if changes_to_leave:
                # An event of it comes, and with it the rest.
                await perform(self._client, changes_to_leave)
                return None
            writes = nnfaccess.decide(snapshot)
            self.reconciler.note_written(key, await perform(self._client, writes))
            delay = delay or self._seconds_until_left_behind(key)
        return delay

    def _unreachable(self, current: NnfAccess, mounts: Sequence[ClientMount]) -> frozenset[str]:
        """Return the nodes that an access need not wait for any more."""
        key, now = current.metadata.key, asyncio.get_running_loop().time()
        not_unmounted = frozenset[str]()
        if current.spec.desired_state == "unmounted" and not current.metadata.deleting:
            not_unmounted = frozenset(
                each.spec.node for each in mounts if not each.all_in("unmounted")
            )
        out_of_reach = not_unmounted and not_unmounted & systemstatus.disabled_nodes(
            self._system_statuses.get(_SYSTEM_STATUS_KEY)
        )
        seen_before = self._out_of_reach_since.pop(key, {})
        since_by_node = {node: seen_before.get(node, now) for node in out_of_reach}
        if since_by_node:
            self._out_of_reach_since[key] = since_by_node
        return frozenset(
            node
            for node, since in since_by_node.items()
            if now >= since + self._out_of_reach_seconds
        )

    def _seconds_until_left_behind(self, key: Key) -> float | None:
        """Return in how many seconds the nodes have had their time that an access waits for.

        That is the last one's: they are left behind together.
        """
        since_by_node = self._out_of_reach_since.get(key)
        if since_by_node is None:
            return None
        now, end = (
            asyncio.get_running_loop().time(),
            max(since_by_node.values()) + self._out_of_reach_seconds,
        )
        return end - now if end > now else None

    async def _release_deleted(self, key: Key) -> None:
        """Have an access let go of storage that is gone without having done so."""
        held_storages = self._storages.by_index("holder", str(key))
        if held_storages and await read_live(self._client, kinds.NNF_ACCESS, key) is None:
            releases = [
                locks.change_to_release(read(obj, NnfStorage), key) for obj in held_storages
            ]
            await perform(self._client, [each for each in releases if each is not None])

    async def _other_holdings(
        self, current: NnfAccess, storage: NnfStorage | None
    ) -> list[Holding]:
        """Return what other accesses hold of persistent storage that this one is to mount."""
        holdings = []
        has_exclusive = storagelock.has_exclusive_allocations(storage)
        for key in storagelock.other_accesses(current, storage):
            raw = self._accesses.get(key) or await read_live(self._client, kinds.NNF_ACCESS, key)
            if raw is None:
                holdings.append(Holding(access=key, on_rabbits=True, nodes=None))
                continue
            other = read(raw, NnfAccess)
            # What was not seen yet is read: no event of it would wake this access.
            clients = other.spec.client_reference
            computes = self._computes.get(clients.key) if clients else None
            if clients and not (computes and computes.get("data")):
                computes = await read_live(self._client, kinds.COMPUTES, clients.key)
            mounts = await self._mounts_of(other) if has_exclusive else []
            holdings.append(
                storagelock.holding(other, read(computes, Computes) if computes else None, mounts)
            )
        return holdings

    async def _mounts_of(self, other: NnfAccess) -> list[ClientMount]:
        """Return the ClientMounts of another access, whose events do not wake this one."""
        key = other.metadata.key
        mounts = self._mounts.by_index("owner", f"{kinds.NNF_ACCESS.name} {key}")
        if not mounts:
            owner_labels = labels.of_owner(kinds.NNF_ACCESS, other.metadata)
            mounts = (await self._client.list(kinds.CLIENT_MOUNT, labels=owner_labels)).items
        return [read(obj, ClientMount) for obj in _own_mounts(key, mounts)]

    async def _snapshot(
        self, current: NnfAccess, raw_storage: Object | None, mounts: Sequence[Object]
    ) -> AccessSnapshot:
        owner = f"{kinds.NNF_STORAGE.name} {current.spec.storage_reference.key}"
        clients = current.spec.client_reference
        computes = (
            self._computes.get(clients.key) if clients else self._computes_if_nodes_lost(current)
        )
        configuration = self._configurations.get(kinds.CONFIGURATION_KEY)
        storage = read(raw_storage, NnfStorage) if raw_storage else None
        client_mounts = [read(obj, ClientMount) for obj in mounts]
        unreachable = self._unreachable(current, client_mounts)
        return AccessSnapshot(
            access=current,
            storage=storage,
            other_holdings=await self._other_holdings(current, storage),
            node_storages=[
                read(obj, NnfNodeStorage) for obj in self._node_storages.by_index("owner", owner)
            ],
            block_storages=[
                read(obj, NnfNodeBlockStorage)
                for obj in self._block_storages.by_index("owner", owner)
            ],
            computes=read(computes, Computes) if computes else None,
            configuration=read(configuration, SystemConfiguration) if configuration else None,
            mounts=client_mounts,
            mounts_on_computes=self._mounts_on_computes(current, computes),
            profile=await self._profile(storage),
            sharing=await self._sharing(storage),
            unreachable=unreachable,
            workflow=self._workflow(current) if unreachable else None,
        )

    def _mounts_on_computes(
        self, current: NnfAccess, computes: Object | None
    ) -> dict[str, ClientMount]:
        """Return the mounts of compute nodes for which rabbits are to mount what is theirs."""
        if current.spec.desired_state != "mounted" or not names_clients(current) or not computes:
            return {}
        name = clientmounts.mount_name_on_computes(current.metadata.key)
        nodes = [each.name for each in read(computes, Computes).data]
        raw_mounts = {node: self._mounts.get(Key(node, name)) for node in nodes}
        return {node: read(raw, ClientMount) for node, raw in raw_mounts.items() if raw is not None}

    async def _profile(self, storage: NnfStorage | None) -> NnfStorageProfile | None:
        """Return the profile that was pinned for a storage, if one was."""
        key = storageprofiles.pinned_profile_key(storage.metadata) if storage is not None else None
        if key is None:
            return None
        # What was not seen yet is read: its events wake an access in error alone.
        raw = self._profiles.get(key) or await read_live(
            self._client, kinds.NNF_STORAGE_PROFILE, key
        )
        return None if raw is None else read(raw, NnfStorageProfile)

    async def _sharing(self, storage: NnfStorage | None) -> Sharing | None:
        """Return with whom the instance is shared whose storage it is, if it is one's."""
        if storage is None or not is_persistent(storage):
            return None
        key = storage.metadata.key  # the instance has the same name
        raw = self._instances.get(key) or await read_live(
            self._client, kinds.PERSISTENT_INSTANCE, key
        )
        return None if raw is None else _sharing_of(raw)

    def _computes_if_nodes_lost(self, current: NnfAccess) -> Object | None:
        """Return the Computes of the Workflow that goes on without some of them."""
        if labels.LOST_NODES not in current.metadata.annotations:
            return None
        own_labels = current.metadata.labels
        namespace, name = own_labels[labels.WORKFLOW_NAMESPACE], own_labels[labels.WORKFLOW_NAME]
        return self._computes.get(Key(namespace, name))

    def _workflow(self, current: NnfAccess) -> Workflow | None:
        own_labels = current.metadata.labels
        namespace = own_labels.get(labels.WORKFLOW_NAMESPACE, "")
        raw = self._workflows.get(Key(namespace, own_labels.get(labels.WORKFLOW_NAME, "")))
        return None if raw is None else read(raw, Workflow)

    def _system_status_changed(self, before: Object | None, after: Object | None) -> None:
        """Wake the accesses of nodes that are out of reach since then, or back."""
        for node in systemstatus.disabled_nodes(before) ^ systemstatus.disabled_nodes(after):
            for mount in self._mounts.by_index("mounting node", node):
                for owner in labels.owner_keys(mount):
                    self.reconciler.add(owner)

    def _instance_changed(self, before: Object | None, after: Object | None) -> None:
        if before and after and _sharing_of(before) != _sharing_of(after):
            self._storage_changed(key_of(after), after)

    def _wake_failed(self) -> None:
        # A compute node may have been wired to no rabbit, or a profile have been gone. Those that
        # are not in error have no use for the event.
        for each in self._accesses.by_index("in error", reports.IN_ERROR):
            self.reconciler.add(key_of(each))

    def _access_changed(self, obj: Object) -> None:
        key = key_of(obj)
        current = self._accesses.get(key)
        if current is None:
            # Of one that is gone there is nothing to do but for what it has left.
            has_mounts = self._mounts.is_indexed("owner", f"{kinds.NNF_ACCESS.name} {key}")
            if has_mounts or self._storages.is_indexed("holder", str(key)):
                self.reconciler.add(key)
        else:
            self.reconciler.add(key, current)

    def _mount_changed(self, before: Object | None, after: Object | None) -> None:
        for key in labels.owner_keys(after or before or {}):
            if changes.is_relevant_mount_change(before, after):
                self.reconciler.add(key, after)

    def _dependency_changed(self, obj: Object) -> None:
        for workflow in labels.workflow_of(obj):
            for each in self._accesses.by_index("workflow", workflow):
                self.reconciler.add(key_of(each), obj)

    def _storage_changed(self, key: Key, obj: Object) -> None:
        # Persistent storage is no Workflow's, and others than its maker mount it.
        for each in self._accesses.by_index("storage", str(key)):
            self.reconciler.add(key_of(each), obj)

    def _holders_changed(self, obj: Object) -> None:
        for holder in locks.holders_of(obj):
            key = Key.parse(holder)
            if self._accesses.get(key) is None:
                self.reconciler.add(key)

    def _node_storage_changed(self, obj: Object) -> None:
        for owner in labels.owner_keys(obj):
            self._storage_changed(owner, obj)


def _sharing_of(instance: Object) -> Sharing:
    return sharing.from_annotations(instance["metadata"].get("annotations") or {})


def _own_mounts(access: Key, mounts: Sequence[Object]) -> list[Object]:
    name = clientmounts.mount_name(access)
    return [obj for obj in mounts if obj["metadata"]["name"] == name]
