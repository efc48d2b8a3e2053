"""Which jobs have Workflows, where their users have many.

Each directive of a Workflow is several objects, in the memory and on the disk of whoever keeps
them, and a job costs its user nothing as long as it waits. What jobs have that hold no nodes is
bounded for each user and queue; further ones wait without a Workflow (ADR 107).
"""

import heapq
import math
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from warren.dws.jobs.jobsnapshot import DEFAULT_URGENCY, Job
from warren.dws.persistent import instances

MAX_DIRECTIVES: Final = 1024
"""Directives of a user's Workflows in a queue whose jobs hold no nodes, and may begin."""

_SPARE_ENTRIES: Final = 64
"""Jobs in an order that may wait no more, besides as many as do."""


class Lane(Enum):
    """Which of a user's jobs count together: none waits for another that may wait for it."""

    NORMAL = auto()
    HELD = auto()
    """Of urgency 0, or with other dependencies."""
    DESTROY_ONLY = auto()
    """Others may wait for the flash that they free."""
    RAISED = auto()
    """Of an urgency that only an admin gives: these wait for none."""


_WAITED_FOR: Final = {
    Lane.NORMAL: "",
    Lane.HELD: " that may not begin yet",
    Lane.DESTROY_ONLY: " that only destroy storage",
}
"""Which other jobs those of a lane wait for, in words."""


class QuotaKey(NamedTuple):
    """By what Workflows are counted: user and queue, so that one that stands holds up no other."""

    userid: int
    queue: str
    lane: Lane = Lane.NORMAL


def quota_key_of(job: Job) -> QuotaKey:
    """Return the key by which a job's Workflow is counted."""
    if not job.urgency:
        lane = Lane.HELD
    elif job.urgency > DEFAULT_URGENCY:
        lane = Lane.RAISED
    elif instances.only_destroys(job.directives):
        lane = Lane.DESTROY_ONLY
    else:
        lane = Lane.NORMAL
    return QuotaKey(job.userid, job.queue, lane)


class _WaitingJob(NamedTuple):
    """A job that waits for its Workflow."""

    urgency: int
    directive_count: int


class _Usage(msgspec.Struct):
    """What is counted of the jobs of one QuotaKey."""

    limit: float
    """How many directives it may have."""
    counted: dict[int, int] = {}
    """The directives of jobs that have a Workflow, or are about to have one."""
    total: int = 0
    waiting: dict[int, _WaitingJob] = {}
    order: list[tuple[int, int]] = []
    """A heap of the waiting ones, the most urgent and oldest first, and of what was waiting."""

    def has_room(self, directive_count: int) -> bool:
        """Return whether a further job may have so many; alone, one may have any number."""
        return self.total + directive_count <= self.limit or not self.counted

    def enqueue(self, job_id: int, waiting: _WaitingJob) -> None:
        """Put a job in order, or in another place."""
        if self.waiting.get(job_id) == waiting:
            return
        self.waiting[job_id] = waiting
        heapq.heappush(self.order, (-waiting.urgency, job_id))
        if len(self.order) > 2 * len(self.waiting) + _SPARE_ENTRIES:
            self.order = [(-each.urgency, job_id) for job_id, each in self.waiting.items()]
            heapq.heapify(self.order)

    def first_waiting(self) -> int | None:
        """Return the waiting job that comes first; None if none waits."""
        while self.order:
            rank, job_id = self.order[0]
            waiting = self.waiting.get(job_id)
            if waiting is not None and waiting.urgency == -rank:
                return job_id
            heapq.heappop(self.order)
        return None


class WorkflowQuota:
    """Counts the directives of Workflows, and puts jobs in order for which there is no room.

    It is told of all Workflows, and of each job that has none, as they are now.
    """

    def __init__(self, wake: Callable[[int], None], max_directives: int = MAX_DIRECTIVES) -> None:
        """`wake` is called with a job that waited, when there may be room for it."""
        self._wake = wake
        self._max_directives = max_directives
        self._usages: dict[QuotaKey, _Usage] = {}
        self._quota_keys: dict[int, QuotaKey] = {}
        """The keys of all jobs that count or wait."""

    def admit(self, job: Job) -> bool:
        """Return whether a job may have its Workflow now, which counts then; otherwise it waits."""
        if self._is_counted(job.id):
            return True
        quota_key = quota_key_of(job)
        if self.quota_key(job.id) != quota_key:
            self.remove(job.id)
        usage = self._usage(job.id, quota_key)
        usage.enqueue(job.id, _WaitingJob(job.urgency, len(job.directives)))
        is_next = self._next(usage) == job.id
        if is_next:
            self._count(usage, job.id, len(job.directives))
        self._wake_next(usage)
        return is_next

    def count(self, job_id: int, quota_key: QuotaKey, directive_count: int) -> None:
        """Count a Workflow that is there.

        One that counts already goes to another key only if there is room: or else users would
        move their jobs along, and have as many Workflows again.
        """
        if self._is_counted(job_id) and self.quota_key(job_id) != quota_key:
            target = self._usages.get(quota_key)
            if target is not None and not target.has_room(directive_count):
                quota_key = self._quota_keys[job_id]
        if self.quota_key(job_id) != quota_key:
            self.remove(job_id)
        self._count(self._usage(job_id, quota_key), job_id, directive_count)

    def quota_key(self, job_id: int) -> QuotaKey | None:
        """Return by which key a job counts or waits; None if it does neither."""
        return self._quota_keys.get(job_id)

    def remove(self, job_id: int) -> None:
        """Count a job no more, and let it wait no more: it has nodes, or is to have no Workflow."""
        quota_key = self._quota_keys.pop(job_id, None)
        if quota_key is None:
            return
        usage = self._usages[quota_key]
        usage.total -= usage.counted.pop(job_id, 0)
        usage.waiting.pop(job_id, None)
        if usage.counted or usage.waiting:
            self._wake_next(usage)
        else:
            del self._usages[quota_key]

    def reason(self, job_id: int) -> str | None:
        """Say what a job waits for; None if it does not wait for other jobs of its user."""
        quota_key = self._quota_keys.get(job_id)
        usage = self._usages[quota_key] if quota_key is not None else None
        if quota_key is None or usage is None or job_id not in usage.waiting:
            return None
        where = f" in queue {quota_key.queue}" if quota_key.queue else ""
        which = _WAITED_FOR[quota_key.lane]
        return (
            f"waits for its Workflow until other jobs of its user{where}{which} have begun, or are "
            f"over and their storage is gone: they have {usage.total} directives, and there is "
            f"room for {usage.limit}; cancel some to make room"
        )

    def _is_counted(self, job_id: int) -> bool:
        quota_key = self._quota_keys.get(job_id)
        return quota_key is not None and job_id in self._usages[quota_key].counted

    def _usage(self, job_id: int, quota_key: QuotaKey) -> _Usage:
        self._quota_keys[job_id] = quota_key
        return self._usages.setdefault(quota_key, _Usage(self._limit(quota_key.lane)))

    def _count(self, usage: _Usage, job_id: int, directive_count: int) -> None:
        usage.waiting.pop(job_id, None)
        usage.total += directive_count - usage.counted.get(job_id, 0)
        usage.counted[job_id] = directive_count

    def _next(self, usage: _Usage) -> int | None:
        """Return the job that may have its Workflow next, if there is room for it."""
        first = usage.first_waiting()
        if first is None:
            return None
        return first if usage.has_room(usage.waiting[first].directive_count) else None

    def _limit(self, lane: Lane) -> float:
        match lane:
            case Lane.NORMAL:
                return self._max_directives
            case Lane.HELD:
                return self._max_directives // 2
            case Lane.DESTROY_ONLY:
                return self._max_directives // 16
            case Lane.RAISED:
                return math.inf

    def _wake_next(self, usage: _Usage) -> None:
        next_job = self._next(usage)
        if next_job is not None:
            self._wake(next_job)
