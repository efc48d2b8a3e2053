"""What is mounted at one path, or below one directory, without a look at all that is mounted.

Users choose how long the table of mounts is (proc_pid_mountinfo(5)): a thousand FUSE file systems,
in directories that lie 100,000 deep, take the kernel minutes to tell. What is open tells of its
mount alone, and its file system is asked for nothing, which may have failed.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MOUNT_ID: Final = "mnt_id:"
_PATH_FLAGS: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NOTHING_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ESRCH)
"""ESRCH of a path in /proc of a process that is ending."""


def mount_id(path: str) -> int | None:
    """Return the id of what is mounted at an absolute path, on top; None if nothing is.

    Raises OSError.
    """
    parent, name = os.path.split(path)
    try:
        parent_fd = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(name, _PATH_FLAGS, dir_fd=parent_fd)
            try:
                above, found = fd_mount_id(parent_fd), fd_mount_id(fd)
            finally:
                os.close(fd)
        finally:
            os.close(parent_fd)
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise
    return found if found != above else None


def mount_points_below(top: str) -> Iterator[str]:
    """Yield the paths at which something is mounted below a directory, but for those below these.

    Users mount in their own storage. Where that is, they may change at any moment, and it goes
    with the file system that it is in. Raises OSError.
    """
    for directory, subdirectories, files in os.walk(top):
        entries = [*subdirectories, *files]
        mounted = {each for each in entries if mount_id(os.path.join(directory, each)) is not None}
        subdirectories[:] = [each for each in subdirectories if each not in mounted]
        yield from (os.path.join(directory, each) for each in entries if each in mounted)


def fd_mount_id(fd: int) -> int:
    """Return the id of the mount of what a descriptor of this process is open on."""
    return fdinfo_mount_id(Path(f"/proc/self/fdinfo/{fd}"))


def fdinfo_mount_id(fdinfo: Path) -> int:
    """Return what a file of /proc/PID/fdinfo says. Raises OSError, and ValueError without it."""
    for line in fdinfo.read_text(errors="replace").splitlines():
        if line.startswith(_MOUNT_ID):
            return int(line.removeprefix(_MOUNT_ID))
    raise ValueError(fdinfo)
