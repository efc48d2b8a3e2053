"""Execution: shells that run, and shells that have to be ended."""

import asyncio
import errno
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.instance.instance import Instance, machine
from tests.instance.lives import PLAIN
from tests.instance.parts import LastWords, settle, virtually
from warren.instance import keys
from warren.instance.exec import testexec
from warren.instance.exec.execution import Launcher, ShellsLost, ShellStuck
from warren.instance.jobtables import ExecTable
from warren.instance.kvs import put
from warren.instance.shell.plugins import RunningShell, ShellPlugin
from warren.instance.simulated import SimulatedSpawner, TaskBehavior
from warren.lifecycle.states import Result, State
from warren.rfc import eventlog, fluid
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

BEGUN = ["init", "starting", "recoverable"]
SHELLS = ["shell.init", "shell.start"]
ENDED = ["shell-exit", "complete", "done"]
EXECUTION = [*BEGUN, *SHELLS, *ENDED]

STEP = 5.0
"""The kill timeout."""


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
    """Statement 003.16: execution makes a namespace that the guest may write.
    Statement 003.19: it is destroyed when the job is over.
    """
    async with machine() as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job, "start")
        assert instance.kvs.owner(keys.guest_namespace(job)) == instance.job(job).userid

        await instance.until(job, "release")
        assert instance.kvs.owner(keys.guest_namespace(job)) is None


@virtually
async def test_a_job_ends_with_the_greatest_status_of_its_shells() -> None:
    """Statement 003.10: exit codes are collected."""

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        return TaskBehavior(status=int(environment["FLUX_TASK_RANK"]) << 8)

    async with machine(play) as m, m.instance() as instance:
        job = await instance.submit(nodes=4)
        await instance.until(job)

        assert instance.job(job).wait_status == 3 << 8
        assert instance.job(job).result is Result.FAILED


# Signals, and time


@virtually
async def test_a_task_that_heeds_a_signal_ends_at_once() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit(nodes=2)
        await instance.until(job, "start")
        await asyncio.sleep(1)
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(1.0, abs=0.1)
        assert instance.job(job).wait_status == 128 + signal.SIGTERM << 8
        assert instance.job(job).result is Result.CANCELED
        await instance.assert_nothing_left()


@virtually
async def test_a_stubborn_task_is_killed_a_step_later() -> None:
    """Statement 003.11: after a cancellation lingering tasks and shells are cleaned up."""
    async with machine(TaskBehavior(seconds=1000, stubborn=True)) as m, m.instance() as instance:
        job = await instance.submit(nodes=2)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(STEP, abs=0.1)
        assert instance.job(job).wait_status == 128 + signal.SIGKILL << 8
        await instance.assert_nothing_left()


class Obliging:
    """A task that ends well, when it is told to end."""

    def __init__(self) -> None:
        self._told = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        await self._told.wait()
        return b""

    async def wait(self) -> int:
        await self._told.wait()
        return 0

    def signal(self, signum: int) -> None:
        self._told.set()


class Stuck(ShellPlugin):
    """A plugin of a shell that never gets anywhere."""

    async def init(self, shell: RunningShell) -> None:
        await asyncio.Event().wait()


@virtually
async def test_a_stubborn_shell_is_killed_five_steps_later() -> None:
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Stuck()]
        job = await instance.submit()
        await instance.until(job, "start")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(5 * STEP, abs=0.1)
        assert instance.job(job).wait_status == signal.SIGKILL
        await instance.assert_nothing_left()


@virtually
async def test_a_job_whose_time_is_up_ends_with_the_exception_timeout() -> None:
    """Statement 003.11: when its time is up, a job's tasks and shells are cleaned up."""
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        await instance.until(job)

        assert instance.failures(job) == [("timeout", "resource allocation expired")]
        assert instance.job(job).result is Result.TIMEOUT
        assert instance.job(job).wait_status == 128 + signal.SIGALRM << 8
        assert instance.took(job) == pytest.approx(30.0, abs=0.1)
        await instance.assert_nothing_left()


@virtually
async def test_a_job_that_ends_in_time_does_not_time_out() -> None:
    async with machine(TaskBehavior(seconds=29)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        await instance.until(job)
        await asyncio.sleep(100)

        assert instance.failures(job) == []
        assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_a_user_sends_signals_to_the_tasks() -> None:
    """Statement 003.10: the shell propagates signals."""
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.bus.handle().rpc("job-manager.kill", {"id": job, "signum": signal.SIGUSR2})
        await instance.until(job)

        assert instance.job(job).wait_status == 128 + signal.SIGUSR2 << 8


@virtually
async def test_a_job_whose_tasks_end_well_when_they_are_told_to_has_not_succeeded() -> None:
    class Spawner(SimulatedSpawner):
        async def start(self, *_: object) -> Obliging:
            return Obliging()

    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Spawner(lambda command, environment: TaskBehavior())
        job = await instance.submit(nodes=2)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.job(job).wait_status == 1 << 8
        assert instance.job(job).result is Result.CANCELED


# What cannot be killed


class Around:
    """A launcher around another one."""

    def __init__(self, inner: Launcher) -> None:
        self.inner = inner
        self.start, self.started_jobs, self.wait = inner.start, inner.started_jobs, inner.wait
        self.kill, self.forget = inner.kill, inner.forget


class Unkillable(Around):
    """A launcher some of whose shells cannot be killed."""

    def __init__(self, inner: Launcher, *stuck: int) -> None:
        super().__init__(inner)
        self.signals: list[tuple[float, int]] = []
        self.wait, self.kill = self._wait, self._kill
        self._stuck = stuck

    async def _wait(self, job: JobId, rank: int) -> int:
        if rank in self._stuck:
            await asyncio.Event().wait()
        return await self.inner.wait(job, rank)

    async def _kill(self, job: JobId, signum: int) -> None:
        self.signals.append((asyncio.get_running_loop().time(), signum))
        await self.inner.kill(job, signum)


class Leaving(Around):
    """A launcher whose second shell leaves something behind that does not die."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.wait = self._wait

    async def _wait(self, job: JobId, rank: int) -> int:
        status = await self.inner.wait(job, rank)
        if rank == 1:
            raise ShellStuck("processes do not die: [7]")
        return status


@virtually
async def test_nodes_where_something_of_a_shell_does_not_die_are_drained() -> None:
    async with machine() as m:
        m.launcher = Leaving(m.launcher)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job)

            assert m.drained == [([1], f"unkillable user processes for job {fluid.f58(job)}")]
            assert instance.job(job).result is Result.FAILED
            (problem,) = instance.job(job).exceptions
            assert problem.note == "processes do not die: [7]"


@virtually
async def test_signals_get_stronger_and_rarer_until_the_nodes_are_drained() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        m.launcher = launcher = Unkillable(m.launcher, 1)
        m.config = ExecTable(kill_timeout="1s", max_kill_count=3)
        async with m.instance() as instance:
            job = await instance.submit(nodes=3)
            await instance.until(job, "start")
            await instance.cancel(job)
            began = asyncio.get_running_loop().time()
            await instance.until(job)

            sent = [(round(moment - began), signum) for moment, signum in launcher.signals]
            assert sent == [
                (0, signal.SIGTERM),
                *((seconds, signal.SIGUSR1) for seconds in (1, 2, 3, 4)),
                *((seconds, signal.SIGKILL) for seconds in (5, 15, 35)),
            ]
            assert instance.took(job) == pytest.approx(75, abs=0.1)
            reason = f"unkillable user processes for job {fluid.f58(job)}"
            assert m.drained == [([1], reason)]
            assert instance.job(job).result is Result.CANCELED
            names = instance.names(job, "guest.exec.eventlog")
            assert names == [*BEGUN, *SHELLS, "shell-exit", "log", "complete", "done"]


@virtually
async def test_a_job_of_which_something_cannot_be_killed_has_failed_and_lets_go() -> None:
    async with machine(TaskBehavior(seconds=1000, status=0)) as m:
        m.launcher = Unkillable(m.launcher, 0, 1)
        m.config = ExecTable(max_kill_count=1)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "start")
            await instance.cancel(job)
            await instance.until(job)

            assert instance.job(job).wait_status == 1
            assert instance.names(job)[-4:] == ["finish", "release", "free", "clean"]
            assert "shell-exit" not in instance.names(job, "guest.exec.eventlog")


@virtually
async def test_nodes_that_wait_for_a_stuck_one_are_released_before_it() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        m.launcher = Unkillable(m.launcher, 2)
        m.config = ExecTable(max_kill_count=1)
        async with m.instance() as instance:
            job = await instance.submit(nodes=4)
            await instance.until(job, "start")
            await instance.cancel(job)
            cancelled = await instance.until(job, "exception")
            await instance.until(job)

            released = [event for event in instance.log(job) if event.name == "release"]
            assert [event.context for event in released] == [
                {"ranks": "0-1,3", "final": False},
                {"ranks": "all", "final": True},
            ]
            assert released[0].timestamp - cancelled == pytest.approx(5 * STEP, abs=0.1)


class Away(Around):
    """A launcher that hears nothing any more once a shell has been started."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.wait, self.kill = self._wait, self._kill

    async def _wait(self, job: JobId, rank: int) -> int:
        await asyncio.Event().wait()
        return 0

    async def _kill(self, job: JobId, signum: int) -> None:
        await asyncio.Event().wait()


@virtually
async def test_not_even_a_launcher_that_does_not_answer_holds_a_job_for_ever() -> None:
    async with machine() as m:
        m.launcher = Away(m.launcher)
        m.config = ExecTable(max_kill_count=1)
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "start")
            await instance.cancel(job)
            await instance.until(job)

            assert [ranks for ranks, _ in m.drained] == [[0]]
            assert instance.job(job).result is Result.CANCELED


# Time limits that change


@pytest.mark.parametrize(("then", "took"), [(100.0, 100.0), (20.0, 20.0)])
@virtually
async def test_a_time_limit_that_is_changed_holds_from_then_on(then: float, took: float) -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        began = await instance.until(job, "start")
        await asyncio.sleep(10)
        instance.execution.set_expiration(job, began + then)
        await instance.until(job)

        assert instance.failures(job) == [("timeout", "resource allocation expired")]
        assert instance.took(job) == pytest.approx(took, abs=0.1)


@virtually
async def test_a_time_limit_that_is_lifted_holds_no_more() -> None:
    async with machine(TaskBehavior(seconds=50)) as m, m.instance() as instance:
        job = await instance.submit(duration=30.0)
        await instance.until(job, "start")
        instance.execution.set_expiration(job, 0.0)
        await instance.until(job)

        assert instance.job(job).result is Result.COMPLETED
        assert instance.took(job) == pytest.approx(50, abs=0.1)


# The log of execution


PATIENT = {"shell": {"options": {"exit-timeout": "none"}}}
"""Tasks of the job may go on for long after others have ended."""


@virtually
async def test_the_end_of_the_leader_is_told_with_the_nodes_that_go_on() -> None:
    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        rank = int(environment["FLUX_TASK_RANK"])
        return TaskBehavior(seconds=10.0 * (rank + 1), status=rank << 8)

    async with machine(play) as m, m.instance() as instance:
        job = await instance.submit(nodes=3, attributes=PATIENT)
        await instance.until(job)

        log = instance.log(job, "guest.exec.eventlog")
        (gone,) = [event for event in log if event.name == "shell-exit"]
        # It waits for the others until it hears that one of them has failed.
        assert gone.context == {"rank": 0, "wait_status": 0, "active_ranks": "2"}
        assert log[-2].timestamp - gone.timestamp == pytest.approx(10, abs=1.1)
        assert log[-2].context == {"status": 2 << 8}


@virtually
async def test_the_end_of_a_leader_is_told_once_in_however_many_lives() -> None:
    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        rank = int(environment["FLUX_TASK_RANK"])
        return TaskBehavior(seconds=(1.0, 5.0, 50.0)[rank], status=(rank == 1) << 8)

    async with machine(play) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=3, attributes=PATIENT)
            await instance.until(job, "shell-exit", "guest.exec.eventlog")
        async with m.instance() as instance:
            await instance.until(job)

            names = instance.names(job, "guest.exec.eventlog")
            assert names == [*BEGUN, *SHELLS, "shell-exit", "reattach", "complete", "done"]


@virtually
async def test_how_a_job_has_ended_is_written_down_before_it_is_told() -> None:
    """Statement 003.36: the guest namespace is complete before the job manager is told."""
    async with machine(TaskBehavior(status=3 << 8)) as m, m.instance() as instance:
        job = await instance.submit()
        finished = await instance.until(job, "finish")

        log = instance.log(job, "guest.exec.eventlog")
        assert [event.name for event in log] == EXECUTION
        assert log[-2].context == {"status": 3 << 8}
        assert log[-1].timestamp <= finished


@virtually
async def test_a_job_that_never_became_recoverable_is_not_taken_up_again() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await without_events(instance, job, "recoverable")
        async with m.instance() as instance:
            await instance.until(job)

            note = "job is not recoverable: no recoverable event"
            assert instance.failures(job) == [("exec", note)]
            names = instance.names(job, "guest.exec.eventlog")
            assert names == ["init", "starting", *SHELLS, "log", "complete", "done"]
            await instance.assert_nothing_left()


async def without_events(instance: Instance, job: JobId, *names: str) -> None:
    """Take events from a job's log of execution, as its user may."""
    kept = "".join(
        eventlog.encode(event)
        for event in instance.log(job, "guest.exec.eventlog")
        if event.name not in names
    )
    await instance.kvs.commit([put("exec.eventlog", kept.encode(), keys.guest_namespace(job))])


class Dying(Around):
    """A launcher whose shells take time to die."""

    def __init__(self, inner: Launcher, seconds: float) -> None:
        super().__init__(inner)
        self.wait = self._wait
        self._seconds = seconds

    async def _wait(self, job: JobId, rank: int) -> int:
        status = await self.inner.wait(job, rank)
        await asyncio.sleep(self._seconds)
        return status


@virtually
async def test_a_job_that_is_not_taken_up_again_has_its_nodes_until_its_shells_have_ended() -> None:
    """Its user writes what is missed: others would get nodes with its tasks on them."""
    async with machine(TaskBehavior(seconds=1000)) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=4, exclusive=True)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await without_events(instance, job, "recoverable")
        async with m.instance(lambda bus: Dying(m.launcher, 20.0)) as instance:
            other = await instance.submit(nodes=4, exclusive=True)
            lost = await instance.until(job, "exception")
            given = await instance.until(other, "alloc")

            assert given - lost == pytest.approx(20.0, abs=0.1)
            assert instance.failures(job) == [
                ("exec", "job is not recoverable: no recoverable event")
            ]
            assert m.drained == []
            await instance.until(other)
            await instance.assert_nothing_left()


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


class Baffling(Around):
    """A launcher with a bug: it cannot tell how a shell ends."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.wait = self._wait

    async def _wait(self, job: JobId, rank: int) -> int:
        raise TypeError("unhashable")


@pytest.mark.parametrize(
    ("around", "stuck"),
    [
        (lambda inner: Unkillable(inner, 0), [0]),
        (Leaving, [1]),
        (Baffling, [0, 1]),
        (Losing, []),
    ],
)
@virtually
async def test_nodes_are_drained_where_a_job_that_is_not_taken_up_again_does_not_die(
    around: Callable[[Launcher], Launcher], stuck: list[int]
) -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        m.config = ExecTable(kill_timeout="1s", max_kill_count=3)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await without_events(instance, job, "recoverable")
        async with m.instance(lambda bus: around(m.launcher)) as instance:
            await instance.until(job)

            reason = f"unkillable user processes for job {fluid.f58(job)}"
            assert m.drained == ([(stuck, reason)] if stuck else [])
            told = [
                event.context["data"]
                for event in instance.log(job, "guest.exec.eventlog")
                if event.name == "log"
            ]
            assert told[1:] == ([reason] if stuck else [])
            assert instance.job(job).result is Result.FAILED


@virtually
async def test_a_job_whose_user_takes_its_start_from_the_log_runs_on() -> None:
    async with machine(TaskBehavior(seconds=50)) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await without_events(instance, job, "starting", "shell.start")
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            assert instance.took(job) == pytest.approx(50.0, abs=1.0)


@virtually
async def test_shells_of_which_the_job_manager_has_not_heard_are_found_whatever_the_log_says() -> (
    None
):
    async with machine(TaskBehavior(seconds=50)) as m:
        async with m.instance(lambda bus: Slow(m.launcher)) as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "init", "guest.exec.eventlog")
            while not await m.launcher.started_jobs():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert "start" not in instance.names(job)
            await without_events(instance, job, "starting", "recoverable")
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            await instance.assert_nothing_left()


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\n",
        b"not an event\n",
        b'{"timestamp":1.0,"name":"complete"}\n',
        b'{"timestamp":1.0,"name":"complete","context":{"status":"soon"}}\n',
        b'{"timestamp":1.0,"name":"complete","context":{"status":65536}}\n',
        b'{"timestamp":1.0,"name":"complete","context":{"status":-1}}\n{"cut off',
        b'{"timestamp":1.0,"name":"complete","context":{"status":256}}\n'.join(
            [b"x\n" * 2**20] * 2
        ),
    ],
    ids=lambda damage: damage[-70:],
)
@pytest.mark.parametrize("all_of_it", [False, True])
@virtually
async def test_what_its_user_makes_of_a_jobs_log_stops_no_other_users_jobs(
    damage: bytes, all_of_it: bool
) -> None:
    """The guest namespace is the user's (003.16): an instance that fails of it never starts."""
    async with machine(TaskBehavior(seconds=100)) as m:
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            key = keys.job_key(job, "guest.exec.eventlog")
            before = b"" if all_of_it else instance.kvs.lookup(key)
            await instance.kvs.commit(
                [put("exec.eventlog", before + damage, keys.guest_namespace(job))]
            )
        async with m.instance() as instance:
            other = await instance.submit()
            await instance.until(job)
            await instance.until(other)

            assert instance.job(other).result is Result.COMPLETED
            result = Result.FAILED if all_of_it else Result.COMPLETED
            assert instance.job(job).result is result
            await instance.assert_nothing_left()


@pytest.mark.parametrize("status", [0, 256])
@virtually
async def test_a_job_has_not_ended_because_its_user_has_written_so(status: int) -> None:
    """Its nodes would be another job's, too."""
    async with machine(TaskBehavior(seconds=100)) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=4, exclusive=True)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            said = Event(1.0, "complete", {"status": status})
            await instance.kvs.commit([keys.append_execution_event(job, said)])
        async with m.instance() as instance:
            other = await instance.submit(nodes=4, exclusive=True)
            await instance.until(other)

            assert instance.took(job) == pytest.approx(100.0, abs=1.0)
            assert instance.job(job).result is Result.COMPLETED
            ended = await instance.until(job, "free")
            assert await instance.until(other, "alloc") >= ended
            await instance.assert_nothing_left()


# Lost shells


@virtually
async def test_a_job_that_loses_a_shell_ends_with_an_exception() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        m.launcher = Losing(m.launcher)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job)

            assert instance.failures(job) == [("exec", "the shell was lost")]
            assert instance.job(job).result is Result.FAILED
            await instance.assert_nothing_left()


@virtually
async def test_a_job_whose_shells_were_lost_with_the_machine_ends_with_an_exception() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
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
            log = instance.log(job, "guest.exec.eventlog")
            assert [event.name for event in log] == [*BEGUN, *SHELLS, "log", "complete", "done"]
            assert log[-3].context["data"] == note
            await instance.assert_nothing_left()


@virtually
async def test_tasks_that_are_known_to_have_run_are_not_run_again() -> None:
    runs = []

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        runs.append(environment["FLUX_TASK_RANK"])
        return TaskBehavior(seconds=1000)

    async with machine(play) as m:
        async with m.instance(lambda bus: Slow(m.launcher)) as instance:
            job = await instance.submit()
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            assert "start" not in instance.names(job)
            await m.lose_shells()
        async with m.instance() as instance:
            await instance.until(job)

            ((type_, note),) = instance.failures(job)
            assert (type_, "shells were lost" in note) == ("exec", True)
            assert instance.names(job)[5:8] == ["start", "exception", "finish"]
            assert runs == ["0"]


class Refusing(Around):
    """A launcher that cannot start the second shell."""

    def __init__(self, inner: Launcher) -> None:
        super().__init__(inner)
        self.start = self._start

    async def _start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        if rank == 1:
            raise RpcError(errno.EAGAIN)
        await self.inner.start(job, rank, host, userid)


@virtually
async def test_what_is_wrong_inside_costs_one_job_and_not_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(spec: dict[str, Any], *, by_owner: bool) -> None:
        if spec["tasks"][0]["command"] == ["wrong"]:
            raise TypeError("unhashable")

    monkeypatch.setattr(testexec, "read_mock_run", read)
    async with machine() as m, m.instance() as instance:
        wrong = await instance.submit(command=["wrong"])
        await instance.until(wrong)
        right = await instance.submit()
        await instance.until(right)

        assert instance.failures(wrong) == [("exec", "internal error; see the instance's log")]
        assert instance.job(wrong).result is Result.FAILED
        assert instance.job(right).result is Result.COMPLETED
        await instance.assert_nothing_left()


@virtually
async def test_a_shell_that_cannot_be_started_fails_the_job_and_nothing_else() -> None:
    async with machine() as m, m.instance(lambda bus: Refusing(m.launcher)) as instance:
        job = await instance.submit(nodes=3)
        await instance.until(job)

        note = "node1: the shell cannot be started: Resource temporarily unavailable"
        assert instance.failures(job) == [("exec", note)]
        assert "start" not in instance.names(job)
        assert instance.job(job).result is Result.FAILED
        await instance.assert_nothing_left()


# Side by side


class Late(ShellPlugin):
    """A plugin of a shell that takes its time."""

    async def init(self, shell: RunningShell) -> None:
        await asyncio.sleep(5)


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
    async with machine(TaskBehavior(seconds=50, output=b"hello\n")) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(100)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            found = instance.names(job, "guest.exec.eventlog")
            assert found == [*BEGUN, *SHELLS, "reattach", *ENDED]
            assert instance.printed(job) == {"0": b"hello\n", "1": b"hello\n"}
            await instance.assert_nothing_left()


@virtually
async def test_how_a_job_has_ended_is_not_forgotten_when_its_shells_are() -> None:
    async with machine(TaskBehavior(status=3 << 8)) as m:
        m.journal = journal = LastWords(b'"complete"')
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await asyncio.sleep(100)
        m.power_cut()
        journal.words = None
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            assert instance.job(job).wait_status == 3 << 8
            assert instance.names(job, "guest.exec.eventlog") == EXECUTION
            await instance.assert_nothing_left()


@virtually
async def test_a_job_is_found_running_by_the_next_instance() -> None:
    async with machine(TaskBehavior(seconds=50)) as m:
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
async def test_a_time_limit_that_passed_during_an_outage_ends_the_job_at_once() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
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
    async with machine(TaskBehavior(seconds=10, output=b"hello\n")) as m:
        async with m.instance() as instance:
            job = await instance.submit(nodes=4)
            await instance.until(job, "start")
        for number in range(40):
            async with m.instance() as instance:
                await asyncio.sleep(0.07 * number)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == PLAIN
            found = instance.names(job, "guest.exec.eventlog")
            assert [name for name in found if name != "reattach"] == EXECUTION
            assert set(instance.printed(job).values()) == {b"hello\n"}
            await instance.assert_nothing_left()


@virtually
async def test_shells_without_a_job_are_ended() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        await m.launcher.start(JobId(7), 0, "node0", 1000)
        async with m.instance() as instance:
            await settle()

            await instance.assert_nothing_left()


@virtually
async def test_a_job_that_was_cancelled_just_when_its_shells_were_started_leaves_nothing() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        async with m.instance(lambda bus: Slow(m.launcher)) as instance:
            job = await instance.submit(nodes=2)
            while not await m.launcher.started_jobs():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await instance.cancel(job)
        async with m.instance() as instance:
            await instance.until(job)
            await settle()

            assert instance.names(job) == [*PLAIN[:5], "exception", *PLAIN[5:]]
            await instance.assert_nothing_left()


@virtually
async def test_a_job_that_was_cancelled_then_has_its_nodes_until_its_shells_have_ended() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m:
        async with m.instance(lambda bus: Slow(m.launcher)) as instance:
            job = await instance.submit(nodes=4, exclusive=True)
            while not await m.launcher.started_jobs():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await instance.cancel(job)
            cancelled = await instance.until(job, "exception")
        async with m.instance(lambda bus: Dying(m.launcher, 20.0)) as instance:
            other = await instance.submit(nodes=4, exclusive=True)
            given = await instance.until(other, "alloc")

            assert given - cancelled == pytest.approx(20.0, abs=0.5)
            assert m.drained == []
            await instance.until(other)
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
