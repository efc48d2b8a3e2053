"""A lock that users have in turns: one user's many holds are no reason for others to wait."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A lock of one event loop. Each user's holds come in the order in which they are asked for."""

    def __init__(self) -> None:
        self._is_held = False
        self._queues: OrderedDict[int | None, deque[asyncio.Future[None]]] = OrderedDict()
        """Those that wait, by user, the user first whose turn is next."""

    @asynccontextmanager
    async def turn(self, userid: int | None) -> AsyncIterator[None]:
        """Hold the lock for a user; None stands for all of whom it is not known."""
        await self._acquire(userid)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, userid: int | None) -> None:
        if not self._is_held:
            self._is_held = True
            return
        granted = asyncio.get_running_loop().create_future()
        self._queues.setdefault(userid, deque()).append(granted)
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self._release()  # it came too late
            raise

    def _release(self) -> None:
        self._is_held = False
        while self._queues and not self._is_held:
            userid, queue = self._queues.popitem(last=False)
            granted = queue.popleft()
            if queue:
                self._queues[userid] = queue  # behind all others
            if not granted.done():  # else it was cancelled
                self._is_held = True
                granted.set_result(None)
