"""Whether flash can still be used: a little is written and read, and what hangs counts as lost.

It is tried in a child process, for a disk that hangs lets go of no process that asks it.
"""

import errno
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warren.base.childcalls import SILENT, call_in_child
from warren.dws.node import NodeTrouble
from warren.node.threads import in_thread

PROBE_TIMEOUT: Final = 10.0
"""Seconds that flash may take to answer."""

_BLOCK_BYTES: Final = 4096
_FULL_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_TMPFILE_ERRORS: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""What file systems say that have no unnamed files."""


async def check(
    probe: Callable[[str], str | None], path: Path, *, seconds: float = PROBE_TIMEOUT
) -> None:
    """Raise NodeTrouble, with the reason, unless a place can be used."""
    try:
        (answer,) = await in_thread(call_in_child, probe, [str(path)], silence=seconds)
    except OSError:
        return  # no child can be started, which says nothing of the flash
    if answer is SILENT:
        raise NodeTrouble(f"{path} does not answer within {seconds:g} s")
    if answer is not None:
        raise NodeTrouble(f"{path}: {answer}")


def probe_directory(path: str) -> str | None:
    """Return why nothing can be written in a directory, which is made; None if it can.

    One that is full is as it should be.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        _write_and_read(path)
    except OSError as error:
        return None if error.errno in _FULL_ERRORS else error.strerror
    return None


def _write_and_read(path: str) -> None:
    """Write a file that has no name, and so leaves nothing behind, and read it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE_ERRORS:
            raise
        os.listdir(path)
        return
    try:
        os.write(descriptor, b"probe")
        os.fsync(descriptor)
        os.pread(descriptor, _BLOCK_BYTES, 0)
    finally:
        os.close(descriptor)


def probe_device(path: str) -> str | None:
    """Return why a block device cannot be read at its beginning and its end; None if it can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        try:
            size = os.lseek(descriptor, 0, os.SEEK_END)
            with mmap.mmap(-1, _BLOCK_BYTES) as block:  # aligned, as is asked for
                for offset in (0, size - size % _BLOCK_BYTES - _BLOCK_BYTES):
                    os.preadv(descriptor, [block], max(offset, 0))
        finally:
            os.close(descriptor)
    except OSError as error:
        return error.strerror
    return None
