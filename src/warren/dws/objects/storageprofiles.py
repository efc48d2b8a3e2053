"""NnfStorageProfiles: how file systems are made."""

from collections.abc import Mapping
from typing import Any

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta


class FileSystemProfile(Struct, frozen=True):
    """How one kind of file system is made that is on one allocation."""

    capacity_scaling_factor: str = "1.0"
    allocation_padding: str = "0"
    """What comes on top: bytes, a size, or percent."""
    storage_labels: tuple[str, ...] = ()
    shared_allocation: bool = False
    variable_override: Mapping[str, str] = {}
    block_device_commands: Mapping[str, Any] = {}
    file_system_commands: Mapping[str, Any] = {}
    user_commands: Mapping[str, Any] = {}

    @property
    def commands(self) -> Mapping[str, Mapping[str, Any]]:
        """Command lines, in the groups that the profile has them in."""
        return {
            "blockDeviceCommands": self.block_device_commands,
            "fileSystemCommands": self.file_system_commands,
            "userCommands": self.user_commands,
        }


class LustreTargetOptions(Struct, frozen=True):
    """How the targets of one kind are made and placed; not every kind has every option."""

    capacity: str = "5GiB"
    capacity_scaling_factor: str = "1.0"
    """Of an OST, whose capacity is what the directive asks for."""
    exclusive: bool = False
    """Of an MDT: not beside another one that is."""
    external_mgs: str = ""
    standalone_mgt_pool_name: str = ""
    colocate_computes: bool = False
    count: int | None = None
    scale: int | None = None
    storage_labels: tuple[str, ...] = ()
    variable_override: Mapping[str, str] = {}
    commandlines: Mapping[str, Any] = {}
    pre_mount_commands: tuple[str, ...] = ()
    """Of an MGT: what the MGS of a file system is to run for it."""

    @property
    def commands(self) -> Mapping[str, Any]:
        """Command lines, in the groups that the profile has them in."""
        return {"commandlines": self.commandlines, "preMountCommands": self.pre_mount_commands}


class LustreClient(Struct, frozen=True):
    variable_override: Mapping[str, str] = {}
    commandlines: Mapping[str, Any] = {}


class LustreProfile(Struct, frozen=True):
    """How Lustre file systems are made of targets."""

    combined_mgt_mdt: bool = False
    mgt_options: LustreTargetOptions = LustreTargetOptions()
    mdt_options: LustreTargetOptions = LustreTargetOptions()
    mgt_mdt_options: LustreTargetOptions = LustreTargetOptions()
    ost_options: LustreTargetOptions = LustreTargetOptions()
    client_options: LustreClient = LustreClient()

    @property
    def target_options(self) -> Mapping[str, LustreTargetOptions]:
        """The options of each kind of target, by the label of its allocation set."""
        return {
            "mgt": self.mgt_options,
            "mdt": self.mdt_options,
            "mgtmdt": self.mgt_mdt_options,
            "ost": self.ost_options,
        }


class ProfileData(Struct, frozen=True):
    default: bool = False
    pinned: bool = False
    xfs_storage: FileSystemProfile = FileSystemProfile()
    ext4_storage: FileSystemProfile = FileSystemProfile(allocation_padding="5%")
    """HPE's definition does not have it; what ext4 needs for itself comes on top all the same."""
    raw_storage: FileSystemProfile = FileSystemProfile()
    gfs2_storage: FileSystemProfile = FileSystemProfile()
    lustre_storage: LustreProfile = LustreProfile()

    @property
    def file_system_profiles(self) -> Mapping[str, FileSystemProfile]:
        """What it says of each type of file system that is not made of targets."""
        return {
            "xfs": self.xfs_storage,
            "ext4": self.ext4_storage,
            "raw": self.raw_storage,
            "gfs2": self.gfs2_storage,
        }


class NnfStorageProfile(Struct, frozen=True):
    metadata: Meta
    data: ProfileData
