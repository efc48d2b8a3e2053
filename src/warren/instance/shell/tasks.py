"""Tasks as processes: started, listened to, signalled, and cleaned up after."""

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from warren.base.errors import WarrenError
from warren.instance.shell.processes import descendants

_CHUNK: Final = 2**16
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


class CannotStart(WarrenError):
    """A task cannot be started; the sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Inherited:
    """What a task gets from the shell beside its environment."""

    stdin: int | None = None
    """A descriptor to read from; without one the task reads nothing."""
    descriptors: Sequence[int] = ()
    """Descriptors that keep their numbers."""
    before_exec: Callable[[], None] | None = None
    """Called in the new process. Raises CannotStart's reason as an OSError or a ValueError."""
    group: bool = True
    """Whether it has a process group of its own, which signals go to."""


NOTHING: Final = Inherited()


class Task(Protocol):
    """A running task."""

    async def read(self, stream: str) -> bytes:
        """Give what the task wrote to `stdout` or `stderr`; nothing at the end."""
        ...

    async def wait(self) -> int:
        """Wait for the end, and give the wait status."""
        ...

    def signal(self, signum: int) -> None:
        """Send a signal to the task and its process group."""
        ...


class Spawner(Protocol):
    """Starts tasks."""

    def unusable(self, directory: str) -> str | None:
        """Say why tasks cannot begin in a directory; None where they can."""
        ...

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = NOTHING,
    ) -> Task:
        """Start a task. Raises CannotStart."""
        ...

    async def clean_up(self) -> None:
        """End whatever the tasks have left behind."""
        ...


class ProcessTask:
    """A task that is a process, in a process group of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        readers: Mapping[str, asyncio.StreamReader],
        *,
        group: bool,
    ) -> None:
        self._process = process
        self._readers = readers
        self._group = group

    async def read(self, stream: str) -> bytes:
        return await self._readers[stream].read(_CHUNK)

    async def wait(self) -> int:
        code = await self._process.wait()
        return code << 8 if code >= 0 else -code

    def signal(self, signum: int) -> None:
        with suppress(ProcessLookupError):
            if self._group:
                os.killpg(self._process.pid, signum)
            else:
                self._process.send_signal(signum)


class ProcessSpawner:
    """Starts processes. Orphans of theirs become ours, so that none is left behind."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def unusable(self, directory: str) -> str | None:
        try:
            os.close(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror
        return None if os.access(directory, os.X_OK) else os.strerror(errno.EACCES)

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = NOTHING,
    ) -> Task:
        # Pipes of ours: a process with pipes of asyncio's own is not over for asyncio
        # before they are closed, and what it leaves behind may keep them open.
        stdout, out = await _pipe()
        stderr, err = await _pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL if inherited.stdin is None else inherited.stdin,
                stdout=out,
                stderr=err,
                env=dict(environment),
                cwd=cwd,
                process_group=0 if inherited.group else None,
                pass_fds=tuple(inherited.descriptors),
                preexec_fn=inherited.before_exec,
            )
        except OSError as error:
            raise CannotStart(_why(error, command[0], cwd)) from error
        except (ValueError, subprocess.SubprocessError) as error:
            raise CannotStart(f"{command[0]}: {error}") from error
        finally:
            os.close(out)
            os.close(err)
        readers = {"stdout": stdout, "stderr": stderr}
        return ProcessTask(process, readers, group=inherited.group)

    async def clean_up(self) -> None:
        while children := descendants(os.getpid()):
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            _reap()
            await asyncio.sleep(0.01)


async def _pipe() -> tuple[asyncio.StreamReader, int]:
    """Make a pipe, and give its reader and the end that is written to."""
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb")
    )
    return reader, writing


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies. Any change of user undoes it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _why(error: OSError, program: str, cwd: str | None) -> str:
    if cwd is not None and error.filename == cwd:
        return f"working directory {cwd}: {error.strerror}"
    return f"{program}: {error.strerror}"
