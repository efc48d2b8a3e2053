"""Shells and tasks that are processes: what they read and write, and what is left of them."""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from tests.instance import instance as instances
from tests.instance.instance import Instance, Machine, machine
from warren.base.clock import SystemClock
from warren.instance.exec.execution import ShellsLost
from warren.instance.shell.tmpdir import job_directory, sweep
from warren.lifecycle.states import Result
from warren.rfc import idset, stdio
from warren.rfc.fluid import JobId, f58plain
from warren.rpc import server
from warren.rpc.client import ReconnectingHandle, connect
from warren.rpc.message import RpcError

CLIENT = str(Path(__file__).with_name("pmi_client.py"))
HERE = str(Path(__file__).parents[2])


class Processes:
    """A `Launcher` whose shells are processes, that outlive lives of the instance."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "local"
        self.tmp = directory / "tmp"
        self.tmp.mkdir()
        self.shells: dict[tuple[JobId, int], asyncio.subprocess.Process] = {}

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        if (job, rank) not in self.shells:
            words = ("-m", "tests.instance.toy_shell", self.socket, job, rank, self.tmp)
            self.shells[job, rank] = await asyncio.create_subprocess_exec(
                sys.executable, *map(str, words), cwd=HERE
            )

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        found: dict[JobId, frozenset[int]] = {}
        for job, rank in self.shells:
            found[job] = found.get(job, frozenset()) | {rank}
        return found

    async def wait(self, job: JobId, rank: int) -> int:
        if (job, rank) not in self.shells:
            raise ShellsLost("the shell is lost")
        code = await self.shells[job, rank].wait()
        return code << 8 if code >= 0 else -code

    async def kill(self, job: JobId, signum: int) -> None:
        for (other, _), shell in self.shells.items():
            if other == job and shell.returncode is None:
                shell.send_signal(signum)

    async def forget(self, job: JobId) -> None:
        await self.kill(job, signal.SIGKILL)
        for owned in [owned for owned in self.shells if owned[0] == job]:
            await self.shells.pop(owned).wait()


class Place:
    """A machine with a directory, and processes on it."""

    def __init__(self, m: Machine, directory: Path) -> None:
        self.machine = m
        self.directory = directory
        self.processes = Processes(directory)
        m.clock = SystemClock()  # type: ignore[assignment]
        m.launcher = self.processes

    @asynccontextmanager
    async def instance(self) -> AsyncIterator[Instance]:
        async with self.machine.instance() as instance:
            serving = asyncio.create_task(server.serve(instance.bus, self.processes.socket))
            try:
                yield instance
            finally:
                serving.cancel()
                await asyncio.wait({serving})

    @asynccontextmanager
    async def user(self) -> AsyncIterator[ReconnectingHandle]:
        """A client that talks to the instance, through its restarts."""
        patient = ReconnectingHandle(lambda: connect(self.processes.socket), delay=0.02)
        running = asyncio.create_task(patient.run())
        try:
            yield patient
        finally:
            running.cancel()
            await asyncio.wait({running})


Test = Callable[[Place], Coroutine[Any, Any, None]]


def really(test: Test) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Let a test run in real time, on a machine of its own."""

    async def placed(directory: Path) -> None:
        async with asyncio.timeout(300), machine() as m:
            await test(Place(m, directory))

    @wraps(test)
    def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(instances, "OWNER", os.geteuid())
        asyncio.run(placed(tmp_path))

    del run.__wrapped__
    return run


def asked(*command: str, options: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """What a job is submitted with."""
    system = {"shell": {"options": options or {}}, **more.pop("attributes", {})}
    environment = {"PATH": os.environ["PATH"], **more.pop("environment", {})}
    return {"command": command, "attributes": system, "environment": environment, **more}


async def ran(instance: Instance, *command: str, **more: Any) -> JobId:
    job = await instance.submit(**asked(*command, **more))
    await instance.until(job)
    return job


def service(job: JobId) -> str:
    return f"{os.geteuid()}-shell-{f58plain(job)}"


# What tasks are given


@really
async def test_a_task_has_a_directory_of_its_job_that_goes_with_it(at: Place) -> None:
    script = 'cd $FLUX_JOB_TMPDIR; stat -c "%a" .; pwd; mkdir -p a/b; chmod 0 a'
    async with at.instance() as instance:
        job = await ran(instance, "sh", "-c", script, nodes=2)

        for rank in range(2):
            path = job_directory(at.processes.tmp, job, rank)
            assert instance.printed(job)[str(rank)] == f"700\n{path}\n".encode()
        assert list(at.processes.tmp.iterdir()) == []


@really
async def test_tasks_find_warren_wherever_it_is_installed(at: Place) -> None:
    environment = {"PATH": "/usr/bin:/bin"}
    async with at.instance() as instance:
        job = await ran(instance, "sh", "-c", "command -v warren", environment=environment)

        installed = Path(sys.executable).parent / "warren"
        assert instance.printed(job) == {"0": f"{installed}\n".encode()}


def test_what_killed_shells_have_left_is_swept_away(tmp_path: Path) -> None:
    left = job_directory(tmp_path, 1, 0) / "locked" / "below"
    left.mkdir(parents=True)
    left.parent.chmod(0)
    (tmp_path / "another's").mkdir()
    sweep(tmp_path)

    assert [each.name for each in tmp_path.iterdir()] == ["another's"]


@really
async def test_a_job_brings_its_files(at: Place) -> None:
    files = {
        "script": {"mode": 0o100755, "encoding": "utf-8", "data": "#!/bin/sh\ncat $1\n"},
        "conf.json": {"mode": 0o100600, "data": {"a": 1}},
    }
    async with at.instance() as instance:
        job = await ran(
            instance, "{{tmpdir}}/script", "{{tmpdir}}/conf.json", attributes={"files": files}
        )

        assert instance.printed(job) == {"0": b'{"a":1}'}, instance.complaints(job)


@really
async def test_variables_that_are_templates_are_filled_in_for_each_task(at: Place) -> None:
    options = {"env-expand": {"SHOWN": "{{id.dec}}:{{taskid}}:{{node.cores}}", "X": "{{x}}"}}
    async with at.instance() as instance:
        job = await ran(instance, "sh", "-c", "echo $SHOWN $X", options=options, tasks=2)

        assert instance.printed(job) == {
            str(rank): f"{job}:{rank}:0-1 {{{{x}}}}\n".encode() for rank in range(2)
        }, instance.complaints(job)


@really
async def test_limits_are_the_tasks_and_the_directory_another_one(at: Place) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    options = {"rlimit": {"nofile": 77, "core": 0}}
    async with at.instance() as instance:
        job = await ran(instance, "sh", "-c", "ulimit -n; pwd", options=options, cwd="/no/where")

        assert hard > 77
        assert instance.printed(job) == {"0": b"77\n/tmp\n"}
        words = "working directory /no/where: No such file or directory; going to /tmp"
        assert instance.complaints(job) == [words]


@really
async def test_a_limit_above_the_hard_one_is_that_and_is_told_by_its_name(at: Place) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    async with at.instance() as instance:
        options = {"rlimit": {"nofile": hard + 1}}
        job = await ran(instance, "sh", "-c", "ulimit -n", options=options)

        assert instance.printed(job) == {"0": f"{hard}\n".encode()}
        words = f"the limit nofile={hard + 1} is above the hard limit here, {hard}"
        assert instance.complaints(job) == [words]


@really
async def test_a_directory_that_no_path_leads_to_is_told_as_one_that_is_not_there(
    at: Place,
) -> None:
    async with at.instance() as instance:
        job = await ran(instance, "pwd", cwd="/no\0where")

        assert instance.printed(job) == {"0": b"/tmp\n"}
        words = "working directory /no\0where: embedded null byte; going to /tmp"
        assert instance.complaints(job) == [words]


ALLOWED = ("grep", "Cpus_allowed_list:", "/proc/self/status")
CPUS = sorted(os.sched_getaffinity(0))


async def bound(at: Place, affinity: Any, **more: Any) -> list[list[int]]:
    """Run a job; return the CPUs that each of its tasks may use."""
    options = {} if affinity is None else {"cpu-affinity": affinity}
    async with at.instance() as instance:
        job = await ran(instance, *ALLOWED, options=options, **more)
        printed = sorted(instance.printed(job).items())
        assert instance.complaints(job) == []
        return [list(idset.decode(text.decode().split()[1])) for _, text in printed]


@really
async def test_tasks_have_as_many_cpus_as_their_job_has_cores(at: Place) -> None:
    found = await bound(at, None, tasks=2)

    assert found == [CPUS[:2]] * 2


@really
async def test_each_task_has_its_own_cpus_where_the_job_wants_that(at: Place) -> None:
    found = await bound(at, "per-task", tasks=2)

    assert found == [[CPUS[0]], [CPUS[1 % len(CPUS)]]]


@really
async def test_tasks_are_not_bound_where_the_job_does_not_want_it(at: Place) -> None:
    assert await bound(at, "off", tasks=1) == [CPUS]


@really
async def test_tasks_have_the_cpus_that_the_job_names(at: Place) -> None:
    found = await bound(at, f"map:{CPUS[-1]};{CPUS[0]}", tasks=3)

    assert found == [[CPUS[-1]], [CPUS[0]], [CPUS[-1]]]


@really
async def test_who_asks_is_told_where_tasks_would_be_bound(at: Place) -> None:
    async with at.instance() as instance:
        job = await ran(instance, *ALLOWED, options={"cpu-affinity": "dry-run,on"}, tasks=1)

        assert instance.complaints(job) == [
            f"cpu-affinity: task 0 on node0: bound to CPUs {CPUS[0]}"
        ]
        assert instance.printed(job)["0"].decode().split()[1] == idset.encode(CPUS)


@really
async def test_a_job_that_names_a_cpu_which_is_not_there_is_told(at: Place) -> None:
    async with at.instance() as instance:
        job = await ran(instance, *ALLOWED, options={"cpu-affinity": "map:65000"})

        assert instance.complaints(job) == [
            f"shell option cpu-affinity names CPUs 65000, and node0 has {idset.encode(CPUS)}"
        ]
        assert instance.job(job).wait_status != 0


# Output


@really
async def test_output_goes_to_files(at: Place) -> None:
    out = {"stdout": {"type": "file", "path": "{{name}}.{{taskid}}", "label": True}}
    script = "echo out $FLUX_TASK_RANK; echo err $FLUX_TASK_RANK >&2; printf end"
    async with at.instance() as instance:
        job = await ran(
            instance, "sh", "-c", script, nodes=2, tasks=3, cores=1, cwd=str(at.directory),
            options={"output": out},
        )  # fmt: skip

        for rank in range(3):
            lines = (at.directory / f"sh.{rank}").read_text().splitlines()
            assert sorted(lines) == [f"{rank}: end", f"{rank}: err {rank}", f"{rank}: out {rank}"]
        log = instance.log(job, "guest.output")
        redirected = [event.context for event in log if event.name == "redirect"]
        assert len(redirected) == 6
        assert {"stream": "stdout", "rank": "1", "path": f"{at.directory}/sh.1"} in redirected
        assert stdio.count_streams(log) == (6, 6)


@really
async def test_all_nodes_may_write_to_one_file(at: Place) -> None:
    (at.directory / "all").write_text("old\n")
    output = {"stdout": {"path": "all"}, "stderr": {"type": "none"}}
    script = "echo $FLUX_TASK_RANK; echo noise >&2"
    command = ("sh", "-c", script)
    shape: dict[str, Any] = {"nodes": 3, "tasks": 6, "cores": 1, "cwd": str(at.directory)}
    async with at.instance() as instance:
        job = await ran(instance, *command, options={"output": output}, **shape)

        assert sorted((at.directory / "all").read_text().split()) == [*"012345"]
        assert instance.printed(job, "stderr") == {}
        assert stdio.count_streams(instance.log(job, "guest.output")) == (12, 12)
        await ran(instance, *command, options={"output": {**output, "mode": "append"}}, **shape)
        assert sorted((at.directory / "all").read_text().split()) == sorted([*"012345"] * 2)


@really
async def test_a_file_that_cannot_be_opened_is_told(at: Place) -> None:
    output = {"stdout": {"path": "/no/where"}}
    async with at.instance() as instance:
        job = await ran(instance, "true", nodes=2, options={"output": output})

        assert "output file /no/where: No such file or directory" in instance.complaints(job)
        assert instance.job(job).result is Result.FAILED


# Input


@really
async def test_what_is_sent_is_read_by_all_tasks(at: Place) -> None:
    """Statement 003.10: the shell provides standard input."""
    async with at.instance() as instance, at.user() as user:
        job = await instance.submit(**asked("cat", nodes=2, tasks=3, cores=1))
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        topic = f"{service(job)}.stdin"
        await user.rpc(topic, {"data": "all\n"})
        await user.rpc(topic, {"data": "/w==", "encoding": "base64", "ranks": "1"})
        await user.rpc(topic, {"data": "some\n", "ranks": "0,2", "eof": True})
        with suppress(RpcError):  # the shell may be gone before it has answered
            await instance.bus.handle().rpc(topic, {"eof": True})
        await instance.until(job)

        assert instance.printed(job) == {
            "0": b"all\nsome\n",
            "1": b"all\n\xff",
            "2": b"all\nsome\n",
        }
        log = instance.log(job, "guest.input")
        stdio.check_all(log)
        assert [(each.rank, each.data) for each in stdio.decode_outputs(log)] == [
            ("all", b"all\n"),
            ("1", b"\xff"),
            ("0,2", b"some\n"),
        ]


@really
async def test_who_sends_waits_for_those_who_read(at: Place) -> None:
    chunk = "x" * 2**15
    async with at.instance() as instance, at.user() as user:
        job = await instance.submit(**asked("sleep", "1000"))
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await user.rpc(f"{service(job)}.stdin", {"data": chunk})
                sent += 1

        sending = asyncio.create_task(send())
        while sent < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        assert sent == 2  # that is what a pipe holds
        await instance.cancel(job)
        await instance.until(job)
        sending.cancel()


@really
async def test_a_task_that_does_not_read_any_more_holds_nothing_up(at: Place) -> None:
    async with at.instance() as instance, at.user() as user:
        script = "if [ $FLUX_TASK_RANK = 0 ]; then exec head -c 4; else exec wc -c; fi"
        job = await instance.submit(**asked("sh", "-c", script, nodes=2))
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        for _ in range(20):
            await user.rpc(f"{service(job)}.stdin", {"data": "x" * 2**15})
        with suppress(RpcError):  # the shell may be gone before it has answered
            await instance.bus.handle().rpc(f"{service(job)}.stdin", {"eof": True})
        await instance.until(job)

        assert instance.printed(job) == {"0": b"xxxx", "1": b"655360\n"}


@really
async def test_tasks_may_read_a_file(at: Place) -> None:
    for rank in range(2):
        (at.directory / f"in.{rank}").write_text(f"for {rank}\n")
    options = {"input": {"stdin": {"type": "file", "path": "in.{{taskid}}"}}}
    async with at.instance() as instance:
        job = await ran(instance, "cat", nodes=2, options=options, cwd=str(at.directory))

        assert instance.printed(job) == {"0": b"for 0\n", "1": b"for 1\n"}
        redirected = instance.log(job, "guest.input")[1]
        assert redirected.context == {"stream": "stdin", "rank": "all", "path": "in.{{taskid}}"}


# Signals


# Terminals


@really
async def test_what_is_printed_on_terminals_is_written_down(at: Place) -> None:
    script = "test -t 0 && stty size; printf 'name? '; read name; echo bad $name >&2"
    async with at.instance() as instance, at.user() as user:
        job = await instance.submit(
            **asked("sh", "-c", script, options={"pty": {"ranks": "1", "size": "5x7"}}, tasks=2)
        )
        await instance.until(job, "shell.init", "guest.exec.eventlog")
        while b"name? " not in instance.printed(job).get("1", b""):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await user.rpc(f"{service(job)}.stdin", {"data": "x\n", "eof": True})
        await instance.until(job)

        assert instance.printed(job) == {"0": b"name? ", "1": b"5 7\r\nname? bad x\r\n"}
        assert instance.printed(job, "stderr") == {"0": b"bad x\n"}
        assert stdio.count_streams(instance.log(job, "guest.output")) == (4, 4)


async def sent(user: ReconnectingHandle, job: JobId, typed: str) -> None:
    """Type something, whether the shell is there already or not."""
    while True:
        try:
            await user.rpc(f"{service(job)}.stdin", {"ranks": "0", "data": typed})
        except RpcError as error:
            if not error.unserved:
                raise
            await asyncio.sleep(0.02)
        else:
            return


async def looked(user: ReconnectingHandle, job: JobId, until: bytes = b"") -> bytes:
    """What a user sees who sits before a job's terminal, up to something, or to its end."""
    seen: bytes = b""
    while True:
        try:
            answer = await user.rpc(f"{service(job)}.pty-output", {"seen": len(seen)})
        except RpcError as error:
            if not error.unserved:
                raise
            await asyncio.sleep(0.02)
            continue
        assert answer["offset"] == len(seen)
        seen += answer["data"].encode()
        if answer["end"] or (until and until in seen):
            return seen


@really
async def test_who_sits_before_a_terminal_sees_and_types_and_nothing_is_recorded(
    at: Place,
) -> None:
    options = {"pty": {"interactive": 1}}
    async with at.instance() as instance, at.user() as user:
        script = "printf '> '; read a; stty size; read b; echo $b; exit 3"
        job = await instance.submit(**asked("sh", "-c", script, options=options))
        await instance.until(job, "shell.init", "guest.exec.eventlog")
        [init] = [e for e in instance.log(job, "guest.exec.eventlog") if e.name == "shell.init"]
        assert init.context["pty"] == {"capture": False}
        assert await looked(user, job, b"> ") == b"> "
        await user.rpc(f"{service(job)}.pty-resize", {"rows": 11, "columns": 22})
        for typed in ("first\n", "second\n"):
            await user.rpc(f"{service(job)}.stdin", {"ranks": "0", "data": typed})
        seen = await looked(user, job)
        await instance.until(job)

        assert b"11 22\r\n" in seen
        assert seen.endswith(b"second\r\n")
        assert instance.printed(job) == {}
        assert [event.name for event in instance.log(job, "guest.input")] == ["header"]
        assert instance.job(job).wait_status == 3 << 8


@really
async def test_a_terminal_is_seen_on_through_a_restart_of_the_instance(at: Place) -> None:
    options = {"pty": {"interactive": 1}}
    async with at.user() as user:
        async with at.instance() as instance:
            job = await instance.submit(**asked("sh", "-c", "read go; seq 3", options=options))
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            seeing = asyncio.create_task(looked(user, job))
        async with at.instance() as instance:
            await sent(user, job, "go\n")
            seen = await seeing
            await instance.until(job)

    assert seen == b"go\r\n1\r\n2\r\n3\r\n"


@really
async def test_a_terminal_without_a_user_is_written_down_in_the_end(at: Place) -> None:
    async with at.instance() as instance:
        job = await ran(instance, "echo", "unseen", options={"pty": {"interactive": 1}})

        assert instance.printed(job) == {"0": b"unseen\r\n"}
        assert stdio.count_streams(instance.log(job, "guest.output")) == (2, 2)


@really
async def test_a_terminal_that_is_not_read_ends_with_its_job(at: Place) -> None:
    options = {"pty": {"interactive": 1}}
    async with at.instance() as instance:
        job = await instance.submit(**asked("yes", options=options))
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        await instance.cancel(job)
        await instance.until(job)

        assert instance.failures(job) == [("cancel", "")]
        await instance.assert_nothing_left()


@really
async def test_typing_where_no_task_reads_holds_nothing_up(at: Place) -> None:
    options: dict[str, Any] = {"pty": {"ranks": "0"}}
    async with at.instance() as instance, at.user() as user:
        script = "test $FLUX_TASK_RANK = 0 && exec sleep 1000; read line; echo $line"
        options["exit-timeout"] = "0.1s"
        job = await instance.submit(**asked("sh", "-c", script, options=options, tasks=2))
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        request = {"data": "x" * 1000 + "\n" * 200_000}
        typing = asyncio.create_task(user.rpc(f"{service(job)}.stdin", request))
        await instance.until(job)
        typing.cancel()
        await asyncio.wait({typing})

        assert instance.printed(job)["1"] == b"x" * 1000 + b"\n"


@really
async def test_a_terminal_is_only_sat_before_where_the_job_begins(at: Place) -> None:
    options = {"pty": {"interactive": 1}, "taskmap": {"scheme": "manual", "value": "1;0"}}
    async with at.instance() as instance:
        job = await ran(instance, "true", options=options, nodes=2)

        words = "shell option pty.interactive: task 0 is not on the job's first node"
        assert words in instance.complaints(job)


@really
async def test_a_signal_goes_to_the_tasks_that_are_named_on_whatever_node(at: Place) -> None:
    async with at.instance() as instance, at.user() as user:
        script = "trap 'exit 0' USR2; echo on; while :; do sleep 0.02; done"
        job = await instance.submit(**asked("sh", "-c", script, nodes=2, tasks=4, cores=1))
        while len(instance.printed(job)) < 4:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        topic = f"{service(job)}.kill"
        await user.rpc(topic, {"signum": int(signal.SIGKILL), "ranks": "3"})
        await user.rpc(topic, {"signum": int(signal.SIGUSR2)})
        await instance.until(job)

        assert instance.job(job).wait_status == (128 + signal.SIGKILL) << 8


# PMI


@really
async def test_an_mpi_program_finds_itself(at: Place) -> None:
    """Statement 003.10: the shell provides parallel bootstrap."""
    taskmap = {"taskmap": {"scheme": "cyclic", "value": "2"}}
    async with at.instance() as instance:
        job = await ran(
            instance, sys.executable, CLIENT, "5", nodes=2, tasks=6, cores=1, options=taskmap
        )

        mapping = "(vector,(0,2,2),(0,2,1))"
        expected = {str(rank): f"{rank} of 6 on {mapping}\n".encode() for rank in range(6)}
        assert instance.printed(job) == expected, instance.printed(job, "stderr")


@really
async def test_an_mpi_program_finds_itself_while_the_instance_restarts(at: Place) -> None:
    async with at.instance() as instance:
        job = await instance.submit(
            **asked(sys.executable, CLIENT, "200", nodes=3, tasks=3, cores=1)
        )
        await instance.until(job, "starting", "guest.exec.eventlog")
    for moment in range(12):
        async with at.instance():
            await asyncio.sleep(0.05 * (1 + moment % 4))
    async with at.instance() as instance:
        await instance.until(job)

        mapping = "(vector,(0,3,1))"
        expected = {str(rank): f"{rank} of 3 on {mapping}\n".encode() for rank in range(3)}
        assert instance.printed(job) == expected, instance.printed(job, "stderr")
        assert instance.names(job, "guest.exec.eventlog").count("shell.start") == 1


BAD = "import os; os.write(int(os.environ['PMI_FD']), b'{}'); import time; time.sleep(1000)"
ABORT = "cmd=init pmi_version=1 pmi_subversion=1\\ncmd=abort exitcode=3 error_msg=no luck\\n"


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("hello\\n", "task 0 breaks the PMI protocol: a line without a command: 'hello'"),
        ("x" * 5000, "task 0 breaks the PMI protocol: a line without an end"),
        (ABORT, "task 0 aborts the job with code 3: no luck"),
    ],
)
def test_who_breaks_the_protocol_ends_the_job(
    said: str, note: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @really
    async def broken(at: Place) -> None:
        async with at.instance() as instance:
            job = await ran(instance, sys.executable, "-c", BAD.format(said))

            assert instance.failures(job) == [("exec", note)]

    broken(tmp_path, monkeypatch)


@really
async def test_without_pmi_there_is_none(at: Place) -> None:
    async with at.instance() as instance:
        job = await ran(instance, "env", options={"pmi": "off"})

        assert b"PMI" not in instance.printed(job)["0"]


# A shell of the user's own


OWN = """#!/bin/sh
trap 'echo asked to end; exit 7' TERM
echo "$1 $WARREN_SHELL_RANK $FLUX_KVS_NAMESPACE $FLUX_URI"
test "$2" || while :; do sleep 0.02; done
"""


@really
async def test_a_job_may_bring_its_own_shell(at: Place) -> None:
    """Statement 003.10: the shell is user-replaceable."""
    own = at.directory / "own"
    own.write_text(OWN)
    own.chmod(0o755)
    async with at.instance() as instance:
        attributes = {"exec": {"job_shell": str(own)}}
        job = await instance.submit(**asked("true", nodes=2, attributes=attributes))
        while len(logged(instance, job)) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await instance.cancel(job)
        await instance.until(job)

        said = f"job-{job} local://{at.processes.socket}\n"
        expected = {(str(rank), f"{job} {rank} {said}") for rank in range(2)}
        expected |= {(str(rank), "asked to end\n") for rank in range(2)}
        assert expected <= set(logged(instance, job))
        assert instance.job(job).wait_status == 7 << 8


def logged(instance: Instance, job: JobId) -> list[tuple[str, str]]:
    """What shells have printed, by rank."""
    events = instance.log(job, "guest.exec.eventlog")
    return [(e.context["rank"], e.context["data"]) for e in events if e.name == "log"]


@really
async def test_an_own_shell_that_is_not_there_is_told(at: Place) -> None:
    async with at.instance() as instance:
        job = await ran(instance, "true", attributes={"exec": {"job_shell": "/no/shell"}})

        words = "the job's own shell: /no/shell: No such file or directory"
        assert instance.complaints(job) == [words]
