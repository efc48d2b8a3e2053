"""Why waiting jobs wait: the queue is gone through as the scheduler does, on a copy of the graph.

A job for which there is no room waits for room; one for which there is room waits for the jobs
before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf

from msgspec.structs import replace

from warren.base.words import plural
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.scheduling.backfill import (
    Blocked,
    DepthLimit,
    PendingJob,
    Plan,
    ReachedLimit,
    Reservation,
    RunningJob,
    Start,
    consider_queues,
)
from warren.scheduling.graph import Graph
from warren.scheduling.reasons import Reason, ReasonKind
from warren.scheduling.request import Request


def wait_reasons(
    graph: Graph,
    queues: Iterable[Iterable[Iterable[PendingJob]]],
    running: Sequence[RunningJob],
    now: float,
    *,
    backfilling: bool,
    depth: int,
    jobs: Iterable[PendingJob],
) -> Iterator[tuple[JobId, Reason]]:
    """Yield why each of some waiting jobs does not start. The graph stays as it is.

    The options are those of `backfill.decide`. What jobs lack is looked for once for all that
    want the same.
    """
    plan = Plan(graph.copy(), running, now, backfilling=backfilling)
    unexplained = {each.job: each for each in jobs}
    reason_by_request: dict[Request, Reason] = {}
    iterators = [[iter(user_jobs) for user_jobs in queue] for queue in queues]
    reached_by_user_index: dict[int, ReachedLimit] = {}
    for pending, outcome in consider_queues(plan, iterators, depth, reached_by_user_index):
        if unexplained.pop(pending.job, None) is not None:
            reason = (
                _TURN_REASON
                if isinstance(outcome, Start)
                else _reason(plan, pending, reason_by_request)
            )
            t_estimate = outcome.t_estimate if isinstance(outcome, Blocked) else inf
            yield pending.job, replace(reason, t_estimate=t_estimate)
        if not unexplained:
            return
    limit_by_job: dict[JobId, ReachedLimit] = {}
    if len({(each.limit, each.of_user) for each in reached_by_user_index.values()}) > 1:
        # Whose jobs they are, and of which queue, is seen by what is left of each.
        user_iterators = list(chain.from_iterable(iterators))
        limit_by_job = {
            each.job: limit
            for user_index, limit in reached_by_user_index.items()
            for each in chain(limit.unseen, user_iterators[user_index])
            if each.job in unexplained
        }
    any_limit = next(iter(reached_by_user_index.values()), None)
    for pending in unexplained.values():
        reason = _reason(plan, pending, reason_by_request)
        limit = limit_by_job.get(pending.job, any_limit)
        if reason is _TURN_REASON and limit is not None:
            reason = _depth_reason(depth, limit)
        yield pending.job, reason


def earliest_reservation(
    graph: Graph, running: Sequence[RunningJob], now: float, request: Request
) -> Reservation | None:
    """Return when there will be room by the time limits of running jobs, if no other takes it."""
    return Plan(graph, running, now, backfilling=True).reservation(request)


_TURN_REASON = Reason(
    kinds=(ReasonKind.TURN,), sentence="starts when the scheduler comes to it: there is room"
)


def _depth_reason(depth: int, reached: ReachedLimit) -> Reason:
    most = reached.max_count
    owner = "user in its queue" if reached.of_user else "queue"
    wait = "waits" if most == 1 else "wait"
    text_by_limit = {
        DepthLimit.WAITING_JOBS: f"{plural(most, 'job')} of its {owner} that cannot start {wait} "
        "before it",
        DepthLimit.ADMIN_REQUESTS: f"jobs of its {owner} with {most} different requests wait "
        "before it for an administrator to bring back what they need",
        DepthLimit.ADMIN_JOBS: f"{most} jobs of its {owner} wait before it for an administrator to "
        "bring back what they need",
    }
    return Reason(
        kinds=(ReasonKind.DEPTH,),
        sentence=f"waits for its turn: there is room, but {text_by_limit[reached.limit]}, and the "
        "scheduler looks at no more (sched.queue-depth)",
        numbers={"queue_depth": depth},
    )


def _reason(plan: Plan, pending: PendingJob, reason_by_request: dict[Request, Reason]) -> Reason:
    """Return why a job does not start, after those that come before it."""
    request = pending.request
    if not plan.fits(request):
        if request not in reason_by_request:
            reason_by_request[request] = plan.explain(request)
        return reason_by_request[request]
    before = plan.blocking_reservations(pending)
    if not before:
        return _TURN_REASON
    job_ids = [fluid.f58(each.pending.job) for each in before]
    t_estimate = min(
        (each.reservation.t_estimate for each in before if each.reservation is not None),
        default=inf,
    )
    jobs = job_ids[0] if len(job_ids) == 1 else f"{', '.join(job_ids[:-1])} and {job_ids[-1]}"
    which = "which waits" if len(job_ids) == 1 else "which wait"
    return Reason(
        kinds=(ReasonKind.RESERVED,),
        sentence=f"waits behind {jobs}, {which} before it: there is room, and it is reserved",
        numbers={
            "behind": [int(each.pending.job) for each in before],
            "reserved_at": t_estimate if t_estimate < inf else None,
        },
    )
