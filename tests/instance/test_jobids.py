"""Numbers of jobs never come twice (flux-rfc-spec section 4)."""

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instance.lives import alive
from tests.instance.parts import GUEST, LastWords, opened, refused, settle, virtually
from warren.instance.jobids import JobIdAllocator
from warren.instance.jobs.jobtap import Jobtap, Rejected
from warren.instance.kvs import Kvs, put, unlink
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job
from warren.rfc import fluid
from warren.rfc.fluid import JobId

EPOCH = 1_700_000_000.0


@dataclass
class SetClock:
    """A clock that is set."""

    seconds: float = EPOCH

    def now(self) -> float:
        return self.seconds


def nobody() -> JobId:
    return JobId(0)


async def submitted(jobids: JobIdAllocator, kvs: Kvs) -> JobId:
    """Return a number whose commit has come to its end."""
    job, operations = jobids.next()
    await kvs.commit([*operations, put(fluid.kvs(job), b"")])
    jobids.set_durable(job)
    return job


LIVES = st.lists(
    st.tuples(
        st.floats(-1e6, 1e6, allow_nan=False),
        st.lists(st.tuples(st.floats(-5, 5, allow_nan=False), st.integers(1, 30)), max_size=5),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(LIVES)
def test_numbers_ascend_whatever_the_clock_says_and_whichever_jobs_are_purged(
    lives: list[tuple[float, list[tuple[float, int]]]],
) -> None:
    @virtually
    async def live() -> None:
        journal, clock = MemoryJournal(), SetClock()
        given: list[JobId] = []
        for beginning, steps in lives:
            clock.seconds = EPOCH + beginning
            async with opened(journal) as kvs:
                jobids = JobIdAllocator(kvs, clock, nobody)
                for step, count in steps:
                    given += [await submitted(jobids, kvs) for _ in range(count)]
                    clock.seconds += step
                await kvs.commit([unlink("job")])
        assert given == sorted(set(given))

    live()


@virtually
async def test_a_number_that_was_not_committed_is_no_jobs_and_may_come_again() -> None:
    async with opened() as kvs:
        clock = SetClock()
        lost, _ = JobIdAllocator(kvs, clock, nobody).next()

        assert JobIdAllocator(kvs, clock, nobody).next()[0] == lost


@virtually
async def test_many_jobs_at_once_need_few_marks() -> None:
    journal = MemoryJournal()
    async with opened(journal) as kvs:
        clock = SetClock()
        jobids = JobIdAllocator(kvs, clock, nobody)
        for _ in range(500):
            await submitted(jobids, kvs)
            clock.seconds += 0.01

        assert 0 < sum(b"max_jobid" in record for record in journal.records) <= 5


@pytest.mark.parametrize("mark", [b"{}", b'{"max_jobid": 1, "x": ' + b"[" * 10**5])
@virtually
async def test_a_mark_that_cannot_be_read_leaves_what_the_jobs_say(mark: bytes) -> None:
    async with opened() as kvs:
        await kvs.commit([put("checkpoint.job-ingest", mark)])
        latest = JobId(7 << 24)

        assert JobIdAllocator(kvs, SetClock(), lambda: latest).next()[0] > latest


class Refusing:
    """A plugin that accepts no job while it is told to."""

    name = "refusing"
    refuses = True

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        return {"job.validate": self.validate}

    def validate(self, job: Job) -> None:
        if self.refuses:
            raise Rejected("not today")


@virtually
async def test_a_job_that_is_refused_late_takes_no_mark_with_it() -> None:
    journal, clock, plugin = MemoryJournal(), SetClock(), Refusing()
    async with alive(journal, clock=clock, plugins=[plugin]) as life:
        await refused(life.submit())
        plugin.refuses = False
        job = await life.submit()
        await life.until(job)
        await life.kvs.commit([unlink("job")])
    clock.seconds -= 1000
    async with alive(journal, clock=clock) as life:
        assert await life.submit() > job


@virtually
async def test_a_job_whose_author_never_heard_its_number_keeps_it() -> None:
    journal, clock = LastWords(b"max_jobid"), SetClock()
    async with alive(journal, clock=clock) as life:
        unheard = asyncio.ensure_future(life.submit())
        await settle()
        unheard.cancel()
    journal.words = None
    async with alive(journal, clock=clock) as life:
        [kept] = life.manager.jobs()
        assert await life.submit() > kept.job.id


@virtually
async def test_another_generator_may_start_where_this_one_is() -> None:
    async with alive() as life:
        job = await life.submit()
        told = await life.bus.handle().rpc("job-ingest.getinfo")

        assert told["timestamp"] >= job >> 24
        assert await refused(life.bus.handle(GUEST).rpc("job-ingest.getinfo")) == errno.EPERM
