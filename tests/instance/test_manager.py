"""The job manager: the course of a job's life, and what others see of it."""

import asyncio
import errno
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.instance.lives import PLAIN, Life, Perilog, R, alive, spec
from tests.instance.parts import SlowDisk, refused, settle, virtually
from warren.instance import keys
from warren.instance.jobs.eventjournal import EventFilter, EventJournal
from warren.instance.jobs.jobtap import Jobtap, Rejected
from warren.instance.jobs.service import JobManagerService
from warren.instance.kvs import put
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job, merge_annotations
from warren.lifecycle.states import Result, State
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import DEBUG
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

# The course of a life


@virtually
async def test_a_plain_job_lives_the_life_of_rfc_21() -> None:
    """Statement 003.28: the job manager logs the events of RFC 21."""
    async with alive() as life:
        job = await life.submit()

        assert await life.until(job) == PLAIN
        assert life.job(job).result is Result.COMPLETED
        assert life.scheduler.given == {}


@virtually
async def test_execution_gets_the_job_with_its_resources() -> None:
    """Statement 003.34: execution starts shells by R and jobspec."""
    async with alive() as life:
        job = await life.submit(name="a")
        await life.until(job)

        (start,) = life.execution.started
        assert start["id"] == job
        assert start["R"] == R
        assert start["jobspec"]["attributes"]["system"]["job"]["name"] == "a"
        assert start["reattach"] is False


@virtually
async def test_times_in_a_log_never_go_back() -> None:
    async with alive(plugins=[Perilog()]) as life:
        job = await life.submit()
        await life.until(job)

        times = [event.timestamp for event in life.log(job)]
        assert times == sorted(times)


@virtually
async def test_jobs_live_side_by_side() -> None:
    async with alive() as life:
        jobs = [await life.submit() for _ in range(5)]
        for job in jobs:
            assert await life.until(job) == PLAIN


@virtually
async def test_a_job_that_fails_is_told_apart() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        await life.bus.handle().rpc("job-manager.kill", {"id": job, "signum": 9})
        await life.until(job)

        assert life.execution.signals == [(job, 9)]
        assert life.job(job).result is Result.FAILED
        assert life.job(job).wait_status == 9


# Exceptions


@virtually
async def test_a_job_with_dependencies_that_is_cancelled_ends() -> None:
    async with alive(plugins=[Perilog("dependency")]) as life:
        job = await life.submit()
        await life.until(job, "dependency-add")
        assert life.job(job).state is State.DEPEND
        await life.cancel(job)

        names = await life.until(job)
        assert names[:4] == ["submit", "validate", "dependency-add", "exception"]
        assert life.job(job).result is Result.CANCELED
        assert life.execution.started == []


@virtually
async def test_a_job_that_waits_for_resources_and_is_cancelled_ends() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        await life.cancel(job)

        assert await life.until(job) == [*PLAIN[:4], "exception", "clean"]
        assert life.job(job).result is Result.CANCELED
        assert life.scheduler.waiting == {}


@virtually
async def test_a_job_that_is_cancelled_in_its_prolog_waits_for_the_prologs_end() -> None:
    perilog = Perilog("prolog")
    async with alive(plugins=[perilog]) as life:
        job = await life.submit()
        await life.until(job, "prolog-start")
        await life.cancel(job)
        await asyncio.sleep(100)
        assert life.job(job).state is State.CLEANUP
        assert life.scheduler.given == {job: R}

        perilog.let_go(job)
        names = await life.until(job)
        assert "start" not in names
        assert names[-2:] == ["free", "clean"]
        assert life.execution.started == []
        assert life.scheduler.given == {}


@virtually
async def test_a_job_that_runs_and_is_cancelled_ends_when_its_tasks_have() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        await life.cancel(job)

        end = ["exception", "finish", "release", "free", "clean"]
        assert await life.until(job) == [*PLAIN[:6], *end]
        assert life.execution.told == [(job, "cancel")]
        assert life.job(job).result is Result.CANCELED


@virtually
async def test_a_job_that_is_cancelled_in_its_epilog_waits_for_the_epilogs_end() -> None:
    perilog = Perilog("epilog")
    async with alive(plugins=[perilog]) as life:
        job = await life.submit()
        await life.until(job, "release")
        await life.cancel(job)
        await asyncio.sleep(100)
        assert life.job(job).state is State.CLEANUP
        assert life.scheduler.given == {job: R}

        perilog.let_go(job)
        names = await life.until(job)
        assert names[-3:] == ["epilog-finish", "free", "clean"]
        assert life.job(job).result is Result.CANCELED


@virtually
async def test_an_exception_that_is_not_fatal_is_noted_and_no_more() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        await life.cancel(job, "oom", severity=1)

        names = await life.until(job)
        assert names == [*PLAIN[:6], "exception", *PLAIN[6:]]
        assert life.job(job).result is Result.COMPLETED
        assert life.execution.told == []


@virtually
async def test_the_first_fatal_exception_is_the_cause() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.manager.post(job, "exception", {"type": "timeout", "severity": 0, "note": ""})
        life.manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
        await life.until(job)

        assert life.job(job).result is Result.TIMEOUT


@virtually
async def test_an_exception_that_comes_before_the_start_is_durable_still_ends_the_tasks() -> None:
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk, seconds=100, generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        disk.free.clear()
        life.scheduler.say_given(job)
        life.manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
        await settle()
        disk.free.set()

        names = await life.until(job)
        assert names[-4:] == ["finish", "release", "free", "clean"]
        assert set(life.execution.told) == {(job, "cancel")}


# Holding


@virtually
async def test_a_prolog_and_an_epilog_stand_around_the_tasks() -> None:
    async with alive(plugins=[Perilog()]) as life:
        job = await life.submit()

        assert await life.until(job) == [
            *["submit", "validate", "dependency-add", "dependency-remove", "depend", "priority"],
            *["alloc", "prolog-start", "prolog-finish", "start", "finish", "epilog-start"],
            *["epilog-finish", "release", "free", "clean"],
        ]


@virtually
async def test_a_job_does_not_start_before_its_prolog_has_ended() -> None:
    perilog = Perilog("prolog")
    async with alive(plugins=[perilog]) as life:
        job = await life.submit()
        await life.until(job, "prolog-start")
        await asyncio.sleep(100)
        assert life.execution.started == []

        perilog.let_go(job)
        await life.until(job)
        assert len(life.execution.started) == 1


@virtually
async def test_resources_are_not_free_before_the_epilog_has_ended() -> None:
    perilog = Perilog("epilog")
    async with alive(plugins=[perilog]) as life:
        job = await life.submit()
        await life.until(job, "release")
        await asyncio.sleep(100)
        assert life.names(job)[-1] == "release"
        assert life.scheduler.given == {job: R}

        perilog.let_go(job)
        await life.until(job)
        assert life.scheduler.given == {}


@virtually
async def test_a_job_is_not_scheduled_before_its_dependencies_are_gone() -> None:
    """Statement 003.6: a job goes on when its dependencies are met."""
    perilog = Perilog("dependency")
    async with alive(plugins=[perilog]) as life:
        job = await life.submit()
        await asyncio.sleep(100)
        assert life.names(job) == ["submit", "validate", "dependency-add"]
        assert life.scheduler.waiting == {}

        perilog.let_go(job)
        await life.until(job)


# Plugins


class Judge:
    """A plugin with one callback, which does what the test says."""

    name = "judge"

    def __init__(self, topic: str, action: Callable[[Jobtap, Job], None]) -> None:
        self._topic = topic
        self._action = action

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        return {self._topic: lambda job: self._action(tap, job)}


def reject(tap: Jobtap, job: Job) -> None:
    raise Rejected("not today")


@pytest.mark.parametrize("topic", ["job.create", "job.validate"])
@virtually
async def test_a_job_that_a_plugin_rejects_leaves_no_trace(topic: str) -> None:
    journal = MemoryJournal()
    async with alive(journal, plugins=[Judge(topic, reject)]) as life:
        with pytest.raises(RpcError, match="not today") as caught:
            await life.submit()

        assert caught.value.errnum == errno.EINVAL
        assert list(life.manager.jobs()) == []
    assert journal.records == []


@pytest.mark.parametrize("topic", ["job.create", "job.validate", "job.new"])
@virtually
async def test_what_a_plugin_posts_of_a_new_job_comes_after_its_submit(topic: str) -> None:
    plugin = Judge(topic, lambda tap, job: tap.post(job.id, "noted", {}))
    async with alive(plugins=[plugin]) as life:
        job = await life.submit()

        assert await life.until(job) == ["submit", "noted", *PLAIN[1:]]


@virtually
async def test_nothing_is_left_of_what_a_plugin_posts_of_a_job_that_is_rejected() -> None:
    def post_and_reject(tap: Jobtap, job: Job) -> None:
        tap.post(job.id, "noted", {})
        raise Rejected("not today")

    journal = MemoryJournal()
    async with alive(journal, plugins=[Judge("job.validate", post_and_reject)]) as life:
        assert await refused(life.submit()) == errno.EINVAL
        await settle()
    assert journal.records == []


@virtually
async def test_what_a_plugin_changes_in_a_jobspec_is_there_for_all() -> None:
    def update(tap: Jobtap, job: Job) -> None:
        tap.update_jobspec(job.id, {"attributes.system.duration": 7.0})

    async with alive(plugins=[Judge("job.new", update)]) as life:
        job = await life.submit()
        await life.until(job)

        (start,) = life.execution.started
        assert start["jobspec"]["attributes"]["system"]["duration"] == 7.0


@virtually
async def test_an_event_that_is_not_allowed_is_refused_and_changes_nothing() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        before = life.job(job)
        for name in ("start", "epilog-start", "dependency-add", "validate"):
            life.manager.post(job, name, {"description": "x"})
        await settle()

        assert life.job(job) == before
        assert life.names(job) == PLAIN[:4]


@virtually
async def test_what_a_plugin_asks_of_others_waits_for_the_disk() -> None:
    answers: list[Payload | RpcError] = []
    asked: list[int] = []
    disk = SlowDisk()

    def ask(tap: Jobtap, job: Job) -> None:
        tap.rpc("other.method", {"id": job.id}, answers.append)
        tap.rpc("nobody.method", {}, answers.append)

    async def answer(request: Request) -> Payload:
        asked.append(request.payload["id"])
        return {"well": True}

    async with alive(disk, plugins=[Judge("job.state.depend", ask)]) as life:
        life.bus.register("other", {"method": Method(answer)})
        submitting = asyncio.ensure_future(life.submit())
        await settle()
        assert asked == []

        disk.free.set()
        await life.until(await submitting)
        assert len(asked) == 1
        assert answers[0] == {"well": True}
        assert isinstance(answers[1], RpcError)
        assert answers[1].errnum == errno.ENOSYS


@virtually
async def test_a_plugin_serves_methods_under_its_name() -> None:
    class Server(Judge):
        def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
            async def hello(request: Request) -> Payload:
                return {"hello": "you"}

            tap.register({"hello": Method(hello)})
            return {}

    async with alive(plugins=[Server("", reject)]) as life:
        assert await life.bus.handle().rpc("job-manager.judge.hello") == {"hello": "you"}


# The scheduler's answers


@virtually
async def test_a_job_that_is_denied_ends_with_the_schedulers_words() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.deny(job, "there is no such machine")

        assert await life.until(job) == [*PLAIN[:4], "exception", "clean"]
        fatal = life.job(job).fatal_exception
        assert fatal is not None
        assert (fatal.type, fatal.note) == ("alloc", "there is no such machine")


@virtually
async def test_resources_that_come_after_a_cancellation_are_given_back() -> None:
    async with alive(generous=False) as life:
        life.scheduler.deaf = True
        job = await life.submit()
        await life.until(job, "priority")
        await life.cancel(job)
        await settle()
        assert life.names(job) == [*PLAIN[:4], "exception"]

        await life.scheduler.give(job)
        assert await life.until(job) == [*PLAIN[:4], "exception", "clean"]
        assert life.scheduler.given == {}


@virtually
async def test_what_a_job_waits_for_is_shown_and_not_stored() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.explain(job, "waits for a miracle")
        await settle()

        assert life.job(job).annotations["sched"]["reason_pending"] == "waits for a miracle"
        assert life.names(job) == PLAIN[:4]


def test_what_a_job_has_waited_for_is_no_more_when_it_has_resources() -> None:
    waiting = Job(
        id=JobId(1), userid=1000, urgency=16, annotations={"sched": {"reason_pending": "busy"}}
    )
    found = merge_annotations(
        waiting, {"sched": {"reason_pending": None, "resource_summary": "n1"}}
    )

    assert found == {"sched": {"resource_summary": "n1"}}


@virtually
async def test_a_job_whose_jobspec_changes_is_asked_for_anew() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.manager.post(job, "jobspec-update", {"attributes.system.duration": 7.0})
        await settle()

        asked = life.scheduler.waiting[job]
        assert asked["jobspec"]["attributes"]["system"]["duration"] == 7.0
        await life.scheduler.give(job)
        assert await life.until(job) == [*PLAIN[:4], "jobspec-update", *PLAIN[3:]]


@virtually
async def test_resources_for_what_a_job_was_before_an_update_are_given_back() -> None:
    async with alive(generous=False) as life:
        life.scheduler.deaf = True
        job = await life.submit(duration=60.0)
        await life.until(job, "priority")
        life.manager.post(job, "jobspec-update", {"attributes.system.duration": 3600.0})
        await settle()

        await life.scheduler.give(job)
        await settle()
        assert life.names(job) == [*PLAIN[:4], "jobspec-update", "priority"]
        assert life.scheduler.given == {}
        assert life.scheduler.asked == [job, job]
        asked = life.scheduler.waiting[job]
        assert asked["jobspec"]["attributes"]["system"]["duration"] == 3600.0
        await life.scheduler.give(job)
        assert await life.until(job) == [*PLAIN[:4], "jobspec-update", *PLAIN[3:]]


@virtually
async def test_a_job_that_is_held_while_resources_are_on_their_way_does_not_start() -> None:
    async with alive(generous=False) as life:
        life.scheduler.deaf = True
        job = await life.submit()
        await life.until(job, "priority")
        await life.bus.handle().rpc("job-manager.urgency", {"id": job, "urgency": 0})
        await life.scheduler.give(job)
        await settle()

        assert "alloc" not in life.names(job)
        assert life.scheduler.given == {}
        assert life.scheduler.asked == [job]
        await life.bus.handle().rpc("job-manager.urgency", {"id": job, "urgency": 16})
        await settle()
        await life.scheduler.give(job)
        assert (await life.until(job))[-6:] == PLAIN[4:]


@virtually
async def test_a_job_is_not_denied_for_what_it_was_before_an_update() -> None:
    async with alive(generous=False) as life:
        life.scheduler.deaf = True
        job = await life.submit()
        await life.until(job, "priority")
        life.manager.post(job, "jobspec-update", {"attributes.system.duration": 7.0})
        await settle()

        life.scheduler.deny(job, "there is no such machine")
        await settle()
        assert "exception" not in life.names(job)
        life.scheduler.deny(job, "there still is none")
        assert (await life.until(job))[-2:] == ["exception", "clean"]


# What waits for the disk


@virtually
async def test_a_user_hears_of_a_job_when_it_is_durable() -> None:
    """Statement 003.5: a job is stored and the job manager has it before its id is returned."""
    disk = SlowDisk()
    async with alive(disk) as life:
        submitting = asyncio.ensure_future(life.submit())
        await asyncio.sleep(10)
        assert not submitting.done()

        disk.free.set()
        job = await submitting
        assert life.names(job)[:2] == ["submit", "validate"]


@virtually
async def test_the_scheduler_hears_of_a_job_when_it_is_durable() -> None:
    """Statement 003.7: an allocation request is submitted to the scheduler."""
    disk = SlowDisk()
    async with alive(disk, generous=False) as life:
        submitting = asyncio.ensure_future(life.submit())
        await settle()
        assert life.scheduler.waiting == {}

        disk.free.set()
        job = await submitting
        assert list(life.scheduler.waiting) == [job]


@virtually
async def test_execution_hears_of_a_job_when_its_resources_are_durable() -> None:
    """Statement 003.8: when resources are allocated, a start request goes to execution."""
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk, generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        disk.free.clear()
        life.scheduler.say_given(job)
        await settle()
        assert life.job(job).state is State.RUN
        assert life.execution.started == []

        disk.free.set()
        await life.until(job)


@virtually
async def test_resources_are_free_when_that_is_durable() -> None:
    """Statement 003.11: when tasks have ended, resources are freed back to the scheduler."""
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk) as life:
        job = await life.submit()
        await life.until(job, "start")
        disk.free.clear()
        await asyncio.sleep(10)
        assert life.scheduler.given == {job: R}

        disk.free.set()
        await life.until(job)
        assert life.scheduler.given == {}


@pytest.mark.parametrize(
    ("method", "payload"), [("raise", {"type": "cancel"}), ("memo", {"memo": {"a": 1}})]
)
@virtually
async def test_what_a_user_asks_of_a_job_is_answered_when_it_is_durable(
    method: str, payload: dict[str, Any]
) -> None:
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk, generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        disk.free.clear()
        asked = life.bus.handle().rpc(f"job-manager.{method}", {"id": job, **payload})
        asking = asyncio.ensure_future(asked)
        await settle()
        assert not asking.done()

        disk.free.set()
        await asking
        assert life.names(job)[4] == {"raise": "exception", "memo": "memo"}[method]


# The journal


class Reader:
    """A reader of the journal, as a task."""

    def __init__(self, life: Life, *, full: bool = False) -> None:
        self.told: list[Payload] = []
        self.error: RpcError | None = None
        self._task = asyncio.ensure_future(self._read(life, full))

    async def _read(self, life: Life, full: bool) -> None:
        wanted = {"full": full}
        try:
            async for entry in life.bus.handle().stream("job-manager.events-journal", wanted):
                self.told.append(entry)
        except RpcError as error:
            self.error = error

    def names(self, job: JobId) -> list[str]:
        return [
            event["name"] for told in self.told if told["id"] == job for event in told["events"]
        ]

    def backlog(self) -> set[JobId]:
        """The jobs that it was told of before the sentinel."""
        return {told["id"] for told in self.told[: self.told.index(SENTINEL)]}

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


SENTINEL = {"id": -1, "events": []}


@virtually
async def test_the_journal_begins_with_what_has_happened_and_a_sentinel() -> None:
    async with alive(seconds=100) as life:
        over = await life.submit()
        await life.until(over)
        job = await life.submit()
        await life.until(job, "start")
        reader = Reader(life)
        await settle()

        backlog, sentinel = reader.told
        assert sentinel == SENTINEL
        assert backlog["id"] == job
        assert [event["name"] for event in backlog["events"]] == PLAIN[:6]
        assert backlog["jobspec"]["tasks"][0]["command"] == ["app"]
        assert backlog["R"]["execution"] == R["execution"]
        assert "scheduling" not in backlog["R"]
        await reader.stop()


@virtually
async def test_the_journal_goes_on_with_every_event_one_by_one() -> None:
    async with alive() as life:
        reader = Reader(life)
        await settle()
        job = await life.submit()
        await life.until(job)

        assert reader.told[0] == SENTINEL
        told = {entry["events"][0]["name"]: entry for entry in reader.told[1:]}
        assert [*told] == PLAIN
        assert told["submit"]["jobspec"]["tasks"][0]["command"] == ["app"]
        assert told["submit"]["events"][0]["context"]["userid"] == 1000
        assert told["alloc"]["R"]["execution"] == R["execution"]
        assert "scheduling" not in told["alloc"]["R"]
        await reader.stop()


@virtually
async def test_readers_of_the_journal_miss_nothing_and_get_nothing_twice() -> None:
    async with alive(plugins=[Perilog()]) as life:
        readers = []
        job = await life.submit()
        while "finish" not in life.names(job):
            readers.append(Reader(life))
            await asyncio.sleep(0.1)
        await life.until(job)

        assert len(readers) > 5
        for reader in readers:
            assert reader.names(job) == life.names(job)
            await reader.stop()


@pytest.mark.parametrize("full", [False, True])
@virtually
async def test_a_journal_that_begins_among_many_ends_tells_all_those_that_come_later(
    full: bool,
) -> None:
    async with alive(seconds=1) as life:
        jobs: list[JobId] = []
        readers: list[tuple[Reader, set[JobId]]] = []

        async def submit() -> None:
            for _ in range(60):
                jobs.append(await life.submit())
                await asyncio.sleep(0.05)

        submitting = asyncio.ensure_future(submit())
        while not submitting.done():
            over = {job for job in jobs if "clean" in life.names(job)}
            readers.append((Reader(life, full=full), over))
            await asyncio.sleep(0.1)
        await life.until(jobs[-1])

        assert len({len(over) for _, over in readers}) > 10
        for reader, over in readers:
            told = {job for job in jobs if reader.names(job)}
            assert told == (set(jobs) if full else set(jobs) - over)
            for job in told:
                assert reader.names(job) == life.names(job)
            assert over <= reader.backlog() if full else not over & reader.backlog()
            await reader.stop()


@virtually
async def test_the_journal_tells_only_what_is_durable() -> None:
    disk = SlowDisk()
    async with alive(disk) as life:
        before = Reader(life)
        submitting = asyncio.ensure_future(life.submit())
        await settle()
        after = Reader(life)
        await settle()
        assert before.told == after.told == [SENTINEL]

        disk.free.set()
        job = await submitting
        await life.until(job)
        assert before.names(job) == after.names(job) == PLAIN
        await before.stop()
        await after.stop()


@virtually
async def test_what_a_job_waits_for_is_in_the_journal() -> None:
    async with alive(generous=False) as life:
        reader = Reader(life)
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.explain(job, "waits for a miracle")
        await settle()

        (event,) = reader.told[-1]["events"]
        assert event["name"] == "annotations"
        assert event["context"]["annotations"]["sched"]["reason_pending"] == "waits for a miracle"
        await reader.stop()


@virtually
async def test_a_reader_that_does_not_keep_up_is_told_so() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        journal = life.manager.journal()
        await anext(journal)
        for number in range(10_002):
            life.manager.post(job, "memo", {"number": number})
        await settle()

        with pytest.raises(RpcError) as caught:
            async for _ in journal:
                pass
        assert caught.value.errnum == errno.EOVERFLOW


@virtually
async def test_the_backlog_may_be_of_any_length() -> None:
    async with alive(generous=False) as life:
        jobs = [await life.submit() for _ in range(5)]
        await settle()
        reader = EventJournal(life.manager._known, most_behind=3).follow(EventFilter())

        assert [(await anext(reader))["id"] for _ in range(6)] == [*jobs, -1]


@virtually
async def test_who_does_not_read_any_more_is_forgotten() -> None:
    async with alive() as life:
        reader = Reader(life)
        await settle()
        await reader.stop()

        assert life.manager.counts()["journal"] == {"listeners": 0}


# What may be known of jobs


@virtually
async def test_a_job_that_is_not_there_takes_no_events() -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match="unknown job id"):
            life.manager.post(JobId(5), "memo", {})
        job = await life.submit()
        await life.until(job)
        with pytest.raises(RpcError, match="job is inactive"):
            life.manager.post(job, "memo", {})


@virtually
async def test_answers_about_jobs_that_are_not_there_are_no_trouble() -> None:
    async with alive() as life:
        for type_ in ("start", "finish", "release", "exception"):
            life.manager.start_response({"id": JobId(5), "type": type_, "data": {}})
        life.scheduler.given[JobId(5)] = R
        life.manager.alloc_response({"id": JobId(5), "type": 0, "R": R})
        life.manager.alloc_response({"id": JobId(5), "type": 3})

        assert life.scheduler.given == {}
        assert list(life.manager.jobs()) == []


@virtually
async def test_what_is_stored_with_a_job_comes_with_its_submit() -> None:
    journal = MemoryJournal()
    async with alive(journal) as life:
        await life.manager.submit(
            JobId(1 << 24),
            {"userid": 1000, "urgency": 16, "flags": 0, "version": 1},
            spec(),
            [put(keys.job_key(1 << 24, "jobspec"), b"{}")],
        )
        assert len(journal.records) >= 1
        assert life.names(JobId(1 << 24))[0] == "submit"
        assert life.kvs.get(keys.job_key(1 << 24, "jobspec")) == b"{}"


# What a log tells besides


@virtually
async def test_the_log_of_a_job_with_the_flag_debug_tells_what_is_asked_for_it() -> None:
    async with alive() as life:
        job = await life.submit_as(1000, DEBUG)

        assert await life.until(job) == [
            *["submit", "validate", "depend", "priority", "debug.alloc-request", "alloc"],
            *["debug.start-request", "start", "finish", "release", "debug.free-request"],
            *["free", "clean"],
        ]


@virtually
async def test_a_job_that_ends_well_after_a_fatal_exception_has_not_succeeded() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        life.manager.post(job, "exception", {"type": "cancel", "severity": 0, "note": ""})
        life.manager.start_response({"id": job, "type": "finish", "data": {"status": 0}})
        await life.until(job)

        assert life.job(job).wait_status == 256
        assert life.job(job).result is Result.CANCELED


@virtually
async def test_others_serve_methods_of_the_job_manager() -> None:
    async def answer(request: Request) -> Payload:
        return {"queues": []}

    async with alive() as life:
        life.manager.serve({"queue-list": Method(answer, guest=True)})
        service = JobManagerService(life.manager, life.execution)
        assert "queue-list" in service.methods()
