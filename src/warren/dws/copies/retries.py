"""Whether a copy that has failed is made again, and when."""

from typing import Final

import msgspec

COPY_OUT: Final = "copy_out"


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often a copy is tried, and how long after each failure: longer each time."""

    tries: int = 3
    """In all, with the first one."""
    pause: float = 3.0
    """Seconds after the first failure; doubled after each other one."""

    def should_retry(self, command: str, restarts: int, *, by_copier: bool) -> bool:
        """Return whether a copy is made again that has failed after `restarts` earlier tries.

        What comes from the copier itself (`by_copier`) is mostly its user's mistake, such as a
        source that does not exist. A job that has not begun hears of it at once and loses nothing.
        A job that is over loses its results: a copy_out is tried again, whatever has failed.
        """
        return restarts + 1 < self.tries and (command == COPY_OUT or not by_copier)

    def delay(self, restarts: int, seconds_since_failure: float) -> float:
        """Return the seconds until the next try."""
        if restarts == 0:
            return 0.0
        pause = self.pause * float(2 ** min(restarts - 1, 10))
        # A clock that was set back makes no pause longer.
        return max(0.0, pause - max(0.0, seconds_since_failure))
