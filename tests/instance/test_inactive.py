"""Jobs that are over: kept in short, read on request, purged, put aside when broken."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields

from tests.instance.lives import PLAIN, Life, R, alive, spec
from tests.instance.parts import opened, refused, settle, virtually
from tests.instance.test_manager_restart import JOB, stored
from warren.instance import config, keys
from warren.instance.config import Config
from warren.instance.jobs import summary
from warren.instance.jobs.jobtap import Callbacks, Jobtap
from warren.instance.jobs.manager import InactiveJob
from warren.instance.jobs.purging import RetentionLimits, jobs_to_purge, read_limits
from warren.instance.jobtables import JobManagerTable
from warren.instance.kvs import put, unlink
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job, JobException, replay
from warren.lifecycle.states import Result, State
from warren.rfc import fluid, jobspec
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId

LOST = f"job-lost+found.job.{fluid.f58plain(JOB)}"


def over(life: Life, job: JobId = JOB) -> InactiveJob:
    found = life.manager.find(job)
    assert isinstance(found, InactiveJob)
    return found


# In short


@virtually
async def test_what_is_kept_in_short_says_what_the_log_says() -> None:
    journal = MemoryJournal()
    queued = config.parse("policy.jobspec.defaults.system.queue = 'batch'\n[queues.batch]")
    async with alive(journal, config=queued) as life:
        await life.bus.handle().rpc("job-manager.queue-start", {"start": True, "all": True})
        job = await life.submit(name="a", attributes={"queue": "batch"})
        await life.until(job)
        lived = over(life, job).job
        told = over(life, job).summary

        assert lived == replay(job, life.log(job))
        assert (told.name, told.queue, told.result) == ("a", "batch", Result.COMPLETED)
        assert (told.hosts, told.ranks) == ("node0", "0")
        assert told.ended_at == lived.times[State.INACTIVE]
    async with alive(journal) as life:
        found = over(life, job)
        assert found.job == lived
        asked = spec(name="a", attributes={"queue": "batch"})
        assert found.jobspec == jobspec.without_environment(asked)
        assert found.r == R
        assert [event.name for event in found.events()] == PLAIN


@virtually
async def test_a_job_ends_whatever_its_memo_holds() -> None:
    journal = MemoryJournal()
    memo = {"a": 2**70, "b": {"c": [None, -1.5, "\u2028", True]}}
    async with alive(journal, generous=False) as life:
        job = await life.submit()
        for volatile in (False, True):
            request = {"id": job, "memo": memo, "volatile": volatile}
            await life.bus.handle().rpc("job-manager.memo", request)
        await life.cancel(job)
        await life.until(job)
    async with alive(journal) as life:
        assert over(life, job).job.memo == memo


@virtually
async def test_a_restart_does_not_read_the_log_of_a_job_that_is_over() -> None:
    journal = await stored(PLAIN)
    async with alive(journal) as life:
        await settle()
        assert life.kvs.get(keys.summary_key(JOB)) is not None
    async with opened(journal) as kvs:
        await kvs.commit([put(keys.job_key(JOB, "eventlog"), b"rubbish")])
    async with alive(journal) as life:
        assert over(life).job.result is Result.COMPLETED


@pytest.mark.parametrize("short", [b"", b"rubbish", b"\x9a" + b"\x00" * 10, b"\xc0"])
@virtually
async def test_a_summary_that_cannot_be_read_is_made_again_from_the_log(short: bytes) -> None:
    """Statement 003.29: of a job that is over the eventlog is replayed where no summary is."""
    journal = await stored(PLAIN, summary=short)
    async with alive(journal) as life:
        await settle()

        assert over(life).job.result is Result.COMPLETED
        written = life.kvs.get(keys.summary_key(JOB))
        assert written is not None
        assert summary.decode(written) is not None


OF_VERSION_1 = (
    b'{"id":7,"userid":1,"urgency":16,"flags":0,"state":"INACTIVE","ever_depended":["begin"],'
    b'"started":true,"done":[0],"released":true,"freed":[0],"status":256,"problems":[{"type":"cancel",'
    b'"severity":0,"note":"x","wait_status":null,"userid":null,"during_epilog":false}],'
    b'"memo":{"n":123456789012345678901234567890},"times":{"INACTIVE":5.0}}'
)


def test_a_summary_of_the_first_version_says_the_same() -> None:
    written = summary.Summary(
        version=1, userid=1, ended_at=5.0, result=Result.CANCELED, waitable=True, name="a",
        queue=None, hosts="", ranks="", job=OF_VERSION_1, quota_bytes=9,
    )  # fmt: skip
    found = summary.decode(msgspec.msgpack.encode(written))
    assert found == written
    job = summary.job_of(found, JobId(8))
    assert (job.id, job.result, job.wait_status) == (8, Result.CANCELED, 256)
    assert [each.note for each in job.exceptions] == ["x"]
    assert job.all_released
    assert (*job.ever_dependencies, *job.released_ranks, *job.freed_ranks) == ("begin", 0, 0)
    assert job.memo == {"n": 123456789012345678901234567890}


def test_what_a_job_has_is_written_under_these_names() -> None:
    """Under others, summaries that are on disk are misread: they are of another version then."""
    names = " ".join(each.name for each in (*fields(Job), *fields(JobException)))
    assert (summary._VERSION, names) == (
        2,
        "id userid urgency flags state priority dependencies ever_dependencies prologs "
        "ever_prologs epilogs ever_epilogs alloc_bypass immutable allocated expiration started "
        "released_ranks all_released freed_ranks wait_status exceptions memo annotations "
        "updates times type severity note wait_status userid during_epilog",
    )


@virtually
async def test_the_latest_end_is_last_whatever_the_ids_are() -> None:
    journal = MemoryJournal()
    async with alive(journal, generous=False) as life:
        first, second = await life.submit(), await life.submit()
        for job in (second, first):
            await life.cancel(job)
            await life.until(job)
            await asyncio.sleep(1)
    async with alive(journal) as life:
        assert [each.job.id for each in life.manager.jobs()] == [second, first]


# Broken ones


BROKEN: Mapping[str, Mapping[str, bytes]] = {
    "eventlog": {"eventlog": b"rubbish\n"},
    "cut eventlog": {"eventlog": b'{"timestamp":1.0,"name":"submit"'},
    "no UTF-8": {"eventlog": b"\xff\n"},
    "jobspec": {"jobspec": b"{"},
    "R": {"R": b"[]"},
}


@pytest.mark.parametrize("broken", BROKEN)
@virtually
async def test_a_job_of_which_something_is_found_broken_is_still_there(broken: str) -> None:
    journal = await stored(PLAIN)
    async with alive(journal) as life:
        await settle()
    async with opened(journal) as kvs:
        await kvs.commit(
            [put(keys.job_key(JOB, key), value) for key, value in BROKEN[broken].items()]
        )
    async with alive(journal) as life:
        for _ in range(2):
            found = over(life)
            assert found.job.state is State.INACTIVE
            with pytest.raises(BadFormat):
                _ = (found.events(), found.jobspec, found.r)
            await settle()
        purge = {"num_limit": 0, "force": True}
        assert await life.bus.handle().rpc("job-manager.purge", purge) == {"count": 1}


@pytest.mark.parametrize("asked", ["job-list.list", "job-list.list-id"])
@virtually
async def test_a_job_whose_life_cannot_be_read_is_put_aside_when_it_is_asked_for(
    asked: str,
) -> None:
    journal = await stored(PLAIN)
    async with alive(journal) as life:
        await settle()
        short = over(life).summary
    lifeless = msgspec.msgpack.encode(msgspec.structs.replace(short, job=b"{}"))
    async with opened(journal) as kvs:
        await kvs.commit([put(keys.summary_key(JOB), lifeless)])
    async with alive(journal) as life:
        if asked == "job-list.list":
            assert await life.bus.handle().rpc(asked) == {"jobs": []}
        else:
            assert await refused(life.bus.handle().rpc(asked, {"id": JOB})) == errno.ENOENT
        await settle()

        assert life.manager.find(JOB) is None
        assert life.kvs.names("job") == []
        assert life.kvs.get(f"{LOST}.J") == b"signed"


@virtually
async def test_the_journal_leaves_out_what_cannot_be_read() -> None:
    journal = await stored(PLAIN)
    async with alive(journal) as life:
        well = await life.submit()
        await life.until(well)
    async with opened(journal) as kvs:
        await kvs.commit([unlink(keys.job_key(JOB, "eventlog"))])
    async with alive(journal) as life:
        told = life.bus.handle().stream("job-manager.events-journal", {"full": True})
        assert [(await anext(told))["id"], (await anext(told))["id"]] == [well, -1]
        await told.aclose()  # type: ignore[attr-defined]


# Purging


@pytest.mark.parametrize(
    ("kept", "ended", "gone"),
    [
        (RetentionLimits(), [1, 2, 3], 0),
        (RetentionLimits(max_count=2), [1, 2, 3], 1),
        (RetentionLimits(max_count=0), [1, 2, 3], 3),
        (RetentionLimits(max_count=9), [1, 2, 3], 0),
        (RetentionLimits(max_age_seconds=98), [1, 2, 3], 2),
        (RetentionLimits(max_age_seconds=0), [1, 2, 3], 3),
        (RetentionLimits(max_age_seconds=98, max_count=0), [1, 2, 3], 3),
        (RetentionLimits(max_age_seconds=1000, max_count=1), [1, 2, 3], 2),
    ],
)
def test_the_oldest_go_beyond_either_limit(
    kept: RetentionLimits, ended: list[float], gone: int
) -> None:
    jobs: list[Any] = [_Over(JobId(10 + at), moment) for at, moment in enumerate(ended)]

    assert jobs_to_purge(jobs, len(jobs), kept, 100.0) == [each.id for each in jobs[:gone]]
    assert (
        jobs_to_purge(jobs, len(jobs), kept, 100.0, max_jobs=1)
        == [each.id for each in jobs[:gone]][:1]
    )


class _Over:
    def __init__(self, id: JobId, ended: float) -> None:
        self.id, self.ended_at = id, ended


def test_limits_are_read_as_a_configuration_has_them() -> None:
    assert read_limits("1h", 5) == RetentionLimits(3600.0, 5)
    assert read_limits(60.0, None) == RetentionLimits(60.0)
    with pytest.raises(BadFormat, match="is not a duration"):
        read_limits("long", None)


class Mourner:
    """A plugin that hears of jobs that come to be over, and go."""

    name = "mourner"

    def __init__(self) -> None:
        self.heard: list[tuple[str, JobId]] = []

    def load(self, tap: Jobtap) -> Callbacks:
        return {
            "job.inactive-add": lambda job: self.heard.append(("add", job.id)),
            "job.inactive-remove": lambda job: self.heard.append(("remove", job.id)),
        }


async def many(life: Life, count: int) -> list[JobId]:
    jobs = []
    for _ in range(count):
        jobs.append(await life.submit())
        await life.until(jobs[-1])
    return jobs


@virtually
async def test_jobs_that_are_too_many_are_purged() -> None:
    """Statement 003.15: jobs are purged, so that their number stays manageable."""
    journal, mourner = MemoryJournal(), Mourner()
    config = Config(job_manager=JobManagerTable(inactive_num_limit=2))
    async with alive(journal, config=config, plugins=[mourner]) as life:
        jobs = await many(life, 5)
        await settle()

        assert [each.job.id for each in life.manager.jobs()] == jobs[3:]
        assert life.kvs.get(keys.job_key(jobs[0], "J")) is None
        assert mourner.heard[:2] == [("add", jobs[0]), ("add", jobs[1])]
        assert [job for what, job in mourner.heard if what == "remove"] == jobs[:3]


@virtually
async def test_jobs_that_are_too_old_are_purged_when_their_time_comes() -> None:
    """Statement 003.15: jobs are periodically purged."""
    journal = MemoryJournal()
    config = Config(job_manager=JobManagerTable(inactive_age_limit="1h"))
    async with alive(journal, config=config) as life:
        (job,) = await many(life, 1)
        await asyncio.sleep(3590)
        assert life.manager.find(job) is not None
        await asyncio.sleep(20)
        assert life.manager.find(job) is None
        assert life.manager.max_jobid() == job
    async with alive(journal) as life:
        assert await life.submit() > job


@virtually
async def test_the_owner_may_purge_and_ask_before() -> None:
    async with alive() as life:
        jobs = await many(life, 4)
        ask = life.bus.handle().rpc

        assert await ask("job-manager.purge", {"num_limit": 1}) == {"count": 3}
        assert len(list(life.manager.jobs())) == 4
        some = {"num_limit": 1, "batch": 2, "force": True}
        assert await ask("job-manager.purge", some) == {"count": 2}
        assert await ask("job-manager.purge", some) == {"count": 1}
        assert await ask("job-manager.purge", some) == {"count": 0}
        assert [each.job.id for each in life.manager.jobs()] == jobs[3:]


@virtually
async def test_one_job_may_be_purged_once_it_is_over() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc
        active = ask("job-manager.purge-id", {"id": job, "force": True})
        assert await refused(active) == errno.EINVAL
        await life.cancel(job)
        await life.until(job)
        await ask("job-manager.purge-id", {"id": job})
        assert life.manager.find(job) is not None

        await ask("job-manager.purge-id", {"id": job, "force": True})
        assert life.manager.find(job) is None
        gone = ask("job-manager.purge-id", {"id": job, "force": True})
        assert await refused(gone) == errno.ENOENT


@virtually
async def test_a_plugin_that_fails_keeps_no_job_from_being_purged() -> None:
    class Failing(Mourner):
        def load(self, tap: Jobtap) -> Callbacks:
            def fail(job: Job) -> None:
                raise RuntimeError("a bug")

            return {"job.inactive-remove": fail}

    async with alive(plugins=[Failing()]) as life:
        (job,) = await many(life, 1)
        purge = {"num_limit": 0, "force": True}
        assert await life.bus.handle().rpc("job-manager.purge", purge) == {"count": 1}
        assert life.manager.find(job) is None
