"""A shell's life with its options, in virtual time: output, ends, signals, peers."""

import asyncio
import errno
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.lines import Line
from tests.instance import instance as instances
from tests.instance.instance import Instance, Machine, machine
from tests.instance.parts import settle, virtually
from tests.instance.test_shell import Chattering, Waiting
from warren.instance.jobs.known import ActiveJob
from warren.instance.shell.firstexit import FirstExit
from warren.instance.shell.input import Stdin
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.pty import Pty
from warren.instance.shell.signals import Kill, SignalBeforeExpiration
from warren.instance.shell.tasks import INHERIT_NOTHING, Inherited, Task
from warren.instance.simulated import SimulatedSpawner, TaskBehavior
from warren.lifecycle.states import Result, State
from warren.rfc import stdio
from warren.rfc.fluid import JobId, f58plain
from warren.rpc import message
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

USUAL = [FirstExit, SignalBeforeExpiration, Kill]


def with_usual(m: Machine) -> None:
    m.plugins = lambda rank: [plugin() for plugin in USUAL]


async def submit(
    instance: Instance, options: Mapping[str, Any] | None = None, **more: Any
) -> JobId:
    attributes = {"shell": {"options": options or {}}}
    return await instance.submit(attributes=attributes, **more)


# Output


class Printing(Chattering):
    """A spawner of tasks that print given pieces, one a second."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(0)
        self._given = pieces

    async def start(self, *_: object) -> "Printing._Task":
        return self._Task(list(self._given))

    class _Task:
        def __init__(self, left: list[bytes]) -> None:
            self._left = left
            self._over = asyncio.Event()

        async def read(self, stream: str) -> bytes:
            await asyncio.sleep(1)
            if stream == "stderr" or not self._left:
                if stream == "stdout":
                    self._over.set()
                return b""
            return self._left.pop(0)

        async def wait(self) -> int:
            await self._over.wait()
            return 0

        def signal(self, signum: int) -> None:
            return None


def written(instance: Instance, job: JobId) -> list[str]:
    events = instance.log(job, "guest.output")
    return [event.context["data"] for event in events if "data" in event.context]


@pytest.mark.parametrize(
    ("buffer", "pieces"),
    [("line", ["one\n", "two\nthree\n", "four"]), ("none", ["o", "ne\ntw", "o\nthree\nfo", "ur"])],
)
@virtually
async def test_lines_are_written_down_when_they_are_complete(
    buffer: str, pieces: list[str]
) -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Printing(b"o", b"ne\ntw", b"o\nthree\nfo", b"ur")
        job = await submit(instance, {"output": {"stdout": {"buffer": {"type": buffer}}}})
        await instance.until(job)

        assert written(instance, job) == pieces


@virtually
async def test_a_line_without_an_end_does_not_wait_for_ever() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Printing(*[b"x" * 2**15] * 4)
        job = await submit(instance)
        await instance.until(job)

        assert [len(each) for each in written(instance, job)] == [2**16, 2**16]


@virtually
async def test_output_beyond_the_limit_is_dropped_and_told_once() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Printing(*[b"x" * 30 + b"\n"] * 100)
        job = await submit(instance, {"output": {"limit": 100}})
        await instance.until(job)

        assert sum(map(len, written(instance, job))) == 100
        (told,) = instance.complaints(job)
        assert told.startswith("stdout of node0 is cut off after 100 bytes")
        assert stdio.count_streams(instance.log(job, "guest.output")) == (2, 2)
        assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_what_would_not_go_into_one_message_goes_into_several() -> None:
    """Each byte of this is six in the log, and what may wait is more than a message holds."""
    async with machine(TaskBehavior(output=b"\0" * 5_000_000)) as m, m.instance() as instance:
        sizes = []
        served: Any = instance.bus._services["kvs"]

        async def measured(request: Request) -> Payload:
            sizes.append(len(message.pack(request.payload)))
            answer: Payload = await served["commit"].answer(request)
            return answer

        instance.bus._services["kvs"] = {**served, "commit": Method(measured, guest=True)}
        job = await submit(instance, {"output": {"limit": "1G"}}, tasks=4, nodes=1)
        await instance.until(job)

        assert {len(data) for data in instance.printed(job).values()} == {5_000_000}
        assert max(sizes) < message.LONGEST_MESSAGE / 4


# Ends


def unequal(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
    """The first task ends after a second, with an exit code if the command says so."""
    if environment["FLUX_TASK_RANK"] == "0":
        return TaskBehavior(seconds=1, status=int(command[1]) << 8)
    return TaskBehavior(seconds=1000)


@pytest.mark.parametrize("nodes", [1, 2])
@virtually
async def test_when_one_task_has_ended_the_others_have_half_a_minute(nodes: int) -> None:
    async with machine(unequal) as m, m.instance() as instance:
        with_usual(m)
        job = await submit(instance, command=["app", "0"], nodes=nodes, tasks=2, cores=1)
        await instance.until(job)

        note = "the first task exited 30s ago, and others still run (exit-timeout)"
        assert instance.failures(job) == [("exec", note)]
        assert 31 <= instance.took(job) < 35


@pytest.mark.parametrize(("given", "seconds"), [("2m", 121), (5, 6), ("none", 1000)])
@virtually
async def test_the_time_may_be_another(given: str | int, seconds: float) -> None:
    async with machine(unequal) as m, m.instance() as instance:
        with_usual(m)
        options = {"exit-timeout": given}
        job = await submit(instance, options, command=["app", "0"], nodes=2)
        await instance.until(job)

        assert seconds <= instance.took(job) < seconds + 4


@pytest.mark.parametrize("nodes", [1, 2])
@virtually
async def test_a_job_that_does_not_run_without_all_its_tasks_ends_with_the_first(
    nodes: int,
) -> None:
    async with machine(unequal) as m, m.instance() as instance:
        with_usual(m)
        options = {"exit-on-error": 1}
        job = await submit(instance, options, command=["app", "3"], nodes=nodes, tasks=2, cores=1)
        await instance.until(job)

        note = "the first task to exit, 0, ended with exit code 3"
        assert instance.failures(job) == [("exec", note)]
        assert instance.job(job).wait_status == 3 << 8


@virtually
async def test_tasks_that_end_in_time_are_let_be() -> None:
    async with machine(TaskBehavior(seconds=20)) as m, m.instance() as instance:
        with_usual(m)
        job = await submit(instance, nodes=3)
        await instance.until(job)

        assert instance.failures(job) == []
        assert instance.took(job) < 21


def one_after_the_other(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
    """Each task ends two seconds after the one before it."""
    return TaskBehavior(seconds=1 + 2 * int(environment["FLUX_TASK_RANK"]))


@pytest.mark.parametrize("tasks", [2, 4])
@virtually
async def test_time_in_which_no_shell_can_say_that_its_tasks_have_ended_does_not_count(
    tasks: int,
) -> None:
    async with machine(one_after_the_other) as m:
        with_usual(m)
        async with m.instance() as instance:
            job = await submit(instance, nodes=2, tasks=tasks, cores=1)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await asyncio.sleep(0.5)
        await asyncio.sleep(100)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.failures(job) == []
            assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_tasks_that_do_run_on_are_ended_when_the_instance_is_back() -> None:
    async with machine(unequal) as m:
        with_usual(m)
        async with m.instance() as instance:
            job = await submit(instance, command=["app", "0"], nodes=2)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(100)
        async with m.instance() as instance:
            await instance.until(job)

            note = "the first task exited 30s ago, and others still run (exit-timeout)"
            assert instance.failures(job) == [("exec", note)]
            assert instance.took(job) < 110


# Signals


@pytest.mark.parametrize(
    ("option", "seconds", "signum"),
    [(1, 40, signal.SIGUSR1), ({"timeleft": "10s", "signum": 12}, 90, 12)],
)
@virtually
async def test_a_signal_comes_before_the_time_limit(
    option: Any, seconds: float, signum: int
) -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        with_usual(m)
        job = await submit(instance, {"signal": option}, nodes=2, duration=100.0)
        await instance.until(job)

        assert instance.job(job).wait_status == 128 + signum << 8
        assert instance.took(job) == pytest.approx(seconds, abs=1.5)
        (told,) = instance.complaints(job)
        assert "seconds are left" in told


def set_limit(instance: Instance, job: JobId, limit: float) -> None:
    """Give a running job so many seconds from its start; 0 for no limit."""
    entry = instance.manager.find(job)
    assert isinstance(entry, ActiveJob)
    expiration = entry.job.times[State.RUN] + limit if limit else 0.0
    instance.manager.processor.post(entry, "resource-update", {"expiration": expiration})


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ([100.0, 200.0], 140),
        ([100.0, 0.0], 300),
        ([200.0, 80.0], 20),
        ([200.0, 60.0], 10),  # less than a minute is left: at once
        ([0.0, 100.0], 40),
        ([100.0, 0.0, 200.0], 140),
    ],
)
@virtually
async def test_a_signal_comes_before_the_time_limit_that_the_job_has_by_then(
    limits: Sequence[float], seconds: float
) -> None:
    async with machine(TaskBehavior(seconds=300)) as m, m.instance() as instance:
        with_usual(m)
        job = await submit(instance, {"signal": 1}, nodes=2, duration=limits[0])
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        for limit in limits[1:]:
            await asyncio.sleep(10)
            set_limit(instance, job, limit)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(seconds, abs=1.5)
        assert len(instance.complaints(job)) == (seconds < 300)


class NotingSignals(SimulatedSpawner):
    """A spawner of tasks that note signals, and go on for so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(lambda command, environment: TaskBehavior(seconds=seconds))
        self.signals: list[tuple[int, int]] = []
        """With the seconds since the start."""

    async def start(self, *about: Any) -> Task:
        task = await super().start(*about)
        loop = asyncio.get_running_loop()
        began = loop.time()

        def note(signum: int) -> None:
            self.signals.append((round(loop.time() - began), signum))

        task.signal = note  # type: ignore[method-assign]
        return task


@virtually
async def test_a_limit_that_was_made_longer_before_the_tasks_start_is_the_one_that_counts() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = late
        with_usual(m)
        job = await submit(instance, {"signal": 1}, duration=110.0)
        await instance.until(job, "start")
        set_limit(instance, job, 200.0)
        await instance.until(job)

        assert instance.took(job) == pytest.approx(140, abs=1.5)


@virtually
async def test_a_limit_after_a_signal_has_a_signal_of_its_own() -> None:
    noting = NotingSignals(150)
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: noting
        with_usual(m)
        job = await submit(instance, {"signal": 1}, duration=100.0)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(50)
        set_limit(instance, job, 180.0)
        await asyncio.sleep(50)
        set_limit(instance, job, 180.0)
        await instance.until(job)

        assert noting.signals == [(40, signal.SIGUSR1), (120, signal.SIGUSR1)]


@virtually
async def test_a_signal_comes_in_time_while_the_instance_is_away() -> None:
    noting = NotingSignals(90)
    async with machine() as m:
        m.spawner = lambda rank: noting
        with_usual(m)
        async with m.instance() as instance:
            job = await submit(instance, {"signal": 1}, duration=100.0)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(60)
        assert noting.signals == [(40, signal.SIGUSR1)]
        async with m.instance() as instance:
            await instance.until(job)

            assert noting.signals == [(40, signal.SIGUSR1)]
            assert len(instance.complaints(job)) == 1


@virtually
async def test_a_limit_that_changes_after_a_restart_of_the_instance_has_its_signal() -> None:
    async with machine(TaskBehavior(seconds=300)) as m:
        with_usual(m)
        async with m.instance() as instance:
            job = await submit(instance, {"signal": 1}, nodes=2, duration=200.0)
            await instance.until(job, "shell.start", "guest.exec.eventlog")
        await asyncio.sleep(10)
        async with m.instance() as instance:
            await asyncio.sleep(10)
            set_limit(instance, job, 100.0)
            await instance.until(job)

            assert instance.took(job) == pytest.approx(40, abs=1.5)
            assert len(instance.complaints(job)) == 1


@virtually
async def test_a_signal_reaches_the_other_shells_where_one_cannot_serve_it() -> None:
    ended: set[int] = set()

    class Refusing(ShellPlugin):
        async def init(self, shell: RunningShell) -> None:
            async def refuse(request: Request) -> Payload:
                raise RpcError(errno.EIO, "not here")

            shell.serve("kill", Method(refuse))

    class Watching(ShellPlugin):
        async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
            ended.add(shell.info.rank)

    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        m.plugins = lambda rank: [Refusing() if rank == 1 else Kill(), Watching()]
        job = await submit(instance, nodes=3)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        topic = f"1000-shell-{f58plain(job)}.kill"
        with pytest.raises(RpcError, match="not here"):
            await instance.bus.handle().rpc(topic, {"signum": signal.SIGKILL})
        await settle()
        assert ended == {0, 2}
        await instance.cancel(job)
        await instance.until(job)


@virtually
async def test_the_job_service_is_the_users_and_understands_what_it_is_told() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        with_usual(m)
        job = await submit(instance, nodes=2)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        handle = instance.bus.handle()
        topic = f"1000-shell-{f58plain(job)}.kill"
        for payload in ({}, {"signum": 0}, {"signum": 9, "ranks": "x"}):
            with pytest.raises(RpcError) as caught:
                await handle.rpc(topic, payload)
            assert caught.value.errnum == errno.EPROTO
        with pytest.raises(RpcError) as caught:
            await instance.bus.handle(1001).rpc(topic, {"signum": 9})
        assert caught.value.errnum == errno.EPERM
        await handle.rpc(topic, {"signum": 9, "ranks": "1"})
        await handle.rpc(topic, {"signum": 1})
        await instance.until(job)

        assert instance.job(job).wait_status == 128 + signal.SIGKILL << 8


@pytest.mark.parametrize(("answers", "took"), [(True, 2.0), (False, 5.0)])
@virtually
async def test_a_shell_leaves_when_it_has_answered_for_the_signal_that_ended_it(
    answers: bool, took: float
) -> None:
    class Peers:
        async def ask(self, rank: int, method: str, payload: Any) -> None:
            await asyncio.sleep(2.0 if answers else 1000.0)

    shell: Any = SimpleNamespace(
        info=SimpleNamespace(rank=0, hosts=("a", "b")),
        peers=Peers(),
        check_permitted=lambda request: None,
        signal=lambda signum, ranks: None,
        serve=lambda name, method: served.append(method),
    )
    served: list[Any] = []
    kill = Kill()
    await kill.init(shell)
    request = SimpleNamespace(payload={"signum": 9})
    answering = asyncio.create_task(served[0].answer(request))
    await asyncio.sleep(0)

    began = asyncio.get_running_loop().time()
    await kill.finish(shell)
    assert asyncio.get_running_loop().time() - began == pytest.approx(took)
    assert answering.done() is answers
    answering.cancel()


def late(rank: int) -> SimulatedSpawner:
    """Make a spawner of tasks that are started a minute late, and run long."""

    class Late(SimulatedSpawner):
        async def start(self, *about: Any) -> Task:
            await asyncio.sleep(60)
            return await super().start(*about)

    return Late(lambda command, environment: TaskBehavior(seconds=1000))


@pytest.mark.parametrize("nodes", [1, 2])
@virtually
async def test_a_signal_that_comes_before_the_tasks_is_theirs_when_they_start(nodes: int) -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = late
        with_usual(m)
        job = await submit(instance, nodes=nodes)
        await instance.until(job, "start")
        await instance.bus.handle().rpc("job-manager.kill", {"id": job, "signum": 2})
        await instance.until(job)

        assert instance.job(job).wait_status == 128 + signal.SIGINT << 8
        assert instance.took(job) < 70


# Input


class Reader(SimulatedSpawner):
    """A spawner of tasks that print all that they read."""

    def __init__(self) -> None:
        super().__init__(lambda command, environment: TaskBehavior())

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        assert inherited.stdin is not None
        reading = os.dup(inherited.stdin)
        os.set_blocking(reading, False)
        return self._Task(reading)

    class _Task:
        def __init__(self, reading: int) -> None:
            self._reading = reading
            self._over = asyncio.Event()

        async def read(self, stream: str) -> bytes:
            while stream == "stdout" and not self._over.is_set():
                try:
                    chunk = os.read(self._reading, 100)
                except BlockingIOError:
                    await asyncio.sleep(0.1)
                    continue
                if chunk:
                    return chunk
                os.close(self._reading)
                self._over.set()
            return b""

        async def wait(self) -> int:
            await self._over.wait()
            return 0

        def signal(self, signum: int) -> None:
            return None


class SlowlyBegun(ShellPlugin):
    """A plugin that takes its time between the shells' meeting and their tasks."""

    async def post_init(self, shell: RunningShell) -> None:
        await asyncio.sleep(60)


def with_input(m: Machine) -> None:
    m.plugins = lambda rank: [Stdin(), SlowlyBegun()]
    m.spawner = lambda rank: Reader()


@pytest.mark.parametrize("nodes", [1, 2])
@virtually
async def test_input_that_comes_before_the_tasks_waits_for_them(nodes: int) -> None:
    async with machine() as m, m.instance() as instance:
        with_input(m)
        job = await submit(instance, nodes=nodes)
        await instance.until(job, "shell.init", "guest.exec.eventlog")
        topic = f"1000-shell-{f58plain(job)}.stdin"
        await instance.bus.handle().rpc(topic, {"data": "all of it", "eof": True})
        async with asyncio.timeout(1000):
            await instance.until(job)

        assert instance.printed(job) == {str(rank): b"all of it" for rank in range(nodes)}


@virtually
async def test_a_terminal_is_its_users_alone() -> None:
    async with machine(TaskBehavior(seconds=100)) as m, m.instance() as instance:
        m.plugins = lambda rank: [Pty(), Stdin()]
        job = await submit(instance, {"pty": {"interactive": 1}})
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        service = f"1000-shell-{f58plain(job)}"
        for method in ("pty-output", "pty-resize", "stdin"):
            with pytest.raises(RpcError, match="user"):
                await instance.bus.handle(1234).rpc(f"{service}.{method}")
        owner = instance.bus.handle()
        for wrong in ({"rows": 0, "columns": 1}, {"rows": 1}, {"rows": 1, "columns": 2**16}):
            with pytest.raises(RpcError, match="pty-resize takes rows and columns"):
                await owner.rpc(f"{service}.pty-resize", wrong)
        with pytest.raises(RpcError, match="pty-output takes how much was seen"):
            await owner.rpc(f"{service}.pty-output", {"seen": "all"})
        await owner.rpc(f"{service}.pty-resize", {"rows": 1, "columns": 2})
        await instance.until(job)


class Deaf(SimulatedSpawner):
    """A spawner of tasks that read nothing for a while, and whose pipes outlive them."""

    def __init__(self) -> None:
        super().__init__(lambda command, environment: TaskBehavior(seconds=60))
        self.pipes: list[int] = []

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        assert inherited.stdin is not None
        self.pipes.append(os.dup(inherited.stdin))
        return await super().start(command, environment, cwd, inherited)


@virtually
async def test_a_task_that_ends_with_its_pipe_full_holds_up_no_input() -> None:
    deaf = Deaf()
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Stdin()]
        m.spawner = lambda rank: deaf
        job = await submit(instance)
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        topic = f"1000-shell-{f58plain(job)}.stdin"
        async with asyncio.timeout(1000):
            await instance.bus.handle().rpc(topic, {"data": "x" * 2**17, "eof": True})
            await instance.until(job)
    for pipe in deaf.pipes:
        os.close(pipe)


@virtually
async def test_what_the_log_of_a_job_says_is_served_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offering = Line._offering

    async def slow(self: Line, service: str) -> AsyncIterator[Payload]:
        await asyncio.sleep(60)
        async with aclosing(offering(self, service)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield answer

    monkeypatch.setattr(Line, "_offering", slow)
    async with machine() as m, m.instance() as instance:
        with_input(m)
        job = await submit(instance)
        await instance.until(job, "shell.init", "guest.exec.eventlog")
        await instance.bus.handle().rpc(f"1000-shell-{f58plain(job)}.stdin", {"eof": True})
        async with asyncio.timeout(1000):
            await instance.until(job)


@virtually
async def test_input_that_is_sent_again_is_read_once() -> None:
    async with machine() as m, m.instance() as instance:
        with_input(m)
        job = await submit(instance, nodes=2)
        await instance.until(job, "shell.init", "guest.exec.eventlog")
        handle, topic = instance.bus.handle(), f"1000-shell-{f58plain(job)}.stdin"
        first = {"data": "one ", "writer": "somebody", "sequence": 1}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):  # whose connection is lost
                await handle.rpc(topic, first)
        await handle.rpc(topic, first)
        await handle.rpc(topic, {"data": "two", "writer": "somebody", "sequence": 2, "eof": True})
        async with asyncio.timeout(1000):
            await instance.until(job)

        assert instance.printed(job) == {"0": b"one two", "1": b"one two"}


# Plugins


class Noting(ShellPlugin):
    """A plugin that writes down what it is called for."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    async def connect(self, shell: RunningShell) -> None:
        self._notes.append("connect")

    async def init(self, shell: RunningShell) -> None:
        self._notes.append("init")

    async def post_init(self, shell: RunningShell) -> None:
        self._notes.append("post-init")

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        self._notes.append(f"task.init {task.rank}")
        task.command.append(str(task.index))
        task.environment["OF"] = "the task"

    async def task_fork(self, shell: RunningShell, task: TaskStart) -> None:
        self._notes.append(f"task.fork {task.rank}")

    async def start(self, shell: RunningShell) -> None:
        self._notes.append("start")

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        self._notes.append(f"task.exit {task.rank} {status}")

    async def finish(self, shell: RunningShell) -> None:
        self._notes.append("finish")

    def exit(self, shell: RunningShell) -> None:
        self._notes.append("exit")


@virtually
async def test_plugins_are_called_at_each_point_in_order() -> None:
    notes: dict[int, list[str]] = {0: [], 1: []}
    commands: list[list[str]] = []

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        commands.append([*command, environment["OF"]])
        return TaskBehavior(seconds=1, status=256)

    async with machine(play) as m, m.instance() as instance:
        m.plugins = lambda rank: [Noting(notes[rank])]
        job = await submit(instance, nodes=2, tasks=3, cores=1)
        await instance.until(job)

    begin, end = ["connect", "init", "post-init"], ["finish", "exit"]
    of_first = ["task.init 0", "task.fork 0", "task.init 1", "task.fork 1", "start"]
    assert notes[0] == [*begin, *of_first, "task.exit 0 256", "task.exit 1 256", *end]
    of_second = ["task.init 2", "task.fork 2", "start", "task.exit 2 256"]
    assert notes[1] == [*begin, *of_second, *end]
    assert sorted(commands) == [["app", "0", "the task"]] * 2 + [["app", "1", "the task"]]


@virtually
async def test_a_plugin_leaves_also_where_the_job_cannot_run() -> None:
    notes: list[str] = []

    class Failing(Noting):
        async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
            raise CannotRun("not this task")

    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Failing(notes)]
        job = await submit(instance)
        await instance.until(job)

        assert instance.complaints(job) == ["not this task"]
    assert notes == ["connect", "init", "post-init", "exit"]


@pytest.mark.parametrize(("verbose", "told"), [(0, ["notice"]), (1, ["info"]), (2, ["debug"])])
@virtually
async def test_a_shell_says_as_much_as_it_is_asked_to(verbose: int, told: list[str]) -> None:
    class Talking(ShellPlugin):
        async def init(self, shell: RunningShell) -> None:
            for level, words in ((5, "notice"), (6, "info"), (7, "debug")):
                await shell.log(level, words)

    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Talking()]
        job = await submit(instance, {"verbose": verbose})
        await instance.until(job)

        assert instance.complaints(job)[-1:] == told
        assert instance.names(job, "guest.output").index("header") == 0


@virtually
async def test_an_option_that_makes_no_sense_is_told_to_the_author() -> None:
    async with machine() as m, m.instance() as instance:
        job = await submit(instance, {"exit-timeout": "soon"})
        await instance.until(job)

        (told,) = instance.complaints(job)
        assert told.startswith("shell option exit-timeout 'soon' is not a duration")


# Peers


@pytest.mark.parametrize("late", [0, 1, 2])
@virtually
async def test_shells_find_each_other_though_the_instance_forgets_who_was_there(late: int) -> None:
    """A shell that has gone on vouches for those who never heard that all were there."""
    async with machine(TaskBehavior(seconds=3)) as m:
        m.plugins = lambda rank: [Waiting()] if rank == late else []
        async with m.instance() as instance:
            job = await submit(instance, nodes=3)
            await instance.until(job, "start")
            barrier = instance.bus._services["barrier"]["enter"]  # type: ignore[index]
            assert isinstance(barrier, Method)
            entered = []

            async def forgetful(request: Any) -> Any:
                """Lets all in, and tells only one of it before the instance ends."""
                entered.append(request.payload["who"])
                answer = await barrier.answer(request)
                if request.payload["who"] != str(late):
                    await asyncio.Event().wait()
                return answer

            instance.bus._services["barrier"] = {"enter": Method(forgetful, guest=True)}
            await asyncio.sleep(5.2)
        async with m.instance() as instance:
            async with asyncio.timeout(60):
                await instance.until(job)

            assert instance.job(job).result is Result.COMPLETED
            assert instance.names(job, "guest.exec.eventlog").count("shell.start") == 1


@pytest.mark.parametrize("restarted", [False, True])
@virtually
async def test_no_shell_waits_for_the_answer_of_a_leader_that_has_gone(
    restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost when the leader has heard that the other node's tasks have ended."""
    heard = asyncio.Event()

    class Lossy(Line):
        async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
            answer = await super().rpc(topic, payload)
            if topic.endswith(".leave") and not heard.is_set():
                heard.set()
                await asyncio.sleep(5)
                raise RpcError(errno.ECONNRESET)
            return answer

    monkeypatch.setattr(instances, "Line", Lossy)
    async with machine(TaskBehavior(seconds=3)) as m:
        async with m.instance() as instance:
            job = await submit(instance, nodes=2)
            await heard.wait()
            if not restarted:
                await _until_over(instance, job)
        async with m.instance() as instance:
            await _until_over(instance, job)

            assert instance.job(job).result is Result.COMPLETED


async def _until_over(instance: Instance, job: JobId) -> None:
    async with asyncio.timeout(60):
        await instance.until(job)
