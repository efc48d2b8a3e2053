"""A tmpfs of limited size for each FLUX_JOB_TMPDIR. For root.

They are mounted below one that is shared, so that every node sees them, whichever of its
own mounts it has: the nodes' mount namespaces are slaves of the machine's. To detach the
one is to detach them all.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_NOSUID: Final = 0x2
_NODEV: Final = 0x4
_SHARED: Final = 0x100000
_DETACH: Final = 0x2
_NOFOLLOW: Final = 0x8

_BASE_SIZE: Final = 2**20
"""Bytes of the file system that has nothing but the mount points of the others."""
_BYTES_PER_FILE: Final = 4096
"""Bytes for each of which there may be a file: the names of files are memory, too."""
_MAX_DIRECTORIES: Final = 2**20
"""Inodes of that file system: how many directories of jobs there may be at a time."""


def mount_shared(path: Path) -> None:
    """Mount the file system below which those of jobs are. Raises OSError."""
    _mount(path, f"size={_BASE_SIZE},nr_inodes={_MAX_DIRECTORIES},mode=0711")
    try:
        _call("mount", None, os.fsencode(path), None, ctypes.c_ulong(_SHARED), None)
    except OSError:
        detach(path)
        raise


def mount(path: Path, size: int, userid: int, gid: int) -> None:
    """Mount a tmpfs of `size` bytes on a directory, for its user alone. Raises OSError."""
    files = max(1024, size // _BYTES_PER_FILE)
    _mount(path, f"size={size},nr_inodes={files},mode=0700,uid={userid},gid={gid}")


def detach(path: Path) -> None:
    """Unmount what is mounted there and below, even if it is in use. Raises OSError."""
    while True:
        try:
            # Never what a link leads to, which a user may have made.
            _call("umount2", os.fsencode(path), _DETACH | _NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return  # it is no mount point, or not any more
            raise


def _mount(path: Path, options: str) -> None:
    flags = ctypes.c_ulong(_NOSUID | _NODEV)
    _call("mount", b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode())


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
