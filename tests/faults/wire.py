"""A box between a client and an API server, that does to bytes what networks and boxes do.

It speaks plain HTTP to its clients, so that it can answer by itself, and TLS to
the server.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from tests.harness.virtual import VirtualClock
from tests.kube.clusters import HOST, TOKEN, served
from tests.kube.test_http import Least
from warren.kube.client import Unavailable
from warren.kube.http import HttpClient
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.store import Store
from warren.kube.transport import Transport

_VERBS: Final = ("GET", "POST", "PATCH", "DELETE")


@dataclass(frozen=True)
class Turned:
    """The box answers by itself, and the server hears nothing."""

    status: str
    header: str = ""


@dataclass(frozen=True)
class Reset:
    """The connection is reset: before the server hears anything, or in the middle of its answer."""

    after: int | None = None
    """How many bytes of the answer come through; None keeps the request from the server."""


@dataclass(frozen=True)
class Hushed:
    """Nothing more comes through, and neither end is told."""

    after: int


@dataclass(frozen=True)
class Slow:
    """The answer comes in small pieces."""

    piece: int = 100


Blow = Turned | Reset | Hushed | Slow


@dataclass
class Box:
    """Where the blows are laid out: by verb, or WATCH; each falls on one request."""

    blows: dict[str, list[Blow]] = field(default_factory=dict)

    def struck(self, head: bytes) -> Blow | None:
        """Return what falls on the request that begins so."""
        verb = "WATCH" if b"watch=true" in head else head.split(b" ", 1)[0].decode()
        waiting = self.blows.get(verb)
        return waiting.pop(0) if waiting else None


class _Connection:
    """A client's connection and its own to the server."""

    def __init__(
        self, box: Box, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self._box = box
        self._client = client
        self._server = server
        self._blow: Blow | None = None
        self._passed = 0

    async def up(self, reader: asyncio.StreamReader) -> None:
        """Pass requests on. A client sends none before it has the answer to the last."""
        while data := await reader.read(2**16):
            if data.startswith(tuple(f"{verb} ".encode() for verb in _VERBS)):
                self._blow, self._passed = self._box.struck(data), 0
                if isinstance(self._blow, Turned):
                    self._answer(self._blow)
                elif self._blow == Reset():
                    self._client.transport.abort()
                    return
            if not isinstance(self._blow, Turned):
                self._server.write(data)

    def _answer(self, blow: Turned) -> None:
        head = f"HTTP/1.1 {blow.status}\r\nContent-Length: 0\r\n{blow.header}\r\n"
        self._client.write(head.encode())

    async def down(self, reader: asyncio.StreamReader) -> None:
        """Pass answers on."""
        while data := await reader.read(2**16):
            match self._blow:
                case Reset(after=int(after)) if self._passed + len(data) >= after:
                    self._client.write(data[: after - self._passed])
                    # As much as that is to arrive, and then no more.
                    await self._client.drain()
                    await asyncio.sleep(0.01)
                    self._client.transport.abort()
                    return
                case Hushed(after):
                    self._client.write(data[: max(0, after - self._passed)])
                case Slow(piece):
                    for start in range(0, len(data), piece):
                        self._client.write(data[start : start + piece])
                        await asyncio.sleep(0)
                case _:
                    self._client.write(data)
            self._passed += len(data)


@asynccontextmanager
async def boxed(box: Box, access: ClusterAccess) -> AsyncIterator[ClusterAccess]:
    """Put a box before a server; return the way through it."""
    place = urlsplit(access.server)
    trusted: ssl.SSLContext = access.tls()
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection(HOST, place.port, ssl=trusted)
        one = _Connection(box, writer, server)
        pumps = [asyncio.ensure_future(one.up(reader)), asyncio.ensure_future(one.down(answers))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        for end in (writer, server):
            end.transport.abort()
        ends = (writer.wait_closed(), server.wait_closed())
        await asyncio.gather(*ends, return_exceptions=True)

    def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(connected(reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    listening = await asyncio.start_server(begun, HOST, 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield ClusterAccess(server=f"http://{HOST}:{port}", token=TOKEN)
    finally:
        # The clients are gone, so all connections end; those that are just being accepted, too.
        await asyncio.sleep(0.01)
        listening.close()
        while running:
            await asyncio.wait(running)


class Hasty(Transport):
    """A transport whose users do not wait long before they ask an API again."""

    async def request(self, *request: Any, **options: Any) -> dict[str, Any]:
        with hasty():
            return await super().request(*request, **options)

    async def lines(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        told = super().lines(path, query)
        with hasty():
            async with aclosing(told) as lines:  # type: ignore[type-var]
                async for line in lines:
                    yield line


@contextmanager
def hasty() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        error.delay = 0.01
        raise


@asynccontextmanager
async def through(box: Box, store: Store, pki: Path) -> AsyncIterator[HttpClient]:
    """Serve a store, and return a client that has a box before it, and no time to lose."""
    async with (
        served(store, pki) as access,
        boxed(box, access) as way,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
    ):
        transport = Hasty(session, way, VirtualClock(), max_silence=0.1, rng=Least())
        yield HttpClient(transport, rng=Least())
