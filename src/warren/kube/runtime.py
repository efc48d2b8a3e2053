"""Reconcile loops: keys that news brings up, one pass at a time for each.

A pass looks at the whole state of its key, so it does not matter which news
woke it, nor how often.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog

from warren.base.errors import Retryable
from warren.kube.queue import WorkQueue

log = structlog.get_logger()

K = TypeVar("K")

PASS_SECONDS: Final = 60.0
"""The longest that one pass may take."""

_BUG_DELAY: Final = 30.0


class Reconciler(Generic[K]):
    """Runs passes over keys with a few workers. `add` may be called at any time."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 4,
        limit: float | None = PASS_SECONDS,
    ) -> None:
        """`reconcile` makes one pass and gives the seconds to the next; None waits for news."""
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._limit = limit
        self._queue: WorkQueue[K] = WorkQueue()
        self._failures: dict[K, int] = {}

    def add(self, key: K) -> None:
        """Ask for a pass over `key`."""
        self._queue.add(key)

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as workers:
                for number in range(self._workers):
                    workers.create_task(self._work(), name=f"{self.name} {number}")
        finally:
            self._queue.close()

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                delay = await self._attempt(key)
            finally:
                self._queue.done(key)
            if delay is not None:
                self._queue.add_after(key, delay)

    async def _attempt(self, key: K) -> float | None:
        with structlog.contextvars.bound_contextvars(reconciler=self.name, key=str(key)):
            try:
                async with asyncio.timeout(self._limit):
                    delay = await self._reconcile(key)
            except Retryable as error:
                # The first time it is most likely a view that was a moment old.
                say = log.info if key in self._failures else log.debug
                say("pass put off", reason=str(error))
                return self._backoff(key, error.delay)
            except Exception:  # the only such net: a bug may cost one key, not all
                log.exception("pass failed")
                return self._backoff(key, _BUG_DELAY)
        self._failures.pop(key, None)
        return delay

    def _backoff(self, key: K, delay: float) -> float:
        """Double the delay with each failure in a row, up to a minute."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return float(min(delay * 2 ** min(failures - 1, 10), max(delay, 60.0)))
