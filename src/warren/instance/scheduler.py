"""The scheduler: first come, first served, on the resource graph (RFC 27).

The first job in the queue that does not fit makes all others wait, and is told
what it waits for.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final

import orjson
import structlog

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.kvs import Kvs, put
from warren.instance.ports import ANNOTATE, CANCEL, DENY, SUCCESS, Message
from warren.rfc import jobspec as jobspecs
from warren.rfc.fluid import JobId
from warren.scheduling.graph import Allocation, Graph, Refusal
from warren.scheduling.request import Request, from_jobspec

log = structlog.get_logger()


_AT_ONCE: Final = 32
"""Allocations of one commit: what else there is to do waits while they are matched."""


_LEFT: Final = 64
"""How many may be in the queue that have left, besides as many as are waiting."""


@dataclass(frozen=True, order=True)
class _Waiting:
    place: tuple[int, int]
    """In the queue: the higher priority first, then the older job."""
    job: JobId = field(compare=False)
    request: Request = field(compare=False)
    duration: float = field(compare=False)


class FirstCome:
    """A `Scheduler`."""

    def __init__(
        self, kvs: Kvs, clock: Clock, graph: Graph, reply: Callable[[Message], None]
    ) -> None:
        self._kvs = kvs
        self._clock = clock
        self._graph = graph
        self._reply = reply
        self._waiting: dict[JobId, _Waiting] = {}
        self._queue: list[_Waiting] = []
        """A heap. Those who have left are still in it until their turn comes."""
        self._told: dict[JobId, str] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Look for room whenever there may be some, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self._pass()

    def alloc(self, message: Message) -> None:
        job = JobId(message["id"])
        try:
            request = from_jobspec(message["jobspec"])
        except UserMistake as mistake:
            self._reply({"id": job, "type": DENY, "note": str(mistake)})
            return
        duration = jobspecs.system(message["jobspec"]).get("duration", 0)
        waiting = _Waiting((-message["priority"], job), job, request, duration)
        self._waiting[job] = waiting
        heappush(self._queue, waiting)
        self._news.set()

    def cancel(self, job: JobId) -> None:
        if self._waiting.pop(job, None) is not None:
            self._told.pop(job, None)
            self._reply({"id": job, "type": CANCEL})
            self._news.set()

    def free(self, job: JobId, r: Mapping[str, Any]) -> None:
        self._graph.give_back(self._graph.decode(r))
        self._news.set()

    def hello(self, job: JobId, r: Mapping[str, Any]) -> None:
        self._graph.take(self._graph.decode(r))

    def set_ssds(self, rabbit: str, *, up: bool) -> None:
        """Say whether a rabbit's flash may be given to jobs."""
        self._graph.set_ssds(rabbit, up=up)
        self._news.set()

    def set_drained(self, ranks: Iterable[int]) -> None:
        """Say which nodes may not be given to jobs, in place of what was said before."""
        self._graph.set_drained(ranks)
        self._news.set()

    async def _pass(self) -> None:
        """Serve the first in the queue as long as there is room, and write down what they got."""
        given: list[tuple[JobId, Mapping[str, Any]]] = []
        while (waiting := self._first()) is not None:
            match self._graph.match(waiting.request):
                case Allocation() as allocation:
                    self._leave(waiting)
                    given.append((waiting.job, self._give(waiting, allocation)))
                    if len(given) == _AT_ONCE:
                        self._news.set()
                        break
                case Refusal(reason, never) if never:
                    self._leave(waiting)
                    self._reply({"id": waiting.job, "type": DENY, "note": reason})
                case Refusal(reason):
                    self._explain(waiting.job, reason)
                    break
        if given:
            await self._kvs.commit([put(keys.of(job, "R"), orjson.dumps(r)) for job, r in given])
        for job, r in given:
            hosts = ",".join(r["execution"]["nodelist"])
            annotations = {"sched": {"resource_summary": hosts, "reason_pending": None}}
            self._reply({"id": job, "type": SUCCESS, "R": r, "annotations": annotations})

    def _first(self) -> _Waiting | None:
        if len(self._queue) > 2 * len(self._waiting) + _LEFT:
            self._queue = sorted(self._waiting.values())  # which is a heap, too
        while self._queue and self._waiting.get(self._queue[0].job) is not self._queue[0]:
            heappop(self._queue)  # it left, or asks for something else now
        return self._queue[0] if self._queue else None

    def _leave(self, waiting: _Waiting) -> None:
        del self._waiting[waiting.job]
        self._told.pop(waiting.job, None)

    def _give(self, waiting: _Waiting, allocation: Allocation) -> Mapping[str, Any]:
        self._graph.take(allocation)
        now = self._clock.now()
        return self._graph.encode(
            allocation,
            slots=waiting.request.slots,
            starttime=now,
            expiration=now + waiting.duration if waiting.duration else 0.0,
        )

    def _explain(self, job: JobId, reason: str) -> None:
        if self._told.get(job) != reason:
            self._told[job] = reason
            annotations = {"sched": {"reason_pending": reason}}
            self._reply({"id": job, "type": ANNOTATE, "annotations": annotations})
