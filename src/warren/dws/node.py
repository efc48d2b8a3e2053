"""What a node is asked to do, as values: volumes to make, places to mount, trees to copy."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from warren.base.errors import Retryable
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.objects.meta import Error

IN_USE_SEVERITY: Final = "Minor"
"""The severity of what is waited for: nothing is wrong yet."""

TIMED_OUT: Final = "did not end within"
"""Stands in the words of what has taken too long. Flash that has much to do has it so."""

_KEPT_TYPE: Final = "User"
"""The type of the error of what is kept: whoever uses it can end that, and no admin of the node."""


class NodeTrouble(Retryable):
    """A node could not do what it was asked. The words are those of whatever failed.

    `fatal` says that trying again will not help.
    """

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal

    def as_error(self) -> dict[str, str]:
        """Write it as the `error` of a status."""
        return {
            "debugMessage": str(self),
            "type": "Internal",
            "severity": "Fatal" if self.fatal else "Major",
        }


class CannotBeCutOff(NodeTrouble):
    """What is in use cannot be taken from users: it is no loop device, or the kernel refuses."""


class InUse(NodeTrouble):
    """Something is in use that is to be given back, and is waited for: nothing is wrong yet.

    It is looked at again after `delay` seconds, however often it was in use before.
    """

    def __init__(self, message: str, *, delay: float = 1.0) -> None:
        super().__init__(message)
        self.delay = delay

    def as_error(self) -> dict[str, str]:
        return {**super().as_error(), "severity": IN_USE_SEVERITY}


class Kept(NodeTrouble):
    """Something is in use that is to be given back: that is no fault of the node's."""

    def as_error(self) -> dict[str, str]:
        return {**super().as_error(), "type": _KEPT_TYPE}


def raise_in_use(troubles: Sequence[NodeTrouble]) -> None:
    """Raise the first of some that is waited for, or else the first, if there are any."""
    if troubles:
        raise next((each for each in troubles if isinstance(each, InUse)), troubles[0])


def says_waiting(error: Error | None) -> bool:
    """Return whether a node waits for what is in use, or fails and has not waited long enough."""
    return error is not None and error.severity == IN_USE_SEVERITY and not says_kept(error)


def says_kept(error: Error | None) -> bool:
    """Return whether a node gives something not back for no other reason than that it is in use."""
    return error is not None and error.type == _KEPT_TYPE


class CopyFailed(NodeTrouble):
    """A copier has come to its end, and tells what it could not copy."""


FLASH_TYPES: Final = ("raw", "xfs", "ext4", "gfs2")
"""The types of file systems that agents make on flash of their own rabbit."""

LUSTRE: Final = "lustre"
"""Made of targets on several rabbits."""

FILE_SYSTEM_TYPES: Final = (*FLASH_TYPES, LUSTRE)
"""All types of file systems. Which of them a machine makes, it says itself (ADR 090)."""


class RawVolumeAccess(StrEnum):
    """Whom a rabbit gives volumes as bare devices, as its label says it (ADR 027)."""

    FOR_USERS = "true"
    FOR_ROOT = "false"
    NONE = "none"
    """No user: it has no devices, but directories."""


class LustreTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a volume is of a Lustre file system."""

    kind: str
    """`mgt`, `mdt`, `mgtmdt` or `ost`."""
    index: int
    file_system_name: str
    """Empty for an MGT alone."""
    mgs_address: str
    """Where LNet finds its MGS."""
    back_fs: str = "zfs"


class LustreMount(msgspec.Struct, frozen=True, kw_only=True):
    """A Lustre file system, as clients mount it."""

    address: str
    """Of its MGS."""
    name: str
    userid: int
    groupid: int
    """Whose it is to be."""


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation on a rabbit.

    `rabbit`, which DWS objects have as the name of its volume group, and `name` find it again.
    """

    rabbit: str
    name: str
    size: int
    """Bytes."""
    file_system: str
    """Its type, of `FILE_SYSTEM_TYPES`."""
    userid: int
    groupid: int
    commands: ProfileCommands = NO_COMMANDS
    """What the profile has the rabbit run."""
    target: LustreTarget | None = None
    """Of Lustre alone."""


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One data movement, on the rabbit that has the storage."""

    source: str
    destination: str
    index: str | None
    """The index directory of the source's allocation, when the source is node-local storage."""
    userid: int
    groupid: int
    movement: str = ""
    """The uid of the movement: what marks a file as one that it has begun."""
    since: float = 0.0
    """When the movement was made, for another try of it; 0 for its first one. What earlier tries
    have finished since then is not copied again. Seconds since the epoch."""
    verify: bool = False
    """Whether what was written is read back from the disk, and compared with the source."""
    rate: int = 0
    """The most bytes a second; 0 for as many as there can be."""
    command: Sequence[str] = ()
    """The words of a command that copies instead of the copier, with variables (ADR 084)."""
    hosts: str = ""
    """What the command finds in the file that `$HOSTFILE` names."""
    makes_directories: bool = True
    """Whether the directories that the command copies into are made for it."""
    tells_output: bool = False
    """Whether the last of what the command says is told when all is well, too."""
    source_storage: str = ""
    """The directory of a job's storage that the source is in: links there do not lead out of it,
    since others may have made them. Empty for a path that is the user's own."""
    destination_storage: str = ""
    """The same, of the destination."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a copy is."""

    bytes: int
    total_bytes: int
    files: int
    """Files and symbolic links."""
    total_files: int
    seconds: float
    directories: int = 0
    links: int = 0
    """Symbolic links, which are among the files, too."""
    earlier_bytes: int = 0
    """What earlier tries had copied, and this one found there."""
    hole_bytes: int = 0
    """What is there without having been copied: the holes of files."""
    remark: str = ""
    """What the copies do not have, though all is well otherwise."""
    command_status: Mapping[str, str] | None = None
    """What a command that is not the copier says of itself, in the words of `commandStatus`."""

    @property
    def percent(self) -> int:
        return 100 if self.bytes >= self.total_bytes else self.bytes * 100 // self.total_bytes

    @property
    def rate(self) -> float:
        """Bytes a second, of what this try has copied itself."""
        copied = self.bytes - self.earlier_bytes - self.hole_bytes
        return copied / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The seconds that it will take at the rate so far; None where that cannot be said."""
        missing = self.total_bytes - self.bytes
        return missing / self.rate if missing > 0 and self.rate > 0 else None
