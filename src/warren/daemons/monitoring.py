"""What a long-running process tells over HTTP: that it lives, that it is ready, its metrics."""

import socket
import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from warren.kube import serving
from warren.kube.connections import ConnectionLimits

_MAX_CONNECTIONS: Final = 50
"""Connections at a time: clients must not use up the descriptors that the process needs."""
_MAX_PER_CLIENT: Final = 8
"""Of those, connections of one user, or of one other machine: none shuts Prometheus out."""

_CACHE_SECONDS: Final = 1.0
"""Seconds for which a rendered exposition is cached: to render one may take 20 ms of all others."""

_PROMETHEUS_HEADERS: Final = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


async def serve(
    listener: socket.socket,
    exposition: Callable[[], bytes],
    is_ready: Callable[[], bool],
    *,
    idle_timeout: float = serving.CLIENT_TIMEOUT,
) -> None:
    """Serve `/metrics`, `/healthz` and `/readyz` on a bound socket until cancelled.

    Connections end that are idle for `idle_timeout` seconds.
    """
    app = web.Application()
    add_routes(app, exposition, is_ready)
    limits = ConnectionLimits(per_user=_MAX_PER_CLIENT, total=_MAX_CONNECTIONS, by_address=True)
    await serving.serve(app, listener, limits=limits, idle_timeout=idle_timeout)


def add_routes(
    app: web.Application, exposition: Callable[[], bytes], is_ready: Callable[[], bool]
) -> None:
    """Have an application serve `/metrics`, `/healthz` and `/readyz` besides what it serves."""
    cached_exposition = cached(exposition)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(body=cached_exposition(), headers=_PROMETHEUS_HEADERS)

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readiness(request: web.Request) -> web.Response:
        return web.Response(text="ok") if is_ready() else web.Response(status=503, text="not yet")

    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", health)
    app.router.add_get("/readyz", readiness)


def cached(
    exposition: Callable[[], bytes], now: Callable[[], float] = time.monotonic
) -> Callable[[], bytes]:
    """Return what renders an exposition no more than once a second, however often it is asked."""
    last: tuple[float, bytes] | None = None

    def render() -> bytes:
        nonlocal last
        if last is None or now() >= last[0] + _CACHE_SECONDS:
            body = exposition()
            # From its end on: one that takes long is not rendered without a break.
            last = now(), body
        return last[1]

    return render
