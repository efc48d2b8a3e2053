"""Storages, which are the rabbits as DWS has them, and NnfNodes, what each says of itself."""

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta


class NodeLink(Struct, frozen=True):
    name: str
    status: str = ""


class StorageAccess(Struct, frozen=True):
    servers: tuple[NodeLink, ...] = ()
    computes: tuple[NodeLink, ...] = ()


class StorageSpec(Struct, frozen=True):
    state: str = "Enabled"
    mode: str = "Live"


class StorageDevice(Struct, frozen=True):
    capacity: int = 0
    serial_number: str = ""
    status: str = ""


class StorageStatus(Struct, frozen=True):
    type: str = ""
    status: str = "Starting"
    capacity: int = 0
    access: StorageAccess = StorageAccess()
    devices: tuple[StorageDevice, ...] = ()
    message: str = ""
    reboot_required: bool = False


class Storage(Struct, frozen=True):
    """A rabbit."""

    metadata: Meta
    spec: StorageSpec = StorageSpec()
    status: StorageStatus = StorageStatus()


class NnfServer(Struct, frozen=True):
    """The far end of a PCIe link: a compute node, or the rabbit itself."""

    hostname: str = ""
    status: str = ""


class Drive(Struct, frozen=True):
    """What a rabbit's flash is on, as its agent knows it."""

    id: str = ""
    capacity: int = 0
    serial_number: str = ""
    status: str = ""


class NnfNodeStatus(Struct, frozen=True):
    status: str = "Starting"
    capacity: int = 0
    fenced: bool = False
    lnet_nid: str = ""
    """Where Lustre's servers on the rabbit are found."""
    servers: tuple[NnfServer, ...] = ()
    drives: tuple[Drive, ...] = ()


class NnfNode(Struct, frozen=True):
    """What a rabbit says of itself, in its own namespace."""

    metadata: Meta
    status: NnfNodeStatus = NnfNodeStatus()
