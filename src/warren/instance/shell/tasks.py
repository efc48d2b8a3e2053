"""Tasks as processes: started, listened to, signalled, and cleaned up after."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from shutil import which
from typing import Any, Final, Protocol

from warren.base.errors import WarrenError
from warren.instance.shell.processes import adopt_orphans, descendants, send
from warren.rfc import idset

_CHUNK: Final = 2**16
_SH: Final = "/bin/sh"


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
    cpus: frozenset[int] | None = None
    """The CPUs that it may run on; None for those of the shell."""


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

    def __init__(self, process: int, readers: Mapping[str, "_Reader"], *, group: bool) -> None:
        self._process = process
        self._readers = readers
        self._group = group
        self._status: int | None = None
        self._over = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        return await self._readers[stream].read()

    async def wait(self) -> int:
        await self._over.wait()
        assert self._status is not None
        return self._status

    def signal(self, signum: int) -> None:
        if self._status is None:  # nobody has its number, or its group's, before it is buried
            with suppress(ProcessLookupError):
                (os.killpg if self._group else os.kill)(self._process, signum)
        elif self._group:
            send(self._left_in_group, signum)

    def _left_in_group(self) -> list[int]:
        """Give what the task has left in its group, which is below us as all that it starts."""
        return [each for each in descendants(os.getpid()) if _group_of(each) == self._process]

    def end(self, status: int) -> None:
        """Say that the process has ended, with its wait status."""
        self._status = status
        self._over.set()


class ProcessSpawner:
    """Starts processes. Orphans of theirs become ours, so that none is left behind.

    All children of this process are its own: nobody else may wait for any.
    """

    def __init__(self) -> None:
        """To be made where an event loop runs that has SIGCHLD for it."""
        adopt_orphans()
        self._tasks: dict[int, ProcessTask] = {}
        # asyncio would have a thread wait for each process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._bury)

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
        stdout, out = _pipe()
        stderr, err = _pipe()
        settings: dict[str, Any] = {
            "stdin": subprocess.DEVNULL if inherited.stdin is None else inherited.stdin,
            "stdout": out,
            "stderr": err,
            "env": environment,
            "cwd": cwd,
            "process_group": 0 if inherited.group else None,
            "pass_fds": tuple(inherited.descriptors),
            "preexec_fn": inherited.before_exec,
        }
        try:
            # It waits for no more than the exec.
            with _bound(inherited.cpus):
                try:
                    process = subprocess.Popen(command, **settings)  # noqa: ASYNC220
                except OSError as error:
                    if error.errno != errno.ENOEXEC:
                        raise
                    # A script that does not name who reads it is sh's, as execvp has it.
                    read = [_SH, _found(command[0], environment), *command[1:]]
                    process = subprocess.Popen(read, **settings)  # noqa: ASYNC220
        except OSError as error:
            raise CannotStart(_why(error, command[0], cwd)) from error
        except (ValueError, subprocess.SubprocessError) as error:
            raise CannotStart(f"{command[0]}: {error}") from error
        finally:
            os.close(out)
            os.close(err)
        process.returncode = 0  # it is not Popen that waits for it
        task = ProcessTask(process.pid, {"stdout": stdout, "stderr": stderr}, group=inherited.group)
        self._tasks[process.pid] = task
        return task

    async def clean_up(self) -> None:
        while self._bury():
            send(lambda: descendants(os.getpid()), signal.SIGKILL)
            await asyncio.sleep(0.01)

    def _bury(self) -> bool:
        """Take the statuses of children that have ended; tell whether others live.

        If none does, then nothing does that they have started: it would be our child by now.
        """
        try:
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == 0:
                    return True
                task = self._tasks.pop(process, None)
                if task is not None:  # not an orphan
                    task.end(status)
        except ChildProcessError:
            return False


def _group_of(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None


class _Reader:
    """The end of a pipe that is read from."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    async def read(self) -> bytes:
        """Give what is there, as soon as there is something; nothing at the end."""
        while self._descriptor is not None:
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                await _readable(self._descriptor)
                continue
            if chunk:
                return chunk
            os.close(self._descriptor)
            self._descriptor = None
        return b""


@contextmanager
def _bound(cpus: frozenset[int] | None) -> Iterator[None]:
    """Bind what this thread starts in a block to CPUs. Raises CannotStart.

    By being bound itself meanwhile: code of ours in the new process would need a fork, which copies
    all that a shell is, where Popen does without.
    """
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        words = f"the task cannot be bound to CPUs {idset.encode(cpus)}: {error.strerror}"
        raise CannotStart(words) from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _found(program: str, environment: Mapping[str, str]) -> str:
    """Give the path of a program that is looked for as execvp does."""
    return program if "/" in program else which(program, path=environment.get("PATH")) or program


def _pipe() -> tuple[_Reader, int]:
    """Make a pipe, and give its reader and the end that is written to."""
    reading, writing = os.pipe()
    return _Reader(reading), writing


async def _readable(descriptor: int) -> None:
    """Wait until something can be read, or until nobody writes any more."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _why(error: OSError, program: str, cwd: str | None) -> str:
    if cwd is not None and error.filename == cwd:
        return f"working directory {cwd}: {error.strerror}"
    return f"{program}: {error.strerror}"
