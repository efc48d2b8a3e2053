"""Following a job: its output as it comes, what it reads, and how it ended."""

import asyncio
import errno
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from warren.base.printable import printable, printable_value
from warren.cli.common import f58
from warren.cli.job.terminal import UserTerminal, is_foreground
from warren.rfc import eventlog, stdio
from warren.rfc.eventlog import Event

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_WAITING_TEXTS = {
    "depend": "waiting for priority assignment",
    "priority": "waiting for resources",
    "alloc": "starting",
    "prolog-start": "waiting for prolog",
    "prolog-finish": "starting",
}
_CHUNK_BYTES: Final = 2**15
_RETRY_DELAY: Final = 0.2
"""Seconds after which input is sent again that no shell was there to take."""
_CANCEL_SECONDS: Final = 2.0
"""Seconds within which a second Ctrl-C cancels the job."""


async def attach(
    handle: "Handle",
    job: int,
    *,
    show_waiting: bool = False,
    show_events: bool = False,
    show_shell_events: bool = False,
    label: bool = False,
    quiet: bool = False,
    read_only: bool = False,
    wait_event: str | None = None,
    stdin: int = 0,
    stdin_ranks: str = stdio.ALL,
) -> int:
    """Show a job's output until it ends; return the exit code that the job stands for.

    On standard error `show_waiting` prints what is waited for, `show_events` every event of the
    job and `show_shell_events` of its shells; `label` puts its rank before each line, and `quiet`
    prints nothing but what the tasks print. Unless it is `read_only`, the tasks of `stdin_ranks`
    get what can be read from the descriptor `stdin`; Ctrl-C sends SIGINT to all tasks, when they
    have started, and a second one cancels the job. With `wait_event` it returns after that event
    of the job.
    """
    printer = OutputPrinter(label=label, quiet=quiet)
    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(_print_output(handle, job, printer))]
    terminal = UserTerminal(stdin)
    if not read_only:
        shells_task = asyncio.create_task(_wait_shells(handle, job))
        tasks.append(shells_task)
        tasks.append(asyncio.create_task(_print_terminal(handle, shells_task)))
        tasks.append(
            asyncio.create_task(_send_input(handle, job, shells_task, stdin, stdin_ranks, terminal))
        )
    follower = _EventFollower(
        job, terminal, show_waiting=show_waiting and not quiet, show_events=show_events, quiet=quiet
    )
    if show_shell_events:
        tasks.append(asyncio.create_task(_print_shell_events(handle, job, follower)))
    try:
        with _forward_interrupts(handle, job, follower.started, read_only=read_only):
            code, has_output = await follower.run(handle, wait_event)
            if has_output:
                await tasks[0]
                if show_shell_events:
                    await tasks[-1]
        printer.flush()
        if follower.wait_status and not quiet:
            click.echo(f"warren: {_failures_text(follower.wait_status)}", err=True)
        return code
    finally:
        terminal.restore()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class _EventFollower:
    """The job's own events, as they are followed."""

    def __init__(
        self,
        job: int,
        terminal: UserTerminal,
        *,
        show_waiting: bool,
        show_events: bool,
        quiet: bool,
    ) -> None:
        self._job = job
        self._terminal = terminal
        self._show_waiting = show_waiting
        self._show_events = show_events
        self._quiet = quiet
        self._submitted_at = 0.0
        self.submitted = asyncio.Event()
        """Set when the time of the submission is known, from which times are counted."""
        self.started = asyncio.Event()
        """Set when the job has started: it takes signals from then on."""
        self.wait_status: int | None = None
        """How the tasks have ended, when they have."""

    async def run(self, handle: "Handle", until_event: str | None) -> tuple[int, bool]:
        """Follow until an event, or to the end.

        Return the job's exit code, and whether there is all of its output.
        """
        fatal_exception: Event | None = None
        watch = handle.stream("job-info.eventlog-watch", {"id": self._job, "path": "eventlog"})
        async with aclosing(watch) as answers:  # type: ignore[type-var]
            async for answer in answers:
                event = eventlog.decode_line(answer["event"])
                self._print_event(event)
                if (
                    event.name == "exception"
                    and event.context["severity"] == 0
                    and fatal_exception is None
                ):
                    fatal_exception = event
                elif event.name == "start":
                    self.started.set()
                elif event.name == "finish":
                    self.wait_status = event.context["status"]
                if event.name == until_event:
                    break
        return _exit_code(self.wait_status, fatal_exception), self.wait_status is not None

    def _print_event(self, event: Event) -> None:
        self._submitted_at = self._submitted_at or event.timestamp
        self.submitted.set()
        if event.name == "finish" or (event.name == "exception" and event.context["severity"] == 0):
            # The tasks end, and what is told from now on is the user's to read and to interrupt.
            self._terminal.restore()
        if self._show_events:
            self.print_with_context(event, "job")
        elif event.name == "exception" and not self._quiet:
            _print_exception(self._job, event, event.timestamp - self._submitted_at)
        elif self._show_waiting and event.name in _WAITING_TEXTS:
            click.echo(f"{f58(self._job)}: {_WAITING_TEXTS[event.name]}", err=True)

    def print_with_context(self, event: Event, log: str) -> None:
        """Print an event of a log with its context. The moment of submission is known."""
        context_text = " ".join(_assignment(name, value) for name, value in event.context.items())
        since_submission = event.timestamp - self._submitted_at
        click.echo(f"{since_submission:.3f}s: {log}.{event.name} {context_text}".rstrip(), err=True)


def _assignment(name: str, value: Any) -> str:
    return f"{name}={orjson.dumps(value).decode()}"


def _failures_text(wait_status: int) -> str:
    """Return how tasks have ended that did not end well."""
    if wait_status & 0x7F:
        return f"job shell {signal.strsignal(wait_status & 0x7F) or f'signal {wait_status & 0x7F}'}"
    code = wait_status >> 8
    # A shell that says how a task was ended by a signal says it as shells do.
    signal_text = signal.strsignal(code - 128) if 128 < code < 128 + signal.NSIG else None
    return f"task(s) {signal_text}" if signal_text else f"task(s) exited with exit code {code}"


def _print_exception(job: int, event: Event, since_submission: float) -> None:
    context = event.context
    details = f"type={context['type']} severity={context['severity']} {context.get('note', '')}"
    click.echo(
        f"{since_submission:.3f}s: job.exception {f58(job)} {printable(details)}".rstrip(), err=True
    )


def _exit_code(wait_status: int | None, fatal_exception: Event | None) -> int:
    if wait_status is None:
        return 1
    code = 128 + (wait_status & 0x7F) if wait_status & 0x7F else wait_status >> 8
    return code or (1 if fatal_exception is not None else 0)


async def _print_shell_events(handle: "Handle", job: int, follower: _EventFollower) -> None:
    """Print the events of a job's shells."""
    await follower.submitted.wait()
    log = _follow_log(handle, job, "guest.exec.eventlog")
    async with aclosing(log) as events:  # type: ignore[type-var]
        async for event in events:
            follower.print_with_context(event, "exec")


# Output


async def _print_output(handle: "Handle", job: int, printer: "OutputPrinter") -> None:
    log = _follow_log(handle, job, "guest.output")
    async with aclosing(log) as events:  # type: ignore[type-var]
        async for event in events:
            printer.show(event)


async def _follow_log(handle: "Handle", job: int, path: str) -> AsyncIterator[Event]:
    """Return the events of a log as they come; none where it never comes to be."""
    from warren.rpc.message import RpcError

    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": path})
    try:
        async with aclosing(watch) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield eventlog.decode_line(answer["event"])
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise


class OutputPrinter:
    """Prints events of a job's output where they belong."""

    def __init__(self, *, label: bool = False, quiet: bool = False) -> None:
        self._label = label
        self._quiet = quiet
        self._partial_lines: dict[tuple[str, str], bytes] = {}
        """Beginnings of lines that are to be labelled."""

    def show(self, event: Event) -> None:
        """Print one event."""
        context = event.context
        if event.name == "log" and not self._quiet:
            click.echo(f"flux-shell: {printable_value(str(context.get('message', '')))}", err=True)
        if event.name == "redirect" and not self._quiet and "path" in context:
            message = f"{context['rank']}: {context['stream']} redirected to {context['path']}"
            click.echo(printable(message), err=True)
        for piece in stdio.decode_outputs([event]):
            if self._label:
                self._print_labelled(piece)
            else:
                _write(piece.stream, piece.data)

    def _print_labelled(self, piece: stdio.Output) -> None:
        key = (piece.stream, piece.rank)
        *lines, unfinished = (self._partial_lines.pop(key, b"") + piece.data).split(b"\n")
        if unfinished:
            self._partial_lines[key] = unfinished
        label = f"{piece.rank}: ".encode()
        _write(piece.stream, b"".join(label + line + b"\n" for line in lines))

    def flush(self) -> None:
        """Print the lines that have no end."""
        for (stream, rank), unfinished in self._partial_lines.items():
            _write(stream, f"{rank}: ".encode() + unfinished + b"\n")
        self._partial_lines.clear()


def print_output(event: Event) -> None:
    """Print one event of a job's output where it belongs."""
    OutputPrinter().show(event)


def _write(stream_name: str, data: bytes) -> None:
    stream: Any = sys.stdout.buffer if stream_name == "stdout" else sys.stderr.buffer
    stream.write(data)
    stream.flush()


async def _print_terminal(handle: "Handle", shells_task: "asyncio.Task[Mapping[str, Any]]") -> None:
    """Show what is printed on a job's terminal and not written down, to its end."""
    from warren.rpc.message import RpcError

    with suppress(RpcError):  # what was not shown is written down in the end
        shell_context = await shells_task
        if shell_context.get("pty", {}).get("capture", True):
            return
        topic, seen_bytes, is_end = f"{shell_context['service']}.pty-output", 0, False
        while not is_end:
            answer = await _call_until_answered(handle, topic, {"seen": seen_bytes})
            offset, is_end = answer["offset"], answer["end"]
            context = {"data": answer["data"], "encoding": answer["encoding"]}
            [output] = stdio.decode_outputs(
                [Event(1, "data", {"stream": "stdout", "rank": "0", **context})]
            )
            # What was not seen before, where the answer is to a question that was asked twice.
            _write("stdout", output.data[max(seen_bytes - offset, 0) :])
            seen_bytes = offset + len(output.data)


# Input


async def _send_input(
    handle: "Handle",
    job: int,
    shells_task: "asyncio.Task[Mapping[str, Any]]",
    descriptor: int,
    ranks: str,
    terminal: UserTerminal,
) -> None:
    """Send what there is to read to the job's tasks, if they read what is sent."""
    from warren.rpc.message import RpcError

    if os.isatty(descriptor) and not is_foreground(descriptor):
        return  # a terminal stops processes in the background that read it
    sync_task: asyncio.Task[None] | None = None
    try:
        shell_context = await shells_task
        service = shell_context.get("service")
        if service is None:
            return
        if "pty" in shell_context:
            # The terminal is one task's, and so is what is typed.
            ranks = "0"
            if terminal.make_raw():
                sync_task = asyncio.create_task(_sync_size(handle, service, terminal))
        writer, sequence = secrets.token_hex(8), 0
        async for chunk in _read_chunks(descriptor):
            sequence += 1
            request: dict[str, Any] = {
                "stream": "stdin",
                "ranks": ranks,
                "eof": not chunk,
                "writer": writer,
                "sequence": sequence,
            }
            if chunk:
                context = stdio.data_event(1, "stdin", ranks, chunk).context
                request |= {"data": context["data"], "encoding": context.get("encoding", "UTF-8")}
            # One after the other: the answer says that the tasks have taken it.
            await _send_until_taken(handle, f"{service}.stdin", request)
    except RpcError as error:
        # A job that has ended, or reads no more, is no trouble; what is refused, is.
        if error.errnum not in (errno.EPIPE, errno.ENOENT):
            click.echo(f"warren: standard input: {error}", err=True)
        if error.errnum in (errno.EFBIG, errno.ENOSPC):
            # The tasks would take what they have for all of it, or wait for the rest for ever.
            await _cancel(handle, job, "standard input is too long")
    finally:
        if sync_task is not None:
            sync_task.cancel()


async def _sync_size(handle: "Handle", service: str, terminal: UserTerminal) -> None:
    """Keep the job's terminal as large as the user's."""
    from warren.rpc.message import RpcError

    with suppress(RpcError):  # it is over
        while True:
            terminal.resized.clear()
            size = terminal.size()
            if size is not None:
                request = {"rows": size[0], "columns": size[1]}
                await _send_until_taken(handle, f"{service}.pty-resize", request)
            await terminal.resized.wait()


async def _send_until_taken(handle: "Handle", topic: str, request: Mapping[str, Any]) -> None:
    """Send a piece of input until the shells have it, which feed it once."""
    await _call_until_answered(handle, topic, request)


async def _call_until_answered(
    handle: "Handle", topic: str, request: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Ask the shells until they answer.

    They offer their service anew when the instance was restarted, and nothing tells of that.
    Those of a job that has ended are not there either: a follower gives up then.
    """
    from warren.rpc.message import RpcError

    while True:
        try:
            return await handle.rpc(topic, request)
        except RpcError as error:
            if not error.unserved:
                raise
            await asyncio.sleep(_RETRY_DELAY)


async def _wait_shells(handle: "Handle", job: int) -> Mapping[str, Any]:
    """Wait until the job's shells are there, and return what they say of themselves.

    That is their `service`, if they have one, and `pty` where a user may sit before a terminal.
    """
    async with aclosing(_follow_log(handle, job, "guest.exec.eventlog")) as events:  # type: ignore[type-var]
        async for event in events:
            if event.name == "shell.init":
                return event.context
    return {}


async def _read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Return what there is to read, piece by piece, and at the end an empty one.

    In a thread that is not waited for: a read from a terminal cannot be given up, and to
    make a descriptor that others share non-blocking is not for us.
    """
    loop = asyncio.get_running_loop()
    if descriptor == 0 and sys.stdin is None:
        # It was closed before we began, and is something of our own by now.
        yield b""
        return
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    read_requests = threading.Semaphore()

    def read_loop() -> None:
        chunk = b"more"
        with suppress(RuntimeError):  # the loop is over, and so are we
            while chunk:
                read_requests.acquire()
                try:
                    chunk = os.read(descriptor, _CHUNK_BYTES)
                except OSError:
                    chunk = b""
                loop.call_soon_threadsafe(pieces.put_nowait, chunk)

    threading.Thread(target=read_loop, name="stdin", daemon=True).start()
    chunk = b"more"
    while chunk:
        chunk = await pieces.get()
        yield chunk
        read_requests.release()


# Signals


@contextmanager
def _forward_interrupts(
    handle: "Handle", job: int, started: asyncio.Event, *, read_only: bool
) -> Iterator[None]:
    """Send SIGINT to the job at Ctrl-C for the length of a block, and cancel it at the second."""
    loop = asyncio.get_running_loop()
    last_interrupt = 0.0
    tasks: set[asyncio.Task[None]] = set()

    def on_interrupt() -> None:
        nonlocal last_interrupt
        previous_interrupt, last_interrupt = last_interrupt, time.monotonic()
        if last_interrupt - previous_interrupt < _CANCEL_SECONDS:
            task = loop.create_task(_cancel(handle, job, "interrupted by ctrl-C"))
        else:
            task = loop.create_task(_interrupt(handle, job, started))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    in_main_thread = threading.current_thread() is threading.main_thread()
    if read_only or not in_main_thread:
        yield
        return
    loop.add_signal_handler(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in tasks:
            task.cancel()


async def _interrupt(handle: "Handle", job: int, started: asyncio.Event) -> None:
    from warren.rpc.message import RpcError

    hint = f"again within {_CANCEL_SECONDS:g} seconds cancels the job."
    if started.is_set():
        click.echo(f"\nInterrupt sent; {hint}", err=True)
    else:
        click.echo(f"\nThe job is interrupted when it starts; {hint}", err=True)
        await started.wait()
    with suppress(RpcError):  # a job that is over takes no message
        await handle.rpc("job-manager.kill", {"id": job, "signum": int(signal.SIGINT)})


async def _cancel(handle: "Handle", job: int, note: str) -> None:
    from warren.rpc.message import RpcError

    request = {"id": job, "type": "cancel", "severity": 0, "note": note}
    with suppress(RpcError):  # a job that is over is as good as cancelled
        await handle.rpc("job-manager.raise", request)
