"""The space of one rabbit, in extents: which are taken, in a record for each on disk.

A sparse image has more addresses than space: what counts is the sum of the sizes,
so that it cannot be fragmented. On a block device, each address is space.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from warren.base.bytesize import MIB
from warren.dws.node import NodeTrouble, Volume
from warren.journal.files import sync_directory
from warren.node.flash import out_of_space, path_component

UNIT: Final = 4 * MIB
"""Extents start and end at multiples of it."""


class Extent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where one volume is on the disk."""

    offset: int
    """Bytes, as is `size`."""
    size: int
    file_system: str
    userid: int
    groupid: int
    formatted: bool = msgspec.field(name="made", default=False)
    """Whether its file system is whole."""

    @property
    def end(self) -> int:
        return self.offset + self.size


class DiskSize(msgspec.Struct, frozen=True, kw_only=True):
    """How large a disk is, in bytes."""

    capacity: int
    address_limit: int | None = None
    """Where addresses end, as those of a block device; None if they do not."""


def free_bytes(taken: Iterable[Extent], disk_size: DiskSize) -> int:
    """Return how many bytes are free, wherever they are."""
    return disk_size.capacity - sum(extent.size for extent in taken)


def find_free(taken: Iterable[Extent], disk_size: DiskSize, size: int) -> tuple[int, int] | None:
    """Return offset and size of a free extent of `size` or a little more; None if there is none."""
    taken = sorted(taken, key=lambda extent: extent.offset)
    size = -(-size // UNIT) * UNIT
    if size > free_bytes(taken, disk_size):
        return None
    offset = 0
    for extent in taken:
        if offset + size <= extent.offset:
            break
        offset = extent.end
    if disk_size.address_limit is not None and offset + size > disk_size.address_limit:
        return None
    return offset, size


class Extents:
    """The records of one rabbit's extents, in a directory. One caller at a time may change them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def all(self) -> Mapping[str, Extent]:
        """Return the extents by the names of their volumes."""
        names = [path.stem for path in self._directory.glob("*.json")]
        extents = {name: self.get(name) for name in names}
        return {name: extent for name, extent in extents.items() if extent is not None}

    def get(self, name: str) -> Extent | None:
        """Return a volume's extent, if it has one. Raises NodeTrouble where that cannot be told."""
        path = self._path(name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Extent)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise NodeTrouble(
                f"{path} does not say where its volume is ({error}): bring it back from a copy, "
                "or remove it, and the volume is lost"
            ) from error

    def allocate(self, volume: Volume, disk_size: DiskSize) -> Extent:
        """Return a volume's extent, taken now if it has none.

        Raises NodeTrouble if none is free: for good, unless what is free is in pieces.
        """
        taken = self.all()
        if volume.name in taken:
            return taken[volume.name]
        free_extent = find_free(taken.values(), disk_size, volume.size)
        if free_extent is None:
            free_size = free_bytes(taken.values(), disk_size)
            if volume.size > free_size:
                raise out_of_space(volume.rabbit, free_size, volume.size)
            raise NodeTrouble(f"{volume.rabbit} has no {volume.size} bytes of flash in one piece")
        offset, size = free_extent
        extent = Extent(
            offset=offset,
            size=size,
            file_system=volume.file_system,
            userid=volume.userid,
            groupid=volume.groupid,
        )
        self._write(volume.name, extent)
        return extent

    def set_formatted(self, name: str) -> None:
        """Remember that a volume's file system is whole."""
        extent = self.get(name)
        if extent is not None:
            self._write(name, msgspec.structs.replace(extent, formatted=True))

    def remove(self, name: str) -> None:
        """Free a volume's extent."""
        self._path(name).unlink(missing_ok=True)
        sync_directory(self._directory)

    def _path(self, name: str) -> Path:
        return self._directory / f"{path_component(name)}.json"

    def _write(self, name: str, extent: Extent) -> None:
        """Write a record down, whole or not at all, and for good."""
        final = self._path(name)
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f".{name}.new"
        with unfinished.open("wb") as file:
            file.write(msgspec.json.encode(extent))
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(final)
        sync_directory(self._directory)
