"""What jobs wait for before they are queued: other jobs, a moment, and their like (RFC 26)."""

import asyncio
import errno
from itertools import pairwise
from typing import Any

import pytest

from tests.harness.virtual import EPOCH, VirtualClock
from tests.instance.lives import PLAIN, Life, alive
from tests.instance.parts import GUEST, OWNER, opened, settle, virtually
from tests.lifecycle import stories
from warren.instance.jobs.jobtap import Plugin
from warren.instance.jobs.plugins import builtin
from warren.instance.jobs.plugins.after import SCHEMES, DependencyState, dependency_state
from warren.instance.jobs.plugins.singleton import SameNameJobs
from warren.instance.kvs import unlink
from warren.journal import MemoryJournal
from warren.lifecycle import job as lifecycle
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import dependency, fluid
from warren.rfc.dependency import Dependency
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError


def plugins() -> list[Plugin]:
    return builtin(VirtualClock(), OWNER)


async def dependent(life: Life, *wanted: str, **options: Any) -> JobId:
    """Submit a job with dependencies, spelled as on the command line."""
    dependencies = [dependency.encode(dependency.parse(each)) for each in wanted]
    return await life.submit(**options, attributes={"dependencies": dependencies})


def after(scheme: str, job: JobId) -> str:
    return f"{scheme}:{fluid.f58(job)}"


def described(scheme: str, job: JobId) -> str:
    return dependency.description(Dependency(scheme, fluid.f58(job)))


STARTED = ["validate", "depend", "priority", "alloc", "start"]
CANCELLED: list[str | Event] = [*STARTED, "exception", stories.event("finish", status=15)]
ENDS: dict[str, list[str | Event]] = {
    "well": [*STARTED, stories.event("finish", status=0), "free", "clean"],
    "badly": [*STARTED, stories.event("finish", status=256), "free", "clean"],
    "cancelled while running": [*CANCELLED, "free", "clean"],
    "cancelled before": ["validate", "depend", "priority", "exception", "clean"],
    "cancelled in its prolog": [
        *["validate", "depend", "priority", "alloc", "exception", "free", "clean"],
    ],
}
MET = {
    "after": {"well", "badly", "cancelled while running"},
    "afterstart": {"well", "badly", "cancelled while running"},
    "afterany": set(ENDS),
    "afterok": {"well"},
    "afternotok": {"badly", "cancelled while running", "cancelled in its prolog"},
    "afterexcept": {"cancelled while running", "cancelled in its prolog"},
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_dependency_is_met_by_the_ends_that_its_scheme_names(scheme: str, end: str) -> None:
    assert dependency_state(scheme, stories.job(*ENDS[end])) is (
        DependencyState.MET if end in MET[scheme] else DependencyState.NEVER
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("events", range(1, len(STARTED) + 1))
def test_before_the_end_only_a_start_meets_anything(scheme: str, events: int) -> None:
    lives = stories.job(*STARTED[:events])
    started = scheme in ("after", "afterstart") and events == len(STARTED)

    assert dependency_state(scheme, lives) is (
        DependencyState.MET if started else DependencyState.WAIT
    )


@pytest.mark.parametrize("scheme", ["after", "afterstart", "afterany", "afterok"])
@virtually
async def test_a_job_waits_for_another(scheme: str) -> None:
    async with alive(plugins=plugins(), seconds=100) as life:
        first = await life.submit()
        second = await dependent(life, after(scheme, first))
        names = await life.until(second)

        added, removed = life.log(second)[1], life.log(second)[3]
        assert names == ["submit", "dependency-add", "validate", "dependency-remove", *PLAIN[2:]]
        assert added.context == removed.context == {"description": described(scheme, first)}
        met = "start" if scheme in ("after", "afterstart") else "clean"
        moments = {event.name: event.timestamp for event in life.log(first)}
        assert moments[met] <= removed.timestamp


@pytest.mark.parametrize("scheme", ["afternotok", "afterexcept"])
@virtually
async def test_a_job_waits_for_anothers_failure(scheme: str) -> None:
    async with alive(plugins=plugins(), seconds=100) as life:
        first = await life.submit()
        second = await dependent(life, after(scheme, first))
        await life.until(first, "start")
        await life.cancel(first)
        await life.until(second)

        assert life.job(second).result is Result.COMPLETED


@pytest.mark.parametrize("scheme", ["afternotok", "afterexcept"])
@virtually
async def test_a_job_ends_whose_dependency_can_never_be_met(scheme: str) -> None:
    async with alive(plugins=plugins()) as life:
        first = await life.submit()
        second = await dependent(life, after(scheme, first), after("afterany", first))
        await life.until(second)

        fatal = life.job(second).fatal_exception
        assert fatal is not None
        assert (fatal.type, fatal.severity) == ("dependency", 0)
        assert fatal.note == f"dependency {described(scheme, first)} can never be met"
        assert life.names(second).count("exception") == 1


@virtually
async def test_a_job_that_is_over_answers_at_once() -> None:
    async with alive(plugins=plugins()) as life:
        first = await life.submit()
        await life.until(first)
        well = await dependent(life, after("afterok", first))
        never = await dependent(life, after("afternotok", first))
        await life.until(well)
        await life.until(never)

        assert life.names(well)[1:4] == ["dependency-add", "validate", "dependency-remove"]
        assert life.names(never)[1:4] == ["dependency-add", "validate", "exception"]


@virtually
async def test_thousands_may_end_with_one() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        first = last = await life.submit()
        for _ in range(300):
            last = await dependent(life, after("afterok", last))
        await life.cancel(first)
        await life.until(last)

        assert {each.job.result for each in life.manager.jobs()} == {
            Result.CANCELED,
            Result.FAILED,
        }


@virtually
async def test_each_event_of_a_job_with_many_dependencies_is_applied_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    applied: list[str] = []
    apply = lifecycle._apply

    def count(job: Job, event: Event) -> Job:
        applied.append(event.name)
        return apply(job, event)

    monkeypatch.setattr(lifecycle, "_apply", count)
    async with alive(plugins=plugins(), generous=False) as life:
        jobs = [await life.submit() for _ in range(60)]
        last = await dependent(
            life,
            *[after("afterany", job) for job in jobs],
            *[f"begin-time:{moment}" for moment in range(60)],
        )
        for job in jobs:
            await life.cancel(job)
        await settle()

        assert not life.job(last).dependencies
        # To see whether it may be posted, to know what comes of it, and in its turn.
        assert applied.count("dependency-add") <= 3 * 120
        assert applied.count("dependency-remove") <= 3 * 120


@virtually
async def test_one_job_is_waited_for_once_however_its_id_is_spelled() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        first = await life.submit()
        hexadecimal = f"afterany:{first:#x}"
        second = await dependent(
            life, hexadecimal, f"afterany:0x00{first:x}", f"afterok:{first}", f"afterany:{first}"
        )
        assert life.job(second).dependencies == {
            f"after-finish={first:#x}",
            f"after-success={first}",
        }


@virtually
async def test_an_id_that_is_spelled_at_length_is_described_in_short() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        first = await life.submit()
        second = await dependent(life, f"afterany:0x{first:099x}", f"afterany:{first}")
        assert life.job(second).dependencies == {described("afterany", first)}
    async with alive(journal, plugins=plugins(), generous=False) as life:
        assert life.job(second).dependencies == {described("afterany", first)}
        await life.cancel(first)
        await life.until(second, "depend")


@virtually
async def test_a_job_that_waits_for_many_spellings_of_one_since_an_upgrade_goes_on() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        first = await life.submit()
        spellings = [f"afterany:{first:#x}", f"afterany:{first}"]
        second = await dependent(life, *spellings)
        # As the log was when each of them counted.
        life.manager.post(second, "dependency-add", {"description": f"after-finish={first}"})
        await settle()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        assert len(life.job(second).dependencies) == 2
        await life.cancel(first)
        await life.until(second, "depend")


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"scheme": "afterok", "value": "ƒ5"}, "no such job"),
        ({"scheme": "afterok", "value": "?"}, "attributes.system.dependencies"),
        ({"scheme": "moon", "value": "full"}, 'dependency scheme "moon" not supported'),
        ({"scheme": "string", "value": "a", "type": "in", "scope": "user"}, "not supported"),
        ({"scheme": "begin-time", "value": "soon"}, "is not a time"),
        ({"scheme": "singleton", "value": ""}, "the job has no name"),
        ("afterok:1", "is not an object"),
    ],
)
@virtually
async def test_a_dependency_that_cannot_be_served_is_refused(wanted: Any, why: str) -> None:
    async with alive(plugins=plugins()) as life:
        with pytest.raises(RpcError, match=why) as caught:
            await life.submit(attributes={"dependencies": [wanted]})

        assert caught.value.errnum == errno.EINVAL
        assert list(life.manager.jobs()) == []


@virtually
async def test_guests_do_not_wait_for_jobs_of_others() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        job = await life.submit()
        wanted = [dependency.encode(dependency.parse(after("afterok", job)))]
        with pytest.raises(RpcError, match="another user's"):
            await life.submit_as(GUEST, attributes={"dependencies": wanted})


@pytest.mark.parametrize("scheme", ["afterok", "afternotok"])
@virtually
async def test_who_waits_for_whom_survives_a_restart(scheme: str) -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), seconds=1000) as life:
        first = await life.submit()
        second = await dependent(life, after(scheme, first))
        await life.until(first, "start")
    async with alive(journal, plugins=plugins(), seconds=10) as life:
        assert life.job(second).state is State.DEPEND
        await life.until(second)

        wanted = Result.COMPLETED if scheme == "afterok" else Result.FAILED
        assert life.job(second).result is wanted
        assert life.names(second).count("dependency-add") == 1


@virtually
async def test_a_job_whose_antecedent_was_lost_ends() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        first = await life.submit()
        second = await dependent(life, after("afterok", first))
        await settle()
    async with opened(journal) as kvs:
        await kvs.commit([unlink(fluid.kvs(first))])
    async with alive(journal, plugins=plugins()) as life:
        await life.until(second)

        fatal = life.job(second).fatal_exception
        assert fatal is not None
        assert fatal.type == "dependency"


@virtually
async def test_after_a_restart_a_scheme_that_is_not_served_any_more_is_told() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        first = await life.submit()
        second = await dependent(life, after("afterok", first))
        await settle()
    async with alive(journal, generous=False) as life:
        await life.until(second, "exception")

        (problem,) = life.job(second).exceptions
        assert (problem.type, problem.severity) == ("dependency", 4)
        assert "may be stuck in DEPEND state" in problem.note
        assert life.job(second).state is State.DEPEND


# A moment


@virtually
async def test_a_job_waits_for_a_moment() -> None:
    async with alive(plugins=plugins()) as life:
        job = await dependent(life, f"begin-time:{EPOCH + 5000}")
        await asyncio.sleep(4990)
        assert life.job(job).dependencies == {f"begin-time={EPOCH + 5000:.3f}"}

        await asyncio.sleep(20)
        assert life.job(job).dependencies == frozenset()
        await life.until(job)


@virtually
async def test_a_moment_that_is_past_holds_no_job() -> None:
    async with alive(plugins=plugins()) as life:
        job = await dependent(life, "begin-time:5")
        assert (await life.until(job))[1:4] == ["dependency-add", "validate", "dependency-remove"]


@virtually
async def test_a_moment_that_comes_between_two_lives_counts_afterwards() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins()) as life:
        past = await dependent(life, f"begin-time:{EPOCH + 50}")
        coming = await dependent(life, f"begin-time:{EPOCH + 500}")
    await asyncio.sleep(100)
    async with alive(journal, plugins=plugins()) as life:
        await life.until(past)
        assert life.job(coming).state is State.DEPEND
        await life.until(coming)


@virtually
async def test_a_job_that_waits_for_a_moment_can_be_cancelled() -> None:
    async with alive(plugins=plugins()) as life:
        job = await dependent(life, f"begin-time:{EPOCH + 50}")
        await life.cancel(job)
        await life.until(job)
        await asyncio.sleep(100)

        assert life.names(job)[-1] == "clean"


@virtually
async def test_a_job_that_is_over_waits_for_no_moment_any_more() -> None:
    """Each has up to a thousand of them, which may be years ahead."""
    async with alive(plugins=plugins()) as life:
        moments = [f"begin-time:{EPOCH + 10**9 + number}" for number in range(10)]
        for _ in range(3):
            job = await dependent(life, *moments)
            await life.cancel(job)
            await life.until(job)
        assert len(life.manager._timers) == 0


@virtually
async def test_others_have_their_turn_while_many_jobs_are_told_of_one() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        first = await life.submit()
        jobs = [await dependent(life, after("afterany", first)) for _ in range(200)]
        released: list[int] = []

        async def count() -> None:
            while True:
                released.append(sum(not life.job(job).dependencies for job in jobs))
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await life.cancel(first)
        await settle()
        counting.cancel()
        assert released[-1] == len(jobs)
        assert max(now - before for before, now in pairwise(released)) <= 100


@virtually
async def test_others_have_their_turn_while_one_job_waits_no_more_for_many() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        over = [await life.submit() for _ in range(200)]
        for job in over:
            await life.cancel(job)
        await settle()
        outstanding: list[int] = []

        async def count() -> None:
            while True:
                outstanding.append(
                    sum(len(each.job.dependencies) for each in life.manager.active())
                )
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await dependent(
            life,
            *[after("afterany", job) for job in over],
            *[f"begin-time:{moment}" for moment in range(200)],
        )
        await settle()
        counting.cancel()
        assert (max(outstanding), outstanding[-1]) == (400, 0)
        assert max(before - now for before, now in pairwise(outstanding)) <= 100


@virtually
async def test_others_have_their_turn_while_jobs_end_with_those_that_end_with_one() -> None:
    async with alive(plugins=plugins(), generous=False) as life:
        jobs = [await life.submit()]
        for number in range(400):
            jobs.append(await dependent(life, after("afterok", jobs[number // 20])))
        counts: list[int] = []

        async def count() -> None:
            while True:
                counts.append(len(life.manager.active()))
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await life.cancel(jobs[0])
        await settle()
        counting.cancel()
        assert counts[-1] == 0
        assert max(before - now for before, now in pairwise(counts)) <= 100


# One at a time


def test_of_jobs_that_are_alike_the_oldest_goes_on_when_all_wait() -> None:
    alike = SameNameJobs()
    assert alike.next_to_release() is None
    alike.active = {JobId(1), JobId(2), JobId(3)}
    alike.waiting = {JobId(2), JobId(3)}
    assert alike.next_to_release() is None
    alike.active = {JobId(2), JobId(3)}
    assert alike.next_to_release() == 2


@virtually
async def test_jobs_of_one_name_run_one_at_a_time() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), seconds=10) as life:
        jobs = [await dependent(life, "singleton", name="a") for _ in range(4)]
        other = await dependent(life, "singleton", name="b")
        await life.until(other, "start")
        assert [life.job(job).state for job in jobs] == [State.RUN, *[State.DEPEND] * 3]
        await life.until(jobs[1], "start")
    async with alive(journal, plugins=plugins(), seconds=10) as life:
        await life.until(jobs[-1])

        spans = [(moments["alloc"], moments["clean"]) for moments in map(moments_of(life), jobs)]
        assert all(one[1] <= two[0] for one, two in pairwise(spans))


def moments_of(life: Life) -> Any:
    return lambda job: {event.name: event.timestamp for event in life.log(job)}


@virtually
async def test_a_job_that_is_alike_and_does_not_wait_is_waited_for_over_a_restart_too() -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=plugins(), generous=False) as life:
        first = await life.submit(name="a")
        waits = await dependent(life, "singleton", name="a")
        also = await life.submit(name="a")
        await life.cancel(first)
        await life.until(first)
        assert life.job(waits).state is State.DEPEND
    async with alive(journal, plugins=plugins(), generous=False) as life:
        await settle()
        assert life.job(waits).state is State.DEPEND
        await life.cancel(also)
        await life.until(waits, "depend")
