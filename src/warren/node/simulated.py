"""A simulated node: it does nothing, and keeps the contract of one that does.

It refuses what a real one refuses: more than its flash holds, mounting what is
not there, releasing what is mounted. Its `SimulatedFlash` outlives its agent.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import (
    LUSTRE,
    Copy,
    LustreMount,
    NodeTrouble,
    Progress,
    RawVolumeAccess,
    Volume,
)
from warren.dws.persistent.sharing import Sharing
from warren.node.behaviour import NO_FAULTS, Behaviour


class SimulatedFlash(msgspec.Struct):
    """What is on a simulated machine, shared by the nodes of one chassis: the disks."""

    capacity: int
    """Bytes of flash of each rabbit."""
    volumes: dict[tuple[str, str], Volume] = msgspec.field(default_factory=dict)
    mounts: dict[tuple[str, str], tuple[str, str]] = msgspec.field(default_factory=dict)
    """(node, path) -> (rabbit, name of the volume)."""
    shared: dict[tuple[str, str], Sharing] = msgspec.field(default_factory=dict)
    """With whom volumes are shared, as their last mount said; by (rabbit, name)."""
    copies: list[Copy] = msgspec.field(default_factory=list)
    """The copies that came to their end."""
    offers_raw: bool = True
    """Whether users may have bare devices."""
    lnet_nid: str = ""
    """Where Lustre's servers are found."""
    lustre: dict[tuple[str, str], LustreMount] = msgspec.field(default_factory=dict)
    """(node, path) -> what is mounted there."""
    mgs_commands: list[list[str]] = msgspec.field(default_factory=list)
    """What was run for file systems whose MGS is here."""
    unsupported_types: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {LUSTRE: "nothing is simulated of it"}
    )
    """The types of file systems that are not made, each with the reason."""


class SimulatedNode:
    """A `LocalNode` of a name, on some flash. Copies take `seconds` for `bytes`."""

    def __init__(
        self,
        name: str,
        flash: SimulatedFlash,
        *,
        bytes: int = 2**20,
        seconds: float = 1,
        behaviour: Behaviour = NO_FAULTS,
    ) -> None:
        """`behaviour` says how long each request takes, and which fail."""
        self._faults = behaviour.fault_injector(name)
        self._name = name
        self._flash = flash
        self._bytes = bytes
        self._seconds = seconds

    async def capacity(self) -> int:
        return self._flash.capacity

    async def raw_volume_access(self) -> RawVolumeAccess:
        return RawVolumeAccess.FOR_USERS if self._flash.offers_raw else RawVolumeAccess.FOR_ROOT

    async def unsupported_types(self) -> Mapping[str, str]:
        return self._flash.unsupported_types

    async def lnet_nid(self) -> str:
        return self._flash.lnet_nid

    async def make(self, volume: Volume) -> None:
        await self._faults.inject("make")
        key = (volume.rabbit, volume.name)
        if key in self._flash.volumes:
            return
        if volume.file_system == "raw" and volume.userid and not self._flash.offers_raw:
            raise NodeTrouble(f"{volume.rabbit} gives bare devices to root alone", fatal=True)
        used = sum(
            each.size for each in self._flash.volumes.values() if each.rabbit == volume.rabbit
        )
        if used + volume.size > self._flash.capacity:
            raise NodeTrouble(
                f"{volume.rabbit} has {self._flash.capacity - used} bytes of flash left, "
                f"and {volume.size} are asked for",
                fatal=True,
            )
        self._flash.volumes[key] = volume

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        await self._faults.inject("release")
        if (rabbit, name) in self._flash.mounts.values():
            raise NodeTrouble(f"{rabbit}/{name} is mounted")
        self._flash.volumes.pop((rabbit, name), None)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared_with: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        await self._faults.inject("mount")
        if (rabbit, name) not in self._flash.volumes:
            raise NodeTrouble(f"{rabbit}/{name} does not exist")
        self._flash.mounts[self._name, path] = (rabbit, name)
        if shared_with is not None:
            self._flash.shared[rabbit, name] = shared_with

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._faults.inject("mount")
        self._flash.lustre[self._name, path] = source

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        await self._faults.inject("make")
        self._flash.mgs_commands += [[*each] for each in commands]

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._faults.inject("unmount")
        self._flash.mounts.pop((self._name, path), None)
        self._flash.lustre.pop((self._name, path), None)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        await self._faults.inject("copy")
        steps = 4
        for step in range(1, steps + 1):
            await asyncio.sleep(self._seconds / steps)
            yield Progress(
                bytes=self._bytes * step // steps,
                total_bytes=self._bytes,
                files=step // steps,
                total_files=1,
                seconds=self._seconds * step / steps,
            )
        self._flash.copies.append(copy)
