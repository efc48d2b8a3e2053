"""The socket of the service: its path, and the users that it lets in."""

import os
import socket
from pathlib import Path
from typing import Final

from warren.base.errors import UserMistake
from warren.rpc import sockets

_MAX_PATH_BYTES: Final = 107
"""Bytes of a path in a socket address. Our own clients have a way around it, and PBS's hook not."""


def listen(path: Path, mode: int, gid: int | None) -> socket.socket:
    """Listen at `path`, for the users that its mode and group let in.

    Raises UserMistake where that cannot be, and where another process answers there.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise UserMistake(
            f"{path} has {len(os.fsencode(path))} bytes, and the "
            f"path of a socket has {_MAX_PATH_BYTES} at most: choose a shorter path."
        )
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if sockets.is_served(path):
            raise UserMistake(
                f"{path}: another service listens there. Stop it, or choose another socket."
            )
        if path.exists() and not path.is_socket():
            raise UserMistake(f"{path} exists, and is not a socket: choose another path.")
        listener = sockets.listen(path, mode)
        if gid is not None:
            os.chown(path, -1, gid)
    except OSError as error:
        raise UserMistake(f"{path} cannot be listened at: {error.strerror}.") from error
    return listener
