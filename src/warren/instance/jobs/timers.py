"""Actions that are due at a moment of the wall clock."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from warren.base.clock import Clock

_LONGEST_WAIT: Final = 60.0
"""Seconds after which the clock is read again: it may have been set."""


class Timers:
    """A queue of actions. `run` must be running for any to be done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._added = asyncio.Event()

    def call_at(self, moment: float, action: Callable[[], None]) -> None:
        """Do something at a moment, in seconds since the epoch."""
        heappush(self._due, (moment, next(self._numbers), action))
        self._added.set()

    async def run(self) -> None:
        """Do what is due until cancelled."""
        while True:
            self._added.clear()
            while self._due and self._due[0][0] <= self._clock.now():
                _, _, action = heappop(self._due)
                action()
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._added.wait()
            except TimeoutError:
                pass

    def _seconds_to_next(self) -> float | None:
        if not self._due:
            return None
        return min(max(self._due[0][0] - self._clock.now(), 0.0), _LONGEST_WAIT)
