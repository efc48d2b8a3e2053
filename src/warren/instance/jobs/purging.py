"""Which jobs that are over are purged: those that are too old, and those that are too many."""

from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

from warren.instance.jobs.known import InactiveJob
from warren.rfc import duration
from warren.rfc.fluid import JobId

PURGE_BATCH: Final = 100
"""Jobs of one commit."""


class RetentionLimits(msgspec.Struct, frozen=True):
    """What is kept: seconds since a job's end, and a number of jobs. None is no limit."""

    max_age_seconds: float | None = None
    max_count: int | None = None

    def exceeded(self, ended_at: float, now: float, job_count: int) -> bool:
        """Return whether the oldest job of so many is to go."""
        if self.max_count is not None and job_count > self.max_count:
            return True
        return self.max_age_seconds is not None and now - ended_at >= self.max_age_seconds

    def seconds_left(self, oldest_ended_at: float, now: float) -> float | None:
        """Return the seconds until the oldest job is too old; None if it never will be."""
        return (
            None
            if self.max_age_seconds is None or self.max_age_seconds == inf
            else max(oldest_ended_at + self.max_age_seconds - now, 0.0)
        )


def read_limits(age: str | float | None, number: int | None) -> RetentionLimits:
    """Read the limits as a configuration has them. Raises BadFormat."""
    return RetentionLimits(duration.parse(age) if isinstance(age, str) else age, number)


def jobs_to_purge(
    inactive: Iterable[InactiveJob],
    total: int,
    limits: RetentionLimits,
    now: float,
    max_jobs: int = PURGE_BATCH,
) -> list[JobId]:
    """Return the jobs that are to go, the oldest first. `inactive` is in the order of ends."""
    chosen: list[JobId] = []
    for each in inactive:
        if len(chosen) == max_jobs or not limits.exceeded(each.ended_at, now, total - len(chosen)):
            break
        chosen.append(each.id)
    return chosen
