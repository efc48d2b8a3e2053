"""What a service tells systemd that has started it (sd_notify(3), sd_watchdog_enabled(3))."""

import asyncio
import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Notify systemd, if it has started us and wants to know. Never blocks."""
    path = os.environ.get("NOTIFY_SOCKET")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    # A missing listener must not change whether the service goes on, nor how it ends.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
        speaker.setblocking(False)
        speaker.sendto(state.encode(), address)


async def watchdog() -> None:
    """Notify systemd that the event loop runs, twice in `WatchdogSec`; return where it is not set.

    Runs until cancelled. A service that hangs is started again.
    """
    period = _period()
    while period is not None:
        notify("WATCHDOG=1")
        await asyncio.sleep(period / 2)


def _period() -> float | None:
    """Return the seconds after which systemd takes this process to hang; None for never."""
    owner = os.environ.get("WATCHDOG_PID", str(os.getpid()))
    micros = os.environ.get("WATCHDOG_USEC", "")
    if owner != str(os.getpid()) or not micros.isdecimal():
        return None
    return int(micros) / 1e6 or None
