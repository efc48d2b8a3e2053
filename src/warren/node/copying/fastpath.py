"""The fast path: a small file of one name and no attributes, to where there is none of its name.

It takes as few system calls as a whole copy can. Whatever is different, fails or changes meanwhile
is left to the slow path, which begins anew and knows the words for it.
"""

import os
import stat
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from warren.node.copying import metadata, quiescence
from warren.node.copying.latency import Latency
from warren.node.copying.transfer import SMALL_FILE_BYTES
from warren.node.nofollow import open_to_look, open_to_make

_MODE_BITS: Final = 0o777


class FastPathResult(msgspec.Struct, frozen=True):
    """What became of some files."""

    file_count: int
    byte_count: int
    skipped: Sequence[str]
    """The names of those that are left to the slow path."""


def copy_all(
    names: Sequence[str], source_dir_fd: int, target_dir_fd: int, latency: Latency
) -> FastPathResult:
    """Copy files as `copy`; none of them while `latency` is long."""
    file_count = total_bytes = 0
    skipped = []
    began = time.monotonic()
    for name in names:
        copied_bytes = None if latency.is_long() else copy(name, source_dir_fd, target_dir_fd)
        if copied_bytes is None:
            skipped.append(name)
            continue
        file_count += 1
        total_bytes += copied_bytes
        ended = time.monotonic()
        latency.add(ended - began)
        began = ended
    return FastPathResult(file_count, total_bytes, skipped)


def copy(name: str, source_dir_fd: int, target_dir_fd: int) -> int | None:
    """Copy a file from one open directory to another; return its bytes, or None if it cannot.

    The directory that it is copied to hands no access control list down.
    """
    try:
        source_fd = open_to_look(name, source_dir_fd)
        try:
            return _copy_open(name, source_fd, target_dir_fd)
        finally:
            os.close(source_fd)
    except OSError:
        return None


def _copy_open(name: str, source_fd: int, target_dir_fd: int) -> int | None:
    status = os.fstat(source_fd)
    size, mode = status.st_size, status.st_mode & _MODE_BITS
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or size > SMALL_FILE_BYTES:
        return None
    if status.st_blocks * 512 < size or metadata.copied_attributes(source_fd):
        return None
    if not quiescence.is_quiet(source_fd, status):
        return None
    data = os.read(source_fd, size + 1)  # of a file that has grown, one more is read
    if len(data) != size:
        return None
    # Its mode is what it will be, so that it need not be set: as a new file it has no rights of
    # before, and of a copy that is killed here, another try replaces what it may not write.
    target_fd = open_to_make(name, target_dir_fd, mode)
    try:
        if size and os.write(target_fd, data) != size:
            return None
        source_now, target_status = os.fstat(source_fd), os.fstat(target_fd)
        if (source_now.st_size, source_now.st_mtime_ns) != (
            size,
            status.st_mtime_ns,
        ) or target_status.st_size != size:
            return None
        if target_status.st_mode & _MODE_BITS != mode:
            os.chmod(target_fd, mode)
        os.utime(target_fd, ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(target_fd)
    return size
