"""Block devices as flash: every volume is a device, with a file system of its own size on it."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

from warren.dws.node import NodeTrouble, Volume
from warren.node import commands, filesystems
from warren.node.flash import Source

MAKE_SECONDS: Final = 30.0
"""How long it may take to make a file system."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a disk knows of a volume."""

    size: int
    """Bytes."""
    userid: int
    groupid: int
    made: bool
    """Whether its file system is whole."""


class Disk(Protocol):
    """The space of one rabbit, given out as block devices. Every deed may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    async def capacity(self) -> int:
        """Give how many bytes there are in all."""
        ...

    def volumes(self) -> Mapping[str, Found]:
        """Give the volumes by name. It may block: for those who look at the whole disk."""
        ...

    async def find(self, name: str) -> Found | None:
        """Give a volume, if it is there."""
        ...

    async def reserve(self, volume: Volume) -> Found:
        """Take space for a volume, if it has none."""
        ...

    async def device(self, name: str) -> str:
        """Give a volume's device, attached and ready for use."""
        ...

    async def set_made(self, name: str) -> None:
        """Remember, for good, that the volume's file system is whole."""
        ...

    async def give_back(self, name: str) -> None:
        """Detach a volume, discard what is in it and free its space."""
        ...


class Blocks:
    """`Flash` whose volumes are block devices."""

    def __init__(
        self, disk: Callable[[str], Disk], work: Path, *, seconds: float = MAKE_SECONDS
    ) -> None:
        """`disk` gives a rabbit's disk; `work` is a directory for short-lived files."""
        self._disk = disk
        self._work = work
        self._seconds = seconds
        self._making: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def capacity(self, group: str) -> int:
        return await self._disk(group).capacity()

    def volumes(self, group: str) -> Mapping[str, int]:
        return {name: found.size for name, found in self._disk(group).volumes().items()}

    async def make(self, volume: Volume) -> None:
        disk = self._disk(volume.group)
        # One at a time: the second would make it again under whoever has mounted it meanwhile.
        async with self._making.setdefault((volume.group, volume.name), asyncio.Lock()):
            found = await disk.reserve(volume)
            if found.made:
                return  # never again: there may be data in it
            await self._make_file_system(volume, await disk.device(volume.name))
            await disk.set_made(volume.name)

    async def release(self, group: str, name: str) -> None:
        await self._disk(group).give_back(name)

    async def source(self, group: str, name: str, file_system: str) -> Source:
        disk = self._disk(group)
        found = await disk.find(name)
        if found is None or not found.made:
            raise NodeTrouble(f"{group}/{name} does not exist")
        device = await disk.device(name)
        source = filesystems.source(file_system, device)
        if source.is_file:
            try:
                os.chown(device, found.userid, found.groupid)
            except OSError as error:
                raise NodeTrouble(f"{device}: {error.strerror}") from error
        return source

    async def _make_file_system(self, volume: Volume, device: str) -> None:
        proto = self._work / f"{volume.group}-{volume.name}.proto"
        words, text = filesystems.make_commands(volume, device, str(proto))
        try:
            if text:
                proto.write_text(text)
            for command in words:
                await commands.run(command, seconds=self._seconds)
        except NodeTrouble as trouble:
            raise NodeTrouble(f"{device}: {trouble}") from trouble
        except OSError as error:
            raise NodeTrouble(f"{proto}: {error.strerror}") from error
        finally:
            proto.unlink(missing_ok=True)
