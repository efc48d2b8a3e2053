"""Files that are replaced as a whole, and files that are only ever appended to."""

import os
import stat
from contextlib import suppress
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all, and for good; for its owner alone."""
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    sync_directory(path.parent)


def append(path: Path, lines: bytes) -> None:
    """Append lines to a file, all or none, and for good; for its owner alone. Raises OSError.

    A line that a crash has cut off before stays as a line of its own.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(None, "it is not a file", str(path))
        size = status.st_size
        ends_with_newline = not size or os.pread(file.fileno(), 1, size - 1) == b"\n"
        remaining = memoryview(lines if ends_with_newline else b"\n" + lines)
        try:
            while remaining:
                remaining = remaining[os.write(file.fileno(), remaining) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                os.ftruncate(file.fileno(), size)
            raise
    if not size:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk for good. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
