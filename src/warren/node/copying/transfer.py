"""The data of one open file, copied to another by the kernel; holes stay holes."""

import errno
import os
from collections.abc import Callable
from typing import Final

from warren.node.copying.ratelimit import RateLimit
from warren.node.copying.tally import Tally

_CHUNK_BYTES: Final = 32 * 2**20
SMALL_FILE_BYTES: Final = 2**18
"""Files of this size, or smaller, are copied at once."""
_COMPARED_BYTES: Final = 2**20
_NO_COPY_RANGE_ERRORS: Final = (
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
)


class Transfer:
    """Copies data within a limit; `tally` hears of every piece, and of every hole."""

    def __init__(self, rate_limit: RateLimit, tally: Tally) -> None:
        self._rate_limit = rate_limit
        self._count_bytes = tally.add_bytes
        self._count_hole = tally.add_hole

    def copy(self, source_fd: int, target_fd: int, status: os.stat_result, offset: int = 0) -> int:
        """Copy a file from byte `offset` on; return how long the copy is. Raises OSError."""
        if status.st_size <= SMALL_FILE_BYTES and status.st_blocks * 512 >= status.st_size:
            return self._copy_small(source_fd, target_fd, status.st_size)
        position = offset
        while (data := next_data(source_fd, position)) is not None:
            begin, end = data
            for each in (source_fd, target_fd):
                os.lseek(each, begin, os.SEEK_SET)
            self._count_hole(begin - position)
            position = begin + self._copy_range(source_fd, target_fd, end - begin)
            if position < end:
                break  # it has become shorter
        # Holes stay holes: a file of nothing else may be as long as no disk, and never end.
        source_size = os.fstat(source_fd).st_size
        if position < source_size:
            os.ftruncate(target_fd, source_size)
            self._count_hole(source_size - position)
        return max(position, source_size)

    def _copy_range(self, source_fd: int, target_fd: int, size: int) -> int:
        """Copy so many bytes from where both files are, or fewer up to the source's end."""
        copied = 0
        by_range = True
        while copied < size:
            chunk = min(self._rate_limit.piece_size(_CHUNK_BYTES), size - copied)
            try:
                if by_range:
                    count = os.copy_file_range(source_fd, target_fd, chunk)
                    if count == 0:
                        by_range = False  # some file systems say 0 for "cannot"
                        continue
                else:
                    count = os.sendfile(target_fd, source_fd, None, chunk)
            except OSError as error:
                if by_range and error.errno in _NO_COPY_RANGE_ERRORS:
                    by_range = False
                    continue
                raise
            if count == 0:
                break
            copied += count
            self._count_bytes(count)
            self._rate_limit.throttle(count)
        return copied

    def _copy_small(self, source_fd: int, target_fd: int, size: int) -> int:
        """Copy what fits into memory; in-kernel copies cost more than they save there."""
        copied = 0
        # One more than there is, so that a file that has not grown is read at once.
        while data := os.read(source_fd, size + 1):
            at_end = len(data) <= size  # a short read of a file is its end
            while data:
                written = os.write(target_fd, data)
                data = data[written:]
                copied += written
                self._rate_limit.throttle(written)
            if at_end:
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


def first_difference(source_fd: int, target_fd: int) -> int | None:
    """Return the first byte in which a written file differs from its source, as on the disk.

    Both are open to be read. Raises OSError.
    """
    os.fdatasync(target_fd)
    os.posix_fadvise(target_fd, 0, 0, os.POSIX_FADV_DONTNEED)
    position = 0
    while True:
        pieces = [
            each for each in map(_data_from(position), (source_fd, target_fd)) if each is not None
        ]
        if not pieces:
            return None
        begin, end = min(pieces)
        size = min(end - begin, _COMPARED_BYTES)
        source_bytes, target_bytes = (
            _read_exactly(each, size, begin) for each in (source_fd, target_fd)
        )
        if source_bytes != target_bytes:
            return begin + _first_difference_in(source_bytes, target_bytes)
        position = begin + size


def _data_from(position: int) -> Callable[[int], tuple[int, int] | None]:
    return lambda descriptor: next_data(descriptor, position)


def _read_exactly(descriptor: int, size: int, position: int) -> bytes:
    """Read so many bytes, or fewer only at the end of a file."""
    data = bytearray()
    while len(data) < size:
        piece = os.pread(descriptor, size - len(data), position + len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def _first_difference_in(left: bytes, right: bytes) -> int:
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))
