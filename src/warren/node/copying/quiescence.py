"""Files that have been written to just now: their times would not tell that they are once more.

A file's times come from a clock that moves in ticks, so that all that is written in one of them
has the same time. Only what is older than a tick gets another time when it is written to again.
And a write sets the time when it begins: one that takes long, or whose process has to wait for a
CPU, may be half done when the time is old already.
"""

import os
import time
from contextlib import suppress
from typing import Final

_TICK: Final = 10_000_000
"""Nanoseconds: the longest tick of Linux."""
_SECOND: Final = 1_000_000_000
"""The tick of file systems that keep whole seconds."""
_MAX_AHEAD: Final = 2 * _SECOND
"""How far a file server's clock may be before this machine's. By one that is further, nothing can
be said: files would be waited for as long as they are from the future."""
_ROUNDS: Final = 3
_LONGEST_WRITE: Final = 10 * _SECOND
"""No write takes longer, from its beginning to its end."""


class BeingWritten(Exception):
    """A file is written to again and again."""


def nanoseconds_to_wait(status: os.stat_result, now: int) -> int:
    """Return for how many nanoseconds a write to a file might not be seen, 0 for none."""
    # Users may set the one to any time, and the other not at all.
    last_write = min(status.st_mtime_ns, status.st_ctime_ns)
    if last_write + _SECOND + _TICK <= now:
        return 0
    tick = _TICK if status.st_ctime_ns % _SECOND else _SECOND + _TICK
    return max(0, min(last_write + tick - now, tick)) if last_write <= now + _MAX_AHEAD else 0


def is_quiet(descriptor: int, status: os.stat_result) -> bool:
    """Return whether another write to an open file would be seen, and none is under way.

    Raises OSError.
    """
    now = time.time_ns()
    if nanoseconds_to_wait(status, now):
        return False
    _wait_for_write(descriptor, status, now)
    return True


def wait_quiet(descriptor: int, status: os.stat_result) -> os.stat_result:
    """Wait until an open file is quiet; return what is known of it then.

    Raises BeingWritten, and OSError.
    """
    for _ in range(_ROUNDS):
        nanoseconds = nanoseconds_to_wait(status, time.time_ns())
        if not nanoseconds:
            break
        time.sleep(nanoseconds / _SECOND)
        before, status = status, os.fstat(descriptor)
        # Whatever the clocks say, a tick is over.
        if (status.st_mtime_ns, status.st_size) == (before.st_mtime_ns, before.st_size):
            break
    else:
        raise BeingWritten
    _wait_for_write(descriptor, status, time.time_ns())
    return status


def _wait_for_write(descriptor: int, status: os.stat_result, now: int) -> None:
    """Wait for a write that may be under way. The file is where it begins then."""
    if min(status.st_mtime_ns, status.st_ctime_ns) + _LONGEST_WRITE <= now:
        return
    # Local file systems write under a lock that they take for this, too, and not for reading.
    with suppress(OSError):  # a file of nothing has no data
        if os.lseek(descriptor, 0, os.SEEK_DATA):
            os.lseek(descriptor, 0, os.SEEK_SET)
