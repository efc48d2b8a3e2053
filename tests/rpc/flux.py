"""What a client of Flux, and a Flux broker, say at a unix socket (flux-rfc-spec section 1)."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final

from warren.rpc import sockets

MAGIC: Final = b"\xff\xee\x00\x12"


def open_as_flux(path: Path) -> socket.socket:
    """Connect as `flux_open` does: wait for a byte, and fail with its errno unless it is 0."""
    connection = sockets.connect(path)
    connection.settimeout(100)
    said = connection.recv(1)
    if said == b"\0":
        return connection
    connection.close()
    if not said:
        raise ConnectionResetError
    raise OSError(said[0], os.strerror(said[0]))


@asynccontextmanager
async def broker(path: Path, says: bytes = b"\0") -> AsyncIterator[None]:
    """Be a broker that lets clients in, and hangs up on those that do not speak its language."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(says)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if await reader.readexactly(len(MAGIC)) == MAGIC:
                await reader.read()
        writer.close()

    server = await asyncio.start_unix_server(attend, sock=sockets.listen(path))
    try:
        yield
    finally:
        server.close()


@contextmanager
def broker_in_a_thread(path: Path) -> Iterator[None]:
    """Be a broker that lets one client in, and never says more."""

    def attend() -> None:
        with suppress(OSError):  # no client has come
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"\0")
                while connection.recv(2**16):
                    pass

    with sockets.listen(path) as listener:
        listener.setblocking(True)
        attending = Thread(target=attend)
        attending.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            attending.join()
