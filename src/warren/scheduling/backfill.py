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

from warren.rfc.fluid import JobId
from warren.scheduling.graph import Graph
from warren.scheduling.inventory import Allocation
from warren.scheduling.reasons import Reason
from warren.scheduling.refusals import Refusal
from warren.scheduling.request import Request


class Limit(IntEnum):
    """How far a queue is looked at, in its depths."""

    WAITING = 1
    """Jobs that wait for others."""
    UNHELPED = 8
    """Different requests that wait for an administrator."""
    REPEATED = 64
    """Jobs that wait for an administrator."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A waiting job: what it asks for, and for how many seconds; `inf` for no limit."""

    place: tuple[int, int]
    """In the queue: the lesser one comes first."""
    job: JobId
    request: Request
    duration: float = inf


class Running(NamedTuple):
    """A running job: its end, `inf` where it has none, and what it has."""

    end: float
    job: JobId
    allocation: Allocation


@dataclass(frozen=True)
class Start:
    """A job gets its resources now."""

    waiting: Waiting
    allocation: Allocation


@dataclass(frozen=True)
class Blocked:
    """A job is the first to wait for its nodes."""

    waiting: Waiting
    reason: str
    at: float
    """When it will be its turn at the latest; `inf` where that is not known."""


@dataclass(frozen=True)
class Reservation:
    """When a request will fit at the latest."""

    at: float
    """`inf` where that is not known."""
    allocation: Allocation | None = None
    """None where the moment is not known."""
    left: Graph | None = None
    """What there will be beside it, then."""
    ends: JobId | None = None
    """The job whose end makes room for it, where the moment is known."""


class Reserved(NamedTuple):
    """What is kept from later jobs, and for which."""

    waiting: Waiting
    reservation: Reservation | None


def decide(
    graph: Graph,
    queues: Iterable[Iterable[Waiting]],
    running: Sequence[Running],
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
    for _, said in consider(plan, queues, depth):
        if said is not None:
            yield said


def consider(
    plan: "Plan",
    queues: Iterable[Iterable[Waiting]],
    depth: int,
    reached: MutableMapping[int, Limit] | None = None,
) -> Iterator[tuple[Waiting, Start | Blocked | None]]:
    """Yield the jobs that are looked at, each with what becomes of it; None if it just waits.

    For queues that are looked at no further, `reached` is told by their number which limit it is.
    """
    lines = [iter(queue) for queue in queues]
    left = [Limit.WAITING * depth] * len(lines)
    unhelped = [Limit.UNHELPED * depth] * len(lines)
    passed = [Limit.REPEATED * depth] * len(lines)
    firsts = [(number, next(line, None)) for number, line in enumerate(lines)]
    heads = [(first.place, number, first) for number, first in firsts if first is not None]
    heapify(heads)
    while heads:
        _, number, waiting = heads[0]
        said = plan.consider(waiting)
        yield waiting, said
        if plan.is_unhelped(waiting.request):
            unhelped[number] -= said is not None  # the others cost no more than a look into a set
            passed[number] -= 1
        elif not isinstance(said, Start):
            left[number] -= 1
        more = left[number] and unhelped[number] and passed[number]
        if not more and reached is not None:
            repeated = Limit.UNHELPED if not unhelped[number] else Limit.REPEATED
            reached[number] = repeated if left[number] else Limit.WAITING
        following = next(lines[number], None) if more else None
        if following is None:
            heappop(heads)
        else:
            heapreplace(heads, (following.place, number, following))


class Plan:
    """One look at all waiting jobs, and what was reserved in it."""

    def __init__(
        self, graph: Graph, running: Sequence[Running], now: float, *, backfilling: bool
    ) -> None:
        self._graph = graph
        self._running = list(running)
        self._now = now
        self._backfilling = backfilling
        self._reserved: list[Reserved] = []
        self._waited: list[Request] = []
        """What waiting jobs asked for, be it reserved or not."""
        self._until = inf
        """Jobs that have ended by then delay no reservation."""
        self._unreserved = graph
        """What there is beside all that is reserved."""
        self._refused: set[Request] = set()
        """What did not fit. There has only become less since."""
        self._unhelped: set[Request] = set()
        """Those of them that wait for an administrator, and hold up no other."""

    def is_unhelped(self, request: Request) -> bool:
        """Return whether a request that was refused waits for an administrator alone."""
        return request in self._unhelped

    def consider(self, waiting: Waiting) -> Start | Blocked | None:
        """Return what becomes of a waiting job, after all that come before it."""
        request = waiting.request
        if request in self._refused:
            return None
        end = self._now + waiting.duration
        graph = self._graph if not self._reserved or end <= self._until else self._unreserved
        if graph.fits(request):
            return self._start(waiting, graph, end)
        if graph is not self._graph and self._graph.fits(request):
            self._waited.append(request)
            return None  # it would delay a reservation
        self._refused.add(request)
        unhelped = self._backfilling and self._graph.fits_never_as_is(request)
        if not unhelped and any(self._graph.overlap(request, other) for other in self._waited):
            self._waited.append(request)
            return None
        reservation = None if unhelped else self.reservation(request)
        if reservation is not None or not self._backfilling:
            self._reserve(Reserved(waiting, reservation))
        else:
            self._unhelped.add(request)
        refusal = self._graph.match(request)
        assert isinstance(refusal, Refusal)
        return Blocked(waiting, refusal.reason, inf if reservation is None else reservation.at)

    def _start(self, waiting: Waiting, graph: Graph, end: float) -> Start:
        found = graph.match(waiting.request)
        assert isinstance(found, Allocation)
        self._graph.take(found)
        if graph is not self._graph:
            self._unreserved.take(found)
        elif self._unreserved is not self._graph:
            # It will have ended when what is reserved is due: nothing beside that is taken.
            self._unreserved.take_keeping_flash(found, free_in=self._graph)
        insort(self._running, Running(end, waiting.job, found))
        return Start(waiting, found)

    def _reserve(self, reserved: Reserved) -> None:
        """Keep from later jobs what is reserved."""
        if not self._reserved:
            self._unreserved = self._graph.shadow()
        self._reserved.append(reserved)
        self._waited.append(reserved.waiting.request)
        self._until = min(self._until, self._keep(self._unreserved, reserved))

    def _keep(self, unreserved: Graph, reserved: Reserved) -> float:
        """Take from a graph what is reserved; return by when jobs have ended that may have it."""
        reservation = reserved.reservation
        if reservation is None or reservation.allocation is None or not self._backfilling:
            unreserved.reserve(reserved.waiting.request)
            return -inf
        assert reservation.left is not None
        unreserved.take_keeping_flash(reservation.allocation, free_in=reservation.left)
        return reservation.at

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

    def holding_up(self, waiting: Waiting) -> list[Reserved]:
        """Return for which jobs that is reserved which another would have: without them it starts.

        None of them can be left out. Empty where it starts beside what is reserved.
        """
        end, until, unreserved = self._now + waiting.duration, inf, self._graph
        blocking = []
        for each in self._reserved:
            trial = unreserved.shadow()
            bound = min(until, self._keep(trial, each))
            if (end <= bound and self.fits(waiting.request)) or trial.fits(waiting.request):
                until, unreserved = bound, trial
            else:
                blocking.append(each)
        return blocking


def _reservation(
    graph: Graph, request: Request, running: Sequence[Running], now: float
) -> Reservation | None:
    """Return when a request that does not fit will; None if no end of a job would help."""
    if graph.fits_never_as_is(request):
        return None
    limited = [each for each in running if each.end < inf]
    shadow, passed, step = graph, 0, 1
    while passed < len(limited):
        later = _after(shadow, limited[passed : passed + step])
        if later.fits(request):
            return _moment(shadow, request, limited[passed : passed + step], now)
        shadow, passed, step = later, passed + step, 2 * step
    if _after(shadow, running[len(limited) :]).fits(request):
        return Reservation(inf)
    return None


def _moment(shadow: Graph, request: Request, ending: Sequence[Running], now: float) -> Reservation:
    """Find the first job whose end lets a request fit; the last of them does in any case."""
    while len(ending) > 1:
        half = len(ending) // 2
        later = _after(shadow, ending[:half])
        if later.fits(request):
            ending = ending[:half]
        else:
            shadow, ending = later, ending[half:]
    left = _after(shadow, ending)
    allocation = left.match(request)
    assert isinstance(allocation, Allocation)
    left.take(allocation)
    return Reservation(max(now, ending[0].end), allocation, left, ending[0].job)


def _after(graph: Graph, ended: Iterable[Running]) -> Graph:
    """Return the graph as it will be when some have ended."""
    shadow = graph.shadow()
    shadow.give_back(*(each.allocation for each in ended))
    return shadow
