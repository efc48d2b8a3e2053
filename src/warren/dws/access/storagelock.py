"""Take and release the lock of `dws.storage.locks` for one NnfAccess, while nodes mount for it."""

from collections.abc import Iterable, Iterator

from warren.base.objects import Change, Key
from warren.dws.access.accesssnapshot import AccessSnapshot, is_persistent, names_clients
from warren.dws.objects.accesses import ClientMount, ClientMountSpec, NnfAccess
from warren.dws.objects.assignments import Computes
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.storage import locks
from warren.dws.storage.locks import Holding, MountedVolume


def hold(snapshot: AccessSnapshot, new_mounts: Iterable[ClientMountSpec]) -> list[Change]:
    """Have the access hold its storage, before nodes are asked for its `new_mounts`.

    Raises Fault while another access keeps it out.
    """
    storage, key = snapshot.storage, snapshot.access.metadata.key
    assert storage is not None  # the mounts are known
    exclusive = storage.spec.file_system_type in locks.EXCLUSIVE_TYPES
    if has_exclusive_allocations(storage):
        locks.check_volumes_free(storage, _mounted_volumes(new_mounts), snapshot.other_holdings)
        # Several Workflows may have persistent storage at a time, each on nodes of its own.
        own_holding = holding(snapshot.access, snapshot.computes)
        locks.check_allocations_free(storage, own_holding, snapshot.other_holdings)
        exclusive = own_holding.nodes is None or not locks.can_have_access_finalizer(storage, key)
    change = locks.change_to_hold(storage, key, exclusive=exclusive)
    return [] if change is None else [change]


def other_accesses(access: NnfAccess, storage: NnfStorage | None) -> list[Key]:
    """Return the accesses of which it must be known what they hold: none for a job's storage."""
    if storage is None or not is_persistent(storage):
        return []
    return locks.other_holders(storage, access.metadata.key)


def holding(
    access: NnfAccess, computes: Computes | None, mounts: Iterable[ClientMount] = ()
) -> Holding:
    """Return what an access mounts of storage that has an allocation for each compute node.

    `mounts` are its own.
    """
    is_per_node = access.spec.target == "single" or names_clients(access)
    nodes = (
        [compute.name for compute in computes.data] if computes is not None and is_per_node else ()
    )
    return Holding(
        access=access.metadata.key,
        on_rabbits=access.spec.target == "all",
        nodes=frozenset(nodes) or None,
        mounted=frozenset(_mounted_volumes(each.spec for each in mounts)),
    )


def _mounted_volumes(specs: Iterable[ClientMountSpec]) -> Iterator[MountedVolume]:
    for spec in specs:
        for each in spec.mounts:
            if (lvm := each.device.lvm) is not None:
                yield MountedVolume((lvm.volume_group, lvm.logical_volume), spec.node)


def has_exclusive_allocations(storage: NnfStorage | None) -> bool:
    """Return whether each allocation is one node's, and mounted by one at a time."""
    if storage is None or not is_persistent(storage):
        return False
    return storage.spec.file_system_type in locks.EXCLUSIVE_TYPES


def release(snapshot: AccessSnapshot) -> list[Change]:
    """Have the access hold its storage no longer."""
    if snapshot.storage is None:
        return []
    change = locks.change_to_release(snapshot.storage, snapshot.access.metadata.key)
    return [] if change is None else [change]
