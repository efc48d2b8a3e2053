"""Keys waiting for a worker: each at most once, and never with two workers at a time.

A key waits for nothing but the keys that came before it; where keys belong to users, for those of
its own user, and the users take turns. A key whose work failed is put off: longer with each failure
in a row, and all of them together come back no faster than the budget of retries allows; there,
too, the users take turns.
"""

import asyncio
import random
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

import msgspec

K = TypeVar("K")

MAX_DELAY: Final = 60.0
"""The longest that a failure puts anything off, in seconds, unless it asks for more."""

_LONGEST_WAIT: Final = 60.0
"""Seconds after which a key's user has its turn though others have had all other workers."""

_MIN_DELAY: Final = 0.5
"""What is doubled for failures that ask for no delay at all: only the first has none."""

_JITTER: Final = 0.25
"""How much longer a delay may become, so that what failed together comes back one by one."""


def backoff(delay: float, failures: int, jitter: float, max_delay: float = MAX_DELAY) -> float:
    """Return the seconds to wait after so many `failures` in a row, of which the last asks `delay`.

    Never less than was asked for. `jitter`, from 0 to 1, is random for each.
    """
    if failures > 1:
        delay = delay or _MIN_DELAY
        delay = min(delay * 2 ** min(failures - 1, 10), max(delay, max_delay))
    return delay * (1 + _JITTER * jitter)


class Budget:
    """Allows `rate` actions a second; after a rest, `burst` of them at once."""

    def __init__(self, rate: float = 10.0, burst: int = 100) -> None:
        self._interval = 1 / rate
        self._slack = (burst - 1) * self._interval
        self._next_due = 0.0
        """When the next action would be due if they were spaced evenly."""

    def delay(self, now: float) -> float:
        """Return the seconds until one more is allowed."""
        return max(0.0, self._next_due - self._slack - now)

    def spend(self, now: float) -> None:
        """Count one more."""
        self._next_due = max(self._next_due, now) + self._interval


class QueueClosed(Exception):
    """The queue is closed, and hands out no keys."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
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
    """How many keys were added."""
    retries: int
    """How many of these had failed."""


class WorkQueue(Generic[K]):
    """Deduplicates keys, remembers those that come up while they are worked on,
    and brings others back after a delay."""

    def __init__(
        self,
        budget: Budget | None = None,
        jitter: Callable[[], float] = random.random,
        max_delay: float = MAX_DELAY,
        user: Callable[[K], Hashable] = lambda key: None,
        workers: int | None = None,
    ) -> None:
        """`budget` is that of all retries together; `jitter` returns a random number from 0 to 1.

        Failures put a key off for `max_delay` seconds at most, unless they ask for more. `user`
        returns the user whose queue a key is in. Where there are so many `workers`, no user has
        more of them than are free: one has half at most, a second one half of the rest, so that
        for the next one there is a worker, however long theirs take. Otherwise one may have all.
        """
        self._budget = budget or Budget()
        self._jitter = jitter
        self._max_delay = max_delay
        self._user_of = user
        self._workers = workers
        self._waiting: dict[K, float] = {}
        """Keys in the queue, and since when."""
        self._queues: OrderedDict[Hashable, deque[K]] = OrderedDict()
        """The same keys by user, the user first whose turn is next."""
        self._processing: dict[K, float] = {}
        """Keys that workers have taken, and since when."""
        self._processing_users: dict[K, Hashable] = {}
        self._workers_by_user: Counter[Hashable] = Counter()
        """How many of these keys a user has, of users that have any."""
        self._added_while_processing: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._due_retries: dict[K, Hashable] = {}
        """Retries that are due, and wait for the budget, with their users."""
        self._due_retry_queues: OrderedDict[Hashable, OrderedDict[K, None]] = OrderedDict()
        """The same keys by user, the user first whose turn is next."""
        self._release_timer: asyncio.TimerHandle | None = None
        self._waiters: deque[asyncio.Future[None]] = deque()
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
            delayed=len(self._timers) + len(self._due_retries),
            working=len(self._processing),
            longest_work=now - min(self._processing.values(), default=now),
            adds=self._adds,
            retries=self._retries,
        )

    def add(self, key: K) -> None:
        """Have `key` reconciled, as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._due_retries:
            self._remove_due_retry(key)
        if key in self._processing:
            self._added_while_processing.add(key)
        elif key not in self._waiting:
            # First: where there is none, or none that can be one, the key is not added.
            queue = self._queues.setdefault(self._user_of(key), deque())
            queue.append(key)
            self._waiting[key] = asyncio.get_running_loop().time()
            self._adds += 1
            if self._waiters:
                self._wake()

    def add_after(self, key: K, delay: float) -> None:
        """Have `key` reconciled in `delay` seconds, unless one is due sooner."""
        self._schedule(key, delay, self.add)

    def retry(self, key: K, delay: float, *, unbudgeted: bool = False) -> None:
        """Have `key`, which has failed, reconciled again in `delay` seconds or later.

        The budget does not count one that is `unbudgeted`.
        """
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = backoff(delay, failures, self._jitter(), self._max_delay)
        self._schedule(key, delay, self._add_retry if unbudgeted else self._add_retry_within_budget)

    def forget_failures(self, key: K) -> None:
        """Forget the failures of `key`."""
        if self._failures:
            self._failures.pop(key, None)

    def failure_count(self, key: K) -> int:
        """Return how often in a row `key` has failed."""
        return self._failures.get(key, 0)

    async def take(self) -> K:
        """Wait for a key and take it. `done` must follow. Raises QueueClosed."""
        while True:
            if self._closed:
                raise QueueClosed
            next_turn = self._next_turn()
            if next_turn is not None:
                break
            await self._wait_added()
        user, queue = next_turn
        key = queue.popleft()
        if queue:
            self._queues.move_to_end(user)
        else:
            del self._queues[user]
        since = self._waiting.pop(key)
        now = self._processing[key] = asyncio.get_running_loop().time()
        self._processing_users[key] = user
        self._workers_by_user[user] += 1
        if self._observer is not None:
            self._observer(now - since)
        return key

    def done(self, key: K) -> None:
        """Mark the reconcile of `key` as done."""
        del self._processing[key]
        user = self._processing_users.pop(key)
        self._workers_by_user[user] -= 1
        if not self._workers_by_user[user]:
            del self._workers_by_user[user]
        self._wake_for_another_user()
        if key in self._added_while_processing:
            self._added_while_processing.discard(key)
            self.add(key)

    def open(self) -> None:
        """Hand out keys, as it is at first."""
        self._closed = False

    def close(self) -> None:
        """Forget the delays, and hand out no more keys. Keys in the queue stay there."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due_retries.clear()
        self._due_retry_queues.clear()
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None
        while self._waiters:
            self._wake()

    def _schedule(self, key: K, delay: float, callback: Callable[[K], None]) -> None:
        if (
            self._closed
            or key in self._waiting
            or key in self._added_while_processing
            or key in self._due_retries
        ):
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, callback, key)

    # Retries

    def _add_retry(self, key: K) -> None:
        self._retries += 1
        self.add(key)

    def _add_retry_within_budget(self, key: K) -> None:
        # Counted when it is due, not when it is put off: most keys whose failure has a cure
        # come back by an event before that, and would have taken from the budget for nothing.
        del self._timers[key]
        now = asyncio.get_running_loop().time()
        if not self._budget.delay(now):
            self._budget.spend(now)
            self._add_retry(key)
        else:
            user = self._due_retries[key] = self._user_of(key)
            self._due_retry_queues.setdefault(user, OrderedDict())[key] = None
            self._release_later()

    def _release_later(self) -> None:
        if self._due_retries and self._release_timer is None:
            loop = asyncio.get_running_loop()
            delay = self._budget.delay(loop.time())
            self._release_timer = loop.call_later(delay, self._release_first)

    def _release_first(self) -> None:
        self._release_timer = None
        if self._due_retries:
            user, keys = next(iter(self._due_retry_queues.items()))
            self._due_retry_queues.move_to_end(user)
            self._budget.spend(asyncio.get_running_loop().time())
            self._add_retry(next(iter(keys)))  # and with that it is due no more
        self._release_later()

    def _remove_due_retry(self, key: K) -> None:
        user = self._due_retries.pop(key)
        keys = self._due_retry_queues[user]
        del keys[key]
        if not keys:
            del self._due_retry_queues[user]

    # Workers

    def _next_turn(self) -> tuple[Hashable, deque[K]] | None:
        """Return the user of whom a key is to be taken now, and that one's keys, if there is one.

        A user who has as many workers as are free keeps the turn, and has it when others have had
        all workers for long.
        """
        if self._workers is None:
            return next(iter(self._queues.items()), None)
        free = self._workers - len(self._processing)
        if not free:
            return None
        long_ago = asyncio.get_running_loop().time() - _LONGEST_WAIT
        for user, queue in self._queues.items():
            count = self._workers_by_user[user]
            is_overdue = self._waiting[queue[0]] < long_ago and 2 * count < self._workers
            if count < free or is_overdue:
                return user, queue
        return None

    def _wake_for_another_user(self) -> None:
        # The worker that was woken for a key found its user with too many of them. Now that one
        # more is free, the user who had it may have it back, and another user one more: the
        # worker that is free takes the key of one of them, and this is for the other.
        if self._workers is not None and self._waiters and self._next_turn() is not None:
            self._wake()

    async def _wait_added(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            with suppress(ValueError):
                self._waiters.remove(waiter)
            # A worker that was woken for a key and is cancelled leaves it to another.
            if self._waiting and waiter.done() and not waiter.cancelled():
                self._wake()
            raise

    def _wake(self) -> None:
        """Wake one of the workers that wait for a key."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
