"""Execution: shells that run, and shells that have to be ended."""

import asyncio
import signal
from collections.abc import Mapping, Sequence

import pytest

from tests.instance.instance import machine
from tests.instance.lives import PLAIN
from tests.instance.parts import LastWords, settle, virtually
from warren.instance import keys
from warren.instance.execution import KILL_SECONDS, Launcher, ShellsLost
from warren.instance.simulated import Play
from warren.lifecycle.states import Result, State
from warren.rfc import fluid
from warren.rfc.fluid import JobId

EXECUTION = ["init", "starting", "shell.init", "shell.start", "complete", "done"]


@pytest.mark.parametrize("nodes", [1, 4])
@virtually
async def test_a_job_runs_and_leaves_its_logs_and_nothing_else(nodes: int) -> None:
    async with machine() as m, m.instance() as instance:
        job = await instance.submit(nodes=nodes)
        await instance.until(job)

        assert instance.names(job) == PLAIN
        assert instance.names(job, "guest.exec.eventlog") == EXECUTION
        assert instance.job(job).result is Result.COMPLETED
        assert instance.took(job) == pytest.approx(1.0, abs=0.1)
        await instance.assert_nothing_left()


@virtually
async def test_the_guest_namespace_is_the_users_while_the_job_runs() -> None:
    async with machine() as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job, "start")
        assert instance.kvs.owner(keys.guest(job)) == instance.job(job).userid

        await instance.until(job, "release")
        assert instance.kvs.owner(keys.guest(job)) is None


@virtually
async def test_a_job_ends_with_the_greatest_status_of_its_shells() -> None:
    def play(command: Sequence[str], environment: Mapping[str, str]) -> Play:
        return Play(status=int(environment["FLUX_TASK_RANK"]) << 8)

    async with machine(play) as m, m.instance() as instance:
        job = await instance.submit(nodes=4)
        await instance.until(job)

        assert instance.job(job).status == 3 << 8
        assert instance.job(job).result is Result.FAILED


# Signals, and time


@virtually
async def test_a_task_that_heeds_a_signal_ends_at_once() -> None:
    async with machine(Play(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit(nodes=2)
        await instance.until(job, "start")
        await asyncio.sleep(1)
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(1.0, abs=0.1)
        assert instance.job(job).status == 128 + signal.SIGTERM << 8
        assert instance.job(job).result is Result.CANCELED
        await instance.assert_nothing_left()


@virtually
async def test_a_stubborn_task_is_killed_a_step_later() -> None:
    async with machine(Play(seconds=1000, stubborn=True)) as m, m.instance() as instance:
        job = await instance.submit(nodes=2)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(KILL_SECONDS, abs=0.1)
        assert instance.job(job).status == 128 + signal.SIGKILL << 8
        await instance.assert_nothing_left()


class Stuck:
    """A plugin of a shell that never gets anywhere."""

    async def init(self, handle: object, part: object) -> Mapping[str, str]:
        await asyncio.Event().wait()
        return {}


@virtually
async def test_a_stubborn_shell_is_killed_two_steps_later() -> None:
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Stuck()]
        job = await instance.submit()
        await instance.until(job, "start")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(2 * KILL_SECONDS, abs=0.1)
        assert instance.job(job).status == signal.SIGKILL
        await instance.assert_nothing_left()


@virtually
async def test_a_job_whose_time_is_up_ends_with_the_exception_timeout() -> None:
    async with machine(Play(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        await instance.until(job)

        assert instance.failures(job) == [("timeout", "resource allocation expired")]
        assert instance.job(job).result is Result.TIMEOUT
        assert instance.job(job).status == 128 + signal.SIGALRM << 8
        assert instance.took(job) == pytest.approx(30.0, abs=0.1)
        await instance.assert_nothing_left()


@virtually
async def test_a_job_that_ends_in_time_does_not_time_out() -> None:
    async with machine(Play(seconds=29)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        await instance.until(job)
        await asyncio.sleep(100)

        assert instance.failures(job) == []
        assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_a_user_sends_signals_to_the_tasks() -> None:
    async with machine(Play(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.bus.handle().rpc("job-manager.kill", {"id": job, "signum": signal.SIGUSR2})
        await instance.until(job)

        assert instance.job(job).status == 128 + signal.SIGUSR2 << 8


# Lost shells


class Around:
    """A launcher around another one."""

    def __init__(self, inner: Launcher) -> None:
        self.inner = inner
        self.start, self.known, self.wait = inner.start, inner.known, inner.wait
        self.kill, self.forget = inner.kill, inner.forget


class Losing(Around):
    """A launcher that loses the second shell."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.wait = self._wait

    async def _wait(self, job: JobId, rank: int) -> int:
        if rank == 1:
            await asyncio.sleep(10)
            raise ShellsLost("the shell was lost")
        return await self.inner.wait(job, rank)


class Slow(Around):
    """A launcher that takes long to say that it has started a shell."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.start = self._start

    async def _start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        await self.inner.start(job, rank, host, userid)
        await asyncio.sleep(10)


@virtually
async def test_a_job_that_loses_a_shell_ends_with_an_exception() -> None:
    async with machine(Play(seconds=1000)) as m:
        m.launcher = Losing(m.launcher)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job)

            assert instance.failures(job) == [("exec", "the shell was lost")]
            assert instance.job(job).result is Result.FAILED
            await instance.assert_nothing_left()


@virtually
async def test_a_job_whose_shells_were_lost_with_the_machine_ends_with_an_exception() -> None:
    async with machine(Play(seconds=1000)) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await m.launcher.kill(job, signal.SIGKILL)
        m.power_cut()
        async with m.instance() as instance:
            await instance.until(job)

            ((type_, note),) = instance.failures(job)
            assert type_ == "exec"
            assert "lost while the cluster was down" in note
            assert instance.job(job).result is Result.FAILED
            assert instance.names(job, "guest.exec.eventlog") == EXECUTION
            await instance.assert_nothing_left()


# Side by side


class Late:
    """A plugin of a shell that takes its time."""

    async def init(self, handle: object, part: object) -> Mapping[str, str]:
        await asyncio.sleep(5)
        return {}


@virtually
async def test_the_end_of_a_job_does_not_disturb_one_whose_name_begins_with_its_own() -> None:
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Late()] if rank == 1 else []
        short = await instance.submit()
        await asyncio.sleep(0.057)
        long = await instance.submit(nodes=2)
        assert fluid.f58(long).startswith(fluid.f58(short))
        await instance.until(short)
        await instance.until(long)

        assert instance.job(long).result is Result.COMPLETED


# Restarts


@virtually
async def test_a_job_runs_on_while_the_instance_is_away() -> None:
    async with machine(Play(seconds=50, output=b"hello\n")) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(100)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            assert instance.names(job, "guest.exec.eventlog") == EXECUTION
            assert instance.printed(job) == {"0": b"hello\n", "1": b"hello\n"}
            await instance.assert_nothing_left()


@virtually
async def test_how_a_job_has_ended_is_not_forgotten_when_its_shells_are() -> None:
    async with machine(Play(status=3 << 8)) as m:
        m.journal = journal = LastWords(b'"complete"')
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await asyncio.sleep(100)
        for rank in (0, 1):
            assert await m.launcher.wait(job, rank) == 3 << 8
        m.power_cut()
        journal.words = None
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            assert instance.job(job).status == 3 << 8
            assert instance.names(job, "guest.exec.eventlog") == EXECUTION
            await instance.assert_nothing_left()


@virtually
async def test_a_job_is_found_running_by_the_next_instance() -> None:
    async with machine(Play(seconds=50)) as m:
        async with m.instance() as instance:
            job = await instance.submit(duration=20.0)
            began = await instance.until(job, "start")
        await asyncio.sleep(5)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.failures(job) == [("timeout", "resource allocation expired")]
            assert instance.log(job)[-4].timestamp - began == pytest.approx(20.0, abs=0.5)
            await instance.assert_nothing_left()


@virtually
async def test_a_time_limit_that_passed_while_nobody_looked_ends_the_job_at_once() -> None:
    async with machine(Play(seconds=1000)) as m:
        async with m.instance() as instance:
            job = await instance.submit(duration=20.0)
            began = await instance.until(job, "start")
        await asyncio.sleep(100)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.failures(job) == [("timeout", "resource allocation expired")]
            assert instance.log(job)[-4].timestamp - began == pytest.approx(100.0, abs=1.0)


@virtually
async def test_an_instance_that_comes_and_goes_does_no_harm() -> None:
    async with machine(Play(seconds=10, output=b"hello\n")) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=4)
            await instance.until(job, "start")
        for number in range(40):
            async with m.instance() as instance:
                await asyncio.sleep(0.07 * number)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            assert instance.names(job, "guest.exec.eventlog") == EXECUTION
            assert set(instance.printed(job).values()) == {b"hello\n"}
            await instance.assert_nothing_left()


@virtually
async def test_shells_without_a_job_are_ended() -> None:
    async with machine(Play(seconds=1000)) as m:
        await m.launcher.start(JobId(7), 0, "node0", 1000)
        async with m.instance() as instance:
            await settle()

            await instance.assert_nothing_left()


@virtually
async def test_a_job_that_was_cancelled_just_when_its_shells_were_started_leaves_nothing() -> None:
    async with machine(Play(seconds=1000)) as m:
        async with m.instance(lambda bus: Slow(m.launcher)) as instance:
            job = await instance.submit(nodes=2)
            while not await m.launcher.known():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await instance.cancel(job)
        async with m.instance() as instance:
            await instance.until(job)
            await settle()

            assert instance.names(job) == [*PLAIN[:5], "exception", "free", "clean"]
            await instance.assert_nothing_left()


@virtually
async def test_a_job_that_is_cancelled_before_its_shells_are_started_starts_none() -> None:
    async with machine() as m, m.instance() as instance:
        jobs = [await instance.submit(nodes=4), await instance.submit(nodes=4)]
        await instance.cancel(jobs[1])
        for job in jobs:
            await instance.until(job)

        assert "start" not in instance.names(jobs[1])
        assert instance.job(jobs[1]).state is State.INACTIVE
        await instance.assert_nothing_left()
