"""The data of one open file, copied to another by the kernel; holes stay holes."""

import errno
import os
from collections.abc import Callable
from typing import Final

from warren.node.copying.pace import Pace
from warren.node.copying.tally import Tally

_CHUNK: Final = 32 * 2**20
SMALL_FILE: Final = 2**18
"""Bytes that are copied at once."""
_COMPARED_PIECE: Final = 2**20
_NO_RANGE: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class Transfer:
    """Copies data at a pace; `tally` hears of every piece, and of every hole."""

    def __init__(self, pace: Pace, tally: Tally) -> None:
        self._pace = pace
        self._count_bytes = tally.add_bytes
        self._count_hole = tally.add_hole

    def copy(self, source: int, target: int, status: os.stat_result, offset: int = 0) -> int:
        """Copy a file from byte `offset` on; return how long the copy is. Raises OSError."""
        if status.st_size <= SMALL_FILE and status.st_blocks * 512 >= status.st_size:
            return self._copy_small(source, target, status.st_size)
        position = offset
        while (data := next_data(source, position)) is not None:
            begin, end = data
            for each in (source, target):
                os.lseek(each, begin, os.SEEK_SET)
            self._count_hole(begin - position)
            position = begin + self._copy_range(source, target, end - begin)
            if position < end:
                break  # it has become shorter
        # Holes stay holes: a file of nothing else may be as long as no disk, and never end.
        whole = os.fstat(source).st_size
        if position < whole:
            os.ftruncate(target, whole)
            self._count_hole(whole - position)
        return max(position, whole)

    def _copy_range(self, source: int, target: int, size: int) -> int:
        """Copy so many bytes from where both files are, or fewer up to the source's end."""
        copied = 0
        by_range = True
        while copied < size:
            chunk = min(self._pace.piece_size(_CHUNK), size - copied)
            try:
                if by_range:
                    count = os.copy_file_range(source, target, chunk)
                    if count == 0:
                        by_range = False  # some file systems say 0 for "cannot"
                        continue
                else:
                    count = os.sendfile(target, source, None, chunk)
            except OSError as error:
                if by_range and error.errno in _NO_RANGE:
                    by_range = False
                    continue
                raise
            if count == 0:
                break
            copied += count
            self._count_bytes(count)
            self._pace.throttle(count)
        return copied

    def _copy_small(self, source: int, target: int, size: int) -> int:
        """Copy what fits into memory; in-kernel copies cost more than they save there."""
        copied = 0
        # One more than there is, so that a file that has not grown is read at once.
        while data := os.read(source, size + 1):
            last = len(data) <= size  # a short read of a file is its end
            while data:
                written = os.write(target, data)
                data = data[written:]
                copied += written
                self._pace.throttle(written)
            if last:
                break
        self._count_bytes(copied)
        return copied


def next_data(descriptor: int, position: int) -> tuple[int, int] | None:
    """Return where the next piece of a file begins and ends that is no hole; None for no more."""
    try:
        begin = os.lseek(descriptor, position, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def first_difference(source: int, target: int) -> int | None:
    """Return the first byte in which a written file differs from its source, as on the disk.

    Both are open to be read. Raises OSError.
    """
    os.fdatasync(target)
    os.posix_fadvise(target, 0, 0, os.POSIX_FADV_DONTNEED)
    position = 0
    while True:
        pieces = [each for each in map(_data_from(position), (source, target)) if each is not None]
        if not pieces:
            return None
        begin, end = min(pieces)
        size = min(end - begin, _COMPARED_PIECE)
        ours, theirs = (_read_exactly(each, size, begin) for each in (source, target))
        if ours != theirs:
            return begin + _first_byte(ours, theirs)
        position = begin + size


def _data_from(position: int) -> Callable[[int], tuple[int, int] | None]:
    return lambda descriptor: next_data(descriptor, position)


def _read_exactly(descriptor: int, size: int, position: int) -> bytes:
    """Read so many bytes, or fewer only at the end of a file."""
    found = bytearray()
    while len(found) < size:
        piece = os.pread(descriptor, size - len(found), position + len(found))
        if not piece:
            break
        found += piece
    return bytes(found)


def _first_byte(ours: bytes, theirs: bytes) -> int:
    for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one != other:
            return at
    return min(len(ours), len(theirs))
