"""What the kernel tells of whose a connection is."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from warren.base.tcpusers import CLOSED, open_netlink, user_of

HOST = "127.0.0.1"


@contextmanager
def accepted(listener: socket.socket, *, closed: bool = False) -> Iterator[socket.socket]:
    """Connect, and close that end at once if so; return the other end."""
    with socket.create_connection(listener.getsockname()) as own:
        end, _ = listener.accept()
        with end:
            if closed:
                own.close()
            yield end


class FromElsewhere:
    """A connection from a port of another machine."""

    family = socket.AF_INET

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return HOST, 80

    def getpeername(self) -> tuple[str, int]:
        return "192.0.2.77", self._port


@pytest.mark.parametrize("host", ["", HOST])
def test_who_listens_here_on_the_port_of_another_machine_has_not_connected(host: str) -> None:
    """That machine chooses the port, and so whose its connection would be."""
    with socket.create_server((host, 0)) as listener, open_netlink() as netlink:
        connection = FromElsewhere(listener.getsockname()[1])
        assert user_of(cast(socket.socket, connection), netlink) is None


class Forgetful:
    """A netlink socket whose first answer cannot be received, and is there later."""

    def __init__(self, netlink: socket.socket) -> None:
        self._netlink = netlink
        self._has_failed = False

    def send(self, request: bytes) -> int:
        return self._netlink.send(request)

    def recv(self, size: int) -> bytes:
        if not self._has_failed:
            self._has_failed = True
            raise OSError
        return self._netlink.recv(size)


def test_an_answer_that_comes_late_is_not_taken_for_the_next_ones() -> None:
    with (
        socket.create_server((HOST, 0)) as listener,
        accepted(listener) as open_one,
        accepted(listener, closed=True) as closed_one,
        open_netlink() as netlink,
    ):
        forgetful = cast(socket.socket, Forgetful(netlink))
        assert user_of(open_one, forgetful) is None
        assert user_of(closed_one, forgetful) == CLOSED
        assert user_of(open_one, forgetful) == os.geteuid()
