"""An NnfAccess and what it refers to, as seen by one reconcile."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from warren.dws import labels, tolerance
from warren.dws.faults import Fault
from warren.dws.objects.accesses import ClientMount, NnfAccess
from warren.dws.objects.assignments import Computes
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow
from warren.dws.persistent.sharing import Sharing
from warren.dws.storage import locks
from warren.dws.storage.locks import Holding


class AccessSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An NnfAccess, and what it refers to."""

    access: NnfAccess
    storage: NnfStorage | None
    node_storages: Sequence[NnfNodeStorage]
    computes: Computes | None
    configuration: SystemConfiguration | None
    mounts: Sequence[ClientMount]
    """The ClientMounts of the access that there are."""
    block_storages: Sequence[NnfNodeBlockStorage] = ()
    """The flash of the storage."""
    other_holdings: Sequence[Holding] = ()
    """What the accesses hold that `storagelock.other_accesses` returns."""
    mounts_on_computes: Mapping[str, ClientMount] = msgspec.field(default_factory=dict)
    """What the job's compute nodes have mounted, or had, of what rabbits mount for it, by node."""
    profile: NnfStorageProfile | None = None
    """The one that was pinned for the storage."""
    sharing: Sharing | None = None
    """With whom persistent storage is shared by now; None of all other storage."""
    unreachable: Collection[str] = ()
    """The nodes that have been out of reach for so long that they are not waited for any more."""
    workflow: Workflow | None = None
    """That of the access: looked up where nodes are unreachable, and None elsewhere."""


def on_rabbits(snapshot: AccessSnapshot) -> bool:
    """Return whether rabbits mount the storage, and not compute nodes."""
    return snapshot.access.spec.target == "all"


def names_clients(access: NnfAccess) -> bool:
    """Return whether rabbits mount what is for certain compute nodes, and not all they have."""
    return access.spec.target == "all" and access.spec.client_reference is not None


def remaining_allocations(
    snapshot: AccessSnapshot, lost: Collection[str]
) -> dict[str, list[int]] | None:
    """Return the allocations of a job's storage that are not for lost nodes; None for all."""
    storage = snapshot.storage
    if storage is None or storage.spec.file_system_type not in locks.EXCLUSIVE_TYPES:
        return None
    if snapshot.configuration is None or snapshot.computes is None:
        raise Fault("the job's Computes are not there yet", severity="Minor")
    return tolerance.remaining_allocations(
        snapshot.computes, snapshot.configuration.rabbits_of_computes(), lost
    )


def is_persistent(storage: NnfStorage | None) -> bool:
    """Return whether a storage is persistent."""
    return storage is not None and labels.PERSISTENT_NAME in storage.metadata.labels
