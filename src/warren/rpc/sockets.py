"""Unix sockets by path, however long the path is, and the user at the other end."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PEERCRED = struct.Struct("3i")
_TIMEVAL = struct.Struct("ll")


@contextmanager
def _short_name(path: Path) -> Iterator[str]:
    """Return a name of `path` that fits into a socket address, which holds 107 bytes."""
    directory_fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory_fd}/{path.name}"
    finally:
        os.close(directory_fd)


def listen(path: Path, mode: int = 0o600) -> socket.socket:
    """Listen at `path`, in place of a socket that a dead process has left there."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    previous = os.umask(0o777 & ~mode)
    try:
        with _short_name(path) as name:
            listener.bind(name)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(previous)
    listener.setblocking(False)
    return listener


def remove(path: Path) -> None:
    """Remove a socket's name; its connections live on."""
    path.unlink(missing_ok=True)


def connect(path: Path, timeout: float = 30) -> socket.socket:
    """Connect to the socket at `path`.

    Raises OSError where no server listens, or where one takes no connection for `timeout` seconds.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not settimeout: connect fails at once then where a server's queue is full for a moment.
        _limit_writes(connection, timeout)
        with _short_name(path) as name:
            connection.connect(name)
        _limit_writes(connection, 0)
    except OSError:
        connection.close()
        raise
    return connection


def _limit_writes(connection: socket.socket, seconds: float) -> None:
    whole_seconds, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(whole_seconds, microseconds)
    )


def is_served(path: Path) -> bool:
    """Return whether a server listens at a path. Raises OSError where that is not known."""
    try:
        with socket.socket(socket.AF_UNIX) as connection, _short_name(path) as name:
            # One whose queue is full would let us wait; so it says so at once.
            connection.setblocking(False)
            connection.connect(name)
    except BlockingIOError:
        return True
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    return True


def peer_userid(connection: socket.socket) -> int:
    """Return the user id of the process at the other end, as the kernel knows it."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    _, uid, _ = _PEERCRED.unpack(data)
    return int(uid)
