"""Detaching of one mount, by its id: run as a program in the mount namespace that it is in.

Its path may lead elsewhere by then: where users may rename directories, mount points are not
spared. Nothing else is ever unmounted.
"""

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Final

_MNT_DETACH: Final = 0x2


def detach(mount_id: int, path: str) -> bool:
    """Detach a mount, if it still is at a path; return whether it was. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return False  # it is at another one, which is its user's doing
    try:
        fd_path = f"/proc/self/fd/{descriptor}"
        if f"mnt_id:\t{mount_id}\n" not in Path(f"/proc/self/fdinfo/{descriptor}").read_text():
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.umount2(os.fsencode(fd_path), _MNT_DETACH) != 0:
            code = ctypes.get_errno()
            if code == errno.EINVAL:  # a directory in it
                return False
            raise OSError(code, os.strerror(code), path)
        return True
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    try:
        detach(int(sys.argv[1]), sys.argv[2])
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}")
