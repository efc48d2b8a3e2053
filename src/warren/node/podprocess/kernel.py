"""Namespaces and mounts, by system calls that Python does not have."""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_PRIVATE, MS_REC = 1 << 18, 1 << 14
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_EMPTY_PATH, _AT_FDCWD = 1, 0x8000, 0x1000, -100
_MOVE_MOUNT_F_EMPTY_PATH = 4

libc = ctypes.CDLL(None, use_errno=True)


class PodTrouble(Exception):
    """Why the pod cannot be."""


def check_call(result: int, description: str) -> int:
    """Return what a system call has returned. Raises PodTrouble where it has failed."""
    if result < 0:
        error = ctypes.get_errno()
        raise PodTrouble(f"{description}: {os.strerror(error)}")
    return result


def join_namespace(process: int, name: str, flag: int) -> None:
    """Enter a namespace of another process (setns(2))."""
    descriptor = os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        check_call(libc.setns(descriptor, flag), f"the {name} namespace of process {process}")
    finally:
        os.close(descriptor)


def clone_mount(path: str, directory_fd: int = _AT_FDCWD) -> int:
    """Return a descriptor of a mount of a file or directory, with all that is mounted below.

    It is attached nowhere. With an empty `path` it is of what `directory_fd` has open.
    """
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    return check_call(libc.syscall(_OPEN_TREE, directory_fd, os.fsencode(path), flags), path)


def mount(source: str, target: str, fs_type: str, flags: int = 0, options: str = "") -> None:
    """Mount a file system (mount(2))."""
    encoded = [os.fsencode(each) for each in (source, target, fs_type, options)]
    check_call(libc.mount(*encoded[:3], flags, encoded[3] or None), f"mount of {target}")


def attach_mount(mount_fd: int, path: str) -> None:
    """Attach a mount that `clone_mount` has returned at a path, and close its descriptor."""
    result = libc.syscall(
        _MOVE_MOUNT, mount_fd, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH
    )
    check_call(result, f"mount of {path}")
    os.close(mount_fd)
