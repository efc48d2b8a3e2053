"""Commands of the machine: the only place where a node runs a program.

Argument vectors, never a shell; a time limit on each; the whole process group
is killed when it runs out, or when its caller is cancelled.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, Self

from warren.base.processes import descendants, parents
from warren.dws.node import TIMED_OUT, NodeTrouble

COMMAND_TIMEOUT: Final = 20.0
"""Seconds that a command may take unless its caller says otherwise."""

_LAST_CHARACTERS: Final = 4000
"""Characters of a command's words that are passed on."""

_KILL_INTERVAL: Final = 2.0
"""Seconds that a command has to die before something is done about it, and done again."""

_PAUSES_BELOW: Final = (0.05, 0.5, 2.0, 2.0)
"""Seconds between the looks at what was below a command that is dead: it may have left its group,
and so not have been killed."""

_KILL_TIMEOUT: Final = 10.0
"""Seconds that are left for a command to die whose time is over: one that waits for a device or a
server which does not answer does not, and is left behind until it can."""

_PIPE_BYTES: Final = 2**16
"""Bytes that a pipe holds on Linux, and that one reading takes."""


class CommandFailed(NodeTrouble):
    """A command has ended with a status other than 0, or by a signal: minus its number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


async def run(
    argv: Sequence[str],
    *,
    seconds: float = COMMAND_TIMEOUT,
    merged: bool = False,
    text: str | None = None,
) -> str:
    """Run a command and return its standard output, with standard error if `merged`.

    `text` is its standard input. Raises CommandFailed with its own words if it fails, and
    NodeTrouble if it does not end.
    """
    stderr = STDOUT if merged else PIPE
    stdin_bytes = None if text is None else text.encode()
    running = _running(
        _killed_with_parent(argv), stderr, has_input=stdin_bytes is not None, grace=_KILL_TIMEOUT
    )
    async with running as process, _time_limit(seconds, argv):
        output, errors = await process.communicate(stdin_bytes)
    _check_success(argv, process.returncode, errors or output or b"")
    return output.decode(errors="replace")


async def run_site_command(
    argv: Sequence[str], environment: Mapping[str, str], *, seconds: float
) -> str:
    """Run a site's command in an environment, and return the last of what it printed.

    It may print as much as it likes. Raises NodeTrouble with its last words if it fails.
    """
    # Not a pipe of asyncio's: that is waited for until all processes have closed it, also what the
    # command has left running in the background.
    with _Tail() as tail:
        running = _running(
            _killed_with_parent(argv), STDOUT, environment, tail.writer, grace=_KILL_TIMEOUT
        )
        async with running as process:
            tail.close_writer()
            async with _time_limit(seconds, argv):
                await process.wait()
        output = tail.last_output()
    _check_success(argv, process.returncode, output)
    return _last_words(output)


async def stream_lines(
    argv: Sequence[str], unblock: Callable[[Sequence[int]], object] | None = None
) -> AsyncIterator[str]:
    """Run a command for as long as it takes and return its lines as they come.

    Raises CommandFailed, with the last of its standard error, if it fails. Closing the iterator
    ends the command: `unblock` is called in a thread, with its process and those that were below
    it, while they do not die. What is below it is waited for only for some seconds.
    """
    async with _running(argv, unblock=unblock) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        reading_errors = asyncio.create_task(_read_last(process.stderr))
        try:
            async for line in process.stdout:
                yield line.decode(errors="replace")
            code = await process.wait()
            errors = await reading_errors
        finally:
            reading_errors.cancel()
    if code:
        # A signal comes in the middle of its words.
        message = "" if code < 0 else _last_words(errors)
        raise CommandFailed(message or f"{argv[0]}: {exit_reason(code)}", code)


async def _read_last(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, and return the last of it: names of files may be as long as users like."""
    last_output = bytearray()
    while chunk := await stream.read(_PIPE_BYTES):
        last_output.extend(chunk)
        del last_output[:-_LAST_CHARACTERS]
    return bytes(last_output)


class _Tail:
    """The last of what is written to a pipe, whose writing end is `writer`."""

    def __init__(self) -> None:
        try:
            self._reader, self.writer = os.pipe()
        except OSError as error:
            raise NodeTrouble(f"no command can be run: {error.strerror}") from error
        os.set_blocking(self._reader, False)
        self._last_output = bytearray()
        self._writer_is_open = True

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._reader, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        self.close_writer()

    def close_writer(self) -> None:
        if self._writer_is_open:
            self._writer_is_open = False
            os.close(self.writer)

    def last_output(self) -> bytes:
        """Return the last of what has been written until now."""
        self._read()
        return bytes(self._last_output)

    def _read(self) -> None:
        try:
            chunk = os.read(self._reader, _PIPE_BYTES)
        except BlockingIOError:
            return
        if not chunk:
            asyncio.get_running_loop().remove_reader(self._reader)
        self._last_output.extend(chunk)
        del self._last_output[:-_LAST_CHARACTERS]


def _killed_with_parent(argv: Sequence[str]) -> Sequence[str]:
    """Return a command that the kernel kills when this process dies: else it would go on."""
    if shutil.which(argv[0]) is None:
        raise NodeTrouble(f"{argv[0]} cannot be run: it is not there")
    return ["setpriv", "--pdeathsig", "KILL", *argv]


@asynccontextmanager
async def _time_limit(seconds: float, argv: Sequence[str]) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise NodeTrouble(f"{argv[0]} {TIMED_OUT} {seconds:g} s") from None


def _check_success(argv: Sequence[str], code: int | None, output: bytes) -> None:
    if code:
        message = _last_words(output) or exit_reason(code)
        names_command = message.partition(":")[0] in argv
        raise CommandFailed(message if names_command else f"{argv[0]}: {message}", code)


@asynccontextmanager
async def _running(
    argv: Sequence[str],
    stderr: int = PIPE,
    environment: Mapping[str, str] | None = None,
    stdout: int = PIPE,
    unblock: Callable[[Sequence[int]], object] | None = None,
    has_input: bool = False,
    grace: float | None = None,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command in a process group of its own, which is ended with the block.

    It is waited for, or for `grace` seconds alone.
    """
    start = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=PIPE if has_input else asyncio.subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(start)
    except OSError as error:
        raise NodeTrouble(f"{argv[0]} cannot be run: {error.strerror}") from error
    except asyncio.CancelledError:
        # asyncio waits for ever for a process whose start is cut short: it may come to its end.
        await _run_to_completion(_end_started(start, unblock))
        raise
    try:
        yield process
    finally:
        await _run_to_completion(_end(process, unblock), grace)


_completions: Final[set["asyncio.Task[None]"]] = set()
"""Tasks whose callers may be gone, and which must not be lost."""


async def _run_to_completion(
    work: Coroutine[None, None, None], seconds: float | None = None
) -> None:
    """Do something to its end, however often its caller is cancelled.

    Its caller waits for it, for so many seconds at most.
    """
    task = asyncio.create_task(work)
    _completions.add(task)
    task.add_done_callback(_completions.discard)
    # Neither the time nor the caller's end is the task's.
    if (await asyncio.wait({task}, timeout=seconds))[0]:
        task.result()


async def _end_started(
    start: "asyncio.Future[asyncio.subprocess.Process]",
    unblock: Callable[[Sequence[int]], object] | None,
) -> None:
    await asyncio.wait({start})
    if start.exception() is None:
        await _end(start.result(), unblock)


async def _end(
    process: asyncio.subprocess.Process, unblock: Callable[[Sequence[int]], object] | None
) -> None:
    if process.returncode is not None:
        return
    # Now: what it has started is below another process once it is dead.
    below = [] if unblock is None else await asyncio.to_thread(descendants, process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    waiting = asyncio.ensure_future(process.wait())
    while not (await asyncio.wait({waiting}, timeout=_KILL_INTERVAL))[0]:
        if unblock is not None:
            await asyncio.to_thread(unblock, [process.pid, *below])
    if unblock is None:
        return
    for pause in _PAUSES_BELOW:
        below = sorted(set(below) & (await asyncio.to_thread(parents)).keys())
        if not below:
            return
        await asyncio.sleep(pause)
        await asyncio.to_thread(unblock, below)


def _last_words(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[-_LAST_CHARACTERS:]


def exit_reason(code: int) -> str:
    """Return how a process has ended, from its return code."""
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
