"""The socket of the service, and how many may talk to it at a time."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from aiohttp import web

from warren.base.errors import UserMistake
from warren.rpc import sockets

_MOST: Final = 1000
"""Connections at a time. One more is closed at once."""
_PATIENCE: Final = 10.0
"""Seconds within which whoever connects must have asked something."""
_GRACE: Final = 1.0
"""Seconds for answers that are written when serving ends."""


def listen(path: Path, mode: int, group: int | None) -> socket.socket:
    """Listen at `path`, for those whom its mode and group let in.

    Raises UserMistake where that cannot be, and where somebody else answers there.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with suppress(FileNotFoundError, ConnectionRefusedError):
            sockets.connect(path).close()
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


async def serve(app: web.Application, listener: socket.socket, closing: asyncio.Event) -> None:
    """Serve until cancelled. When `closing` is set, nobody who is not there yet gets in."""
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
        if len(server.connections) >= _MOST:
            return _Closed()
        protocol = server()

        def give_up() -> None:
            del silent[protocol]
            protocol.force_close()

        silent[protocol] = loop.call_later(_PATIENCE, give_up)
        return protocol

    listening = await loop.create_unix_server(met, sock=listener)
    try:
        await closing.wait()
        listening.close()
        await asyncio.Event().wait()
    finally:
        listening.close()
        await runner.cleanup()


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
