"""What a node is asked to do, as values: volumes to make, places to mount, trees to copy."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from warren.base.errors import Retryable
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands

IN_USE: Final = "Minor"
"""The severity of what is waited for: nothing is wrong yet."""


class NodeTrouble(Retryable):
    """A node could not do what it was asked. The words are those of whatever failed.

    `fatal` says that trying again will not help.
    """

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal

    def as_status(self) -> dict[str, str]:
        """Write it as the `error` of a status."""
        return {
            "debugMessage": str(self),
            "type": "Internal",
            "severity": "Fatal" if self.fatal else "Major",
        }


class InUse(NodeTrouble):
    """Something is in use that is to be given back, and is waited for: nothing is wrong yet."""

    delay = 1.0

    def as_status(self) -> dict[str, str]:
        return {**super().as_status(), "severity": IN_USE}


class CopyFailed(NodeTrouble):
    """A copier has come to its end, and tells what it could not copy."""


MAKES: Final = ("raw", "xfs", "ext4", "gfs2")
"""The types of file systems that agents make on flash of their own rabbit."""

LUSTRE: Final = "lustre"
"""Made of targets on several rabbits."""

TYPES: Final = (*MAKES, LUSTRE)
"""All types of file systems. Which of them a machine makes, it says itself (ADR 090)."""


class RawVolumes(StrEnum):
    """Whom a rabbit gives volumes as bare devices, as its label says it (ADR 027)."""

    FOR_USERS = "true"
    FOR_ROOT = "false"
    NONE = "none"
    """No user: it has no devices, but directories."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a volume is of a Lustre file system."""

    kind: str
    """`mgt`, `mdt`, `mgtmdt` or `ost`."""
    index: int
    file_system: str
    """Its name; none of an MGT alone."""
    mgs: str
    """The LNet address of its MGS."""
    back_fs: str = "zfs"


@dataclass(frozen=True, kw_only=True)
class LustreMount:
    """A Lustre file system, as clients mount it."""

    address: str
    """Of its MGS."""
    name: str
    userid: int
    groupid: int
    """Whose it is to be."""


@dataclass(frozen=True, kw_only=True)
class Volume:
    """One allocation on a rabbit. `group` and `name` find it again after a restart."""

    group: str
    name: str
    size: int
    """Bytes."""
    file_system: str
    userid: int
    groupid: int
    commands: ProfileCommands = NO_COMMANDS
    """What the profile has the rabbit run."""
    target: Target | None = None
    """Of Lustre alone."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One data movement, on the rabbit that has the storage."""

    source: str
    destination: str
    index: str | None
    """The index directory of the source's allocation, when the source is node-local storage."""
    userid: int
    groupid: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a copy is."""

    bytes: int
    total_bytes: int
    files: int
    total_files: int
    seconds: float

    @property
    def percent(self) -> int:
        return 100 if self.bytes >= self.total_bytes else self.bytes * 100 // self.total_bytes

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0
