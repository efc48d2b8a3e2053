"""NnfStorages, the share of each rabbit in one, and the flash under that."""

from collections.abc import Mapping
from typing import Any

import msgspec

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference


class NodeAllocations(Struct, frozen=True):
    """How many allocations of a set are on one rabbit."""

    name: str
    count: int


class NnfStorageSet(Struct, frozen=True):
    name: str
    capacity: int
    command_variables: tuple[Mapping[str, Any], ...] = ()
    nodes: tuple[NodeAllocations, ...] = ()


class NnfStorageSpec(Struct, frozen=True):
    file_system_type: str
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)
    allocation_sets: tuple[NnfStorageSet, ...] = ()


class NnfStorageStatus(Struct, frozen=True):
    ready: bool = False
    health: str = ""
    file_system_name: str = ""
    """Of Lustre, and so is the address of its MGS."""
    mgs_address: str = ""
    error: Error | None = None


class NnfStorage(Struct, frozen=True):
    metadata: Meta
    spec: NnfStorageSpec
    status: NnfStorageStatus = NnfStorageStatus()


class LustreTargets(Struct, frozen=True):
    """What the allocations of a share of Lustre are: targets of one kind, in order."""

    target_type: str
    file_system_name: str = ""
    mgs_address: str = ""
    start_index: int = 0
    back_fs: str = "zfs"


class NnfNodeStorageSpec(Struct, frozen=True):
    count: int
    capacity: int
    file_system_type: str
    block_reference: Reference | None = None
    """What the volumes are made of; None in objects of versions that had no such kind."""
    lustre_storage: LustreTargets | None = None
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class NnfNodeStorageStatus(Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class NnfNodeStorage(Struct, frozen=True):
    """The share of one rabbit in an NnfStorage: `count` allocations of `capacity` bytes.

    That is what the user gets; a volume has more, as much as the NnfNodeBlockStorage says.
    """

    metadata: Meta
    spec: NnfNodeStorageSpec
    status: NnfNodeStorageStatus = NnfNodeStorageStatus()


class BlockAllocation(Struct, frozen=True):
    capacity: int
    access: tuple[str, ...] = ()


class NnfNodeBlockStorageSpec(Struct, frozen=True):
    allocations: tuple[BlockAllocation, ...] = ()
    shared_allocation: bool = False


class NnfNodeBlockStorageStatus(Struct, frozen=True):
    ready: bool = False


class NnfNodeBlockStorage(Struct, frozen=True):
    """The flash under the share of one rabbit, and which nodes reach it."""

    metadata: Meta
    spec: NnfNodeBlockStorageSpec = NnfNodeBlockStorageSpec()
    status: NnfNodeBlockStorageStatus = NnfNodeBlockStorageStatus()
