"""The types of file systems that are made on block devices: how, and how they are mounted."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from warren.base.errors import UserMistake
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import FILE_SYSTEM_TYPES, NodeTrouble, Volume
from warren.node.flash import NOT_THE_ASKED_TYPE, MountSource

PROTO: Final = "{proto}"
"""Stands in a command for the path of a file with the type's `proto` text."""


class FileSystemType(msgspec.Struct, frozen=True, kw_only=True):
    """How one type of file system is made on a device, and mounted."""

    make: Sequence[Sequence[str]]
    """The commands that make one, each without the device, which is its last word."""
    is_raw: bool = False
    """Whether users have the device itself, and nothing is mounted."""
    proto: str = ""
    """What mkfs reads: xfs is told of the owner of its root in a prototype file."""
    type: str = ""
    """As which mount(8) knows it."""
    options: str = ""
    """Of mount(8)."""

    enforced_options: Sequence[str] | None = None
    """The words of mkfs that hold beside a profile's; None for all."""

    @property
    def programs(self) -> tuple[str, ...]:
        """What has to be installed."""
        return tuple(dict.fromkeys(command[0] for command in self.make))


class DlmCluster(msgspec.Struct, frozen=True, kw_only=True):
    """Machines that have one lock manager (dlm), and so may use a file system at the same time."""

    name: str
    """As corosync.conf(5) has it: a volume is used by no other cluster."""
    journals: int
    """How many of them may mount the same volume at the same time."""


NO_DLM_CLUSTER: Final = (
    "a gfs2 takes a cluster of the machines that mount it, with corosync and dlm_controld: say its "
    "name as network.cluster"
)

_EXT4: Final = FileSystemType(
    make=[
        # All of it is the user's,
        ["mkfs.ext4", "-q", "-F", "-m", "0",
         "-E", "nodiscard,root_owner={userid}:{groupid}"],
        # but for what root needs to write an access control list when it is full.
        ["debugfs", "-w", "-R", "set_super_value r_blocks_count 16"],
        # Root's directory in the user's file system: the user's copies would stumble over it.
        ["debugfs", "-w", "-R", "rmdir lost+found"],
        ["debugfs", "-w", "-R", "set_inode_field / mode 040700"],
    ],
    type="ext4",
    # Zeroing inode tables later, the kernel would punch them out of an image (ADR 056).
    options="nodev,nosuid,noinit_itable",
)  # fmt: skip

_TYPES: Final = {
    # What was there was discarded when it was given back.
    "xfs": FileSystemType(
        make=[["mkfs.xfs", "-q", "-f", "-K", "-p", PROTO]],
        proto="-\n0 0\nd--700 {userid} {groupid}\n$\n",
        type="xfs",
        options="nodev,nosuid",
    ),
    "ext4": _EXT4,
    # The nodes of one machine share its kernel, and may mount the same one (ADR 077).
    "gfs2": _EXT4,
    # What another user has left on a bare device would be there to be read.
    "raw": FileSystemType(make=[["blkdiscard", "--zeroout"]], is_raw=True),
}

_GFS2: Final = FileSystemType(
    make=[
        ["mkfs.gfs2", "-O", "-q", "-K", "-p", "lock_dlm", "-t", "{table}",
         "-j", "{journals}", "-J", "8"],
        # It knows no owner of the root directory.
        ["gfs2_edit", "-p", "root", "field", "di_mode", str(0o40700)],
        ["gfs2_edit", "-p", "root", "field", "di_uid", "{userid}"],
        ["gfs2_edit", "-p", "root", "field", "di_gid", "{groupid}"],
    ],
    type="gfs2",
    options="nodev,nosuid",
    enforced_options=["-q", "-O"],
)  # fmt: skip
"""Of nodes that are machines of their own, whose kernels lock by a cluster's dlm."""

_REQUIREMENTS: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    **{name: (fs_type.programs, fs_type.type) for name, fs_type in _TYPES.items()},
    # What targets take; clients take mount.lustre alone (`node.lustre`).
    "lustre": (("mkfs.lustre", "mount.lustre", "zpool", "lctl"), "lustre"),
}
"""The programs, and the file system in the kernel, that each type takes."""

PROGRAMS: Final = sorted({name for fs_type in _TYPES.values() for name in fs_type.programs})
"""What has to be installed for all types."""


def unsupported_types(
    is_installed: Callable[[str], bool],
    is_in_kernel: Callable[[str], bool],
    cluster: DlmCluster | None = None,
) -> dict[str, str]:
    """Return the types that a machine does not make, each with the reason.

    It is asked for programs, and for file systems that its kernel has, or has a module for.
    """
    needs = {**_REQUIREMENTS, "gfs2": (_GFS2.programs, _GFS2.type)} if cluster else _REQUIREMENTS
    unsupported = {}
    for name in FILE_SYSTEM_TYPES:
        programs, type_ = needs[name]
        missing = [program for program in programs if not is_installed(program)]
        if missing:
            *most, last = missing
            unsupported[name] = (
                f"{', '.join(most)} and {last} are not installed"
                if most
                else f"{last} is not installed"
            )
        elif type_ and not is_in_kernel(type_):
            unsupported[name] = f"the kernel has no {type_}"
    return unsupported


def kernel_types() -> set[str]:
    """Return the file systems that kernels are asked for."""
    return {type_ for _, type_ in _REQUIREMENTS.values() if type_} | {_GFS2.type}


def lock_table(volume: Volume, cluster: DlmCluster) -> str:
    """Return by which name a cluster locks a volume: of few characters, and of no other's."""
    lock_space = sha256(f"{volume.rabbit}/{volume.name}".encode()).hexdigest()[:16]
    return f"{cluster.name}:{lock_space}"


def _type_of(name: str, cluster: DlmCluster | None = None) -> FileSystemType:
    if name == "gfs2" and cluster is not None:
        return _GFS2
    try:
        return _TYPES[name]
    except KeyError:
        raise NodeTrouble(f"file systems of type {name} are not made here", fatal=True) from None


def make_commands(
    volume: Volume, device: str, proto: str, cluster: DlmCluster | None = None
) -> tuple[list[list[str]], str]:
    """Return the commands that make a volume's file system, and the text of their file `proto`.

    A gfs2 is one where there is a `cluster`; without one, nodes share this machine's kernel (ADR
    077). Raises NodeTrouble for a type that is not made here.
    """
    fs_type = _type_of(volume.file_system, cluster)
    placeholders: dict[str, object] = {"userid": volume.userid, "groupid": volume.groupid}
    values = {"$DEVICE": device}
    if cluster is not None:
        table = lock_table(volume, cluster)
        placeholders |= {"journals": cluster.journals, "table": table}
        lock_space = table.partition(":")[2]
        values |= {
            "$CLUSTER_NAME": cluster.name,
            "$LOCK_SPACE": lock_space,
            "$PROTOCOL": "lock_dlm",
        }
    commands = [
        [*(word.format(proto=proto, **placeholders) for word in command), device]
        for command in fs_type.make
    ]
    first = commands[0]
    # What stands in for another type does not know its words.
    if first[0] == f"mkfs.{volume.file_system}":
        arguments = profile_arguments(volume.commands, MKFS_COMMAND_LINE, values)
        if arguments is not None:
            if device not in arguments:
                raise NodeTrouble(
                    f"{MKFS_COMMAND_LINE} of the profile does not name $DEVICE", fatal=True
                )
            # Ours are the last, and hold: whose the file system is, and that it may be made anew.
            commands[0] = [
                first[0],
                *arguments,
                *(first[1:-1] if fs_type.enforced_options is None else fs_type.enforced_options),
            ]
    return commands, fs_type.proto.format(**placeholders)


MKFS_COMMAND_LINE: Final = "fileSystemCommands.rabbitCommands.mkfs"
_MOUNT_COMMAND_SUFFIX: Final = "Commands.mount"


def profile_arguments(
    profile: ProfileCommands, name: str, values: Mapping[str, str | Sequence[str]]
) -> list[str] | None:
    """Return the words of a profile's command, if it has one. Raises NodeTrouble."""
    try:
        return profile.vector(name, values)
    except UserMistake as mistake:
        raise NodeTrouble(str(mistake).removesuffix("."), fatal=True) from mistake


def mount_command(source: MountSource, path: str, profile: ProfileCommands) -> list[str]:
    """Return the command that mounts something at a path. Raises NodeTrouble.

    A profile's own has the words that it says, and after them the options without which nothing of
    a user's is mounted: no devices, and no programs that run as others.
    """
    device = source.arguments[-1]
    arguments = None
    if source.type != NOT_THE_ASKED_TYPE or source.is_file:
        values = {"$DEVICE": device, "$MOUNT_PATH": path}
        for side in ("rabbit", "compute"):
            arguments = arguments or profile_arguments(
                profile, f"fileSystemCommands.{side}{_MOUNT_COMMAND_SUFFIX}", values
            )
    if arguments is None:
        return ["mount", *source.arguments, path]
    if source.is_file:
        return ["mount", *arguments]
    return ["mount", "-t", source.type, *arguments, "-o", source.options]


def source(file_system: str, device: str, cluster: DlmCluster | None = None) -> MountSource:
    """Return how a device with a file system is mounted. The bare device is bound over a file."""
    fs_type = _type_of(file_system, cluster)
    if fs_type.is_raw:
        return MountSource(("--bind", device), is_file=True)
    mount_type = fs_type.type if fs_type.type == file_system else NOT_THE_ASKED_TYPE
    arguments = ("-t", fs_type.type, "-o", fs_type.options, device)
    return MountSource(arguments, type=mount_type, options=fs_type.options)
