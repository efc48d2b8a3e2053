"""Free space for a state directory: a process that writes there waits for it before it starts."""

import asyncio
import errno
import math
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from warren.base import log
from warren.base.bytesize import format_bytes
from warren.journal import sqlite

CLUSTER_START_BYTES: Final = 8 * 2**20
"""Bytes that the start of a cluster writes at most: records, keys, the logs of SQLite."""
SERVICE_START_BYTES: Final = 256 * 2**10
"""Bytes that the start of a service with one journal writes at most."""
FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_POLL_INTERVAL: Final = 1.0


async def wait_for_space(
    directory: Path,
    journals: Iterable[Path],
    needed_bytes: int = CLUSTER_START_BYTES,
    interval: float = _POLL_INTERVAL,
) -> None:
    """Return when there is space for a start; if there is none yet, print that first.

    The space that an earlier run has reserved beside `journals` is given up for it.
    """
    why = _shortage(directory, needed_bytes)
    if why is not None:
        for journal in journals:
            sqlite.release_reserve(journal)
        why = _shortage(directory, needed_bytes)
    if why is None:
        return
    message = (
        f"the file system of {directory} is full ({why}): the start goes on when there is room for "
        f"{format_bytes(needed_bytes)}"
    )
    log.warning("waiting for room", why=why)
    with suppress(OSError):  # it may be a file on the same disk
        print(f"warren: {message}", file=sys.stderr, flush=True)
    while True:
        await asyncio.sleep(interval)
        if _shortage(directory, needed_bytes) is None:
            break
    log.info("there is room")


async def retry_while_full(write: Callable[[], None], interval: float = _POLL_INTERVAL) -> None:
    """Call `write` until the disk has space for it. Raises OSError for any other reason."""
    while True:
        try:
            write()
        except OSError as error:
            if error.errno not in FULL_ERRNOS:
                raise
            log.warning("waiting for room", why=error.strerror)
            await asyncio.sleep(interval)
        else:
            return


def free_bytes(directory: Path) -> float:
    """Return how many bytes the file system of a directory has left; infinity if unknown."""
    try:
        file_system = os.statvfs(directory)
    except OSError:
        return math.inf
    return float(file_system.f_bavail * file_system.f_frsize)


def _shortage(directory: Path, needed_bytes: int) -> str | None:
    """Return why so many bytes cannot be had; None if they can."""
    probe = directory / "room.new"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, needed_bytes)
        finally:
            os.close(descriptor)
            probe.unlink()
    except OSError as error:
        # Any other error is reported by what writes there.
        return error.strerror if error.errno in FULL_ERRNOS else None
    return None
