"""EASY backfill: which waiting jobs get resources now, in order and past those that cannot.

A job that does not fit, and before which no other waits for the same nodes, has a reservation:
the moment at which it will fit if all jobs last as long as they may, and what it will get then.
Later jobs start before it only where that does not move the moment: if they will have ended by
then, or leave alone what is reserved. Where the moment is not known, because jobs run that have
no end, they leave alone all that it could ever get. A job that the end of no other would help
waits for an administrator to bring nodes back, and holds up no other: it does not count as
one of the `depth` jobs of its user that are looked at in its queue and left waiting. Of such jobs
64 times `depth` are looked at for each user of a queue, with eight times `depth` different
requests: one that has been refused before is found in a set. Where a user has reached a limit, the
jobs of others are still looked at, until all together have left as many waiting as
`_QUEUE_LIMIT_IN_USERS` users may.
"""

from bisect import insort
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import Final, NamedTuple

import msgspec

from warren.rfc.fluid import JobId
from warren.scheduling.graph import Graph
from warren.scheduling.inventory import Allocation
from warren.scheduling.reasons import Reason
from warren.scheduling.refusals import Refusal
from warren.scheduling.request import Request


class DepthLimit(IntEnum):
    """How far the jobs of one user in a queue are looked at, as a multiple of the queue's depth."""

    WAITING_JOBS = 1
    """Jobs that wait for others."""
    ADMIN_REQUESTS = 8
    """Different requests that wait for an administrator."""
    ADMIN_JOBS = 64
    """Jobs that wait for an administrator."""


_QUEUE_LIMIT_IN_USERS: Final = 8
"""The limits of all users of a queue, as a multiple of those of one: no look is without an end."""


class ReachedLimit(NamedTuple):
    """Why no more jobs of a user in a queue are looked at."""

    limit: DepthLimit
    max_count: int
    """How many are looked at."""
    of_user: bool
    """Whether it is the user's own, and not that of all users of the queue."""
    unseen: "tuple[PendingJob, ...]" = ()
    """What has been taken from the user's iterator and is not looked at."""


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
    """When it will be its turn at the latest; `inf` where that is not known.

    Jobs before it are left out that are not looked at, since their user has too many.
    """


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
    queues: Iterable[Iterable[Iterable[PendingJob]]],
    running: Sequence[RunningJob],
    now: float,
    *,
    backfilling: bool,
    depth: int,
) -> Iterator[Start | Blocked]:
    """Return, one after the other, which jobs get what, and which wait for what.

    Each of the `queues` is the jobs of each of its users, in order, which are looked at until
    `depth` of them are left waiting for others; `running` is by end. What is given is taken from
    the graph when it is returned: a caller that stops has taken no more than it has been given.
    Without `backfilling` no job gets what one that waits before it could ever have, and `depth` is
    that of all users together.
    """
    plan = Plan(graph, running, now, backfilling=backfilling)
    for _, outcome in consider_queues(plan, queues, depth):
        if outcome is not None:
            yield outcome


def consider_queues(
    plan: "Plan",
    queues: Iterable[Iterable[Iterable[PendingJob]]],
    depth: int,
    reached_by_user_index: MutableMapping[int, ReachedLimit] | None = None,
) -> Iterator[tuple[PendingJob, Start | Blocked | None]]:
    """Yield the jobs that are looked at, each with what becomes of it; None if it just waits.

    `reached_by_user_index` is told why the jobs of a user in a queue are looked at no further, by
    the user's index among all users of all queues.
    """
    users: list[_UserOfQueue] = []
    for queue in queues:
        queue_remaining = _RemainingLimits(
            depth * _QUEUE_LIMIT_IN_USERS if plan.backfilling else depth
        )
        users += [_UserOfQueue(jobs, depth, queue_remaining) for jobs in queue]
    reached_by_user_index = {} if reached_by_user_index is None else reached_by_user_index
    firsts = [(user_index, next(each.jobs, None)) for user_index, each in enumerate(users)]
    heads = [
        (first.position, user_index, first) for user_index, first in firsts if first is not None
    ]
    heapify(heads)
    while heads:
        _, user_index, pending = heads[0]
        user = users[user_index]
        limit = user.reached_limit()  # by others of its queue
        unseen: tuple[PendingJob, ...] = (pending,)
        if limit is None:
            outcome = plan.consider(pending)
            yield pending, outcome
            user.use(_limits_used(plan, pending, outcome))
            limit, unseen = user.reached_limit(), ()
        if limit is not None:
            reached_by_user_index[user_index] = limit._replace(unseen=unseen)
        following = next(user.jobs, None) if limit is None else None
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following.position, user_index, following))


def _limits_used(
    plan: "Plan", pending: PendingJob, outcome: Start | Blocked | None
) -> Sequence[DepthLimit]:
    if plan.needs_admin(pending.request):
        # The others cost no more than a look into a set.
        return _ADMIN_JOB if outcome is None else _FIRST_ADMIN_JOB
    return () if isinstance(outcome, Start) else _WAITING_JOB


_WAITING_JOB: Final = (DepthLimit.WAITING_JOBS,)
_ADMIN_JOB: Final = (DepthLimit.ADMIN_JOBS,)
_FIRST_ADMIN_JOB: Final = (DepthLimit.ADMIN_REQUESTS, DepthLimit.ADMIN_JOBS)


class _RemainingLimits:
    """What is left of the limits of a queue, or of one of its users."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.reached: DepthLimit | None = None
        self._by_limit = {limit: limit * depth for limit in DepthLimit}

    def use(self, limits: Sequence[DepthLimit]) -> None:
        for limit in limits:
            self._by_limit[limit] -= 1
            if not self._by_limit[limit] and self.reached is None:
                self.reached = limit


class _UserOfQueue:
    """The jobs of one user in one queue, and what is left of the limits."""

    def __init__(
        self, jobs: Iterable[PendingJob], depth: int, queue_remaining: _RemainingLimits
    ) -> None:
        """`queue_remaining` is that of all users of the queue."""
        self.jobs = iter(jobs)
        self._user_remaining = _RemainingLimits(depth)
        self._queue_remaining = queue_remaining

    def use(self, limits: Sequence[DepthLimit]) -> None:
        self._user_remaining.use(limits)
        self._queue_remaining.use(limits)

    def reached_limit(self) -> ReachedLimit | None:
        for each in (self._queue_remaining, self._user_remaining):
            if each.reached is not None:
                max_count = each.reached * each.depth
                return ReachedLimit(each.reached, max_count, of_user=each is self._user_remaining)
        return None


class Plan:
    """One look at all waiting jobs, and what was reserved in it."""

    def __init__(
        self, graph: Graph, running: Sequence[RunningJob], now: float, *, backfilling: bool
    ) -> None:
        self._graph = graph
        self._running = list(running)
        self._now = now
        self.backfilling = backfilling
        self._reserved: list[JobReservation] = []
        self._pending_requests: list[Request] = []
        """What waiting jobs asked for, be it reserved or not."""
        self._earliest_reserved_at = inf
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
            if not self._reserved or end <= self._earliest_reserved_at
            else self._unreserved
        )
        if graph.fits(request):
            return self._start(pending, graph, end)
        if graph is not self._graph and self._graph.fits(request):
            self._pending_requests.append(request)
            return None  # it would delay a reservation
        self._refused.add(request)
        needs_admin = self.backfilling and self._graph.cannot_fit_when_idle(request)
        if not needs_admin and any(
            self._graph.overlap(request, other) for other in self._pending_requests
        ):
            self._pending_requests.append(request)
            return None
        reservation = None if needs_admin else self.reservation(request)
        if reservation is not None or not self.backfilling:
            self._reserve(JobReservation(pending, reservation))
        else:
            self._needing_admin.add(request)
        refusal = self._graph.match(request)
        assert isinstance(refusal, Refusal)
        return Blocked(
            pending, refusal.reason, inf if reservation is None else reservation.t_estimate
        )

    def _start(self, pending: PendingJob, graph: Graph, end: float) -> Start:
        allocation = graph.match(pending.request)
        assert isinstance(allocation, Allocation)
        self._graph.take(allocation)
        if graph is not self._graph:
            self._unreserved.take(allocation)
        elif self._unreserved is not self._graph:
            # It will have ended when what is reserved is due: nothing beside that is taken.
            self._unreserved.take_and_limit_flash(allocation, self._graph)
        insort(self._running, RunningJob(end, pending.job, allocation))
        return Start(pending, allocation)

    def _reserve(self, reserved: JobReservation) -> None:
        """Keep from later jobs what is reserved."""
        if not self._reserved:
            self._unreserved = self._graph.copy()
        self._reserved.append(reserved)
        self._pending_requests.append(reserved.pending.request)
        self._earliest_reserved_at = min(
            self._earliest_reserved_at, self._withhold(self._unreserved, reserved)
        )

    def _withhold(self, unreserved: Graph, reserved: JobReservation) -> float:
        """Take from a graph what is reserved.

        Return the moment until which jobs may use it all the same.
        """
        reservation = reserved.reservation
        if reservation is None or reservation.allocation is None or not self.backfilling:
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
        """Return the reservations in the way of a job: without them it would start.

        With any of them it would not. Empty where it starts beside all that is reserved.
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
