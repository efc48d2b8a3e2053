"""The copies that are under way on one rabbit: each is a task, and has one of the slots."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from warren.base import log
from warren.base.objects import Key
from warren.dws.copies import slots
from warren.dws.copies.slots import WaitingCopy

SLOTS: Final = 8
"""Copies at a time on one rabbit; more only where more users have copies to be made."""


class Copies:
    """Makes the copies of one rabbit, each once it has a slot; `run` ends with all of them."""

    def __init__(
        self,
        copy: Callable[[Key], Coroutine[Any, Any, None]],
        on_end: Callable[[Key], None],
        slots: int = SLOTS,
    ) -> None:
        """`copy` makes one copy, all of it; `on_end` hears that it is over, however it went."""
        self._copy = copy
        self._on_end = on_end
        self._slots = slots
        self._waiting: dict[Key, WaitingCopy] = {}
        self._running: dict[Key, tuple[WaitingCopy, asyncio.Task[None]]] = {}
        self._last_slot: dict[int, int] = {}
        """The number of each user's last slot."""
        self._slots_given = 0
        self._changed = asyncio.Event()

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting or key in self._running

    def enqueue(self, key: Key, userid: int) -> None:
        """Have a copy made as soon as it is its user's turn."""
        if key not in self:
            self._waiting[key] = WaitingCopy(key, userid)
            self._changed.set()

    async def stop(self, key: Key) -> None:
        """Return when a copy neither waits nor works, nor any process of it."""
        self._waiting.pop(key, None)
        if key in self._running:
            _, task = self._running[key]
            task.cancel()
            await asyncio.wait({task})

    async def run(self) -> None:
        """Have copies made until cancelled, which ends them."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._begin_next(group)
                await self._changed.wait()
                self._changed.clear()

    def _begin_next(self, group: asyncio.TaskGroup) -> None:
        running = [copy.userid for copy, _ in self._running.values()]
        waiting = list(self._waiting.values())
        for copy in slots.next_copies(waiting, running, self._last_slot, self._slots):
            del self._waiting[copy.key]
            self._slots_given += 1
            self._last_slot[copy.userid] = self._slots_given
            task = group.create_task(self._copy_safely(copy.key), name=f"copy {copy.key}")
            self._running[copy.key] = (copy, task)
            task.add_done_callback(lambda _, key=copy.key: self._copy_ended(key))  # type: ignore[misc]

    async def _copy_safely(self, key: Key) -> None:
        try:
            await self._copy(key)
        except Exception:  # a bug may cost one copy, not all that are at work
            log.exception("copy given up", key=str(key))

    def _copy_ended(self, key: Key) -> None:
        del self._running[key]
        self._changed.set()
        self._on_end(key)
