"""A limit to how many bytes a second are copied, by all threads together."""

import threading
import time
from typing import Final

_SLICES: Final = 8
"""How many pieces, at least, the bytes of one second are copied in."""
_LEAST_PIECE: Final = 2**16
"""Bytes."""


class RateLimit:
    """`rate` bytes a second, or as many as there can be if it is 0."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._next_at = 0.0

    def piece_size(self, limit: int) -> int:
        """Return how many bytes to copy at once, at most."""
        return min(limit, max(_LEAST_PIECE, self._rate // _SLICES)) if self._rate else limit

    def delay(self, count: int, now: float) -> float:
        """Return how long to wait after so many bytes have been copied.

        Time in which nothing was copied is not made up for.
        """
        if not self._rate:
            return 0.0
        with self._lock:
            self._next_at = max(self._next_at, now) + count / self._rate
            return self._next_at - now

    def throttle(self, count: int) -> None:
        """Sleep until the next bytes may be copied, after so many have been."""
        if self._rate:
            time.sleep(self.delay(count, time.monotonic()))
