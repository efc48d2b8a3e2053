"""EASY backfill: which waiting jobs get resources now, in order and past those that cannot.

A job that does not fit, and before which no other waits for the same nodes, has a reservation:
the moment at which it will fit if all jobs last as long as they may, and what it will get then.
Later jobs start before it only where that does not move the moment: if they will have ended by
then, or leave alone what is reserved. Where the moment is not known, because jobs run that have
no end, they leave alone all that it could ever get. A job that the end of no other would help
waits for an administrator to bring nodes back, and holds up no other: it does not count as
one of the `depth` jobs of its queue that are looked at and left waiting. Requests that have not
fitted before are told by one look into a set: 64 times `depth` of that kind are for each queue, and
of different ones eight times `depth`.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

import msgspec

from warren.rfc.fluid import JobId
from warren.scheduling.graph import Graph
from warren.scheduling.inventory import Allocation
from warren.scheduling.reasons import Reason
from warren.scheduling.refusals import Refusal
from warren.scheduling.request import Request


class DepthLimit(IntEnum):
    """How far a queue is looked at, in its depths."""

    WAITING_JOBS = 1
    """Jobs that wait for others."""
    ADMIN_REQUESTS = 8
    """Different requests that wait for an administrator."""
    ADMIN_JOBS = 64
    """Jobs that wait for an administrator."""


class PendingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting job: what it asks for, and for how many seconds; `inf` for no limit."""

    position: tuple[int, int]
    """In the queue: the lesser one comes first."""
    job: JobId
    request: Request
    duration: float = inf


class RunningJob(NamedTuple):
    """A running job: its end, `inf` where it has none, and what it has."""

    end: float
    job: JobId
    allocation: Allocation


class Start(msgspec.Struct, frozen=True):
    """A job gets its resources now."""

    pending: PendingJob
    allocation: Allocation


@dataclass(frozen=True)
class Blocked:
    """A job is the first to wait for its nodes."""

    pending: PendingJob
    reason: str
    t_estimate: float
    """When it will be its turn at the latest; `inf` where that is not known."""


class Reservation(msgspec.Struct, frozen=True):
    """When a request will fit at the latest."""

    t_estimate: float
    """`inf` where that is not known."""
    allocation: Allocation | None = None
    """None where the moment is not known."""
    remaining_graph: Graph | None = None
    """What there will be beside it, then."""
    freed_by: JobId | None = None
    """The job whose end makes room for it, where the moment is known."""


class JobReservation(NamedTuple):
    """The reservation of a pending job; None where all that it could ever get is kept for it."""

    pending: PendingJob
    reservation: Reservation | None


def decide(
    graph: Graph,
    queues: Iterable[Iterable[PendingJob]],
    running: Sequence[RunningJob],
    now: float,
    *,
    backfilling: bool,
    depth: int,
) -> Iterator[Start | Blocked]:
    """Return, one after the other, which jobs get what, and which wait for what.

    Each of the `queues` is in order, and looked at until `depth` of it are left waiting for
    others; `running` is by end. What is given is taken from the graph when it is returned: a caller
    that stops has taken no more than it has been given. Without `backfilling` no job gets what one
    that waits before it could ever have.
    """
    plan = Plan(graph, running, now, backfilling=backfilling)
    for _, outcome in consider(plan, queues, depth):
        if outcome is not None:
            yield outcome


def consider(
    plan: "Plan",
    queues: Iterable[Iterable[PendingJob]],
    depth: int,
    reached: MutableMapping[int, DepthLimit] | None = None,
) -> Iterator[tuple[PendingJob, Start | Blocked | None]]:
    """Yield the jobs that are looked at, each with what becomes of it; None if it just waits.

    For queues that are looked at no further, `reached` is told by their number which limit it is.
    """
    iterators = [iter(queue) for queue in queues]
    remaining = [DepthLimit.WAITING_JOBS * depth] * len(iterators)
    admin_requests = [DepthLimit.ADMIN_REQUESTS * depth] * len(iterators)
    admin_jobs = [DepthLimit.ADMIN_JOBS * depth] * len(iterators)
    firsts = [(number, next(each, None)) for number, each in enumerate(iterators)]
    heads = [(first.position, number, first) for number, first in firsts if first is not None]
    heapify(heads)
    while heads:
        _, number, pending = heads[0]
        outcome = plan.consider(pending)
        yield pending, outcome
        if plan.needs_admin(pending.request):
            # The others cost no more than a look into a set.
            admin_requests[number] -= outcome is not None
            admin_jobs[number] -= 1
        elif not isinstance(outcome, Start):
            remaining[number] -= 1
        more = remaining[number] and admin_requests[number] and admin_jobs[number]
        if not more and reached is not None:
            repeated = (
                DepthLimit.ADMIN_REQUESTS if not admin_requests[number] else DepthLimit.ADMIN_JOBS
            )
            reached[number] = repeated if remaining[number] else DepthLimit.WAITING_JOBS
        following = next(iterators[number], None) if more else None
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following.position, number, following))


class Plan:
    """One look at all waiting jobs, and what was reserved in it."""

    def __init__(
        self, graph: Graph, running: Sequence[RunningJob], now: float, *, backfilling: bool
    ) -> None:
        self._graph = graph
        self._running = list(running)
        self._now = now
        self._backfilling = backfilling
        self._reserved: list[JobReservation] = []
        self._pending_requests: list[Request] = []
        """What waiting jobs asked for, be it reserved or not."""
        self._earliest_reservation = inf
        """Jobs that have ended by then delay no reservation."""
        self._unreserved = graph
        """What there is beside all that is reserved."""
        self._refused: set[Request] = set()
        """What did not fit. There has only become less since."""
        self._needing_admin: set[Request] = set()
        """Those of them that wait for an administrator, and hold up no other."""

    def needs_admin(self, request: Request) -> bool:
        """Return whether a request that was refused waits for an administrator alone."""
        return request in self._needing_admin

    def consider(self, pending: PendingJob) -> Start | Blocked | None:
        """Return what becomes of a waiting job, after all that come before it."""
        request = pending.request
        if request in self._refused:
            return None
        end = self._now + pending.duration
        graph = (
            self._graph
            if not self._reserved or end <= self._earliest_reservation
            else self._unreserved
        )
        if graph.fits(request):
            return self._start(pending, graph, end)
        if graph is not self._graph and self._graph.fits(request):
            self._pending_requests.append(request)
            return None  # it would delay a reservation
        self._refused.add(request)
        needs_admin = self._backfilling and self._graph.cannot_fit_when_idle(request)
        if not needs_admin and any(
            self._graph.overlap(request, other) for other in self._pending_requests
        ):
            self._pending_requests.append(request)
            return None
        reservation = None if needs_admin else self.reservation(request)
        if reservation is not None or not self._backfilling:
            self._reserve(JobReservation(pending, reservation))
        else:
            self._needing_admin.add(request)
        refusal = self._graph.match(request)
        assert isinstance(refusal, Refusal)
        return Blocked(
            pending, refusal.reason, inf if reservation is None else reservation.t_estimate
        )

    def _start(self, pending: PendingJob, graph: Graph, end: float) -> Start:
        found = graph.match(pending.request)
        assert isinstance(found, Allocation)
        self._graph.take(found)
        if graph is not self._graph:
            self._unreserved.take(found)
        elif self._unreserved is not self._graph:
            # It will have ended when what is reserved is due: nothing beside that is taken.
            self._unreserved.take_and_limit_flash(found, self._graph)
        insort(self._running, RunningJob(end, pending.job, found))
        return Start(pending, found)

    def _reserve(self, reserved: JobReservation) -> None:
        """Keep from later jobs what is reserved."""
        if not self._reserved:
            self._unreserved = self._graph.copy()
        self._reserved.append(reserved)
        self._pending_requests.append(reserved.pending.request)
        self._earliest_reservation = min(
            self._earliest_reservation, self._withhold(self._unreserved, reserved)
        )

    def _withhold(self, unreserved: Graph, reserved: JobReservation) -> float:
        """Take from a graph what is reserved; return by when jobs have ended that may have it."""
        reservation = reserved.reservation
        if reservation is None or reservation.allocation is None or not self._backfilling:
            unreserved.reserve(reserved.pending.request)
            return -inf
        assert reservation.remaining_graph is not None
        unreserved.take_and_limit_flash(reservation.allocation, reservation.remaining_graph)
        return reservation.t_estimate

    # Looking closer

    def fits(self, request: Request) -> bool:
        """Return whether there is room, be it reserved for others or not."""
        return self._graph.fits(request)

    def explain(self, request: Request) -> Reason:
        """Explain why there is no room for a request."""
        return self._graph.explain(request)

    def reservation(self, request: Request) -> Reservation | None:
        """Return when a request that does not fit will, if no other comes before it."""
        return _reservation(self._graph, request, self._running, self._now)

    def blocking_reservations(self, pending: PendingJob) -> list[JobReservation]:
        """Return for which jobs that is reserved which another would have: without them it starts.

        None of them can be left out. Empty where it starts beside what is reserved.
        """
        end, until, unreserved = self._now + pending.duration, inf, self._graph
        blocking = []
        for each in self._reserved:
            trial = unreserved.copy()
            bound = min(until, self._withhold(trial, each))
            if (end <= bound and self.fits(pending.request)) or trial.fits(pending.request):
                until, unreserved = bound, trial
            else:
                blocking.append(each)
        return blocking


def _reservation(
    graph: Graph, request: Request, running: Sequence[RunningJob], now: float
) -> Reservation | None:
    """Return when a request that does not fit will; None if no end of a job would help."""
    if graph.cannot_fit_when_idle(request):
        return None
    limited = [each for each in running if each.end < inf]
    trial, passed, step = graph, 0, 1
    while passed < len(limited):
        later = _graph_after(trial, limited[passed : passed + step])
        if later.fits(request):
            return _find_reservation(trial, request, limited[passed : passed + step], now)
        trial, passed, step = later, passed + step, 2 * step
    if _graph_after(trial, running[len(limited) :]).fits(request):
        return Reservation(inf)
    return None


def _find_reservation(
    trial: Graph, request: Request, ending: Sequence[RunningJob], now: float
) -> Reservation:
    """Find the first job whose end lets a request fit; the last of them does in any case."""
    while len(ending) > 1:
        half = len(ending) // 2
        later = _graph_after(trial, ending[:half])
        if later.fits(request):
            ending = ending[:half]
        else:
            trial, ending = later, ending[half:]
    remaining = _graph_after(trial, ending)
    allocation = remaining.match(request)
    assert isinstance(allocation, Allocation)
    remaining.take(allocation)
    return Reservation(max(now, ending[0].end), allocation, remaining, ending[0].job)


def _graph_after(graph: Graph, ended: Iterable[RunningJob]) -> Graph:
    """Return the graph as it will be when some have ended."""
    trial = graph.copy()
    trial.give_back(*(each.allocation for each in ended))
    return trial
