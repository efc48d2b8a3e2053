"""Time as a port, so that a test can own it.

Waiting is the event loop's business (`asyncio.sleep`, `asyncio.timeout`); this
port only answers what time it is. A test runs both on one virtual clock.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.time()
