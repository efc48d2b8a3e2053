"""Services that a person or systemd runs: they live until they are told to stop."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

from warren.base import systemd

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def until_stopped(service: Coroutine[Any, Any, None], *more: signal.Signals) -> None:
    """Live until SIGTERM, SIGINT or one of `more`, and then to the end of what is under way.

    Systemd hears of it. Raises what ends the service before.
    """
    running = asyncio.ensure_future(service)

    def stop() -> None:
        systemd.notify("STOPPING=1")
        running.cancel()

    loop = asyncio.get_running_loop()
    for signum in (*_STOP_SIGNALS, *more):
        loop.add_signal_handler(signum, stop)
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()
