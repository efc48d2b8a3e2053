"""What a long-running process tells over HTTP: that it lives, that it is ready, its metrics."""

import socket
from collections.abc import Callable

from aiohttp import web

from warren.kube import serving

_MOST_CONNECTIONS = 50
"""Connections at a time: clients must not use up the descriptors that the process needs."""

_PROMETHEUS_HEADERS = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


async def serve(
    listener: socket.socket, exposition: Callable[[], bytes], is_ready: Callable[[], bool]
) -> None:
    """Serve `/metrics`, `/healthz` and `/readyz` on a bound socket until cancelled."""
    app = web.Application()
    add_routes(app, exposition, is_ready)
    await serving.serve_limited(app, listener, _MOST_CONNECTIONS)


def add_routes(
    app: web.Application, exposition: Callable[[], bytes], is_ready: Callable[[], bool]
) -> None:
    """Have an application serve `/metrics`, `/healthz` and `/readyz` besides what it serves."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=exposition(), headers=_PROMETHEUS_HEADERS)

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readiness(request: web.Request) -> web.Response:
        return web.Response(text="ok") if is_ready() else web.Response(status=503, text="not yet")

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", readiness)
