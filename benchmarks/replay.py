"""A month of jobs, replayed under each policy of matching: what it does to waits and to rabbits.

The jobs are made up, and the same each time. Only the scheduler's decisions are replayed: a job
has its nodes and its flash for as long as it takes, and nothing else happens.
"""

import random
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil

from benchmarks.measure import Result
from warren.base.bytesize import TIB
from warren.rfc.fluid import JobId
from warren.scheduling.backfill import PendingJob, RunningJob, Start, decide
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.matchpolicy import MatchPolicy
from warren.scheduling.request import Request
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph

CHASSIS, NODES = 24, 16
JOBS, DAYS = 1300, 30
CAPACITY = 16 * TIB
DEPTH = 32


@dataclass(frozen=True)
class Arrival:
    """A job, and what only time will tell: how long it takes."""

    at: float
    waiting: PendingJob
    takes: float


@dataclass
class Outcome:
    """What came of a month."""

    waits: list[float] = field(default_factory=list)
    """Hours, job by job."""
    used: float = 0.0
    """Hours of nodes."""
    chassis: float = 0.0
    """How often a job was on so many chassis as the fewest that could hold it, over all jobs."""
    given: dict[int, float] = field(default_factory=dict)
    """GiB by chassis."""
    ended: float = 0.0

    @property
    def utilisation(self) -> float:
        return 100 * self.used / (self.ended * CHASSIS * NODES)

    @property
    def wear(self) -> float:
        """The most that was given out of one rabbit, over the mean."""
        return max(self.given.values()) * CHASSIS / sum(self.given.values())


def system() -> Graph:
    hosts = [[f"node{each * NODES + node}" for node in range(NODES)] for each in range(CHASSIS)]
    chassis = [
        ChassisTopology(rabbit=f"rabbit{number}", capacity_bytes=CAPACITY, hosts=tuple(mine))
        for number, mine in enumerate(hosts)
    ]
    return Graph(resource_set_with_graph("month", chassis, cores_per_node=8))


def month(seed: int = 20) -> list[Arrival]:
    """Make up jobs: most are small and short, half want flash, limits are twice what they take."""
    rng = random.Random(seed)
    arrivals = []
    at = 0.0
    for number in range(JOBS):
        at += rng.expovariate(JOBS / (DAYS * 24))
        nodes = min(int(2 ** rng.uniform(0, 8)), CHASSIS * NODES)
        takes = min(rng.lognormvariate(0.9, 1.0), 24.0)
        flash = rng.choice((0, 0, 200, 400, 800))
        request = Request(nodes=nodes, slots=1, cores=1, exclusive=True, ssd_gib=flash)
        limit = float(ceil(takes * rng.uniform(1.0, 3.0)))
        job = JobId(number)
        arrivals.append(Arrival(at, PendingJob(position=(0, job), job=job, request=request,
                                            duration=limit), takes))  # fmt: skip
    return arrivals


def replay(policy: MatchPolicy) -> Outcome:
    """Let a month pass. Time is in hours."""
    graph, outcome = system(), Outcome()
    graph.set_policy(policy)
    coming = month()[::-1]
    known = {each.waiting.job: each for each in coming}
    queue: list[PendingJob] = []
    running: list[RunningJob] = []
    ends: list[tuple[float, RunningJob]] = []
    now = 0.0
    while coming or ends:
        if ends and (not coming or ends[0][0] <= coming[-1].at):
            now, gone = ends.pop(0)
            running.remove(gone)
            graph.give_back(gone.allocation)
        else:
            arrival = coming.pop()
            now = arrival.at
            queue.append(arrival.waiting)
        begun = []
        for each in decide(graph, [[queue]], running, now, backfilling=True, depth=DEPTH):
            if isinstance(each, Start):
                begun.append(each)
        for start in begun:
            arrival = known[start.pending.job]
            queue.remove(start.pending)
            held = RunningJob(now + start.pending.duration, start.pending.job, start.allocation)
            insort(running, held)
            insort(ends, (now + arrival.takes, held))
            _count(outcome, arrival, start.allocation, now)
    outcome.ended = now
    outcome.chassis /= len(outcome.waits)
    assert not queue
    return outcome


def _count(outcome: Outcome, arrival: Arrival, allocation: Allocation, now: float) -> None:
    nodes = len(allocation.pieces)
    outcome.waits.append(now - arrival.at)
    outcome.used += nodes * arrival.takes
    on = {piece.rank // NODES for piece in allocation.pieces}
    outcome.chassis += len(on) / ceil(nodes / NODES)
    gib = arrival.waiting.request.ssd_gib
    for piece in allocation.pieces:
        index = piece.rank // NODES
        outcome.given[index] = outcome.given.get(index, 0.0) + gib


def results() -> Iterator[Result]:
    """Replay the month under each policy."""
    for policy in MatchPolicy:
        found = replay(policy)
        waits = sorted(found.waits)
        for name, value, unit in (
            ("utilisation", found.utilisation, "%"),
            ("mean wait", sum(waits) / len(waits), "h"),
            ("wait of 95 in 100", waits[len(waits) * 95 // 100], "h"),
            ("chassis of a job over fewest", found.chassis, ""),
            ("flash given, most over mean", found.wear, ""),
        ):
            yield Result(name=f"replay {policy}: {name}", value=value, unit=unit)


ALL = {"replay": results}
