"""Commands of the site as processes of this machine.

Argument vectors, never a shell; each in a process group of its own, which is ended with it,
unless what it has started is to last as long as a job. What they print goes to the log of the
instance, as much of it as is bearable.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from warren.base import log
from warren.base.processes import kill, pids_with_variable
from warren.instance.exec.perilog import Command, CommandNotStarted

_PERILOG_VARIABLE: Final = "WARREN_PERILOG"
"""In the environment of commands whose children end with them."""

_LASTING_VARIABLE: Final = "WARREN_LASTING"
"""In that of commands whose children are kept: the secret, and the job they are kept for."""

_MOST_LINES: Final = 100
"""Lines of a command that are kept. The rest is read, and dropped."""

_LONGEST_LINE: Final = 1000
"""Bytes of a line that are kept."""

_CHUNK: Final = 2**16
_OUTPUT_TIMEOUT: Final = 1.0
"""Seconds that something may keep a command's output open which has left its group."""


class ProcessCommands:
    """A `Commands`."""

    def __init__(
        self,
        marker: tuple[str, str],
        enter_node: Callable[[str], Sequence[str]] = lambda node: (),
        uri: str | None = None,
    ) -> None:
        """`marker` is a variable that all processes of the cluster have, and its value.

        What carries it is killed by `kill_leftovers`: it is a secret that no user comes by.
        `enter_node` returns the words to put before a command that is to run among the mounts of a
        node; `uri` is where commands find the instance.
        """
        self._marker_name, self._secret = marker
        self._environment = {} if uri is None else {"FLUX_URI": uri}
        self._enter_node = enter_node

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        program = argv[0]
        markers = {self._marker_name: self._secret}
        if keep_for_job is None:
            markers[_PERILOG_VARIABLE] = self._secret
        else:
            markers[_LASTING_VARIABLE] = f"{self._secret}.{keep_for_job}"
            if shutil.which(program) is None:
                # Told here: what puts it onto the node would tell it by an exit status.
                raise CommandNotStarted(f"{program}: there is no such program")
            argv = [*self._enter_node(environment["WARREN_NODE"]), *argv]
        try:
            output, write_descriptor = await _pipe()
        except OSError as error:  # such as too many open files
            raise CommandNotStarted(f"{program}: {error.strerror}") from error
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_descriptor,
                stderr=write_descriptor,
                env={**os.environ, **self._environment, **environment, **markers},
                start_new_session=True,
            )
        )
        try:
            process = await asyncio.shield(starting)
        except OSError as error:
            output.close()
            raise CommandNotStarted(f"{program}: {error.strerror}") from error
        except asyncio.CancelledError:
            # asyncio waits for ever for a process whose start is cut short.
            await asyncio.wait({starting})
            output.close()
            if starting.exception() is None:
                _signal(starting.result(), signal.SIGKILL)
                await asyncio.shield(starting.result().wait())
            raise
        finally:
            os.close(write_descriptor)
        log_fields = {"command": program, **environment}
        return _Process(process, output, log_fields, keeps_children=keep_for_job is not None)

    async def kill_leftovers(self, job: str | None = None) -> None:
        environment_entry = (
            f"{_PERILOG_VARIABLE}={self._secret}"
            if job is None
            else f"{_LASTING_VARIABLE}={self._secret}.{job}"
        )

        def leftovers() -> list[int]:
            return pids_with_variable(environment_entry)

        def any_leftovers() -> bool:
            if not leftovers():
                return False
            # All at a time, so that none has a last word about the end of another.
            kill(leftovers)
            return bool(leftovers())

        while await asyncio.to_thread(any_leftovers):  # noqa: ASYNC110 - nothing tells of their ends
            await asyncio.sleep(0.01)


class _Process:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: "_Output",
        log_fields: Mapping[str, str],
        *,
        keeps_children: bool,
    ) -> None:
        self._keeps_children = keeps_children
        self._process = process
        self._output = output
        self._log_fields = log_fields

    async def wait(self) -> int:
        try:
            async with asyncio.TaskGroup() as tasks:
                reading_task = tasks.create_task(self._output.log_lines(self._log_fields))
                code = await self._process.wait()
                if not self._keeps_children:
                    # What it has left in its group would go on beside the job.
                    self.signal(signal.SIGKILL)
                await asyncio.wait({reading_task}, timeout=_OUTPUT_TIMEOUT)
                reading_task.cancel()
        finally:
            self._output.close()
        return code << 8 if code >= 0 else -code

    def signal(self, signum: int) -> None:
        _signal(self._process, signum)


class _Output:
    """What a command prints: read to its end, and logged line by line."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._reader = reader
        self._transport = transport

    async def log_lines(self, log_fields: Mapping[str, str]) -> None:
        count, line = 0, b""  # lines so far, and the beginning of the next
        while chunk := await self._reader.read(_CHUNK):
            *lines, line = (line + chunk).split(b"\n")
            line = line[:_LONGEST_LINE]
            for each in lines:
                count += 1
                if count <= _MOST_LINES:
                    log.info(
                        "command says",
                        line=each[:_LONGEST_LINE].decode(errors="replace"),
                        **log_fields,
                    )
        if line:
            count += 1
            if count <= _MOST_LINES:
                log.info("command says", line=line.decode(errors="replace"), **log_fields)
        if count > _MOST_LINES:
            log.info("command says more than is kept", lines=count - _MOST_LINES, **log_fields)

    def close(self) -> None:
        self._transport.close()


def _signal(process: asyncio.subprocess.Process, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


async def _pipe() -> tuple[_Output, int]:
    """Make a pipe, and return what it brings and the end that is written to."""
    # Ours, not asyncio's: a process with pipes of asyncio's own is not over for asyncio
    # before they are closed, and what it leaves behind may keep them open.
    read_descriptor, write_descriptor = os.pipe()
    reader = asyncio.StreamReader()
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_descriptor, "rb")
        )
    except BaseException:
        os.close(write_descriptor)
        raise
    return _Output(reader, transport), write_descriptor
