"""Serving HTTP on a socket that is bound already, for as long as a task lives."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from os import PathLike
from typing import Final

from aiohttp import http_exceptions, web, web_protocol
from aiohttp.typedefs import Middleware

from warren.base import accepting, log
from warren.base.fairqueue import Fairness, FairQueue
from warren.kube.connections import ConnectionLimits

CLIENT_TIMEOUT: Final = 10.0
"""Seconds within which a client must have asked something, where any user may connect."""
_KEEP_ALIVE: Final = 3630.0
"""Seconds for which a connection is kept between requests, where its client is known."""
_LINGERING_TIME: Final = 10.0
"""Seconds in which what comes after an answer is read and dropped, where few may connect."""
_GRACE_SECONDS: Final = 1.0
_BACKLOG: Final = 128

_MAX_DRAINED_BYTES: Final = 2**18
"""Bytes of a body that are read although its request has been answered without them.

The client of a refused request is to read why, and not that its connection was reset; but a
body may be endless, and to decrypt it takes the time of all others.
"""
_DRAIN_SECONDS: Final = 1.0
"""Seconds in which they are to come."""

_MAX_HEADERS: Final = 64
"""Headers of a request, of 8 KiB each at most. Clients of Kubernetes send a dozen, and one for each
group of a user who is impersonated."""

web_protocol.MAX_MSG_QUEUE_SIZE = 1
"""Requests of a connection that are read while another one is answered. A client that reads no
answer has them kept, with all their headers, for as long as it likes."""

_FAIRNESS: Final = Fairness(rest_factor=4.0)
"""Of the time that a request takes much goes by before and after its handler."""

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""What TLS 1.2 may use. Its CBC suites tell an attacker by their timing what they decrypt, and
without ECDHE a stolen key opens what was recorded before. TLS 1.3 has nothing to leave out."""


def tls_server(certificate: PathLike[str], key: PathLike[str]) -> ssl.SSLContext:
    """Return the TLS context of a server that shows a certificate.

    Raises OSError where the files cannot be read or do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.load_cert_chain(certificate, key)
    return context


async def serve(
    app: web.Application,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    grace: float = 0.5,
    limits: ConnectionLimits | None = None,
    client_timeout: float = CLIENT_TIMEOUT,
    retry_delay: float = accepting.RETRY_DELAY,
    idle_timeout: float = _KEEP_ALIVE,
) -> None:
    """Serve until cancelled; answers that are under way then have `grace` seconds.

    Users of this machine have no more connections than their `limits`. Clients have
    `client_timeout` seconds to agree upon TLS, and `idle_timeout` to ask something, and after each
    answer something else. Where there is no room for a connection, it is tried again after
    `retry_delay`.
    """
    limits = limits or ConnectionLimits()
    app.middlewares[:0] = [_drain_body, _fair_middleware(limits)]
    runner = web.AppRunner(app, shutdown_timeout=grace)
    await runner.setup()
    server = runner.server
    assert server is not None
    protocol_factory = partial(
        _Connection,
        server,
        lingering_time=0.0,
        first_request_timeout=idle_timeout,
        keepalive_timeout=idle_timeout,
    )
    listener.setblocking(False)
    listener.listen(_BACKLOG)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as handshakes:
            while True:
                connection = await accepting.accept_next(listener, retry_delay)
                if limits.admit(connection):
                    client_id = limits.client_id(connection.fileno())
                    delay = 0.0 if client_id is None else limits.next_delay(client_id, loop.time())
                    handshakes.create_task(
                        _accept_when_due(protocol_factory, connection, tls, client_timeout, delay)
                    )
                else:
                    connection.close()
                await asyncio.sleep(0)  # other tasks have waited during the accept
    finally:
        listener.close()
        await runner.cleanup()


def _is_own_mistake(record: logging.LogRecord) -> bool:
    """Return whether a record tells of a mistake of ours: what is no HTTP is its client's own.

    It is answered with 400, and its client has not even said who it is: the log would be full.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, http_exceptions.HttpProcessingError)


_LOGGER: Final = logging.getLogger(__name__)
_LOGGER.addFilter(_is_own_mistake)


class _Connection(web.RequestHandler):
    """A connection, of which nothing is kept once it is lost.

    It ends where nothing is asked within so many seconds: not every aiohttp ends it then.
    """

    __slots__ = ("_first_request_timeout", "_silence_timer")

    def __init__(
        self,
        server: web.Server,
        *,
        first_request_timeout: float,
        keepalive_timeout: float,
        lingering_time: float,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=keepalive_timeout,
            lingering_time=lingering_time,
            access_log=None,  # type: ignore[arg-type]
            logger=_LOGGER,
            max_headers=_MAX_HEADERS,
        )
        self._first_request_timeout = first_request_timeout
        self._silence_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # TLS is agreed upon by now.
        self._silence_timer = asyncio.get_running_loop().call_later(
            self._first_request_timeout, self._close_if_silent
        )

    def _close_if_silent(self) -> None:
        if not self._request_count:
            self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._silence_timer is not None:
            self._silence_timer.cancel()  # it would keep all of the connection
        # Its task and its requests refer to each other until memory is collected.
        self._messages.clear()

    @property
    def has_next_request(self) -> bool:
        """Whether a request waits for the end of the one that is answered.

        Nothing more is read then, and so not that the client has gone.
        """
        return bool(self._messages)


def has_next_request(request: web.Request) -> bool:
    """Return whether its client has sent another request, which no client does behind a watch."""
    connection = request.protocol
    return isinstance(connection, _Connection) and connection.has_next_request


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _drain_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read a little of a body that the handler has left; the connection ends where more comes."""
    try:
        answer = await handler(request)
    except ConnectionError:
        if request.transport is not None and not request.transport.is_closing():
            raise
        return web.Response(status=400)  # its client has gone within the body, and reads nothing
    bytes_left = _MAX_DRAINED_BYTES
    # What is wrong with the body changes nothing about the answer.
    with suppress(Exception):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while bytes_left > 0 and not request.content.at_eof():
                bytes_left -= len(await request.content.readany())
    return answer


def _fair_middleware(limits: ConnectionLimits) -> Middleware:
    """Return what has requests of limited clients share the event loop with all others."""
    queue = FairQueue(_FAIRNESS)

    @web.middleware
    async def run_fairly(request: web.Request, handler: Handler) -> web.StreamResponse:
        connection = (
            None if request.transport is None else request.transport.get_extra_info("socket")
        )
        client_id = None if connection is None else limits.client_id(connection.fileno())
        if client_id is None:
            return await handler(request)

        async def answer() -> web.StreamResponse:
            return await handler(request)

        return await queue.run(client_id, answer)

    return run_fairly


async def _accept_when_due(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    connection: socket.socket,
    tls: ssl.SSLContext | None,
    client_timeout: float,
    delay: float,
) -> None:
    """Accept a connection, if it gets so far: not before TLS is agreed upon is it HTTP's."""
    if delay > 0:
        await asyncio.sleep(delay)
    try:
        await asyncio.get_running_loop().connect_accepted_socket(
            protocol_factory,
            connection,
            ssl=tls,
            ssl_handshake_timeout=client_timeout if tls else None,
        )
    except OSError as error:  # among them those of TLS, and that nothing came in time
        log.debug("connection ends before it is one", error=str(error))


async def serve_limited(
    app: web.Application,
    listener: socket.socket,
    max_connections: int,
    closing: asyncio.Event | None = None,
    *,
    client_timeout: float = CLIENT_TIMEOUT,
) -> None:
    """Serve until cancelled, no more than so many connections at a time, and none that is silent.

    It is for sockets that let in trusted users alone: any of them may have all connections.
    A client has `client_timeout` seconds to ask something. When `closing` is set, no client that is
    not there yet gets in.
    """
    runner = web.AppRunner(app, shutdown_timeout=_GRACE_SECONDS)
    await runner.setup()
    loop = asyncio.get_running_loop()
    server = runner.server
    assert server is not None
    new_connection = partial(
        _Connection,
        server,
        lingering_time=_LINGERING_TIME,
        first_request_timeout=client_timeout,
        keepalive_timeout=_KEEP_ALIVE,
    )

    def protocol_factory() -> asyncio.BaseProtocol:
        if len(server.connections) >= max_connections:
            return _RefusedConnection()
        return new_connection()

    asyncio_server = await loop.create_server(protocol_factory, sock=listener)
    try:
        await (closing or asyncio.Event()).wait()
        asyncio_server.close()
        await asyncio.Event().wait()
    finally:
        asyncio_server.close()
        await runner.cleanup()


class _RefusedConnection(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
