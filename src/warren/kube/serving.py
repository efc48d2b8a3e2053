"""Serving HTTP on a socket that is bound already, for as long as a task lives."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

PATIENCE: Final = 10.0
"""Seconds within which whoever connects must have asked something, where anybody may connect."""
_GRACE: Final = 1.0


async def serve(
    app: web.Application,
    listener: socket.socket,
    tls: ssl.SSLContext | None = None,
    *,
    grace: float = 0.5,
) -> None:
    """Serve until cancelled; answers that are under way then have `grace` seconds."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=grace)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=tls).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


async def serve_few(
    app: web.Application, listener: socket.socket, most: int, closing: asyncio.Event | None = None
) -> None:
    """Serve until cancelled, no more than so many connections at a time, and none that is silent.

    When `closing` is set, nobody who is not there yet gets in.
    """
    silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}

    @web.middleware
    async def noted(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        timer = silent.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        return await handler(request)

    app.middlewares.insert(0, noted)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE)
    await runner.setup()
    loop = asyncio.get_running_loop()
    server = runner.server
    assert server is not None

    def met() -> asyncio.BaseProtocol:
        if len(server.connections) >= most:
            return _Closed()
        protocol = server()

        def give_up() -> None:
            del silent[protocol]
            protocol.force_close()

        silent[protocol] = loop.call_later(PATIENCE, give_up)
        return protocol

    listening = await loop.create_server(met, sock=listener)
    try:
        await (closing or asyncio.Event()).wait()
        listening.close()
        await asyncio.Event().wait()
    finally:
        listening.close()
        await runner.cleanup()


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
