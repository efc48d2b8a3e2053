"""Detaching of one mount, by its id: run as a program in the mount namespace that it is in.

Its path may lead elsewhere by then: where users may rename directories, mount points are not
spared. Nothing else is ever unmounted.
"""

import ctypes
import errno
import os
import struct
import sys
from typing import Final

from warren.node import mountpoints, nofollow
from warren.node.mountpoints import fd_mount_id

_MNT_DETACH: Final = 0x2
_AT_EMPTY_PATH: Final = 0x1000
_AT_STATX_DONT_SYNC: Final = 0x4000
_STATX_BYTES: Final = 256
_STATX_DEVICE: Final = 0x88
"""Where in its answer statx(2) says the device, as two numbers of 32 bits."""
_MOST_ON_TOP: Final = 2000
"""How often what is mounted at one path is detached. FUSE mounts a thousand times for a user."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def detach(mount_id: int, path: str, device: int | None = None) -> bool:
    """Detach a mount, if it still is at a path; return whether it was. Raises OSError.

    Where `device` is said, it is one of that file system only: ids of mounts are given anew. Its
    file server is asked nothing, nor need it be there.
    """
    try:
        descriptor = nofollow.open_place(path)
    except OSError:
        return False  # it is at another one, which is its user's doing
    try:
        fd_path = f"/proc/self/fd/{descriptor}"
        if fd_mount_id(descriptor) != mount_id:
            return False
        if device not in (None, _device(descriptor)):
            return False
        # Not with UMOUNT_NOFOLLOW, for which this is a link. What is open is none.
        if _libc.umount2(os.fsencode(fd_path), _MNT_DETACH) != 0:
            code = ctypes.get_errno()
            if code == errno.EINVAL:  # a directory in it
                return False
            raise OSError(code, os.strerror(code), path)
        return True
    finally:
        os.close(descriptor)


def detach_all(path: str) -> None:
    """Detach what is mounted at a path, with what is on top of it. Raises OSError.

    By one program: users, who may mount there, can start none as often between its calls.
    """
    for _ in range(_MOST_ON_TOP):
        mount_id = mountpoints.mount_id(path)
        if mount_id is None:
            return
        detach(mount_id, path)


def _device(descriptor: int) -> int:
    """Return the device of what is open, without asking its file server. Raises OSError."""
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    flags = _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC
    # With no field asked for: then FUSE says what the kernel knows, whoever asks.
    if _libc.statx(descriptor, b"", flags, 0, answer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    major, minor = struct.unpack_from("=II", answer, _STATX_DEVICE)
    return os.makedev(major, minor)


if __name__ == "__main__":
    try:
        match sys.argv[1:]:
            case [path]:
                detach_all(path)
            case [mount_id, path]:
                detach(int(mount_id), path)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
