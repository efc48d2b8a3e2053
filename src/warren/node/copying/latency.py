"""How long small files take: from that comes whether they are copied one by one or side by side.

On a file system of this machine, threads cost more than they save; over a network, one file would
wait for the other.
"""

from typing import Final

_NEWEST_WEIGHT: Final = 1 / 16


class Latency:
    """A running mean. One thread may use it."""

    def __init__(self, long: float = 0.001, again: int = 1024) -> None:
        """`long` is from which mean on it is long, in seconds.

        After so many files as `again` without news, it is assumed not to be long any more.
        """
        self._long = long
        self._again = again
        self._mean = 0.0
        self._since_news = 0

    def took(self, seconds: float) -> None:
        """Hear how long one file took. One that hung counts no more than a few that were slow."""
        self._mean += (min(seconds, 8 * self._long) - self._mean) * _NEWEST_WEIGHT
        self._since_news = 0

    def is_long(self) -> bool:
        """Return whether the next file is better copied beside others."""
        if self._mean < self._long:
            return False
        self._since_news += 1
        if self._since_news > self._again:
            self._mean = 0.0
        return True
