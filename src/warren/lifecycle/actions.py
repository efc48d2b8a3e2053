"""What a job's state asks to be done, as a list of actions (RFC 21).

`decide` may be asked at any time and any number of times: it returns what is still
to do, knowing what is under way. So a restarted job manager asks once per job
and goes on.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc import idset


class OutstandingRequests(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that were sent and are not answered, and what else the job itself does not tell.

    None of it survives a restart.
    """

    alloc: bool = False
    execution: bool = False
    may_have_old_shells: bool = False
    """Whether an earlier life may have left shells of the job, whatever its log says."""
    events: frozenset[str] = frozenset()
    """Names of events that are queued but not applied yet."""
    queue_eligible: bool = True
    """Whether the job's queue gives jobs to the scheduler now."""


class Post(msgspec.Struct, frozen=True):
    """Append an event to the job's log."""

    name: str
    context: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Prioritize(msgspec.Struct, frozen=True):
    """Set the job's priority in the queue, as soon as that is known."""


class RequestAllocation(msgspec.Struct, frozen=True):
    """Ask the scheduler for resources."""


class WithdrawAllocation(msgspec.Struct, frozen=True):
    """Cancel the request for resources at the scheduler."""


class Execute(msgspec.Struct, frozen=True):
    """Ask execution to run the job, or to take up again what it was doing for it."""

    reattach: bool


class PartialFree(msgspec.Struct, frozen=True):
    """Free these nodes, and not yet the rest."""

    ranks: frozenset[int]


class Free(msgspec.Struct, frozen=True):
    """Free the resources that are left."""


Action = Post | Prioritize | RequestAllocation | WithdrawAllocation | Execute | PartialFree | Free


def decide(job: Job, outstanding: OutstandingRequests) -> list[Action]:
    """Return what is to be done now. Same job, same actions."""
    match job.state:
        case State.DEPEND:
            ready = not job.dependencies and not outstanding.events & {"dependency-add", "depend"}
            return [Post("depend")] if ready else []
        case State.PRIORITY:
            return _prioritize(job, outstanding)
        case State.SCHED:
            return _schedule(job, outstanding)
        case State.RUN:
            return _run(job, outstanding)
        case State.CLEANUP:
            return _clean_up(job, outstanding)
        case _:
            return []


def _prioritize(job: Job, outstanding: OutstandingRequests) -> list[Action]:
    actions: list[Action] = [WithdrawAllocation()] if outstanding.alloc else []
    if "priority" not in outstanding.events:
        actions.append(Prioritize())
    return actions


def _schedule(job: Job, outstanding: OutstandingRequests) -> list[Action]:
    wants_allocation = outstanding.queue_eligible and job.priority != 0 and not job.alloc_bypass
    if wants_allocation == outstanding.alloc:
        return []
    return [RequestAllocation()] if wants_allocation else [WithdrawAllocation()]


def _run(job: Job, outstanding: OutstandingRequests) -> list[Action]:
    is_held = job.prologs or "prolog-start" in outstanding.events
    if is_held or outstanding.execution or job.wait_status is not None:
        return []
    return [Execute(reattach=job.started)]


def _clean_up(job: Job, outstanding: OutstandingRequests) -> list[Action]:
    if outstanding.alloc:
        return [WithdrawAllocation()]
    is_held = bool(job.prologs or job.epilogs or "epilog-start" in outstanding.events)
    if outstanding.execution:
        # Not before `finish`: an epilog that is to begin then needs all of the nodes.
        return (
            []
            if is_held or job.wait_status is None
            else _partial_free(job, job.released_ranks, outstanding)
        )
    if (job.started or outstanding.may_have_old_shells) and not job.all_released:
        # Restarted between the first shell and the last `release`: only execution knows what is
        # left. `start` comes when all shells have been started, and may never have come.
        return [Execute(reattach=job.started)]
    if is_held:
        return []
    if job.allocated:
        return [] if "free" in outstanding.events else [Free(), Post("free")]
    return [] if "clean" in outstanding.events else [Post("clean")]


def _partial_free(
    job: Job, ranks: frozenset[int], outstanding: OutstandingRequests
) -> list[Action]:
    """Return the actions that free those of the ranks that are not free yet."""
    to_free = ranks - job.freed_ranks
    if not to_free or not job.allocated or "partial-free" in outstanding.events:
        return []
    return [PartialFree(to_free), Post("partial-free", {"ranks": idset.encode(to_free)})]
