"""Keys waiting for a worker: each at most once, and never with two workers at a time."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")


class WorkQueue(Generic[K]):
    """Deduplicates keys, remembers those that come up while they are worked on,
    and brings others back after a delay."""

    def __init__(self) -> None:
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._news = asyncio.Event()

    def add(self, key: K) -> None:
        """Ask for a pass over `key`, as soon as a worker is free."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.append(key)
            self._news.set()

    def add_after(self, key: K, delay: float) -> None:
        """Ask for a pass over `key` in `delay` seconds, unless one is due sooner."""
        if key in self._waiting or key in self._again:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self.add, key)

    async def take(self) -> K:
        """Wait for a key and take it. `done` must follow."""
        while not self._ready:
            self._news.clear()
            await self._news.wait()
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Say that the pass over `key` is over."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def close(self) -> None:
        """Forget the delays."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
