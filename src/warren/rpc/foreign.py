"""Clients of Flux at our socket, and our clients at the socket of a Flux broker.

Both find a socket by `FLUX_URI`, and speak differently. A client of Flux says nothing until the
broker has sent one byte: 0, or the errno with which `flux_open` is to fail. Ours speak first, and
a message begins with a brace; so each side can tell the other after a byte, or after a silence.
"""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warren.rpc.message import NOT_FLUX, RpcError

REFUSED: Final = bytes([errno.EACCES])
"""What comes before the message that refuses a connection: "Permission denied" to a client of Flux.

To all others it is a carriage return, which JSON lets stand before any text."""

_BEGINS: Final = b"{"
_OURS: Final = frozenset((_BEGINS, REFUSED, NOT_FLUX))
_BROKERS: Final = frozenset((b"\0", bytes([errno.EPERM])))


class Listening(asyncio.StreamReaderProtocol):
    """A connection to our socket, which tells clients of Flux that this is none of theirs.

    A client that says something else is hung up on. One that says nothing may still be one of
    ours, which has only not been asked yet: it skips the byte.
    """

    def __init__(
        self,
        accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None],
        silence: float,
    ) -> None:
        """`silence` is how many seconds a client may say nothing before it is told."""
        super().__init__(asyncio.StreamReader(), accept)
        self._silence = silence
        self._heard = False
        self._telling: asyncio.TimerHandle | None = None
        self._connection: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection = transport
        loop = asyncio.get_running_loop()
        self._telling = loop.call_later(self._silence, self._tell)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        # The loop reads what has come before it looks at the clock: however late it is, who has
        # spoken in time is heard in time.
        self._listen()
        if not self._heard and data[:1] != _BEGINS:
            self._tell()
            assert self._connection is not None
            self._connection.close()
            return
        self._heard = True
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listen()
        super().connection_lost(exc)

    def _listen(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _tell(self) -> None:
        assert self._connection is not None
        if not self._connection.is_closing():
            self._connection.write(NOT_FLUX)


def check_instance(first: bytes, path: Path) -> None:
    """Raise RpcError(EPROTONOSUPPORT) where the first that a server says shows that it is not ours.

    `path` is its socket.
    """
    said = first[:1]
    if said in _OURS:
        return
    whose = "a Flux broker's" if said in _BROKERS else "another program's"
    raise RpcError(
        errno.EPROTONOSUPPORT,
        f"the socket {path} is {whose}, and no Warren instance listens there: name a cluster with "
        "--statedir" + (", or ask the broker with flux" if said in _BROKERS else ""),
    )
