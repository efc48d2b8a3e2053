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
_PROTOCOL: Final = "system.sockprotoname"

_libc = ctypes.CDLL(None, use_errno=True)


def is_unix(link: str) -> bool:
    """Return whether a link below /proc/PID/fd leads to a unix socket."""
    try:
        return os.getxattr(link, _PROTOCOL).startswith(b"UNIX")
    except OSError:
        return False


@contextmanager
def open_bound_file(thread: int, descriptor: int) -> Iterator[int | None]:
    """Open, for no more than to look at it, what a thread's unix socket is bound to, if anything.

    Raises OSError where that cannot be told.
    """
    with _borrow(thread, descriptor) as borrowed:
        try:
            opened = fcntl.ioctl(borrowed, _SIOCUNIXFILE)
        except FileNotFoundError:
            yield None
            return
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def _borrow(thread: int, descriptor: int) -> Iterator[socket.socket]:
    try:
        opened = os.pidfd_open(thread, _PIDFD_THREAD)
    except OSError:
        # Linux before 6.9 knows no handles of threads, but for the first of a process.
        opened = os.pidfd_open(thread)
    try:
        lent = int(_libc.syscall(_PIDFD_GETFD, opened, descriptor, 0))
    finally:
        os.close(opened)
    if lent < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    with socket.socket(fileno=lent) as found:
        yield found
