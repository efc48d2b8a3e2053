"""Inactive jobs: kept as summaries, waited for once, purged, moved to lost+found if unreadable."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from warren.base import log
from warren.base.clock import Clock
from warren.instance import keys
from warren.instance.jobs import summary
from warren.instance.jobs.archive import Archive, NotArchived
from warren.instance.jobs.commits import Commits
from warren.instance.jobs.known import ActiveJob, InactiveJob, KnownJobs
from warren.instance.jobs.purging import PURGE_BATCH, RetentionLimits, jobs_to_purge
from warren.instance.jobs.stored import StoredJobs
from warren.instance.jobs.waitable import WaitableJobs
from warren.instance.kvs import put
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import WAITABLE
from warren.rpc.message import RpcError

_SUMMARIES_PER_COMMIT: Final = 1000
"""Summaries of one commit, where those of an older store are written."""

_LEAST_PAUSE: Final = 1.0
"""Seconds between two looks for jobs to purge."""

ARCHIVE_RETRY_DELAY: Final = 60.0
"""Seconds until an archive that could not be written is tried again."""


class InactiveJobs:
    """The inactive jobs of an instance. `on_removed` is called for each that is purged."""

    def __init__(
        self,
        clock: Clock,
        stored: StoredJobs,
        known: KnownJobs,
        commits: Commits,
        archive: Archive | None,
        on_removed: Callable[[InactiveJob], None],
    ) -> None:
        self._clock = clock
        self._stored = stored
        self._known = known
        self._commits = commits
        self._archive = archive
        self._on_removed = on_removed
        self._waitable = WaitableJobs()
        self._removing: set[JobId] = set()
        """Jobs that are being purged, or put aside."""
        self._damaged: set[JobId] = set()
        """Jobs of which something cannot be read, as the log says already."""
        self._unwritten_summaries: dict[JobId, bytes] = {}
        """Summaries of jobs that ended before there were any."""
        self._changed = asyncio.Event()

    # Coming in

    def track_waitable(self, active_job: ActiveJob) -> None:
        """Note that there is an active job, if it may be waited for."""
        if active_job.job.flags & WAITABLE:
            self._waitable.add(active_job.job.id)

    def add(self, active_job: ActiveJob) -> None:
        """Replace a job that has just ended by its summary, and commit that with its last event."""
        job = active_job.job.id
        quota_bytes = self._stored.count_record(job, active_job.job.userid)
        summary_bytes = summary.encode(
            active_job.job, active_job.jobspec, active_job.r, quota_bytes
        )
        self._commits.add(put(keys.summary_key(job), summary_bytes))
        self._known.leaving[job] = self._known.active.pop(job)
        self._known.inactive[job] = self._make_inactive(job, summary_bytes)

        def on_durable() -> None:
            del self._known.leaving[job]
            if active_job.job.flags & WAITABLE:
                self._waitable.mark_ended(job)
            self._changed.set()

        self._commits.when_durable(on_durable)

    def read(self, job: JobId) -> InactiveJob | None:
        """Return a job that is over from its summary; None if it has none that can be read."""
        summary_bytes = self._stored.summary(job)
        if summary_bytes is None or summary.decode(summary_bytes) is None:
            return None
        return self._make_inactive(job, summary_bytes)

    def summarize(self, active_job: ActiveJob) -> InactiveJob:
        """Return a job that was over before there were summaries; its own is written later."""
        job = active_job.job.id
        self._unwritten_summaries[job] = summary.encode(
            active_job.job, active_job.jobspec, active_job.r
        )
        return self._make_inactive(job, self._unwritten_summaries[job])

    def restore(self, inactive: list[InactiveJob]) -> None:
        """Take all jobs that were over before a restart."""
        inactive.sort(key=lambda each: each.ended_at)
        self._known.inactive.update((each.id, each) for each in inactive)
        for each in inactive:
            if each.summary.waitable:
                self._waitable.mark_ended(each.id)

    def _make_inactive(self, job: JobId, summary_bytes: bytes) -> InactiveJob:
        return InactiveJob(job, summary_bytes, self._stored, self._on_damage)

    async def write_summaries(self) -> None:
        """Write the summaries that an older store has not."""
        while self._unwritten_summaries:
            for job in list(islice(self._unwritten_summaries, _SUMMARIES_PER_COMMIT)):
                summary_bytes = self._unwritten_summaries.pop(job)
                if job in self._known.inactive and job not in self._removing:
                    self._commits.add(put(keys.summary_key(job), summary_bytes))
            await self._commits.wait_durable()

    def _on_damage(self, job: JobId, reason: str, lost: bool) -> None:
        if lost:
            self.move_to_lost_found(job, reason)
        elif job not in self._damaged:
            self._damaged.add(job)
            log.error("job is damaged", job=fluid.f58(job), reason=reason)

    # Going

    def move_to_lost_found(self, job: JobId, reason: str) -> None:
        """Move a job to lost+found that cannot be read, unless it is going already."""
        if job in self._removing or job in self._known.leaving:
            return
        log.error("job cannot be read", job=fluid.f58(job), reason=reason)
        self._removing.add(job)
        self._commits.add(*self._stored.lost_found_operations(job))

        def on_durable() -> None:
            self._forget(job)

        self._commits.when_durable(on_durable)

    def purgeable(self, limits: RetentionLimits, max_jobs: int = PURGE_BATCH) -> list[JobId]:
        """Return the jobs that are beyond what is to be kept, the oldest first."""
        removable = (each for each in self._known.inactive.values() if self._is_removable(each.id))
        total = len(self._known.inactive) - len(self._removing)
        return jobs_to_purge(removable, total, limits, self._clock.now(), max_jobs)

    async def purge(self, jobs: Sequence[JobId]) -> int:
        """Remove jobs that are over, for good; return how many. Others are left alone.

        With an archive they are in it before. Raises NotArchived, and keeps all, otherwise.
        """
        chosen = [job for job in dict.fromkeys(jobs) if self._is_removable(job)]
        if not chosen:
            return 0
        self._removing.update(chosen)
        if self._archive is not None:
            try:
                await self._archive.add(chosen)
            except BaseException:  # cancelled, too
                self._removing.difference_update(chosen)
                raise
        self._commits.add(*self._stored.purge_operations(chosen))

        def on_durable() -> None:
            for job in chosen:
                removed = self._forget(job)
                if removed is not None:
                    self._on_removed(removed)

        self._commits.when_durable(on_durable)
        await self._commits.wait_durable()
        return len(chosen)

    async def enforce_limits(self, limits: RetentionLimits) -> None:
        """Purge what is beyond the limits, until cancelled."""
        while True:
            self._changed.clear()
            try:
                while await self.purge(self.purgeable(limits)):
                    pass
            except NotArchived as error:
                log.error(str(error))
                await asyncio.sleep(ARCHIVE_RETRY_DELAY)
                continue
            oldest = next(iter(self._known.inactive.values()), None)
            timeout = None
            if oldest is not None:
                seconds_left = limits.seconds_left(oldest.ended_at, self._clock.now())
                # It may be due and not to be removed yet, as on a full disk.
                timeout = None if seconds_left is None else max(seconds_left, _LEAST_PAUSE)
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _is_removable(self, job: JobId) -> bool:
        known = self._known
        return job in known.inactive and job not in known.leaving and job not in self._removing

    def _forget(self, job: JobId) -> InactiveJob | None:
        self._removing.discard(job)
        self._damaged.discard(job)
        self._waitable.forget(job)
        self._stored.quota.release(keys.guest_namespace(job))
        return self._known.inactive.pop(job, None)

    # Waiting

    async def wait(self, job: JobId | None) -> InactiveJob:
        """Wait for a waitable job, or any, to be over. The same is not given again.

        Raises RpcError(ECHILD) where there is none.
        """
        ended_job = await self._waitable.wait(job)
        ended = self._known.inactive.get(ended_job)
        if ended is None or ended_job in self._removing:
            raise RpcError(errno.ECHILD, "the job was purged")
        self._known.inactive[ended_job] = self._make_inactive(ended_job, ended.without_waitable())
        self._commits.add(put(keys.summary_key(ended_job), ended.without_waitable()))
        await self._commits.wait_durable()
        return ended
