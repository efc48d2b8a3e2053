"""Loop devices: parts of a file or of a block device as devices of their own.

The kernel's own list in /sys is the only record of them, so that a retry finds
what a dead predecessor has attached. They are root's, always: a user who holds a loop
device can have it show any other part of what is behind it (ADR 027).
"""

import asyncio
import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from warren.dws.node import CannotBeCutOff, Kept, NodeTrouble
from warren.node import commands, filesystems
from warren.node.threads import in_thread

_BLOCK_DEVICES: Final = Path("/sys/devices/virtual/block")
"""Where the kernel tells of loop devices, with no link to follow for each."""
_REMOVED_SUFFIX: Final = " (deleted)"
"""What the kernel puts after the name of a file that has none any more."""
_PAGE_SIZE: Final = 4096
"""More than the kernel tells in one of its files."""
_POLL_INTERVAL: Final = 0.02
_MAX_POLLS: Final = 50

# linux/loop.h: what of struct loop_info64 is needed here, and where it stands.
_SET_STATUS64: Final = 0x4C04
_GET_STATUS64: Final = 0x4C05
_INFO_SIZE: Final = 232
_OFFSET_AT: Final = 24
_FLAGS_AT: Final = 52
_AUTOCLEAR: Final = 4

_OFFSET_BEYOND_END: Final = 1 << 62
"""An offset, in bytes, behind the end of everything."""


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """One loop device that is attached."""

    device: str
    backing: str
    """As the kernel calls it; of a file that was removed, it says so here."""
    offset: int
    """Bytes, as is `size`."""
    size: int
    """0 stands for all that follows."""

    @property
    def backing_removed(self) -> bool:
        """Whether the file behind it has no name any more: another one may have it now."""
        return self.backing.endswith(_REMOVED_SUFFIX)

    @property
    def is_cut_off(self) -> bool:
        """Whether the device shows nothing for good: all that is left to it is its users."""
        return self.offset == _OFFSET_BEYOND_END

    def overlaps(self, offset: int, size: int) -> bool:
        """Return whether the device shows anything of a part of what is behind it."""
        return _overlaps((self.offset, self.size), (offset, size))


_Part = tuple[int, int]
"""Offset and size of a part of what is behind a device, in bytes."""


def _overlaps(shown: _Part, part: _Part) -> bool:
    (shown_offset, shown_size), (offset, size) = shown, part
    return shown_offset < offset + size and (not shown_size or offset < shown_offset + shown_size)


def find_attached(backing: Path) -> list[Loop]:
    """Return the loop devices on a file or block device, and on one removed from there."""
    return _on(backing, _attached_loops())


def find_overlapping(backing: Path, offset: int, size: int) -> list[Loop]:
    """Return those of `find_attached` that show something of a part, for a fraction of the time."""
    return _on(backing, _attached_loops((offset, size)))


def _on(backing: Path, attached: Iterable[Loop]) -> list[Loop]:
    path = _kernel_path(backing)
    return [loop for loop in attached if loop.backing in (path, f"{path}{_REMOVED_SUFFIX}")]


def _kernel_path(backing: Path) -> str:
    """Return the kernel's word for a file: it does not know by which links it was found."""
    return os.path.realpath(backing)


def _attached_loops(part: _Part | None = None) -> Iterator[Loop]:
    for name in os.listdir(_BLOCK_DEVICES):
        loop = _read_loop(name, part) if name.startswith("loop") else None
        if loop is not None:
            yield loop


def _read_loop(name: str, part: _Part | None = None) -> Loop | None:
    """Return a loop device; None where it is not attached, or shows nothing of a part.

    Of the hundreds that show other parts, no more is read than tells that: others wait meanwhile.
    """
    directory = f"{_BLOCK_DEVICES}/{name}/loop"
    try:
        offset = int(_read(f"{directory}/offset"))
        if part is not None and not _overlaps((offset, 0), part):
            return None
        size = int(_read(f"{directory}/sizelimit"))
        if part is not None and not _overlaps((offset, size), part):
            return None
        backing = _read(f"{directory}/backing_file").removesuffix("\n")
    except (OSError, ValueError):
        return None  # it may be being detached
    return Loop(device=f"/dev/{name}", backing=backing, offset=offset, size=size)


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(descriptor, _PAGE_SIZE))
    finally:
        os.close(descriptor)


def why_unavailable() -> str | None:
    """Return why file systems cannot be made on loop devices here; None if they can."""
    if os.geteuid() != 0:
        return "loop devices take root"
    missing = [each for each in ("losetup", *filesystems.PROGRAMS) if shutil.which(each) is None]
    if missing:
        return f"{' and '.join(missing)}: not installed"
    if not os.access("/dev/loop-control", os.W_OK):
        return "the kernel has no loop devices"
    file_systems = Path("/proc/filesystems").read_text().split()
    if "xfs" not in file_systems and not Path(f"/lib/modules/{os.uname().release}").is_dir():
        return "the kernel has no xfs"
    return None


async def attach(backing: Path, offset: int, size: int) -> str:
    """Return the device of a part, attached now if it was not. One caller at a time for a part."""
    path = _kernel_path(backing)
    for loop in _attached_loops((offset, size)):
        if (loop.backing, loop.offset, loop.size) == (path, offset, size):
            return loop.device
    # Alone on the machine: of two that have found the same free device, the loser would hold
    # it open for a moment, while the winner's mkfs wants it for itself.
    device = await commands.run(
        ["flock", "--no-fork", "/dev/loop-control",
         "losetup", "--find", "--show", "--direct-io=on",
         "--offset", str(offset), "--sizelimit", str(size), path]
    )  # fmt: skip
    return device.strip()


async def wait_unmounted(loop: Loop) -> None:
    """Wait a moment for a device to be mounted nowhere, in no namespace. Raises Kept."""
    if not await _eventually(lambda: not _is_mounted(loop)):
        raise Kept(f"{loop.device} is in use: it is mounted")


async def detach(loop: Loop) -> None:
    """Detach a device, and see that it is. Raises Kept while something has it open.

    The kernel only remembers the wish then, and fulfils it when the last user goes. Raises
    NodeTrouble where it is not asked, or refuses for another reason.
    """
    failure = None
    try:
        await commands.run(["losetup", "--detach", loop.device])
    except NodeTrouble as trouble:
        failure = trouble  # it may have gone by itself; the list tells
    if await _eventually(lambda: _read_loop(Path(loop.device).name) != loop):
        return
    if failure is None or os.strerror(errno.EBUSY) in str(failure):
        raise Kept(f"{loop.device} is in use, and cannot be detached")
    raise NodeTrouble(f"{loop.device} cannot be detached: {failure}") from failure


async def cut_off(loop: Loop) -> None:
    """Have a device show nothing any more, though it is in use, and go with its last user.

    What it has been asked to do is done before; what it is asked from then on fails. Raises
    NodeTrouble where the kernel does not do that to a device that is in use.
    """
    try:
        await in_thread(_set_offset_nowhere, loop.device)
        size = int((_BLOCK_DEVICES / Path(loop.device).name / "size").read_text())
    except OSError as error:
        raise NodeTrouble(f"{loop.device} cannot be cut off: {error.strerror}") from error
    if size:
        raise CannotBeCutOff(f"{loop.device} cannot be cut off: the kernel has left it as it was")


def _set_offset_nowhere(device: str) -> None:
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = bytearray(_INFO_SIZE)
        fcntl.ioctl(descriptor, _GET_STATUS64, info)
        (flags,) = struct.unpack_from("=I", info, _FLAGS_AT)
        struct.pack_into("=Q", info, _OFFSET_AT, _OFFSET_BEYOND_END)
        struct.pack_into("=I", info, _FLAGS_AT, flags | _AUTOCLEAR)
        fcntl.ioctl(descriptor, _SET_STATUS64, info)
    finally:
        os.close(descriptor)


def _is_mounted(loop: Loop) -> bool:
    try:
        os.close(os.open(loop.device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return True
        raise
    return False


async def _eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(_MAX_POLLS):
        if condition():
            return True
        await asyncio.sleep(_POLL_INTERVAL)
    return False
