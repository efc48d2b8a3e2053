"""NnfSystemStorages: storage of the system's own on rabbits."""

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference


class SystemStorageSpec(Struct, frozen=True):
    storage_profile: Reference = Reference()
    system_configuration: Reference = Reference()
    capacity: int = 2**30
    type: str = "raw"
    include_rabbits: tuple[str, ...] = ()
    exclude_rabbits: tuple[str, ...] = ()
    exclude_disabled_rabbits: bool = False
    include_computes: tuple[str, ...] = ()
    exclude_computes: tuple[str, ...] = ()
    computes_target: str = "all"
    computes_pattern: tuple[int, ...] = ()
    shared: bool = True
    make_client_mounts: bool = False
    client_mount_path: str = ""
    ignore_offline_computes: bool = False


class SystemStorageStatus(Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class NnfSystemStorage(Struct, frozen=True):
    """Storage of the system's own on rabbits."""

    metadata: Meta
    spec: SystemStorageSpec = SystemStorageSpec()
    status: SystemStorageStatus | None = None
