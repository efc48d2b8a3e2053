"""Inactive jobs: kept as summaries, waited for once, purged, moved to lost+found if unreadable."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import structlog

from warren.base.clock import Clock
from warren.instance import keys
from warren.instance.jobs import summary
from warren.instance.jobs.archive import Archive, NotArchived
from warren.instance.jobs.commits import Commits
from warren.instance.jobs.known import Entry, Inactive, KnownJobs
from warren.instance.jobs.purging import AT_ONCE, Limits, due
from warren.instance.jobs.stored import Stored
from warren.instance.jobs.waiting import Waiting
from warren.instance.kvs import put
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import WAITABLE
from warren.rpc.message import RpcError

log = structlog.get_logger()

_WRITTEN_AT_ONCE: Final = 1000
"""Summaries of one commit, where those of an older store are written."""

ARCHIVE_RETRY_DELAY: Final = 60.0
"""Seconds until an archive that could not be written is tried again."""


class InactiveJobs:
    """The inactive jobs of an instance. `removed` is called for each that is purged."""

    def __init__(
        self,
        clock: Clock,
        stored: Stored,
        known: KnownJobs,
        commits: Commits,
        archive: Archive | None,
        removed: Callable[[Inactive], None],
    ) -> None:
        self._clock = clock
        self._stored = stored
        self._known = known
        self._commits = commits
        self._archive = archive
        self._removed = removed
        self._waiting = Waiting()
        self._going: set[JobId] = set()
        """Jobs that are being purged, or put aside."""
        self._damaged: set[JobId] = set()
        """Jobs of which something cannot be read, as the log says already."""
        self._unwritten: dict[JobId, bytes] = {}
        """Summaries of jobs that ended before there were any."""
        self._news = asyncio.Event()

    # Coming in

    def track(self, entry: Entry) -> None:
        """Note that there is an active job."""
        if entry.job.flags & WAITABLE:
            self._waiting.add(entry.job.id)

    def keep(self, entry: Entry) -> None:
        """Replace a job that has just ended by its summary, and commit that with its last event."""
        job = entry.job.id
        held = self._stored.quota.bytes_of(keys.guest(job))
        short = summary.encode(entry.job, entry.jobspec, entry.r, held)
        self._commits.add(put(keys.summary(job), short))
        self._known.leaving[job] = self._known.active.pop(job)
        self._known.inactive[job] = self._inactive(job, short)

        def left() -> None:
            del self._known.leaving[job]
            if entry.job.flags & WAITABLE:
                self._waiting.ended(job)
            self._news.set()

        self._commits.then(left)

    def read(self, job: JobId) -> Inactive | None:
        """Return a job that is over from its summary; None if it has none that can be read."""
        short = self._stored.summary(job)
        if short is None or summary.decode(short) is None:
            return None
        return self._inactive(job, short)

    def summarize(self, entry: Entry) -> Inactive:
        """Return a job that was over before there were summaries; its own is written later."""
        job = entry.job.id
        self._unwritten[job] = summary.encode(entry.job, entry.jobspec, entry.r)
        return self._inactive(job, self._unwritten[job])

    def restore(self, over: list[Inactive]) -> None:
        """Take all jobs that were over before a restart."""
        over.sort(key=lambda each: each.ended)
        self._known.inactive.update((each.id, each) for each in over)
        for each in over:
            if each.summary.waitable:
                self._waiting.ended(each.id)

    def _inactive(self, job: JobId, short: bytes) -> Inactive:
        return Inactive(job, short, self._stored, self._broken)

    async def write(self) -> None:
        """Write the summaries that an older store has not."""
        while self._unwritten:
            for job in list(islice(self._unwritten, _WRITTEN_AT_ONCE)):
                short = self._unwritten.pop(job)
                if job in self._known.inactive and job not in self._going:
                    self._commits.add(put(keys.summary(job), short))
            await self._commits.done()

    def _broken(self, job: JobId, reason: str, lost: bool) -> None:
        if lost:
            self.put_aside(job, reason)
        elif job not in self._damaged:
            self._damaged.add(job)
            log.error("job is damaged", job=fluid.f58(job), reason=reason)

    # Going

    def put_aside(self, job: JobId, reason: str) -> None:
        """Move a job to lost+found that cannot be read, unless it is going already."""
        if job in self._going or job in self._known.leaving:
            return
        log.error("job cannot be read", job=fluid.f58(job), reason=reason)
        self._going.add(job)
        self._commits.add(*self._stored.lose(job))

        def gone() -> None:
            self._gone(job)

        self._commits.then(gone)

    def purgeable(self, kept: Limits, most: int = AT_ONCE) -> list[JobId]:
        """Return the jobs that are beyond what is to be kept, the oldest first."""
        over = (each for each in self._known.inactive.values() if self._settled(each.id))
        total = len(self._known.inactive) - len(self._going)
        return due(over, total, kept, self._clock.now(), most)

    async def purge(self, jobs: Sequence[JobId]) -> int:
        """Remove jobs that are over, for good; return how many. Others are left alone.

        With an archive they are in it before. Raises NotArchived, and keeps all, otherwise.
        """
        chosen = [job for job in dict.fromkeys(jobs) if self._settled(job)]
        if not chosen:
            return 0
        self._going.update(chosen)
        if self._archive is not None:
            try:
                await self._archive.add(chosen)
            except BaseException:  # cancelled, too
                self._going.difference_update(chosen)
                raise
        self._commits.add(*self._stored.purge(chosen))

        def gone() -> None:
            for job in chosen:
                removed = self._gone(job)
                if removed is not None:
                    self._removed(removed)

        self._commits.then(gone)
        await self._commits.done()
        return len(chosen)

    async def keep_within(self, kept: Limits) -> None:
        """Purge what is beyond the limits, until cancelled."""
        while True:
            self._news.clear()
            try:
                while await self.purge(self.purgeable(kept)):
                    pass
            except NotArchived as error:
                log.error(str(error))
                await asyncio.sleep(ARCHIVE_RETRY_DELAY)
                continue
            oldest = next(iter(self._known.inactive.values()), None)
            wait = None if oldest is None else kept.wait(oldest.ended, self._clock.now())
            try:
                async with asyncio.timeout(wait):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _settled(self, job: JobId) -> bool:
        known = self._known
        return job in known.inactive and job not in known.leaving and job not in self._going

    def _gone(self, job: JobId) -> Inactive | None:
        self._going.discard(job)
        self._damaged.discard(job)
        self._waiting.forget(job)
        self._stored.quota.release(keys.guest(job))
        return self._known.inactive.pop(job, None)

    # Waiting

    async def wait(self, job: JobId | None) -> Inactive:
        """Wait for a waitable job, or any, to be over. The same is not given again.

        Raises RpcError(ECHILD) where there is none.
        """
        taken = await self._waiting.wait(job)
        ended = self._known.inactive.get(taken)
        if ended is None or taken in self._going:
            raise RpcError(errno.ECHILD, "the job was purged")
        self._known.inactive[taken] = self._inactive(taken, ended.waited_for())
        self._commits.add(put(keys.summary(taken), ended.waited_for()))
        await self._commits.done()
        return ended
