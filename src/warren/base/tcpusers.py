"""Which user is at the other end of a TCP connection on this machine (sock_diag(7))."""

import itertools
import socket
import struct
from contextlib import suppress
from typing import Final

CLOSED: Final = -2
"""The user of connections that their client has closed already."""

_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_HEADER: Final = struct.Struct("=IHHII")
"""Length, type, flags, sequence number and port of a netlink message."""
_REQUEST: Final = struct.Struct("=BBBxI")
"""Address family, protocol, extensions and states."""
_CONNECTION_ENDS: Final = struct.Struct("!HH4s12x4s12x")
"""The ports and addresses of both ends of a connection: first those of the socket in question."""
_INTERFACE_AND_COOKIE: Final = struct.Struct("=III")
"""The interface and the cookie, of which all bits mean none."""
_ANSWER: Final = struct.Struct("=xBxx48xIIIII")
"""Of an answer: state, timer, queues, user and inode."""
_TCP_LISTEN: Final = 10
_ALL_BITS: Final = 2**32 - 1
_sequence_numbers: Final = itertools.count(1)
"""Of requests, by which their answers are known."""


def open_netlink() -> socket.socket:
    """Return a socket by which the kernel tells of connections of this network namespace."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    # The kernel answers before `send` returns, so that this does not block.
    netlink.setblocking(False)
    return netlink


def user_of(connection: socket.socket, netlink: socket.socket) -> int | None:
    """Return the user on this machine whose process is at the other end; None if not known.

    It is `CLOSED` where the process has closed its end. Where the other end is on another machine,
    it is not known.
    """
    if connection.family != socket.AF_INET:
        return None
    with suppress(OSError):
        (here, port), (there, remote_port) = connection.getsockname(), connection.getpeername()
        addresses = socket.inet_aton(there), socket.inet_aton(here)
        ends = _CONNECTION_ENDS.pack(remote_port, port, *addresses)
        request = _REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, _ALL_BITS) + ends
        body = request + _INTERFACE_AND_COOKIE.pack(0, _ALL_BITS, _ALL_BITS)
        sequence_number = next(_sequence_numbers) & _ALL_BITS
        header = _HEADER.pack(
            _HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, sequence_number, 0
        )
        netlink.send(header + body)
        answer = _receive(netlink, sequence_number)
        if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
            return None
        state, *_, user, inode = _ANSWER.unpack_from(answer, _HEADER.size)
        # Where there is no such connection here, the kernel finds who listens on the port of that
        # number: the other machine has chosen it.
        if state == _TCP_LISTEN:
            return None
        # One without an inode has been closed by its process, and has no owner.
        return int(user) if inode else CLOSED
    return None


def _receive(netlink: socket.socket, sequence_number: int) -> bytes:
    """Return the answer to a request. Raises OSError if there is none."""
    while True:
        answer = netlink.recv(2**12)
        # One to an earlier request is left where that could not be received.
        if _HEADER.unpack_from(answer)[3] == sequence_number:
            return answer
