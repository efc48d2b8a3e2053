"""Connections that come to a socket of ours: one after the other, and of no user too many.

asyncio's own servers accept a hundred in one turn of the event loop, and make all that belongs to a
connection before it is known whose it is.
"""

import asyncio
import math
import socket
from typing import Final

from warren.base import log

RETRY_DELAY: Final = 1.0
"""Seconds until it is tried again to accept a connection, where there was no room."""


class ConnectionPace:
    """When the next connection of each client is let in: an interval after the last one.

    A client that has rested may open some at once.
    """

    def __init__(self, interval: float, *, burst: int = 1, max_delay: float = math.inf) -> None:
        """After `burst` at once they are let in `interval` seconds after each other.

        None waits more than `max_delay` seconds.
        """
        self._interval = interval
        self._burst_seconds = (burst - 1) * interval
        self._max_delay = max_delay
        self._due: dict[int, float] = {}
        """When each client's next one were due if there were no bursts."""

    def next_delay(self, client_id: int, now: float) -> float | None:
        """Return after how many seconds a client's new connection is let in; None for never."""
        rested_since = now - self._burst_seconds
        due = max(self._due.get(client_id, rested_since), rested_since)
        delay = max(0.0, due - now)
        if delay > self._max_delay:
            return None
        self._due = {each: moment for each, moment in self._due.items() if moment > rested_since}
        self._due[client_id] = due + self._interval
        return delay


async def accept_next(listener: socket.socket, retry_delay: float = RETRY_DELAY) -> socket.socket:
    """Wait for the next connection, also where there is no room for one at first.

    Does not leave the event loop to others where one is there already.
    """
    while True:
        # Not sock_accept: of one that is cancelled, a connection may be lost.
        try:
            connection, _ = listener.accept()
        except BlockingIOError:
            await _wait_readable(listener.fileno())
        except ConnectionError:
            continue  # it was given up before
        except OSError as error:
            log.warning("no connection can be accepted", reason=error.strerror)
            await asyncio.sleep(retry_delay)
        else:
            connection.setblocking(False)
            return connection


async def _wait_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
