"""The socket of the service: where it is, and whom it lets in."""

import os
import socket
from pathlib import Path

from warren.base.errors import UserMistake
from warren.rpc import sockets


def listen(path: Path, mode: int, group: int | None) -> socket.socket:
    """Listen at `path`, for those whom its mode and group let in.

    Raises UserMistake where that cannot be, and where somebody else answers there.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if sockets.is_served(path):
            raise UserMistake(
                f"{path}: another service listens there. Stop it, or choose another socket."
            )
        if path.exists() and not path.is_socket():
            raise UserMistake(f"{path} is there, and is no socket: choose another path.")
        listener = sockets.listen(path, mode)
        if group is not None:
            os.chown(path, -1, group)
    except OSError as error:
        raise UserMistake(f"{path} cannot be listened at: {error.strerror}.") from error
    return listener
