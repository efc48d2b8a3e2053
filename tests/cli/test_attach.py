"""Following a job: what is shown, what is sent, and what an interrupt does."""

import asyncio
import errno
import os
import signal
import sys
import termios
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from tests.instance.instance import Instance, machine
from tests.instance.parts import virtually
from tests.instance.test_shell import by_rank
from warren.cli.job.attach import OutputPrinter, _forward_interrupts, _read_chunks, attach
from warren.cli.job.terminal import set_pty_size
from warren.instance.simulated import TaskBehavior
from warren.rfc import eventlog, jobspec, stdio
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId, f58
from warren.rpc.bus import Method
from warren.rpc.message import Handle, Payload, Request, RpcError

NOW = 1.0


async def followed(instance: Instance, job: JobId, **options: Any) -> int:
    return await attach(instance.bus.handle(), job, **{"read_only": True, **options})


# What is shown


@virtually
async def test_the_output_and_the_exit_code_are_the_jobs(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    async with (
        machine(TaskBehavior(output=b"\xff out\n", status=3 << 8)) as m,
        m.instance() as instance,
    ):
        assert await followed(instance, await instance.submit()) == 3

    told = b"warren: task(s) exited with exit code 3\n"
    assert capfdbinary.readouterr() == (b"\xff out\n", told)


@virtually
async def test_lines_bear_the_rank_that_wrote_them(capfd: pytest.CaptureFixture[str]) -> None:
    async with machine(by_rank) as m, m.instance() as instance:
        await followed(instance, await instance.submit(nodes=2, tasks=3, cores=1), label=True)

    assert sorted(capfd.readouterr().out.splitlines()) == ["0: I am 0", "1: I am 1", "2: I am 2"]


def test_a_line_that_comes_in_pieces_bears_one_label(capfd: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(label=True)
    for rank, piece in ((0, b"on"), (1, b"two\nth"), (0, b"e\n"), (1, b"ree")):
        printer.show(stdio.data_event(NOW, "stdout", rank, piece))
    printer.flush()

    assert capfd.readouterr().out == "1: two\n0: one\n1: three\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_what_the_shell_says_is_shown_unless_it_is_to_be_quiet(
    quiet: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    printer = OutputPrinter(quiet=quiet)
    printer.show(stdio.log_event(NOW, 3, "trouble"))
    printer.show(stdio.redirect_event(NOW, "stdout", [0, 1], "/out"))
    printer.show(stdio.redirect_event(NOW, "stderr", [0, 1]))

    told = "flux-shell: trouble\n0-1: stdout redirected to /out\n"
    assert capfd.readouterr().err == ("" if quiet else told)


def test_what_the_shell_says_has_no_control_characters(capfd: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter()
    printer.show(stdio.log_event(NOW, 3, "one\x1b[2J\ntwo"))
    printer.show(stdio.redirect_event(NOW, "stdout", [0], "/\x1b]0;me\x07\nout"))
    printer.show(Event(NOW, "log", {"message": 5}))
    printer.show(Event(NOW, "log", {}))

    told = [r"flux-shell: one\u001b[2J", "two", r"0: stdout redirected to /\x1b]0;me\x07\nout"]
    assert capfd.readouterr().err.splitlines() == [*told, "flux-shell: 5", "flux-shell: "]


@virtually
async def test_every_event_is_shown_with_its_moment(capfd: pytest.CaptureFixture[str]) -> None:
    async with machine() as m, m.instance() as instance:
        await followed(instance, await instance.submit(), show_events=True)

    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("0.000s: job.submit userid=1000 urgency=16")
    assert "1.000s: job.finish status=0" in lines
    assert lines[-1] == "1.000s: job.clean"


@virtually
async def test_the_events_of_the_shells_are_shown_with_theirs(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with machine() as m, m.instance() as instance:
        job = await instance.submit()
        await followed(instance, job, show_shell_events=True)
        await followed(instance, job, show_shell_events=True, show_events=True)

    lines = capfd.readouterr().err.splitlines()
    shells = [line for line in lines if "s: exec." in line]
    alone = lines[: lines.index("1.000s: exec.done") + 1]
    assert alone == shells[: len(alone)]
    assert alone[0] == "0.000s: exec.init"
    assert {line.split()[1] for line in lines} > {"job.submit", "job.clean", "exec.shell.start"}


@virtually
async def test_an_exception_is_shown_and_costs_the_exit_code(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit()
        following = asyncio.create_task(followed(instance, job))
        await instance.until(job, "start")
        await instance.cancel(job)

        assert await following == 128 + signal.SIGTERM
    told, ended = capfd.readouterr().err.splitlines()
    assert told == f"0.010s: job.exception {f58(job)} type=cancel severity=0"
    assert ended == "warren: task(s) Terminated"


@virtually
async def test_nothing_is_waited_for_beyond_an_event() -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        job = await instance.submit()
        async with asyncio.timeout(10):
            assert await followed(instance, job, wait_event="start") == 1
        await instance.cancel(job)
        await instance.until(job)


# What is sent


class Reading:
    """A job's service for input, which is there late, and refuses after so many pieces."""

    def __init__(self, instance: Instance, most: int, errnum: int, absent: int) -> None:
        self._most = most
        self._errnum = errnum
        self._absent = absent
        """How often it is not there."""
        self.read: list[Payload] = []
        self.over = asyncio.Event()
        instance.bus.register("1000-shell-toy", {"stdin": Method(self._take, guest=True)})

    async def _take(self, request: Request) -> Payload:
        self._absent -= 1
        if self._absent >= 0:
            raise RpcError(errno.ENOSYS)
        if len(self.read) == self._most:
            self.over.set()
            raise RpcError(self._errnum, "no more of that")
        self.read.append(request.payload)
        if request.payload["eof"]:
            self.over.set()
        return {}


class Toy:
    """A handle to an instance where each job's service is the toy's."""

    about: ClassVar[Mapping[str, Any]] = {"service": "1000-shell-toy"}

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        return await self._handle.rpc(topic, payload)

    async def stream(self, topic: str, payload: Payload | None = None) -> Any:
        if payload is not None and payload.get("path") == "guest.exec.eventlog":
            event = Event(NOW, "shell.init", self.about)
            yield {"event": eventlog.encode(event)}
            return
        async for answer in self._handle.stream(topic, payload):
            yield answer


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def sent(
    pipe: tuple[int, int], data: bytes, most: int = 10**6, errnum: int = 0, absent: int = 0
) -> list[Payload]:
    """What the service of a job reads, of what a client that follows it has to send."""
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        service = Reading(instance, most, errnum, absent)
        os.write(pipe[1], data)
        os.close(pipe[1])
        job = await instance.submit()
        toy = Toy(instance.bus.handle())
        following = asyncio.create_task(attach(toy, job, stdin=pipe[0], stdin_ranks="0"))
        async with asyncio.timeout(60):
            await service.over.wait()
            await instance.until(job, "shell.start", "guest.exec.eventlog")
            await instance.cancel(job)
            assert await following == 128 + signal.SIGTERM
        assert len({each["writer"] for each in service.read}) == bool(service.read)
        assert [each["sequence"] for each in service.read] == [*range(1, len(service.read) + 1)]
        kept = ("writer", "sequence")
        return [{k: v for k, v in each.items() if k not in kept} for each in service.read]


def test_what_there_is_to_read_is_sent_to_its_end(pipe: tuple[int, int]) -> None:
    whole = {"stream": "stdin", "ranks": "0", "encoding": "UTF-8", "eof": False}
    assert asyncio.run(sent(pipe, "zwölf\n".encode())) == [
        {**whole, "data": "zwölf\n"},
        {"stream": "stdin", "ranks": "0", "eof": True},
    ]


def test_what_finds_no_taker_is_sent_again(pipe: tuple[int, int]) -> None:
    read = asyncio.run(sent(pipe, b"late", absent=2))
    assert [(each.get("data"), each["eof"]) for each in read] == [("late", False), (None, True)]


@virtually
async def test_a_standard_input_that_was_closed_is_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What has its number by then is another file, which is not to be read.
    monkeypatch.setattr(sys, "stdin", None)
    assert [chunk async for chunk in _read_chunks(0)] == [b""]


@pytest.mark.parametrize("refusal", [errno.EFBIG, errno.ENOSPC])
@virtually
async def test_a_job_that_cannot_have_all_of_its_input_is_cancelled(
    refusal: int, pipe: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
        Reading(instance, 0, refusal, 0)
        os.write(pipe[1], b"much")
        job = await instance.submit()
        toy = Toy(instance.bus.handle())
        following = asyncio.create_task(attach(toy, job, stdin=pipe[0]))
        await instance.until(job)
        os.close(pipe[1])

        assert await following in (1, 143)  # its tasks had begun, or had not
        assert instance.failures(job) == [("cancel", "standard input is too long")]


def test_bytes_that_are_no_text_are_sent_as_they_are(pipe: tuple[int, int]) -> None:
    read = asyncio.run(sent(pipe, b"\xff"))
    assert (read[0]["data"], read[0]["encoding"]) == ("/w==", "base64")


@pytest.mark.parametrize(("errnum", "told"), [(32, ""), (13, "no more of that")])
def test_a_job_that_takes_no_more_is_shown_to_its_end(
    errnum: int, told: str, pipe: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    assert asyncio.run(sent(pipe, b"much", most=0, errnum=errnum)) == []
    assert told in capfd.readouterr().err


# A terminal of the job's


class Screen:
    """A service of a job whose terminal shows something, and that loses answers at first."""

    def __init__(self, instance: Instance, shown: bytes, lost: int) -> None:
        self._shown = shown
        self._lost = lost
        self.asked: list[int] = []
        instance.bus.register("1000-shell-toy", {"pty-output": Method(self._show, guest=True)})

    async def _show(self, request: Request) -> Payload:
        self.asked.append(request.payload["seen"])
        if len(self.asked) <= self._lost:
            raise RpcError(errno.ENOSYS)
        # Begins before what was seen, as after an answer that the reader had lost.
        offset = max(request.payload["seen"] - 1, 0)
        piece = self._shown[offset : offset + 3]
        end = request.payload["seen"] == len(self._shown)
        return {"offset": offset, "data": piece.decode(), "encoding": "UTF-8", "end": end}


class WithTerminal(Toy):
    """A handle to an instance where each job has a terminal, which is the toy's."""

    about: ClassVar = {"service": "1000-shell-toy", "pty": {"capture": False}}


def test_what_a_jobs_terminal_shows_is_shown_once(capfd: pytest.CaptureFixture[str]) -> None:
    async def shown() -> list[int]:
        async with machine(TaskBehavior(seconds=1)) as m, m.instance() as instance:
            screen = Screen(instance, b"> hello\r\n", lost=2)
            job = await instance.submit()
            async with asyncio.timeout(60):
                await attach(WithTerminal(instance.bus.handle()), job, stdin=-1)
            return screen.asked

    assert asyncio.run(shown()) == [0, 0, 0, 3, 5, 7, 9]
    assert capfd.readouterr().out == "> hello\r\n"


def test_a_jobs_terminal_begins_as_large_as_the_users() -> None:
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 120))

    def size(pty: Any, descriptor: int) -> Any:
        spec = jobspec.make(["app"], attributes={"shell": {"options": {"pty": pty}}})
        set_pty_size(spec, descriptor)
        found = jobspec.system(spec)["shell"]["options"]["pty"]
        return found.get("size") if isinstance(found, dict) else None

    try:
        assert size({"interactive": 1}, theirs) == "40x120"
        assert size({"interactive": 1, "size": "1x2"}, theirs) == "1x2"
        assert size({"ranks": "0"}, theirs) is None
        assert size(1, theirs) is None
        termios.tcsetwinsize(theirs, (0, 0))
        assert size({"interactive": 1}, theirs) is None
    finally:
        os.close(ours)
        os.close(theirs)
    set_pty_size(jobspec.make(["app"]))


# Interrupts


def test_the_first_interrupt_is_the_tasks_and_the_second_ends_the_job(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    class Asked:
        async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
            asked.append(f"{topic} {(payload or {}).get('signum')}")
            raise RpcError(22)

        def stream(self, topic: str, payload: Payload | None = None) -> Any:
            raise AssertionError(f"interrupts are sent by rpc, and {topic} is streamed")

    async def interrupted() -> None:
        started = asyncio.Event()
        started.set()
        with _forward_interrupts(Asked(), 1, started, read_only=False):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(0.01)

    asyncio.run(interrupted())

    assert asked == ["job-manager.kill 2", "job-manager.raise None"]
    assert "again within 2 seconds cancels the job" in capfd.readouterr().err


def test_an_interrupt_before_the_job_runs_is_the_tasks_when_they_start(
    pipe: tuple[int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    async def interrupted() -> int:
        async with machine(TaskBehavior(seconds=1000)) as m, m.instance() as instance:
            first = await instance.submit(nodes=4)
            job = await instance.submit()
            handle = instance.bus.handle()
            following = asyncio.create_task(attach(handle, job, stdin=pipe[0]))
            await instance.until(first, "start")
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.01)
            assert "alloc" not in instance.names(job)
            await instance.cancel(first)
            async with asyncio.timeout(120):
                return await following

    assert asyncio.run(interrupted()) == 128 + signal.SIGINT
    assert "The job is interrupted when it starts" in capfd.readouterr().err
