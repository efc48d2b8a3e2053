"""Services that a person or systemd runs: they live until they are told to stop."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

from warren.base import systemd

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def until_stopped(service: Coroutine[Any, Any, None], *more_signals: signal.Signals) -> None:
    """Run a service until SIGTERM, SIGINT or one of `more_signals`; what is under way ends first.

    Systemd hears of it. Raises what ends the service before.
    """
    running = asyncio.ensure_future(service)

    def stop() -> None:
        systemd.notify("STOPPING=1")
        running.cancel()

    loop = asyncio.get_running_loop()
    for signum in (*_STOP_SIGNALS, *more_signals):
        loop.add_signal_handler(signum, stop)
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()
