"""The scheduler: first come, first served, on the resource graph (RFC 27).

The first job in the queue that does not fit makes all others wait, and is told
what it waits for.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True)
class _Waiting:
    job: JobId
    priority: int
    request: Request
    duration: float

    @property
    def place(self) -> tuple[int, int]:
        return (-self.priority, self.job)


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
        self._waiting[job] = _Waiting(job, message["priority"], request, duration)
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
        for waiting in sorted(self._waiting.values(), key=lambda each: each.place):
            if self._waiting.get(waiting.job) is not waiting:
                continue  # it left, or asks for something else, while another one was served
            match self._graph.match(waiting.request):
                case Allocation() as allocation:
                    await self._give(waiting, allocation)
                case Refusal(reason, never):
                    if never:
                        del self._waiting[waiting.job]
                        self._reply({"id": waiting.job, "type": DENY, "note": reason})
                        continue
                    self._explain(waiting.job, reason)
                    return

    async def _give(self, waiting: _Waiting, allocation: Allocation) -> None:
        del self._waiting[waiting.job]
        self._told.pop(waiting.job, None)
        self._graph.take(allocation)
        now = self._clock.now()
        r = self._graph.encode(
            allocation,
            slots=waiting.request.slots,
            starttime=now,
            expiration=now + waiting.duration if waiting.duration else 0.0,
        )
        await self._kvs.commit([put(keys.of(waiting.job, "R"), orjson.dumps(r))])
        hosts = ",".join(r["execution"]["nodelist"])
        annotations = {"sched": {"resource_summary": hosts, "reason_pending": None}}
        self._reply({"id": waiting.job, "type": SUCCESS, "R": r, "annotations": annotations})

    def _explain(self, job: JobId, reason: str) -> None:
        if self._told.get(job) != reason:
            self._told[job] = reason
            annotations = {"sched": {"reason_pending": reason}}
            self._reply({"id": job, "type": ANNOTATE, "annotations": annotations})
