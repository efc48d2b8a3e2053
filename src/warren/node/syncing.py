"""Have what was written to a file system reach its device, and hear of it where that fails.

A write ends when its data is in memory. What becomes of it later the kernel tells only if it is
asked: else a copy to a device that fails would look as if all were well.
"""

import ctypes
import os
import threading


class WrittenFileSystem:
    """The file system that one copy writes to. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first_file: int | None = None

    def add(self, descriptor: int) -> None:
        """Note a file, or its directory, before it is written to. The first is kept open.

        The kernel tells of errors since a file was opened.
        """
        with self._lock:
            if self._first_file is None:
                self._first_file = os.dup(descriptor)

    def sync(self) -> None:
        """Write out the file system, if any file was noted.

        Raises OSError, also for writes that the kernel has tried, and failed to do, since the first
        file was noted.
        """
        with self._lock:
            descriptor, self._first_file = self._first_file, None
        if descriptor is None:
            return
        try:
            sync_file_system(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Write out the file system in which a file is. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
