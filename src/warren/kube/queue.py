"""Keys waiting for a worker: each at most once, and never with two workers at a time.

An event of a key waits for nothing but the keys that came before it, and where keys are
users', for those of its own user: the users take turns. A key whose
work failed is put off: longer with each failure in a row, and all of them
together come back no faster than the budget of retries allows.
"""

import asyncio
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K")

LONGEST: Final = 60.0
"""The longest that a failure puts anything off, in seconds, unless it asks for more."""

_SHORTEST: Final = 0.5
"""What is doubled for failures that ask for no delay at all: only the first has none."""

_SPREAD: Final = 0.25
"""How much longer a delay may become, so that what failed together comes back one by one."""


def backoff(delay: float, failures: int, chance: float, longest: float = LONGEST) -> float:
    """Return the seconds to wait after so many `failures` in a row, of which the last asks `delay`.

    Never less than was asked for. `chance`, from 0 to 1, is the luck of this one.
    """
    if failures > 1:
        delay = delay or _SHORTEST
        delay = min(delay * 2 ** min(failures - 1, 10), max(delay, longest))
    return delay * (1 + _SPREAD * chance)


class Budget:
    """Allows `rate` actions a second; after a rest, `burst` of them at once."""

    def __init__(self, rate: float = 10.0, burst: int = 100) -> None:
        self._interval = 1 / rate
        self._slack = (burst - 1) * self._interval
        self._next = 0.0
        """When the next action would be due if they were spaced evenly."""

    def wait(self, now: float) -> float:
        """Return the seconds until one more is allowed."""
        return max(0.0, self._next - self._slack - now)

    def spend(self, now: float) -> None:
        """Count one more."""
        self._next = max(self._next, now) + self._interval


class Closed(Exception):
    """There is nothing to take any more."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a queue has to do, and has had so far."""

    depth: int
    """Keys that wait for a worker."""
    longest_wait: float
    """Seconds for which the first of them has waited."""
    delayed: int
    """Keys that are put off."""
    working: int
    """Keys that are worked on."""
    longest_work: float
    """Seconds for which the first of them has been worked on."""
    adds: int
    """How many keys were put in line."""
    retries: int
    """How many of these had failed."""


class WorkQueue(Generic[K]):
    """Deduplicates keys, remembers those that come up while they are worked on,
    and brings others back after a delay."""

    def __init__(
        self,
        budget: Budget | None = None,
        chance: Callable[[], float] = random.random,
        longest: float = LONGEST,
        user: Callable[[K], Hashable] = lambda key: None,
    ) -> None:
        """`budget` is that of all retries together; `chance` gives luck from 0 to 1.

        Failures put a key off for `longest` seconds at most, unless they ask for more. `user` says
        with which others a key waits in line.
        """
        self._budget = budget or Budget()
        self._chance = chance
        self._longest = longest
        self._user = user
        self._waiting: dict[K, float] = {}
        """Keys in line, and since when."""
        self._lines: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """The same keys by user, the user first whose turn is next."""
        self._working: dict[K, float] = {}
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._held: OrderedDict[K, None] = OrderedDict()
        """Retries that are due, and wait for the budget."""
        self._release: asyncio.TimerHandle | None = None
        self._idle: deque[asyncio.Future[None]] = deque()
        self._observer: Callable[[float], None] | None = None
        self._closed = False
        self._adds = self._retries = 0

    def observe(self, observer: Callable[[float], None]) -> None:
        """Call `observer`, for each key that is taken from now on, with the time that it waited."""
        self._observer = observer

    def load(self) -> Load:
        """Return what there is to do, as of now."""
        now = asyncio.get_running_loop().time()
        return Load(
            depth=len(self._waiting),
            longest_wait=now - next(iter(self._waiting.values()), now),
            delayed=len(self._timers) + len(self._held),
            working=len(self._working),
            longest_work=now - min(self._working.values(), default=now),
            adds=self._adds,
            retries=self._retries,
        )

    def add(self, key: K) -> None:
        """Have `key` reconciled, as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if self._held:
            self._held.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            user = self._user(key)  # first: where that raises, the key is not in line
            self._waiting[key] = asyncio.get_running_loop().time()
            self._lines.setdefault(user, deque()).append(key)
            self._adds += 1
            if self._idle:
                self._wake()

    def add_after(self, key: K, delay: float) -> None:
        """Have `key` reconciled in `delay` seconds, unless one is due sooner."""
        self._put_off(key, delay, self.add)

    def retry(self, key: K, delay: float, *, unbudgeted: bool = False) -> None:
        """Have `key`, which has failed, reconciled again in `delay` seconds or later.

        The budget does not count one that is `unbudgeted`.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff(delay, failures, self._chance(), self._longest)
        self._put_off(key, delay, self._again_at_once if unbudgeted else self._again_by_budget)

    def succeeded(self, key: K) -> None:
        """Forget the failures of `key`."""
        if self._failures:
            self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often in a row `key` has failed."""
        return self._failures.get(key, 0)

    async def take(self) -> K:
        """Wait for a key and take it. `done` must follow. Raises Closed."""
        while not self._waiting or self._closed:
            if self._closed:
                raise Closed
            await self._wait_added()
        user, line = next(iter(self._lines.items()))
        key = line.popleft()
        if line:
            self._lines.move_to_end(user)
        else:
            del self._lines[user]
        since = self._waiting.pop(key)
        now = self._working[key] = asyncio.get_running_loop().time()
        if self._observer is not None:
            self._observer(now - since)
        return key

    def done(self, key: K) -> None:
        """Mark the reconcile of `key` as done."""
        del self._working[key]
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def open(self) -> None:
        """Hand out keys, as it is at first."""
        self._closed = False

    def close(self) -> None:
        """Forget the delays, and hand out no more keys. Keys in line stay there."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._held.clear()
        if self._release is not None:
            self._release.cancel()
            self._release = None
        while self._idle:
            self._wake()

    def _put_off(self, key: K, delay: float, then: Callable[[K], None]) -> None:
        if self._closed or key in self._waiting or key in self._again or key in self._held:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, then, key)

    # Retries

    def _again_at_once(self, key: K) -> None:
        self._retries += 1
        self.add(key)

    def _again_by_budget(self, key: K) -> None:
        # Counted when it is due, not when it is put off: most keys whose failure has a cure
        # come back by an event before that, and would have taken from the budget for nothing.
        del self._timers[key]
        now = asyncio.get_running_loop().time()
        if not self._budget.wait(now):
            self._budget.spend(now)
            self._again_at_once(key)
        else:
            self._held[key] = None
            self._release_later()

    def _release_later(self) -> None:
        if self._held and self._release is None:
            loop = asyncio.get_running_loop()
            wait = self._budget.wait(loop.time())
            self._release = loop.call_later(wait, self._release_first)

    def _release_first(self) -> None:
        self._release = None
        if self._held:
            key, _ = self._held.popitem(last=False)
            self._budget.spend(asyncio.get_running_loop().time())
            self._again_at_once(key)
        self._release_later()

    # Workers

    async def _wait_added(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._idle.append(waiter)
        try:
            await waiter
        except BaseException:
            with suppress(ValueError):
                self._idle.remove(waiter)
            # A worker that was woken for a key and is cancelled leaves it to another.
            if self._waiting and waiter.done() and not waiter.cancelled():
                self._wake()
            raise

    def _wake(self) -> None:
        """Wake one of the workers that wait for a key."""
        while self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
