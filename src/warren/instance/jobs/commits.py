"""Commits: operations that become durable together, and actions that wait for them.

Operations and actions are taken together: an action is done when all operations that were
added before it are on disk, and none of those that others may see comes earlier.
"""

import asyncio
from collections.abc import Callable

from warren.base import log
from warren.instance.kvs import Kvs, Operation


class Commits:
    """Group commit of one writer of the KVS. `run` must be running."""

    def __init__(self, kvs: Kvs) -> None:
        self._kvs = kvs
        self._operations: list[Operation] = []
        self._actions: list[Callable[[], None]] = []
        self._added = asyncio.Event()

    def add(self, *operations: Operation) -> None:
        """Have operations done. What is added without waiting in between is done as a whole."""
        self._operations += operations
        self._added.set()

    def when_durable(self, action: Callable[[], None]) -> None:
        """Do something once everything that was added so far is durable."""
        self._actions.append(action)
        self._added.set()

    async def wait_durable(self) -> None:
        """Wait until everything that was added so far is durable."""
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_durable(lambda: None if durable.done() else durable.set_result(None))
        await durable

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            operations, self._operations = self._operations, []
            actions, self._actions = self._actions, []
            if operations:
                await self._kvs.commit(operations)
            for action in actions:
                try:
                    action()
                except Exception:  # a bug may cost one action, not all
                    log.exception("action after a commit failed")
