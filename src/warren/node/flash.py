"""What agents do with rabbits' flash: where a machine's volumes are, how one is mounted."""

from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import NodeTrouble, RawVolumeAccess, Volume

NOT_THE_ASKED_TYPE: Final = ""
"""Stands for the type of what is mounted as another type than was asked for, as ext4 is for a gfs2
that one node alone mounts: the profile's mount commands do not apply to it."""


class MountSource(msgspec.Struct, frozen=True):
    """What mount(8) is told of a volume."""

    arguments: tuple[str, ...]
    """Everything but the mount point."""
    is_file: bool = False
    """Whether the mount point is a file, and not a directory."""
    type: str = NOT_THE_ASKED_TYPE
    """As which mount(8) knows it, where that is the type that was asked for."""
    options: str = ""
    """What it is mounted with, whatever a profile says."""


class Flash(Protocol):
    """The flash of the rabbits of one machine. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    async def capacity(self, rabbit: str) -> int:
        """Return how many bytes a rabbit has in all, having tried that it can be used."""
        ...

    async def raw_volume_access(self, rabbit: str) -> RawVolumeAccess:
        """Return whom a volume of a rabbit may be given as a bare device."""
        ...

    async def unsupported_types(self, rabbit: str) -> Mapping[str, str]:
        """Return the types of file systems that a rabbit does not make, each with the reason."""
        ...

    async def lnet_nid(self) -> str:
        """Return the LNet address of the machine; or nothing."""
        ...

    async def make(self, volume: Volume) -> None:
        """Reserve a volume's space and make its file system, owned by its user."""
        ...

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        """Free a volume's space, with whatever is in it."""
        ...

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        """Return what is to be mounted, ready for it."""
        ...

    def volumes(self, rabbit: str) -> Mapping[str, int]:
        """Return the volumes of a rabbit and their sizes in bytes, as they are on disk."""
        ...


def path_component(name: str) -> str:
    """Return a name that is safe as part of a path. Raises NodeTrouble."""
    if not name or name.startswith(".") or "/" in name:
        raise NodeTrouble(f"{name!r} is no name of a volume or group", fatal=True)
    return name


def out_of_space(rabbit: str, free_bytes: int, requested_bytes: int) -> NodeTrouble:
    """Return the error for a full rabbit. A retry does not help: more was allocated than it has."""
    return NodeTrouble(
        f"{rabbit} has {free_bytes} bytes of flash left, and {requested_bytes} are asked for",
        fatal=True,
    )
