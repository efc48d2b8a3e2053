"""What shells do: tasks and their environment, output, meetings, and what goes wrong."""

import asyncio
import errno
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import orjson
import pytest

from tests.harness.virtual import VirtualClock
from tests.instance.instance import NODES, Instance, Machine, machine
from tests.instance.parts import OWNER, virtually
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import ERROR, Connection, RunningShell, ShellPlugin
from warren.instance.shell.shell import Shell
from warren.instance.shell.signals import TASK_SIGNAL_OFFSET
from warren.instance.shell.tasks import INHERIT_NOTHING, CannotStart, Inherited, Spawner, Task
from warren.instance.simulated import SimulatedSpawner, TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import eventlog, jobspec, resource_set, signed_request, stdio, treeobj
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Methods
from warren.rpc.message import Payload, RpcError

# Tasks


def by_rank(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
    rank = environment["FLUX_TASK_RANK"]
    return TaskBehavior(output=f"I am {rank}\n".encode(), seconds=int(rank) + 1)


@virtually
async def test_every_task_is_told_who_it_is() -> None:
    """Statement 003.10: the shell examines jobspec and R and launches tasks."""
    seen: dict[str, Mapping[str, str]] = {}

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        assert command == ["app", "-x"]
        seen[environment["FLUX_TASK_RANK"]] = environment
        return TaskBehavior()

    async with machine(play) as m, m.instance() as instance:
        mine = {"MINE": "1", "FLUX_TASK_RANK": "mine"}
        job = await instance.submit(
            command=["app", "-x"], nodes=2, tasks=5, cores=1, environment=mine
        )
        await instance.until(job)

    assert sorted(seen) == ["0", "1", "2", "3", "4"]
    locals_ = [seen[rank]["FLUX_TASK_LOCAL_ID"] for rank in sorted(seen)]
    assert locals_ == ["0", "1", "2", "0", "1"]
    for environment in seen.values():
        assert environment["MINE"] == "1"
        assert environment["FLUX_JOB_SIZE"] == "5"
        assert environment["FLUX_JOB_NNODES"] == "2"
        assert environment["FLUX_URI"] == "local://virtual"
        assert environment["FLUX_KVS_NAMESPACE"] == f"job-{job}"
        assert environment["FLUX_JOB_ID"].startswith("ƒ")


@virtually
async def test_the_execution_log_says_where_the_tasks_are() -> None:
    async with machine() as m, m.instance() as instance:
        job = await instance.submit(nodes=3, tasks=8, cores=1)
        await instance.until(job)

        log = {event.name: event.context for event in instance.log(job, "guest.exec.eventlog")}
        assert log["shell.init"] == {"leader-rank": 0, "size": 3}
        taskmap = {"version": 1, "map": [[0, 2, 3, 1], [2, 1, 2, 1]]}
        assert log["shell.start"] == {"taskmap": taskmap}
        assert log["complete"] == {"status": 0}


@virtually
async def test_the_output_of_all_tasks_is_written_down() -> None:
    """Statement 003.10: the shell provides standard output."""
    async with machine(by_rank) as m, m.instance() as instance:
        job = await instance.submit(nodes=2, tasks=5, cores=1)
        await instance.until(job)

        expected = {str(rank): f"I am {rank}\n".encode() for rank in range(5)}
        assert instance.printed(job) == expected
        assert instance.printed(job, "stderr") == {}
        log = instance.log(job, "guest.output")
        assert log[0].name == "header"
        assert [event.name for event in log].count("header") == 1
        assert stdio.count_streams(log) == (10, 10)


@virtually
async def test_output_that_is_not_utf_8_arrives_as_it_was() -> None:
    async with machine(TaskBehavior(output=b"\xff\0\xfe caf\xc3")) as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job)

        assert instance.printed(job) == {"0": b"\xff\0\xfe caf\xc3"}


@virtually
async def test_the_header_comes_first_however_late_the_leader_is() -> None:
    async with machine(by_rank) as m, m.instance() as instance:
        m.plugins = lambda rank: [Waiting()] if rank == 0 else []
        job = await instance.submit(nodes=2)
        await instance.until(job)

        names = [event.name for event in instance.log(job, "guest.output")]
        assert names.index("header") == 0
        assert names.count("header") == 1


class Chatty:
    """A task that prints many small pieces, and ends when they are read."""

    def __init__(self, pieces: int, seconds: float = 0) -> None:
        """`seconds` pass before each piece."""
        self._left = list(range(pieces))
        self._seconds = seconds
        self._over = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        if stream == "stderr" or not self._left:
            self._over.set()
            return b""
        await asyncio.sleep(self._seconds)
        return f"{self._left.pop(0)} ".encode()

    async def wait(self) -> int:
        while self._left:
            self._over.clear()
            await self._over.wait()
        return 0

    def signal(self, signum: int) -> None:
        return None


class Chattering:
    """A spawner of chatty tasks."""

    def directory_problem(self, directory: str) -> str | None:
        return None

    def __init__(self, pieces: int, seconds: float = 0) -> None:
        self._pieces = pieces
        self._seconds = seconds

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        return Chatty(self._pieces, self._seconds)

    async def clean_up(self) -> None:
        return None


@virtually
async def test_a_flood_of_output_arrives_whole_and_in_order() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Chattering(1000)
        job = await instance.submit(nodes=2)
        await instance.until(job)

        expected = "".join(f"{number} " for number in range(1000)).encode()
        assert instance.printed(job) == {"0": expected, "1": expected}


# Plugins


class Giving(ShellPlugin):
    """A plugin that sets a variable for all tasks."""

    async def init(self, shell: RunningShell) -> None:
        shell.environment.update(GIVEN=shell.info.host, MINE="overridden")


@virtually
async def test_a_plugin_sets_variables_for_the_tasks_of_its_node() -> None:
    seen: dict[str, str] = {}

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        seen[environment["FLUX_TASK_RANK"]] = environment["GIVEN"] + environment["MINE"]
        return TaskBehavior()

    async with machine(play) as m, m.instance() as instance:
        m.plugins = lambda rank: [Giving()]
        job = await instance.submit(nodes=2, environment={"MINE": "mine"})
        await instance.until(job)

    assert seen == {"0": "node0overridden", "1": "node1overridden"}


class Failing(ShellPlugin):
    """A plugin that finds that the job cannot run."""

    def __init__(self, seconds: float = 0) -> None:
        self._seconds = seconds

    async def init(self, shell: RunningShell) -> None:
        await asyncio.sleep(self._seconds)
        raise CannotRun(f"nothing works on {shell.info.host}")


class Waiting(ShellPlugin):
    """A plugin that takes its time."""

    async def init(self, shell: RunningShell) -> None:
        await asyncio.sleep(5)


async def fails(m: Machine, instance: Instance, nodes: int = 2) -> JobId:
    """Submit a job that comes to nothing by itself."""
    job = await instance.submit(nodes=nodes)
    async with asyncio.timeout(60):
        await instance.until(job)
    assert instance.job(job).result is Result.FAILED
    assert instance.failures(job) == []
    await instance.assert_nothing_left()
    return job


@pytest.mark.parametrize("failing", [0, 1])
@virtually
async def test_who_waits_for_a_shell_that_has_failed_does_not_wait_for_ever(failing: int) -> None:
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Failing(5)] if rank == failing else []
        job = await fails(m, instance)

        assert f"nothing works on node{failing}" in instance.complaints(job)
        assert "the shell cannot go on: the barrier was broken" in instance.complaints(job)
        assert instance.job(job).wait_status == 1 << 8


@pytest.mark.parametrize("failing", [0, 1])
@virtually
async def test_who_comes_late_does_not_wait_for_a_shell_that_has_failed(failing: int) -> None:
    async with machine() as m, m.instance() as instance:
        m.plugins = lambda rank: [Failing()] if rank == failing else [Waiting()]
        job = await fails(m, instance)

        assert f"nothing works on node{failing}" in instance.complaints(job)


class Refusing(SimulatedSpawner):
    """A spawner on a node where nothing can be started."""

    def __init__(self) -> None:
        super().__init__(lambda command, environment: TaskBehavior())

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        raise CannotStart(f"{command[0]}: No such file or directory")


@virtually
async def test_a_task_that_cannot_start_is_told_and_its_output_is_closed() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Refusing()
        job = await fails(m, instance, nodes=1)

        assert instance.complaints(job) == ["app: No such file or directory"]
        assert instance.job(job).wait_status == 127 << 8
        assert stdio.count_streams(instance.log(job, "guest.output")) == (2, 2)


@virtually
async def test_a_job_of_which_no_task_can_start_ends_at_once_on_all_nodes() -> None:
    async with machine() as m, m.instance() as instance:
        m.spawner = lambda rank: Refusing()
        job = await fails(m, instance, nodes=4)

        assert instance.complaints(job) == ["app: No such file or directory"] * 4
        assert stdio.count_streams(instance.log(job, "guest.output")) == (8, 8)


@virtually
async def test_a_shell_that_dies_while_others_wait_for_it_breaks_them_off() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        m.plugins = lambda rank: [Waiting()] if rank == 1 else []
        job = await instance.submit(nodes=2)
        await instance.until(job, "start")
        _, running = m.launcher._shells[job, 1]  # type: ignore[attr-defined]
        running.cancel()
        async with asyncio.timeout(60):
            await instance.until(job)

        assert "the shell cannot go on: the barrier was broken" in instance.complaints(job)
        assert instance.job(job).wait_status == 1 << 8


# Signals


@pytest.mark.parametrize(
    ("sent", "ends_by"),
    [
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGUSR1, signal.SIGKILL),
        (TASK_SIGNAL_OFFSET + signal.SIGUSR1, signal.SIGUSR1),
        (TASK_SIGNAL_OFFSET + signal.SIGSTOP, signal.SIGSTOP),
    ],
)
def test_a_signal_to_a_shell_is_one_to_its_tasks(sent: int, ends_by: int) -> None:
    got: list[int] = []

    class Listening(Chatty):
        def signal(self, signum: int) -> None:
            got.append(signum)

    shell = _shell(handle=Recording())
    shell._tasks[0] = Listening(0)
    shell.deliver(sent)

    assert got == [ends_by]


# A bad connection


class Recording:
    """A `Handle` that writes down what is appended; the first commits may be lost."""

    def __init__(self, job_info: Payload | RpcError | None = None) -> None:
        self.job_info = job_info
        self.commits: list[Payload] = []
        self.busy = 0

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        assert payload is not None
        if topic == "job-info.lookup":
            if isinstance(self.job_info, RpcError):
                raise self.job_info
            return self.job_info or {}
        if topic == "kvs.commit":
            self.busy += 1
            assert self.busy == 1, "two commits of one writer are under way"
            await asyncio.sleep(0.2)
            self.commits.append(payload)
            self.busy -= 1
        return {}

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        raise RpcError(errno.ENOSYS)
        yield {}

    async def offer(self, service: str, methods: Methods, offered: asyncio.Event) -> None:
        offered.set()
        await asyncio.Event().wait()

    @property
    def complaints(self) -> list[str]:
        """What a shell has complained about."""
        values = [treeobj.read_val(op["dirent"]) for each in self.commits for op in each["ops"]]
        events = [event for value in values for event in eventlog.decode(value.decode())]
        return [event.context["message"] for event in events if event.name == "log"]


def _shell(handle: Connection) -> Shell:
    return Shell(
        handle=handle,
        spawner=SimulatedSpawner(lambda command, environment: TaskBehavior()),
        clock=VirtualClock(),
        plugins=[],
        job=JobId(1),
        rank=0,
        uri="local://virtual",
    )


READABLE = {"J": "a.b.c", "jobspec": "{}", "R": "{}"}


@pytest.mark.parametrize(
    "job_info", [{}, READABLE, RpcError(errno.ENOENT)], ids=["nothing", "rubbish", "refused"]
)
@virtually
async def test_a_job_that_cannot_be_read_does_not_run(job_info: Payload | RpcError) -> None:
    handle = Recording(job_info)

    assert await _shell(handle).run() == 1
    (complaint,) = handle.complaints
    assert complaint.startswith(("the job cannot be read", "the shell cannot go on"))


@virtually
async def test_a_shell_writes_one_thing_after_the_other() -> None:
    """The number of a commit says that all before it are done."""
    handle = Recording()
    shell = _shell(handle)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(shell._log_now(ERROR, str(number)))

    assert [each["sequence"] for each in handle.commits] == [1, 2, 3, 4, 5]
    assert handle.complaints == ["0", "1", "2", "3", "4"]


@virtually
async def test_nothing_is_lost_when_the_instance_restarts_again_and_again() -> None:
    """Also not what is written while an earlier piece is still being asked for again."""
    async with machine() as m:
        m.spawner = lambda rank: Chattering(100, seconds=0.07)
        async with m.instance() as instance:
            job = await instance.submit(nodes=2)
            await instance.until(job, "start")
        for _ in range(30):
            async with m.instance():
                await asyncio.sleep(0.13)
            await asyncio.sleep(0.05)
        async with m.instance() as instance:
            await instance.until(job)

            expected = "".join(f"{number} " for number in range(100)).encode()
            assert instance.printed(job) == {"0": expected, "1": expected}
            assert instance.names(job, "guest.exec.eventlog").count("shell.start") == 1
            assert stdio.count_streams(instance.log(job, "guest.output")) == (4, 4)


# A shell that cannot go on while its tasks run


class Cleaning(SimulatedSpawner):
    """A spawner that remembers that it has cleaned up."""

    def __init__(self, play: TaskBehavior) -> None:
        super().__init__(lambda command, environment: play)
        self.clean = False

    async def clean_up(self) -> None:
        self.clean = True


def _job(nodes: int, **attributes: Any) -> Payload:
    spec = jobspec.make(["app"], nodes=nodes, attributes=attributes)
    return {
        "J": signed_request.wrap(orjson.dumps(spec), OWNER),
        "jobspec": orjson.dumps(spec).decode(),
        "R": orjson.dumps(resource_set.encode_nodes(NODES[:nodes])).decode(),
    }


class Breaking(Recording):
    """A `Handle` on which some requests fail."""

    def __init__(self, fails: Callable[[str, Payload], bool], nodes: int) -> None:
        super().__init__(_job(nodes))
        self._fails = fails

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        assert payload is not None
        if self._fails(topic, payload):
            await asyncio.sleep(0.2)
            raise RpcError(errno.ECANCELED, "no more")
        return await super().rpc(topic, payload)


@virtually
async def test_a_shell_that_cannot_meet_the_others_ends_its_tasks_and_says_so() -> None:
    handle = Breaking(lambda topic, payload: payload.get("name") == "f2-end", nodes=2)
    shell = _shell(handle)
    shell.spawner = spawner = Cleaning(TaskBehavior(seconds=1000))

    assert await shell.run() == 1
    assert handle.complaints == ["the shell cannot go on: no more"]
    assert spawner.clean


@pytest.mark.parametrize(
    "spawner", [Cleaning(TaskBehavior(output=b"x\n", seconds=1000)), Chattering(1000)]
)
@virtually
async def test_a_shell_that_may_not_write_any_more_ends_its_tasks(spawner: Spawner) -> None:
    printed = []

    def printing(topic: str, payload: Payload) -> bool:
        if topic != "kvs.commit" or payload["ops"][0]["key"] != "output":
            return False
        printed.append(payload)
        return len(printed) > 1

    shell = _shell(Breaking(printing, nodes=1))
    shell.spawner = spawner
    async with asyncio.timeout(60):
        assert await shell.run() == 1


@virtually
async def test_a_shell_that_may_not_do_anything_ends() -> None:
    assert await _shell(Breaking(lambda topic, payload: True, nodes=1)).run() == 1


class Full(Recording):
    """A `Handle` of an instance that has room for so many bytes of output, and little more."""

    def __init__(self, room: int, *, shrinks: bool = False, **attributes: Any) -> None:
        """Others take what is left as soon as something did not fit, if it `shrinks`."""
        super().__init__(_job(1, **attributes))
        self._room = room
        self._shrinks = shrinks

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic == "kvs.commit" and payload is not None:
            size = sum(len(treeobj.read_val(each["dirent"])) for each in payload["ops"])
            if size > self._room:
                self._room = 0 if self._shrinks else self._room
                raise RpcError(errno.ENOSPC, "the disk is full")
            self._room -= size
        return await super().rpc(topic, payload)

    @property
    def output(self) -> list[Event]:
        found = [op for each in self.commits for op in each["ops"] if op["key"] == "output"]
        text = b"".join(treeobj.read_val(op["dirent"]) for op in found)
        return eventlog.decode(text.decode())


@virtually
async def test_a_job_goes_on_without_the_output_that_there_is_no_room_for() -> None:
    """Another user may have filled the disk: that ends no job which prints."""
    handle = Full(room=3000)
    shell = _shell(handle)
    shell.spawner = Chattering(1000)

    assert await shell.run() == 0
    assert handle.complaints == ["the output of node0 is cut off here: the disk is full"]
    assert stdio.count_streams(handle.output) == (2, 2)
    told = [event.name for event in handle.output].index("log")
    assert told > 1
    assert not [event for event in handle.output[told:] if "data" in event.context]


@virtually
async def test_a_job_goes_on_where_there_is_no_room_to_say_that_its_output_is_cut_off() -> None:
    handle = Full(room=3000, shrinks=True)
    shell = _shell(handle)
    shell.spawner = Chattering(1000)

    assert await shell.run() == 0


@virtually
async def test_a_job_with_a_shell_of_its_own_goes_on_where_there_is_no_room_for_its_words() -> None:
    handle = Full(room=300, exec={"job_shell": "/own"})
    shell = _shell(handle)
    spawner = Chattering(100)
    shell.spawner = spawner

    assert await shell.run() == 0
    assert 0 < len(handle.commits) < 100
