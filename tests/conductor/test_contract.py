"""What the conductor needs of a workload manager, told to the real one and to the tests' own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.dws.builders import BINDING, JOBDW
from tests.harness import virtual
from tests.instance.lives import alive
from tests.instance.parts import OWNER, settle
from warren.base.clock import SystemClock
from warren.conductor.workloadmanager import WorkloadManager
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.wlm.embedded.plugin import DwsPlugin
from warren.wlm.jobs import FluxJobs

RESOURCES = [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}]


@dataclass
class Tried:
    """A workload manager, and what makes its jobs go on."""

    manager: WorkloadManager
    submit: Callable[[], Awaitable[int]]
    end_tasks: Callable[[int], Awaitable[None]]


@asynccontextmanager
async def embedded() -> AsyncIterator[Tried]:
    async with alive(plugins=[DwsPlugin(SystemClock(), OWNER)], seconds=1000.0) as life:
        jobs = FluxJobs(life.bus.handle(), OWNER)
        life.bus.register("dws", jobs.methods())
        following = asyncio.create_task(jobs.run())

        async def end_tasks(job: int) -> None:
            await life.bus.handle().rpc("job-manager.kill", {"id": job, "signum": 15})

        submit = partial(life.submit, attributes={"dw": JOBDW})
        try:
            yield Tried(jobs, submit, end_tasks)
        finally:
            following.cancel()
            await asyncio.wait({following})


@asynccontextmanager
async def in_memory() -> AsyncIterator[Tried]:
    """Nodes are given at once where the real scheduler gives them."""
    jobs = Jobs()

    async def submit() -> int:
        job = Job(id=7, phase=Phase.HELD, binding=BINDING, userid=OWNER, directives=(JOBDW,))
        jobs.put(job)
        return 7

    def give_nodes(number: int) -> None:
        job = jobs.job(number)
        if job is not None and job.phase is Phase.QUEUED:
            jobs.put(replace(job, phase=Phase.STARTING, nodes=("node0",)))

    async def end_tasks(number: int) -> None:
        job = jobs.job(number)
        assert job is not None
        jobs.put(replace(job, phase=Phase.ENDING))

    jobs.listen(give_nodes)
    yield Tried(jobs, submit, end_tasks)


Story = Callable[[Tried], Awaitable[None]]
Opened = Callable[[], AbstractAsyncContextManager[Tried]]


@pytest.fixture(params=[embedded, in_memory], ids=["embedded", "in memory"])
def lived(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    opened: Opened = request.param

    def live(story: Story) -> None:
        async def main() -> None:
            async with opened() as tried:
                await tried.manager.wait_synced()
                await story(tried)

        virtual.run(main())

    return live


async def come_to(tried: Tried, job: int, phase: Phase) -> Job:
    """Return a job once it is in a phase."""
    async with asyncio.timeout(60):
        while True:
            await settle()
            found = tried.manager.job(job)
            if found is not None and found.phase is phase:
                return found
            await asyncio.sleep(0.1)


async def over(tried: Tried, job: int) -> None:
    """Wait until a job is over, or not known any more, which is the same."""
    async with asyncio.timeout(60):
        while True:
            found = tried.manager.job(job)
            if found is None or found.phase is Phase.OVER:
                return
            await asyncio.sleep(0.1)


def test_a_job_is_held_released_started_and_finished(lived: Any) -> None:
    async def story(tried: Tried) -> None:
        heard: list[int] = []
        tried.manager.listen(heard.append)
        number = await tried.submit()
        held = await come_to(tried, number, Phase.HELD)
        assert (held.id, held.directives, held.ran, held.nodes) == (number, (JOBDW,), False, ())
        assert heard[-1] == number
        assert number in tried.manager.job_ids()

        await tried.manager.release_to_scheduler(held, held.resources or RESOURCES, {})
        starting = await come_to(tried, number, Phase.STARTING)
        assert starting.nodes == ("node0",)
        await tried.manager.start(starting, {"DW_JOB_my_fs": "/mnt"})
        assert (await come_to(tried, number, Phase.RUNNING)).ran
        await tried.end_tasks(number)
        ending = await come_to(tried, number, Phase.ENDING)
        assert not ending.failed
        await tried.manager.finish(ending)
        await over(tried, number)

    lived(story)


def test_what_a_job_is_past_changes_nothing(lived: Any) -> None:
    async def story(tried: Tried) -> None:
        number = await tried.submit()
        held = await come_to(tried, number, Phase.HELD)
        await tried.manager.start(held, {})
        await tried.manager.finish(held)
        await settle()
        assert (await come_to(tried, number, Phase.HELD)) == held

        await tried.manager.release_to_scheduler(held, held.resources or RESOURCES, {})
        starting = await come_to(tried, number, Phase.STARTING)
        await tried.manager.release_to_scheduler(held, held.resources or RESOURCES, {})
        await tried.manager.finish(held)
        await settle()
        assert (await come_to(tried, number, Phase.STARTING)) == starting

    lived(story)


def test_a_fatal_exception_fails_a_job_and_another_does_not(lived: Any) -> None:
    async def story(tried: Tried) -> None:
        number = await tried.submit()
        held = await come_to(tried, number, Phase.HELD)
        await tried.manager.release_to_scheduler(held, held.resources or RESOURCES, {})
        starting = await come_to(tried, number, Phase.STARTING)
        await tried.manager.start(starting, {})
        running = await come_to(tried, number, Phase.RUNNING)
        await tried.manager.raise_exception(running, "exception", "a warning", 1)
        await settle()
        assert not (await come_to(tried, number, Phase.RUNNING)).failed

        await tried.manager.raise_exception(running, "exception", "the end")
        ending = await come_to(tried, number, Phase.ENDING)
        assert ending.failed
        assert not ending.has_failed_while_ending
        await tried.manager.raise_exception(ending, "exception", "later", 1)
        await settle()
        warned = await come_to(tried, number, Phase.ENDING)
        assert warned.has_exception_while_ending
        assert not warned.has_failed_while_ending

    lived(story)


def test_of_a_job_that_is_not_known_there_is_nothing(lived: Any) -> None:
    async def story(tried: Tried) -> None:
        assert tried.manager.job(123) is None
        assert list(tried.manager.job_ids()) == []
        gone = Job(id=123, phase=Phase.OVER, binding=tried.manager.binding)
        assert list(await tried.manager.flash(gone)) == []
        await tried.manager.raise_exception(gone, "exception", "nothing")
        await tried.manager.memo(gone, {"a": "b"})
        assert tried.manager.job(123) is None

    lived(story)
