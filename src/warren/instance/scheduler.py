"""The scheduler: jobs in order of priority and age, on the resource graph (RFC 27).

The first job is served first; one that does not fit is told what it waits for, and others pass
it only where it loses nothing by that (`scheduling.backfill`). What jobs have is kept here by
job, so that it is given back once, however often and in how many parts it is said to be free.
"""

import asyncio
import errno
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from math import ceil, inf
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.kvs import Kvs, Operation, put
from warren.instance.protocols import ANNOTATE, CANCEL, DENY, SUCCESS, Message
from warren.instance.servicetables import SchedTable
from warren.lifecycle import urgency
from warren.rfc import canonical, fluid, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError
from warren.scheduling.backfill import Blocked, PendingJob, RunningJob, Start, decide
from warren.scheduling.external import ExistingStorage, StorageAccounts
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.reasons import Reason
from warren.scheduling.request import from_jobspec
from warren.scheduling.waitreasons import earliest_reservation, wait_reasons

_ALLOCATIONS_PER_COMMIT: Final = 32
"""Allocations of one commit: what else there is to do waits while they are matched."""

_MOST_EXPLAINED: Final = 100
"""Jobs of one request that are told what they wait for."""

_AFTER_ALL_JOBS: Final = 2**64
"""Comes after every job id."""

_DEFAULTS: Final = SchedTable()


class QueueUser(NamedTuple):
    """A queue, and a user who has jobs in it."""

    queue: str
    userid: int


class JobScheduler:
    """A `Scheduler`."""

    def __init__(
        self,
        kvs: Kvs,
        clock: Clock,
        graph: Graph,
        reply: Callable[[Message], None],
        config: SchedTable = _DEFAULTS,
    ) -> None:
        self._kvs = kvs
        self._clock = clock
        self._graph = graph
        self._reply = reply
        self._config = config
        graph.set_policy(config.match_policy)
        self._pending: dict[JobId, tuple[QueueUser, PendingJob]] = {}
        """The jobs that wait, each with its queue and user."""
        self._queues: dict[str, dict[int, list[tuple[int, int]]]] = {}
        """The positions of the jobs that wait, in order, by queue and user. None is empty."""
        self._allocated: dict[JobId, RunningJob] = {}
        self._running: list[RunningJob] = []
        """The jobs that have resources, by when they end."""
        self._storage_accounts = StorageAccounts()
        self._reasons: dict[JobId, tuple[str, float]] = {}
        """Why the first jobs wait and until when, as they were told last."""
        self._graph_read_at = 0.0
        """When scheduling began, with the graph as it was read then."""
        self._rabbits_changed_at: float | None = None
        """When the last news of a rabbit came."""
        self._changed = asyncio.Event()

    def configure(self, config: SchedTable) -> None:
        """Schedule by another table of the configuration from now on."""
        self._config = config
        self._graph.set_policy(config.match_policy)
        self._changed.set()

    async def run(self) -> None:
        """Look for room whenever there may be some, until cancelled."""
        self._graph_read_at = self._clock.now()
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._schedule()

    # The port

    def alloc(self, message: Message) -> None:
        job = JobId(message["id"])
        try:
            request = from_jobspec(message["jobspec"])
            refusal = self._graph.infeasibility(request)
        except UserMistake as mistake:
            self._reply({"id": job, "type": DENY, "note": str(mistake)})
            return
        except Exception:  # a bug may cost one job, not all
            log.exception("job not scheduled", job=fluid.f58(job))
            note = "internal error: the scheduler cannot read what the job asks for"
            self._reply({"id": job, "type": DENY, "note": note})
            return
        if refusal is not None:
            self._reply({"id": job, "type": DENY, "note": refusal.reason})
            return
        if job in self._pending:
            self._dequeue(job)
        system = message["jobspec"]["attributes"]["system"]
        self._enqueue(
            QueueUser(str(system.get("queue", "")), message["userid"]),
            PendingJob(
                position=(-message["priority"], job),
                job=job,
                request=request,
                duration=system.get("duration", 0) or inf,
            ),
        )
        self._changed.set()

    def prioritize(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        for job, priority in jobs:
            if job in self._pending:
                user, pending = self._dequeue(job)
                self._enqueue(user, replace(pending, position=(-priority, job)))
        self._changed.set()

    def cancel(self, job: JobId) -> None:
        if job in self._pending:
            self._dequeue(job)
            self._reasons.pop(job, None)
            self._reply({"id": job, "type": CANCEL})
            self._changed.set()

    def free(self, job: JobId, r: Message, final: bool) -> None:
        running = self._allocated.get(job)
        if running is None:
            return
        if final:
            self._free_all(running)
        else:
            ranks = {node.rank for node in resource_set.decode_nodes(r)}
            kept, freed = _split(running.allocation, ranks)
            self._remove_running(running)
            self._add_running(running._replace(allocation=kept))
            self._graph.give_back(freed)
        self._changed.set()

    def hello(self, job: JobId, r: Message, freed: Collection[int]) -> str | None:
        try:
            kept, _ = _split(self._graph.decode(r), freed)
        except BadFormat as error:
            return str(error)
        conflict = self._graph.conflict(kept)
        if conflict is None:
            self._graph.take(kept)
            self._set_external_gib(self._storage_accounts.set_allocated(job, allocated=True))
            self._add_running(RunningJob(r["execution"].get("expiration") or inf, job, kept))
        return conflict

    def retire(self, job: JobId) -> None:
        running = self._allocated.get(job)
        if running is not None:
            # A bug: kept for a job that is over, it would be kept for ever.
            log.error("a job that is over was not freed: it is now", job=fluid.f58(job))
            self._free_all(running)
            self._changed.set()

    def set_expiration(self, job: JobId, expiration: float) -> None:
        running = self._allocated.get(job)
        if running is not None:
            self._remove_running(running)
            self._add_running(running._replace(end=expiration or inf))
            self._changed.set()

    # What may be given out

    def set_rabbit(
        self,
        rabbit: str,
        *,
        up: bool,
        state: str = "",
        capacity_gib: int | None = None,
        labels: Iterable[str] | None = None,
    ) -> None:
        """Set whether a rabbit's flash may be given to jobs; and its state, where it may not.

        `capacity_gib` is how much it says that it has, and `labels` are what it carries, where
        that is known.
        """
        self._graph.set_rabbit(rabbit, up=up, state=state, capacity_gib=capacity_gib, labels=labels)
        self._rabbits_changed_at = self._clock.now()
        self._changed.set()

    def set_storage(
        self, name: str, bytes_by_rabbit: Mapping[str, int] | None, job: JobId | None = None
    ) -> None:
        """Set what storage there is of a name; None if there is none any more.

        While `job` has its resources, its R counts for the storage; from when it gives them
        back, and for storage of no job, the storage counts for itself.
        """
        storage = (
            None
            if bytes_by_rabbit is None
            else ExistingStorage(bytes_by_rabbit=bytes_by_rabbit, job=job)
        )
        self._set_external_gib(
            self._storage_accounts.set(name, storage, allocated=job in self._allocated)
        )

    def _set_external_gib(self, gib_by_rabbit: Mapping[str, int]) -> None:
        for rabbit, gib in gib_by_rabbit.items():
            self._graph.set_external_gib(rabbit, gib)
        if gib_by_rabbit:
            self._changed.set()

    def set_badrabbit_nodes(self, source: str, hosts: Iterable[str]) -> None:
        """Set which nodes one source tags `badrabbit`, in place of those that it had before.

        A job with storage gets none of them.
        """
        self._graph.set_tagged(source, hosts)
        self._changed.set()

    def set_drained(self, ranks: Iterable[int]) -> None:
        """Set which nodes are drained, in place of those set before."""
        self._graph.set_drained(ranks)
        self._changed.set()

    def set_offline(self, ranks: Iterable[int]) -> None:
        """Set which nodes are down, in place of those set before."""
        self._graph.set_offline(ranks)
        self._changed.set()

    # Passes

    async def _schedule(self) -> None:
        """Allocate resources to the jobs that fit, and write down what they got."""
        now = self._clock.now()
        given: list[tuple[JobId, Mapping[str, Any]]] = []
        operations: list[Operation] = []
        decisions = decide(
            self._graph,
            [[*map(self._in_order, users.values())] for users in self._queues.values()],
            self._running,
            now,
            backfilling=self._config.policy == "easy",
            depth=self._config.queue_depth,
        )
        for decision in decisions:
            match decision:
                case Start(pending, allocation):
                    expiration = now + pending.duration
                    encoded = self._graph.encode(
                        allocation,
                        starttime=now,
                        expiration=expiration if expiration < inf else 0.0,
                    )
                    operations.append(
                        put(
                            keys.job_key(pending.job, "R"),
                            self._graph.encode_text(allocation, encoded),
                        )
                    )
                    given.append((pending.job, encoded))
                    self._add_running(RunningJob(expiration, pending.job, allocation))
                    if len(given) == _ALLOCATIONS_PER_COMMIT:
                        self._changed.set()
                        break
                case Blocked(pending, reason, t_estimate):
                    self._annotate(pending.job, reason, t_estimate)
        for job, _ in given:
            self._dequeue(job)
            self._reasons.pop(job, None)
        if operations:
            await self._kvs.commit(operations)
        for job, r in given:
            hosts = ",".join(r["execution"]["nodelist"])
            sched = {"resource_summary": hosts, "reason_pending": None, "t_estimate": None}
            self._reply({"id": job, "type": SUCCESS, "R": r, "annotations": {"sched": sched}})

    def _in_order(self, positions: Sequence[tuple[int, int]]) -> Iterator[PendingJob]:
        for _, number in positions:
            if JobId(number) in self._pending:
                yield self._pending[JobId(number)][1]

    def _enqueue(self, user: QueueUser, pending: PendingJob) -> None:
        self._pending[pending.job] = (user, pending)
        users = self._queues.setdefault(user.queue, {})
        insort(users.setdefault(user.userid, []), pending.position)

    def _dequeue(self, job: JobId) -> tuple[QueueUser, PendingJob]:
        user, pending = self._pending.pop(job)
        users = self._queues[user.queue]
        positions = users[user.userid]
        del positions[bisect_left(positions, pending.position)]
        if not positions:
            del users[user.userid]
        if not users:
            del self._queues[user.queue]
        return user, pending

    def _free_all(self, running: RunningJob) -> None:
        self._remove_running(running)
        self._graph.give_back(running.allocation)
        # In the same step: what the job leaves on rabbits is not free in between.
        self._set_external_gib(self._storage_accounts.set_allocated(running.job, allocated=False))

    def _add_running(self, running: RunningJob) -> None:
        self._allocated[running.job] = running
        insort(self._running, running)

    def _remove_running(self, running: RunningJob) -> None:
        del self._allocated[running.job]
        del self._running[bisect_left(self._running, running)]

    def _annotate(self, job: JobId, reason: str, t_estimate: float) -> None:
        # To the second: a job past its limit ends a little later in each cycle.
        t_estimate = ceil(t_estimate) if t_estimate < inf else inf
        if self._reasons.get(job) != (reason, t_estimate):
            self._reasons[job] = (reason, t_estimate)
            told_estimate = t_estimate if t_estimate < inf else None
            sched = {"reason_pending": reason, "t_estimate": told_estimate}
            self._reply({"id": job, "type": ANNOTATE, "annotations": {"sched": sched}})

    # Services

    def methods(self) -> Methods:
        """Return the service `sched`."""
        return {
            "resource-status": Method(self._status, guest=True),
            "expiration": Method(self._set_expiration),
            "prioritize": Method(self._prioritize),
            "waits": Method(self._waits, guest=True),
            "why": Method(self._why, guest=True),
        }

    def feasibility(self) -> Methods:
        """Return the service `feasibility`."""
        return {"check": Method(self._check, guest=True)}

    async def _status(self, request: Request) -> Payload:
        return self._graph.status()

    async def _set_expiration(self, request: Request) -> Payload:
        job, expiration = request.payload.get("id"), request.payload.get("expiration")
        if (
            type(job) is not int
            or isinstance(expiration, bool)  # which is an int in Python
            or not isinstance(expiration, int | float)
            or expiration < 0
        ):
            raise RpcError(errno.EPROTO, "sched.expiration takes id and expiration")
        self.set_expiration(JobId(job), expiration)
        return {}

    async def _prioritize(self, request: Request) -> Payload:
        jobs = request.payload.get("jobs")
        if not isinstance(jobs, list) or not all(_is_pair(each) for each in jobs):
            raise RpcError(errno.EPROTO, "sched.prioritize takes jobs, as pairs of id and priority")
        self.prioritize([(JobId(job), priority) for job, priority in jobs])
        return {}

    async def _waits(self, request: Request) -> Payload:
        """Return what jobs wait for, in a sentence each. Looked up on demand."""
        ids = request.payload.get("ids")
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise RpcError(errno.EPROTO, "sched.waits takes ids")
        asked = [
            self._pending[JobId(number)][1]
            for number in ids[:_MOST_EXPLAINED]
            if JobId(number) in self._pending
        ]
        found = {}
        for job, reason in self._reasons_of(asked):
            found[str(job)] = reason.sentence
            await asyncio.sleep(0)  # of a large system each may take a hundredth of a second
        return {"waits": found}

    async def _why(self, request: Request) -> Payload:
        """Return why a job waits, with the arithmetic; or what one of a jobspec would wait for."""
        number, spec = request.payload.get("id"), request.payload.get("jobspec")
        if spec is not None:
            user, pending = _hypothetical_job(
                spec, request.payload.get("priority", urgency.DEFAULT), request.cred.userid
            )
        elif type(number) is not int:
            raise RpcError(errno.EPROTO, "sched.why takes id, or jobspec")
        elif JobId(number) not in self._pending:
            raise RpcError(errno.ENOENT, "the job does not wait for resources")
        else:
            user, pending = self._pending[JobId(number)]
        hypothetical = (user, pending) if spec is not None else None
        ((_, reason),) = self._reasons_of([pending], hypothetical)
        users = self._queues.get(user.queue, {})
        answer: dict[str, Any] = {
            "kind": reason.kind.value,
            "kinds": [each.value for each in reason.kinds],
            "reason": reason.sentence,
            "before": sum(bisect_left(each, pending.position) for each in users.values()),
            **reason.numbers,
            "map": {"read": self._graph_read_at, "heard": self._rabbits_changed_at},
        }
        if reason.t_estimate < inf:
            answer["t_estimate"] = reason.t_estimate
        if not self._graph.fits(pending.request):
            found = earliest_reservation(
                self._graph, self._running, self._clock.now(), pending.request
            )
            if found is not None and found.freed_by is not None:
                answer["earliest"], answer["ends"] = found.t_estimate, found.freed_by
        return answer

    def _reasons_of(
        self, asked: Sequence[PendingJob], hypothetical: tuple[QueueUser, PendingJob] | None = None
    ) -> Iterator[tuple[JobId, Reason]]:
        """Yield why jobs wait, as if one that is `hypothetical` were in the queues, too."""
        # Of copies: while one client is answered, others come and leave.
        jobs = {
            QueueUser(queue, userid): self._in_order([*positions])
            for queue, users in self._queues.items()
            for userid, positions in users.items()
        }
        if hypothetical is not None:
            user, pending = hypothetical
            others = jobs.get(user, iter(()))
            jobs[user] = merge(others, [pending], key=lambda each: each.position)
        queues: dict[str, list[Iterator[PendingJob]]] = {}
        for user, theirs in jobs.items():
            queues.setdefault(user.queue, []).append(theirs)
        return wait_reasons(
            self._graph,
            queues.values(),
            self._running,
            self._clock.now(),
            backfilling=self._config.policy == "easy",
            depth=self._config.queue_depth,
            jobs=asked,
        )

    async def _check(self, request: Request) -> Payload:
        try:
            wanted = from_jobspec(canonical.check(request.payload.get("jobspec")))
            refusal = self._graph.infeasibility(wanted)
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake
        if refusal is not None:
            raise RpcError(errno.EOVERFLOW, refusal.reason)
        return {}


def _hypothetical_job(spec: Any, priority: Any, userid: int) -> tuple[QueueUser, PendingJob]:
    """Return its queue, and how a user's job would wait there if it came now. Raises RpcError."""
    if type(priority) is not int:
        raise RpcError(errno.EPROTO, "sched.why takes priority as a number")
    try:
        wanted = from_jobspec(canonical.check(spec))
    except UserMistake as mistake:
        raise RpcError(errno.EINVAL, str(mistake)) from mistake
    system = (spec["attributes"] or {}).get("system") or {}
    job = JobId(_AFTER_ALL_JOBS)
    position = (-priority, job)
    duration = system.get("duration", 0) or inf
    return QueueUser(str(system.get("queue", "")), userid), PendingJob(
        position=position, job=job, request=wanted, duration=duration
    )


def _is_pair(each: Any) -> bool:
    return isinstance(each, list) and [type(number) for number in each] == [int, int]


def _split(allocation: Allocation, ranks: Collection[int]) -> tuple[Allocation, Allocation]:
    """Part what stays taken from what is free when some nodes have been given back.

    Flash stays: it holds a job's data until the job is over.
    """
    kept, freed = [], []
    for piece in allocation.pieces:
        if piece.rank in ranks:
            freed.append(piece._replace(portion=0))
            if piece.portion:
                kept.append(piece._replace(cores=0, gpus=0))
        else:
            kept.append(piece)
    return replace(allocation, pieces=tuple(kept)), replace(allocation, pieces=tuple(freed))
