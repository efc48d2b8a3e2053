"""What an earlier try of the same movement has left, and what of it need not be copied again.

A file gets its time of modification as the last of all: one that has its source's size and time
is whole. The kernel's own time of change says that it was not there before the movement, and that
the source has not been touched since. Of a large file that is not whole, a mark says who has begun
it, and from which file: what is there of it was written from its beginning on (ADR 083).
"""

import os
from contextlib import suppress
from typing import Final, Self

import msgspec

from warren.node import identity

MARK: Final = "user.warren.unfinished"

_LARGE_FILE: Final = 2**26
"""Smaller files are copied again from their beginning."""
REWRITTEN_BYTES: Final = 2**25
"""What was written last is written again."""


class CopyAttempt(msgspec.Struct, frozen=True):
    """One try of a movement."""

    mark: bytes
    """Of the movement, and of this run of the machine: what had not reached the disk when a
    machine went down may be missing from the middle of a file. A file's own mark says which
    source it is begun from, too."""
    trusted_since: float
    """When the movement was made, or the machine was started after that: files that were finished
    before are copied again. 0 for a first try."""
    movement_made_at: float
    """0 for a first try."""
    userid: int

    @classmethod
    def of(cls, movement: str, made_at: float) -> Self:
        """Return a try of a movement: the first, if `made_at` is 0, or another of one made then."""
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot_id = file.read().strip()
        mark = f"{movement} {boot_id}".encode() if movement else b""
        booted_at = _boot_time() if made_at else 0.0
        return cls(mark, max(made_at, booted_at) if made_at else 0.0, made_at, identity.file_user())

    def is_finished(self, source: os.stat_result, target: os.stat_result) -> bool:
        """Return whether a file is the whole copy that an earlier try has made of the source."""
        return (
            self._is_untouched(source)
            and target.st_uid == self.userid
            and target.st_size == source.st_size
            and target.st_mtime_ns == source.st_mtime_ns
            and target.st_ctime >= self.trusted_since
        )

    def _is_untouched(self, source: os.stat_result) -> bool:
        return source.st_ctime < self.movement_made_at and source.st_mtime < self.movement_made_at

    def resume(self, source: os.stat_result, target_fd: int) -> int:
        """Begin to write an open file, or go on with it; return from which byte on.

        All that is there after it is gone. Raises OSError.
        """
        status = os.fstat(target_fd)
        is_large = self.mark and source.st_size > _LARGE_FILE
        file_mark = self.mark + _identity_of(source)
        may_resume = is_large and status.st_size > 0 and self._is_untouched(source)
        if may_resume and status.st_size <= source.st_size and _mark_of(target_fd) == file_mark:
            offset = max(0, status.st_size - REWRITTEN_BYTES)
        else:
            offset = 0
        if status.st_size > offset:
            os.ftruncate(target_fd, offset)
        if is_large and not offset:
            with suppress(OSError):  # then it is begun anew by the next try
                os.setxattr(target_fd, MARK, file_mark)
        return offset


def _identity_of(source: os.stat_result) -> bytes:
    """Return what no other file has, nor this one with anything else in it.

    A name may lead to another file for each try: `latest` is a link that moves on.
    """
    times = f"{source.st_mtime_ns} {source.st_ctime_ns}"
    return f" {source.st_dev} {source.st_ino} {source.st_size} {times}".encode()


def _mark_of(target_fd: int) -> bytes | None:
    try:
        return os.getxattr(target_fd, MARK)
    except OSError:
        return None


def _boot_time() -> float:
    """Return when the machine was started, in seconds since the epoch."""
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith("btime "):
                return float(line.split()[1])
    return 0.0
