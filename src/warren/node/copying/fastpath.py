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
from warren.node.copying.transfer import SMALL_FILE
from warren.node.nofollow import open_to_look, open_to_make

_MODE_BITS: Final = 0o777


class FastPathResult(msgspec.Struct, frozen=True):
    """What became of some files."""

    files: int
    bytes: int
    skipped: Sequence[str]
    """The names of those that are left to the slow path."""


def copy_all(names: Sequence[str], above: int, there: int, latency: Latency) -> FastPathResult:
    """Copy files as `copy`; none of them while `latency` is long."""
    files = size = 0
    left = []
    began = time.monotonic()
    for name in names:
        copied = None if latency.is_long() else copy(name, above, there)
        if copied is None:
            left.append(name)
            continue
        files += 1
        size += copied
        ended = time.monotonic()
        latency.took(ended - began)
        began = ended
    return FastPathResult(files, size, left)


def copy(name: str, above: int, there: int) -> int | None:
    """Copy a file from one open directory to another; return its bytes, or None if it cannot.

    The directory that it is copied to hands no access control list down.
    """
    try:
        reading = open_to_look(name, above)
        try:
            return _copy_open(name, reading, there)
        finally:
            os.close(reading)
    except OSError:
        return None


def _copy_open(name: str, reading: int, there: int) -> int | None:
    known = os.fstat(reading)
    size, mode = known.st_size, known.st_mode & _MODE_BITS
    if not stat.S_ISREG(known.st_mode) or known.st_nlink != 1 or size > SMALL_FILE:
        return None
    if known.st_blocks * 512 < size or metadata.copied_attributes(reading):
        return None
    if not quiescence.is_quiet(reading, known):
        return None
    data = os.read(reading, size + 1)  # of a file that has grown, one more is read
    if len(data) != size:
        return None
    # Its mode is what it will be, so that it need not be set: as a new file it has no rights of
    # before, and of a copy that is killed here, another try replaces what it may not write.
    writing = open_to_make(name, there, mode)
    try:
        if size and os.write(writing, data) != size:
            return None
        now, made = os.fstat(reading), os.fstat(writing)
        if (now.st_size, now.st_mtime_ns) != (size, known.st_mtime_ns) or made.st_size != size:
            return None
        if made.st_mode & _MODE_BITS != mode:
            os.chmod(writing, mode)
        os.utime(writing, ns=(known.st_atime_ns, known.st_mtime_ns))
    finally:
        os.close(writing)
    return size
