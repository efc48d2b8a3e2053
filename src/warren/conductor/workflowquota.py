"""Which jobs have Workflows, where their users have many.

Each directive of a Workflow is several objects, in the memory and on the disk of whoever keeps
them, and a job costs its user nothing as long as it waits. What jobs have that hold no nodes is
bounded for each user and queue; further ones wait without a Workflow (ADR 107).
"""

import heapq
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from warren.dws.jobs.jobsnapshot import Job

MAX_DIRECTIVES: Final = 1024
"""Directives of a user's Workflows in a queue whose jobs hold no nodes."""

_SPARE_ENTRIES: Final = 64
"""Jobs in an order that may wait no more, besides as many as do."""


class Account(NamedTuple):
    """For whom Workflows count: a user, in a queue, so that one that stands holds up no other."""

    userid: int
    queue: str


class _Waiting(NamedTuple):
    """A job that waits for its Workflow."""

    urgency: int
    directives: int


class _Usage(msgspec.Struct):
    """What one account has."""

    counted: dict[int, int] = {}
    """The directives of jobs that have a Workflow, or are about to have one."""
    total: int = 0
    waiting: dict[int, _Waiting] = {}
    order: list[tuple[int, int]] = []
    """A heap of the waiting ones, the most urgent and oldest first, and of what was waiting."""

    def wait(self, job_id: int, waiting: _Waiting) -> None:
        """Put a job in order, or in another place."""
        if self.waiting.get(job_id) == waiting:
            return
        self.waiting[job_id] = waiting
        heapq.heappush(self.order, (-waiting.urgency, job_id))
        if len(self.order) > 2 * len(self.waiting) + _SPARE_ENTRIES:
            self.order = [(-each.urgency, number) for number, each in self.waiting.items()]
            heapq.heapify(self.order)

    def first(self) -> int | None:
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
        self._usages: dict[Account, _Usage] = {}
        self._accounts: dict[int, Account] = {}
        """The accounts of all jobs that count or wait."""

    def admit(self, job: Job) -> bool:
        """Return whether a job may have its Workflow now, which counts then; otherwise it waits."""
        account = Account(job.userid, job.queue)
        usage = self._usage(job.id, account)
        if job.id in usage.counted:
            return True
        usage.wait(job.id, _Waiting(job.urgency, len(job.directives)))
        is_next = self._next(usage) == job.id
        if is_next:
            self._count(usage, job.id, len(job.directives))
        self._wake_next(usage)
        return is_next

    def count(self, job_id: int, account: Account, directives: int) -> None:
        """Count a Workflow that is there."""
        self._count(self._usage(job_id, account), job_id, directives)

    def remove(self, job_id: int) -> None:
        """Count a job no more, and let it wait no more: it has nodes, or is to have no Workflow."""
        account = self._accounts.pop(job_id, None)
        if account is None:
            return
        usage = self._usages[account]
        usage.total -= usage.counted.pop(job_id, 0)
        usage.waiting.pop(job_id, None)
        if usage.counted or usage.waiting:
            self._wake_next(usage)
        else:
            del self._usages[account]

    def reason(self, job_id: int) -> str | None:
        """Say what a job waits for; None if it does not wait for other jobs of its user."""
        account = self._accounts.get(job_id)
        usage = self._usages[account] if account is not None else None
        if account is None or usage is None or job_id not in usage.waiting:
            return None
        where = f" in queue {account.queue}" if account.queue else ""
        limit = self._limit(usage.waiting[job_id])
        return (
            f"waits for its Workflow until other jobs of its user{where} have begun or are over: "
            f"they have {usage.total} directives, and there is room for {limit}"
        )

    def _usage(self, job_id: int, account: Account) -> _Usage:
        if self._accounts.get(job_id, account) != account:
            self.remove(job_id)  # it was moved to another queue
        self._accounts[job_id] = account
        return self._usages.setdefault(account, _Usage())

    def _count(self, usage: _Usage, job_id: int, directives: int) -> None:
        usage.waiting.pop(job_id, None)
        usage.total += directives - usage.counted.get(job_id, 0)
        usage.counted[job_id] = directives

    def _next(self, usage: _Usage) -> int | None:
        """Return the job that may have its Workflow next, if there is room for it."""
        first = usage.first()
        if first is None:
            return None
        waiting = usage.waiting[first]
        has_room = usage.total + waiting.directives <= self._limit(waiting)
        return first if has_room or not usage.counted else None

    def _limit(self, waiting: _Waiting) -> int:
        # Jobs that could not begin anyway leave half of it to those that they wait for.
        return self._max_directives if waiting.urgency else self._max_directives // 2

    def _wake_next(self, usage: _Usage) -> None:
        next_job = self._next(usage)
        if next_job is not None:
            self._wake(next_job)
