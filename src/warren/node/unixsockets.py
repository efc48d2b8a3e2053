"""Files that sockets of other processes are bound to.

A unix socket that has a name in a file system keeps it mounted, as do the connections that it
has taken, and /proc tells of it no more than a number. The kernel opens the name of a socket
for a process that has it (SIOCUNIXFILE, unix(7)), and lends root the sockets of others.
"""

import ctypes
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PIDFD_GETFD: Final = 438
_PIDFD_THREAD: Final = os.O_EXCL
_SIOCUNIXFILE: Final = 0x89E0
_PROTOCOL_ATTRIBUTE: Final = "system.sockprotoname"

_libc = ctypes.CDLL(None, use_errno=True)


def is_unix(link: str) -> bool:
    """Return whether a link below /proc/PID/fd leads to a unix socket."""
    try:
        return os.getxattr(link, _PROTOCOL_ATTRIBUTE).startswith(b"UNIX")
    except OSError:
        return False


@contextmanager
def open_bound_file(thread: int, descriptor: int) -> Iterator[int | None]:
    """Open, for no more than to look at it, what a thread's unix socket is bound to, if anything.

    Raises OSError where that cannot be told.
    """
    with _borrow(thread, descriptor) as borrowed_socket:
        try:
            bound_fd = fcntl.ioctl(borrowed_socket, _SIOCUNIXFILE)
        except FileNotFoundError:
            yield None
            return
    try:
        yield bound_fd
    finally:
        os.close(bound_fd)


@contextmanager
def _borrow(thread: int, descriptor: int) -> Iterator[socket.socket]:
    try:
        pidfd = os.pidfd_open(thread, _PIDFD_THREAD)
    except OSError:
        # Linux before 6.9 knows no handles of threads, but for the first of a process.
        pidfd = os.pidfd_open(thread)
    try:
        borrowed_fd = int(_libc.syscall(_PIDFD_GETFD, pidfd, descriptor, 0))
    finally:
        os.close(pidfd)
    if borrowed_fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    with socket.socket(fileno=borrowed_fd) as borrowed_socket:
        yield borrowed_socket
