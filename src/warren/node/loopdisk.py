"""A rabbit's disk as a file or a block device, with a loop device on each volume's extent."""

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from warren.base.bytesize import GIB, MIB, format_bytes
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import NodeTrouble, Volume
from warren.node import commands, loops, probing
from warren.node.blocks import VolumeRecord
from warren.node.extents import DiskSize, Extent, Extents
from warren.node.loops import Loop
from warren.node.threads import in_thread
from warren.node.turns import Turns

_LOCK_PAUSE: Final = 0.005
_LOCK_TRIES: Final = 6000

HEADROOM: Final = GIB
"""Bytes of the file system under an image that volumes of users leave free (ADR 056)."""

PIECE: Final = 512 * MIB
"""Bytes of a volume that are discarded at a time. Others' volumes wait for as long as one takes."""


class LoopDisk:
    """A `Disk` whose devices are root's alone (ADR 027).

    The agents of the rabbit and of its computes may use it at the same time.
    """

    offers_raw: Final = False
    activates_volumes: Final = False

    def __init__(
        self,
        rabbit: str,
        directory: Path,
        capacity: int,
        device: Path | None,
        *,
        headroom: int = HEADROOM,
        piece: int = PIECE,
    ) -> None:
        """`directory` is for what is remembered, and for the image.

        Without a `device` the disk is a sparse image of `capacity` bytes; with one, no
        more than `capacity` of it is used. Users' volumes have their blocks in an image from
        the first, and leave `headroom` bytes of the file system around it free. They are given back
        in pieces of `piece` bytes.
        """
        self._rabbit = rabbit
        self._directory = directory
        self._capacity = capacity
        self._device = device
        self._headroom = headroom
        self._piece = piece
        self._backing = device or directory / "disk.img"
        self._extents = Extents(directory / "volumes")
        self._turns = Turns()
        """Of this process, at the lock that all processes have."""
        self._times_busy = 0
        """How often the lock could not be had."""

    async def capacity(self) -> int:
        try:
            await in_thread(_make_private, self._directory)
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error
        await probing.check(probing.probe_directory, self._directory)
        if self._device is not None:
            await probing.check(probing.probe_device, self._device)
        return self._disk_size().capacity

    def volumes(self) -> Mapping[str, VolumeRecord]:
        return {name: _record_of(extent) for name, extent in self._extents.all().items()}

    async def find(self, name: str) -> VolumeRecord | None:
        extent = self._extents.get(name)
        return None if extent is None else _record_of(extent)

    async def reserve(self, volume: Volume) -> VolumeRecord:
        async with self._locked(volume.userid):
            extent = await in_thread(self._extents.allocate, volume, self._disk_size())
            if self._device is None and not extent.formatted:
                await self._allocate_blocks(volume, extent)
        return _record_of(extent)

    async def attach(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> str:
        async with self._locked(self._userid_of(name)):
            extent = self._extents.get(name)
            if extent is None:
                raise NodeTrouble(f"{self._rabbit}/{name} does not exist")
            await self._detach_strays(extent)
            return await loops.attach(self._backing, extent.offset, extent.size)

    async def devices(self, name: str) -> list[str]:
        extent = self._extents.get(name)
        return [] if extent is None else [loop.device for loop in self._loops_of(extent)]

    async def set_formatted(self, name: str) -> None:
        async with self._locked(self._userid_of(name)):
            await in_thread(self._extents.set_formatted, name)

    async def cut_off(self, name: str) -> None:
        async with self._locked(self._userid_of(name)):
            extent = self._extents.get(name)
            for loop in self._loops_of(extent) if extent else []:
                await loops.cut_off(loop)

    async def give_back(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        extent = self._extents.get(name)
        start = 0
        while extent is not None and start < extent.size:
            async with self._locked(extent.userid):
                current = self._extents.get(name)
                if current is None or (current.offset, current.size) != (
                    extent.offset,
                    extent.size,
                ):
                    return  # another call has given it back
                start = await self._give_back_piece(name, extent, start)
            await asyncio.sleep(2 * _LOCK_PAUSE)  # others, who look once in a pause, have the disk

    async def _give_back_piece(self, name: str, extent: Extent, start: int) -> int:
        """Discard a piece of a volume, and return where the next one starts.

        The record goes with the last one, so that a release that is cut short is begun anew.
        """
        for loop in self._loops_of(extent):
            # To be told to detach would be half a release: it would go when unmounted.
            await loops.wait_unmounted(loop)
            await loops.detach(loop)
        # Only a user's volume in an image can be in many pieces there.
        in_pieces = self._device is None and extent.userid != 0
        end = min(start + self._piece, extent.size) if in_pieces else extent.size
        if in_pieces and await in_thread(self._has_data, extent.offset + start, end - start):
            await self._defragment(extent.offset + start, end - start)
        await self._discard(extent.offset + start, end - start)
        if end == extent.size:
            await in_thread(self._extents.remove, name)
        return end

    def loops(self) -> list[Loop]:
        """Return what is attached."""
        return loops.find_attached(self._backing)

    def _loops_of(self, extent: Extent) -> list[Loop]:
        return loops.find_overlapping(self._backing, extent.offset, extent.size)

    def _userid_of(self, name: str) -> int | None:
        extent = self._extents.get(name)
        return None if extent is None else extent.userid

    def strays(self) -> list[Loop]:
        """Return what is attached and shows no volume as its record says."""
        volumes = {(extent.offset, extent.size) for extent in self._extents.all().values()}
        return [
            loop
            for loop in self.loops()
            if (loop.offset, loop.size) not in volumes or loop.backing_removed
        ]

    async def detach_stray(self, device: str) -> None:
        """Detach a device if it shows no volume as its record says. Raises NodeTrouble."""
        async with self._locked(None):
            for loop in self.strays():
                if loop.device != device:
                    continue
                if loop.is_cut_off:
                    raise NodeTrouble(f"{device} shows nothing, and goes with its last user")
                await loops.detach(loop)

    async def _detach_strays(self, extent: Extent) -> None:
        """Detach what shows no volume. Raises NodeTrouble if that leaves something on an extent."""
        for loop in self.strays():
            if loop.is_cut_off:
                continue  # it goes with its last user
            try:
                await loops.detach(loop)
            except NodeTrouble:
                if loop.overlaps(extent.offset, extent.size) and not loop.backing_removed:
                    raise

    async def _defragment(self, offset: int, size: int) -> None:
        """Have a part of the image in one piece in its file system, where that can be.

        A user who writes every other block leaves hundreds of thousands of pieces in a GiB. Where
        a file system discards what it frees, as with its mount option `discard`, a hole would take
        a request to the machine's disk for each, and all others' volumes would wait for it.
        """
        with suppress(commands.CommandFailed):  # not every file system can, nor one that is full
            await commands.run(
                ["fallocate", "--zero-range", "--keep-size", "--offset", str(offset),
                 "--length", str(size), str(self._backing)]
            )  # fmt: skip

    def _has_data(self, offset: int, size: int) -> bool:
        """Return whether a part of the image has data: to defragment it takes blocks."""
        try:
            descriptor = os.open(self._backing, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return os.lseek(descriptor, offset, os.SEEK_DATA) < offset + size
        except OSError as error:
            return error.errno != errno.ENXIO  # which is that there is none behind it
        finally:
            os.close(descriptor)

    async def _discard(self, offset: int, size: int) -> None:
        if self._device is None and not self._backing.exists():
            return  # the image was removed, and with it what was in it
        try:
            await commands.run(
                ["fallocate", "--punch-hole", "--offset", str(offset),
                 "--length", str(size), str(self._backing)]
            )  # fmt: skip
        except NodeTrouble:
            # It is how an image gives its space back; a disk can do without, and many have to.
            if self._device is None:
                raise

    async def _allocate_blocks(self, volume: Volume, extent: Extent) -> None:
        """Have an extent in the image, with its blocks unless it is root's."""
        if volume.userid == 0:
            # Root can fill the machine's disk without a volume.
            _grow_image(self._backing, extent.end)
            return
        try:
            self._check_free_space(volume, extent.size)
            _grow_image(self._backing, 0)  # or the command would make one that all may read
            await commands.run(
                ["fallocate", "--offset", str(extent.offset),
                 "--length", str(extent.size), str(self._backing)]
            )  # fmt: skip
            self._check_free_space(volume, 0)  # another rabbit's image may have taken it meanwhile
        except NodeTrouble:
            await self._discard(extent.offset, extent.size)
            await in_thread(self._extents.remove, volume.name)
            raise

    def _check_free_space(self, volume: Volume, size: int) -> None:
        """Raise NodeTrouble if the file system around the image has no room for so many bytes."""
        file_system = os.statvfs(self._directory)
        free = file_system.f_bavail * file_system.f_frsize
        if free - size < self._headroom:
            raise NodeTrouble(
                f"no room for {format_bytes(volume.size)}: its image is on the file system of "
                f"{self._directory}, which has {format_bytes(free)} left and keeps "
                f"{format_bytes(self._headroom)} free. Make room there, or submit again when "
                "other jobs have ended"
            )

    def _disk_size(self) -> DiskSize:
        if self._device is None:
            return DiskSize(capacity=self._capacity)
        try:
            size = _device_size(self._device)
        except OSError as error:
            raise NodeTrouble(f"{self._device}: {error.strerror}") from error
        return DiskSize(capacity=min(size, self._capacity), address_limit=size)

    @asynccontextmanager
    async def _locked(self, userid: int | None) -> AsyncIterator[None]:
        """Keep all others away from the disk's records and loop devices, in any process.

        Users have it in turns, in this process: `userid` says for whom; None where it is not known.
        """
        try:
            # One after the other: of many that look for the lock now and then, one has it by luck.
            times_busy = self._times_busy
            async with self._turns.turn(userid):
                if self._times_busy != times_busy:
                    raise self._busy()  # in vain for one that came before, it would be for this
                await in_thread(_make_private, self._directory)
                with (self._directory / "lock").open("wb") as lock_file:
                    for _ in range(_LOCK_TRIES):
                        if _lock(lock_file.fileno()):
                            break
                        await asyncio.sleep(_LOCK_PAUSE)
                    else:
                        self._times_busy += 1
                        raise self._busy()
                    yield
        except OSError as error:
            raise NodeTrouble(f"{error.filename or self._backing}: {error.strerror}") from error

    def _busy(self) -> NodeTrouble:
        return NodeTrouble(f"the disk of {self._rabbit} is busy")


def _make_private(directory: Path) -> None:
    """Make a directory that is its owner's alone: others would read the image, or lock the disk."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _device_size(device: Path) -> int:
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _grow_image(image: Path, size: int) -> None:
    """Make an image at least so large, without taking blocks for it."""
    descriptor = os.open(image, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size < size:
            os.truncate(descriptor, size)
    finally:
        os.close(descriptor)


def _record_of(extent: Extent) -> VolumeRecord:
    return VolumeRecord(
        size=extent.size, userid=extent.userid, groupid=extent.groupid, formatted=extent.formatted
    )
