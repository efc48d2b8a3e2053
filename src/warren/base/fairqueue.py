"""Fair queueing at the event loop: no guest's requests take the time of all others.

A task runs from one `await` to the next without a break, and no other does meanwhile. Each
such step of a guest's is measured. A guest that has taken little lately runs at once. One that
has taken more waits in a queue of its own: queues are served round robin, a step at a time for
all guests together, and after each slice the loop is left to others for as long.
"""

import asyncio
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """How much of an event loop is a guest's: for each user a token bucket, of seconds."""

    allowance: float = 0.02
    """Seconds that a guest takes without waiting in the queue, after a rest: the bucket's size."""
    refill: float = 0.1
    """Seconds of the allowance regained per second."""
    debt: float = 10.0
    """Seconds beyond the allowance that are remembered."""
    slice: float = 0.002
    """Seconds that queued steps take together before the loop is left to others. Many short
    steps make one slice; a longer step is not cut."""
    rest_factor: float = 1.0
    """After a slice the loop is left to others for this many times its length."""


DEFAULT_FAIRNESS: Final = Fairness()


class FairQueue:
    """Guests' work at one event loop."""

    def __init__(self, fairness: Fairness = DEFAULT_FAIRNESS) -> None:
        self._fairness = fairness
        self._balances: dict[int, tuple[float, float]] = {}
        """What each user had left of the allowance, and when. It outlives their connections."""
        self._queues: dict[int, deque[asyncio.Future[None]]] = {}
        """The steps that wait, by user, in the order in which users are served."""
        self._slot_taken = False
        """Whether a guest has the slot, or the loop is left to others."""
        self._slice_used = 0.0
        """Seconds of the slice that is being taken."""

    async def run(self, userid: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do a guest's work, through the queue where it takes much. Cancellation does not wait."""
        return await self._stepwise(userid, work())

    @types.coroutine
    def _stepwise(self, userid: int, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        answer: Any = None
        thrown: BaseException | None = None
        while True:
            has_slot = False
            if thrown is None and self._overdrawn(userid):
                try:
                    yield from self._wait_for_slot(userid)
                    has_slot = True
                except BaseException as error:
                    thrown = error
            if isinstance(thrown, GeneratorExit):  # this is closed, and maybe no loop runs any more
                work.close()
                raise thrown
            began = _now()
            try:
                awaited = work.send(answer) if thrown is None else work.throw(thrown)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                cost = _now() - began
                self._charge(userid, cost)
                if has_slot:
                    self._release_slot(cost)
            answer = thrown = None
            try:
                answer = yield awaited
            except BaseException as error:
                thrown = error

    # What has been taken

    def _overdrawn(self, userid: int) -> bool:
        return self._allowance_left(userid, _now()) <= 0

    def _charge(self, userid: int, cost: float) -> None:
        now = _now()
        self._balances[userid] = (
            max(self._allowance_left(userid, now) - cost, -self._fairness.debt),
            now,
        )

    def _allowance_left(self, userid: int, now: float) -> float:
        allowance = self._fairness.allowance
        had, since = self._balances.get(userid, (allowance, now))
        return min(allowance, had + (now - since) * self._fairness.refill)

    # The queue

    def _wait_for_slot(self, userid: int) -> Generator[Any, None, None]:
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(userid, deque()).append(slot)
        self._grant_slot()
        try:
            yield from slot
        except BaseException:
            if slot.done() and not slot.cancelled():
                self._release_slot(0.0)  # it came too late
            else:
                self._remove_from_queue(userid, slot)
            raise

    def _remove_from_queue(self, userid: int, slot: "asyncio.Future[None]") -> None:
        queue = self._queues.get(userid, deque())
        if slot in queue:
            queue.remove(slot)
            if not queue:
                del self._queues[userid]

    def _grant_slot(self) -> None:
        """Give the slot to the first step of the user whose queue has waited longest."""
        while self._queues and not self._slot_taken:
            userid = next(iter(self._queues))
            queue = self._queues.pop(userid)
            slot = queue.popleft()
            if queue:
                self._queues[userid] = queue  # behind all others
            if not slot.done():  # else it was cancelled just now
                self._slot_taken = True
                slot.set_result(None)

    def _release_slot(self, cost: float) -> None:
        """Return the slot after a step; after a whole slice others come first."""
        self._slice_used += cost
        if self._slice_used < self._fairness.slice:
            self._free_slot()
        else:
            rest_seconds, self._slice_used = self._slice_used * self._fairness.rest_factor, 0.0
            asyncio.get_running_loop().call_later(rest_seconds, self._free_slot)

    def _free_slot(self) -> None:
        self._slot_taken = False
        self._grant_slot()


def _now() -> float:
    return asyncio.get_running_loop().time()
