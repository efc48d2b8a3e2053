"""Have what was written to a file system reach its device, and hear of it where that fails.

A write ends when its data is in memory. What becomes of it later is told to whoever
asks: else a copy to a device that fails would look as if all were well.
"""

import ctypes
import os


def sync_file_system(descriptor: int) -> None:
    """Write out the file system in which a file is. Raises OSError.

    Also of writes that failed on their own since the file was opened.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
