"""Actions that are due at a moment of the wall clock."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from warren.base import log
from warren.base.clock import Clock

_LONGEST_WAIT: Final = 60.0
"""Seconds after which the clock is read again: it may have been set."""

_ACTIONS_PER_TURN: Final = 50
"""Actions of one moment after which others have their turn: thousands of jobs may wait for it."""


@dataclass(order=True)
class _Timer:
    moment: float
    number: int
    action: Callable[[], None] | None = field(compare=False)
    """None where it was done, or cancelled."""


class Timers:
    """A queue of actions. `run` must be running for any to be done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timers: list[_Timer] = []
        self._cancelled_count = 0
        self._numbers = count()
        self._added = asyncio.Event()

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Do something at a moment, in seconds since the epoch. Return what cancels that."""
        timer = _Timer(moment, next(self._numbers), action)
        heappush(self._timers, timer)
        self._added.set()
        return partial(self._cancel, timer)

    def __len__(self) -> int:
        """Return how many there are in memory."""
        return len(self._timers)

    def _cancel(self, timer: _Timer) -> None:
        if timer.action is None:
            return
        timer.action = None
        self._cancelled_count += 1
        if self._cancelled_count > len(self._timers) // 2:
            self._timers = [each for each in self._timers if each.action is not None]
            heapify(self._timers)
            self._cancelled_count = 0

    async def run(self) -> None:
        """Do what is due until cancelled."""
        while True:
            self._added.clear()
            done_count = 0
            while self._timers and self._timers[0].moment <= self._clock.now():
                timer = heappop(self._timers)
                action, timer.action = timer.action, None
                if action is None:
                    self._cancelled_count -= 1
                    continue
                try:
                    action()
                except Exception:  # a bug may cost one action, not all
                    log.exception("action of a timer failed", moment=timer.moment)
                done_count += 1
                if done_count % _ACTIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._added.wait()
            except TimeoutError:
                pass

    def _seconds_to_next(self) -> float | None:
        if not self._timers:
            return None
        return min(max(self._timers[0].moment - self._clock.now(), 0.0), _LONGEST_WAIT)
