"""Serving HTTP on a socket that is bound already, for as long as a task lives."""

import asyncio
import socket
import ssl

from aiohttp import web


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
