"""How long small files take: from that comes whether they are copied one by one or side by side.

On a file system of this machine, threads cost more than they save; over a network, one file would
wait for the other.
"""

from typing import Final

_NEWEST_WEIGHT: Final = 1 / 16


class Latency:
    """A running mean. One thread may use it."""

    def __init__(self, threshold: float = 0.001, retry_after: int = 1024) -> None:
        """From a mean of `threshold` seconds on, it is long.

        After `retry_after` files without a measurement, it is assumed not to be long any more.
        """
        self._threshold = threshold
        self._retry_after = retry_after
        self._mean = 0.0
        self._files_since_measured = 0

    def add(self, seconds: float) -> None:
        """Hear how long one file took. One that hung counts no more than a few that were slow."""
        self._mean += (min(seconds, 8 * self._threshold) - self._mean) * _NEWEST_WEIGHT
        self._files_since_measured = 0

    def is_long(self) -> bool:
        """Return whether the next file is better copied beside others."""
        if self._mean < self._threshold:
            return False
        self._files_since_measured += 1
        if self._files_since_measured > self._retry_after:
            self._mean = 0.0
        return True
