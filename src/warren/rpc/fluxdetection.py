"""Clients of Flux at our socket, and our clients at the socket of a Flux broker.

Both find a socket by `FLUX_URI`, and speak differently. A client of Flux says nothing until the
broker has sent one byte: 0, or the errno with which `flux_open` is to fail. Ours speak first, and
a message begins with a brace; so each side can tell the other after a byte, or after a silence.
"""

import asyncio
import errno
import socket
from pathlib import Path
from typing import Final

from warren.rpc.message import NOT_FLUX_BYTE, RpcError

REFUSED_BYTE: Final = bytes([errno.EACCES])
"""What comes before the message that refuses a connection: "Permission denied" to a client of Flux.

To all others it is a carriage return, which JSON lets stand before any text."""

_OUR_FIRST_BYTE: Final = b"{"
_WARREN_FIRST_BYTES: Final = frozenset((_OUR_FIRST_BYTE, REFUSED_BYTE, NOT_FLUX_BYTE))
_BROKER_FIRST_BYTES: Final = frozenset((b"\0", bytes([errno.EPERM])))


class _ServerProtocol(asyncio.StreamReaderProtocol):
    """A connection to our socket, which tells clients of Flux that this is none of theirs.

    A client that says something else is hung up on. One that says nothing may still be one of
    ours, which has only not been asked yet: it skips the byte.
    """

    def __init__(self, reader: asyncio.StreamReader, silence_timeout: float) -> None:
        """`silence_timeout` is how many seconds a client may say nothing before it is told."""
        super().__init__(reader)
        self._silence_timeout = silence_timeout
        self._is_ours = False
        self._silence_timer: asyncio.TimerHandle | None = None
        self._connection: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection = transport
        loop = asyncio.get_running_loop()
        self._silence_timer = loop.call_later(self._silence_timeout, self._write_not_flux)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        # The loop reads what has come before it looks at the clock: however late it is, a
        # client that has spoken in time is heard in time.
        self._cancel_timer()
        if not self._is_ours and data[:1] != _OUR_FIRST_BYTE:
            self._write_not_flux()
            assert self._connection is not None
            self._connection.close()
            return
        self._is_ours = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _cancel_timer(self) -> None:
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    def _write_not_flux(self) -> None:
        assert self._connection is not None
        if not self._connection.is_closing():
            self._connection.write(NOT_FLUX_BYTE)


async def open_accepted(
    connection: socket.socket, silence_timeout: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection that was accepted at our socket.

    `silence_timeout` is how many seconds its client may say nothing before it is told that this
    is no broker of Flux.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, protocol = await loop.connect_accepted_socket(
        lambda: _ServerProtocol(reader, silence_timeout), connection
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def check_instance(first_bytes: bytes, path: Path) -> None:
    """Raise RpcError(EPROTONOSUPPORT) where the first that a server says shows that it is not ours.

    `path` is its socket.
    """
    first_byte = first_bytes[:1]
    if first_byte in _WARREN_FIRST_BYTES:
        return
    whose = "a Flux broker's" if first_byte in _BROKER_FIRST_BYTES else "another program's"
    raise RpcError(
        errno.EPROTONOSUPPORT,
        f"the socket {path} is {whose}, and no Warren instance listens there: name a cluster with "
        "--statedir"
        + (", or ask the broker with flux" if first_byte in _BROKER_FIRST_BYTES else ""),
    )
