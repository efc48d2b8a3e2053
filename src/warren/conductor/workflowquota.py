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
    EXPEDITED = auto()
    """Of an urgency that only an admin gives: these wait for none."""


_WAITED_FOR: Final = {
    Lane.NORMAL: "",
    Lane.HELD: " that may not begin yet",
    Lane.DESTROY_ONLY: " that only destroy storage",
}
"""Which other jobs those of a lane wait for, in words."""


class Account(NamedTuple):
    """For what Workflows count: a user, in a queue, so that one that stands holds up no other."""

    userid: int
    queue: str
    lane: Lane = Lane.NORMAL


def account_of(job: Job) -> Account:
    """Return for what a job's Workflow counts."""
    if not job.urgency:
        lane = Lane.HELD
    elif job.urgency > DEFAULT_URGENCY:
        lane = Lane.EXPEDITED
    elif instances.only_destroys(job.directives):
        lane = Lane.DESTROY_ONLY
    else:
        lane = Lane.NORMAL
    return Account(job.userid, job.queue, lane)


class _Waiting(NamedTuple):
    """A job that waits for its Workflow."""

    urgency: int
    directives: int


class _Usage(msgspec.Struct):
    """What one account has."""

    limit: float
    """How many directives it may have."""
    counted: dict[int, int] = {}
    """The directives of jobs that have a Workflow, or are about to have one."""
    total: int = 0
    waiting: dict[int, _Waiting] = {}
    order: list[tuple[int, int]] = []
    """A heap of the waiting ones, the most urgent and oldest first, and of what was waiting."""

    def has_room(self, directives: int) -> bool:
        """Return whether a further job may have so many; alone, one may have any number."""
        return self.total + directives <= self.limit or not self.counted

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
        if self._is_counted(job.id):
            return True
        account = account_of(job)
        if self.account(job.id) != account:
            self.remove(job.id)
        usage = self._usage(job.id, account)
        usage.wait(job.id, _Waiting(job.urgency, len(job.directives)))
        is_next = self._next(usage) == job.id
        if is_next:
            self._count(usage, job.id, len(job.directives))
        self._wake_next(usage)
        return is_next

    def count(self, job_id: int, account: Account, directives: int) -> None:
        """Count a Workflow that is there.

        One that counts already goes to another account only if there is room: or else users would
        move their jobs along, and have as many Workflows again.
        """
        if self._is_counted(job_id) and self.account(job_id) != account:
            target = self._usages.get(account)
            if target is not None and not target.has_room(directives):
                account = self._accounts[job_id]
        if self.account(job_id) != account:
            self.remove(job_id)
        self._count(self._usage(job_id, account), job_id, directives)

    def account(self, job_id: int) -> Account | None:
        """Return where a job counts or waits; None if it does neither."""
        return self._accounts.get(job_id)

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
        which = _WAITED_FOR[account.lane]
        return (
            f"waits for its Workflow until other jobs of its user{where}{which} have begun, or are "
            f"over and their storage is gone: they have {usage.total} directives, and there is "
            f"room for {usage.limit}; cancel some to make room"
        )

    def _is_counted(self, job_id: int) -> bool:
        account = self._accounts.get(job_id)
        return account is not None and job_id in self._usages[account].counted

    def _usage(self, job_id: int, account: Account) -> _Usage:
        self._accounts[job_id] = account
        return self._usages.setdefault(account, _Usage(self._limit(account.lane)))

    def _count(self, usage: _Usage, job_id: int, directives: int) -> None:
        usage.waiting.pop(job_id, None)
        usage.total += directives - usage.counted.get(job_id, 0)
        usage.counted[job_id] = directives

    def _next(self, usage: _Usage) -> int | None:
        """Return the job that may have its Workflow next, if there is room for it."""
        first = usage.first()
        if first is None:
            return None
        return first if usage.has_room(usage.waiting[first].directives) else None

    def _limit(self, lane: Lane) -> float:
        match lane:
            case Lane.NORMAL:
                return self._max_directives
            case Lane.HELD:
                return self._max_directives // 2
            case Lane.DESTROY_ONLY:
                return self._max_directives // 16
            case Lane.EXPEDITED:
                return math.inf

    def _wake_next(self, usage: _Usage) -> None:
        next_job = self._next(usage)
        if next_job is not None:
            self._wake(next_job)
