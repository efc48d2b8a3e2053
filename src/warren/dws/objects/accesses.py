"""NnfAccesses: which nodes mount a storage; and ClientMounts, what one node mounts."""

import msgspec

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference


class NnfAccessSpec(Struct, frozen=True):
    desired_state: str
    target: str
    mount_path: str
    storage_reference: Reference
    client_reference: Reference | None = None
    make_client_mounts: bool = True
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class NnfAccessStatus(Struct, frozen=True):
    state: str = ""
    ready: bool = False
    error: Error | None = None


class NnfAccess(Struct, frozen=True):
    metadata: Meta
    spec: NnfAccessSpec
    status: NnfAccessStatus = NnfAccessStatus()


class LvmDevice(Struct, frozen=True):
    volume_group: str
    logical_volume: str


class LustreDevice(Struct, frozen=True):
    file_system_name: str
    mgs_addresses: str


class Device(Struct, frozen=True):
    type: str
    lvm: LvmDevice | None = None
    lustre: LustreDevice | None = None


class Mount(Struct, frozen=True):
    mount_path: str
    type: str
    device: Device
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class MountInfo(Struct, frozen=True):
    state: str = ""
    ready: bool = False


class ClientMountSpec(Struct, frozen=True):
    node: str
    desired_state: str
    mounts: tuple[Mount, ...]


class ClientMountStatus(Struct, frozen=True):
    mounts: tuple[MountInfo, ...] = ()
    all_ready: bool = False
    error: Error | None = None


class ClientMount(Struct, frozen=True):
    """The mounts of one job on one node."""

    metadata: Meta
    spec: ClientMountSpec
    status: ClientMountStatus = ClientMountStatus()

    def all_in(self, state: str) -> bool:
        """Return whether every mount is in `state` and ready."""
        return (
            self.status.all_ready
            and len(self.status.mounts) == len(self.spec.mounts)
            and all(mount.state == state and mount.ready for mount in self.status.mounts)
        )
