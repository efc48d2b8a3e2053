"""What is to be durable, and what waits until it is.

Operations and deeds are taken together: a deed is done when all operations that were
added before it are on disk, and none of those that others may see comes earlier.
"""

import asyncio
from collections.abc import Callable

from warren.instance.kvs import Kvs, Operation


class Commits:
    """Group commit of one writer of the KVS. `run` must be running."""

    def __init__(self, kvs: Kvs) -> None:
        self._kvs = kvs
        self._operations: list[Operation] = []
        self._deeds: list[Callable[[], None]] = []
        self._news = asyncio.Event()

    def add(self, *operations: Operation) -> None:
        """Have operations done. What is added without waiting in between is done as a whole."""
        self._operations += operations
        self._news.set()

    def then(self, deed: Callable[[], None]) -> None:
        """Do something once everything that was added so far is durable."""
        self._deeds.append(deed)
        self._news.set()

    async def done(self) -> None:
        """Wait until everything that was added so far is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.then(lambda: None if done.done() else done.set_result(None))
        await done

    async def run(self) -> None:
        """Commit until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            operations, self._operations = self._operations, []
            deeds, self._deeds = self._deeds, []
            if operations:
                await self._kvs.commit(operations)
            for deed in deeds:
                deed()
