"""Tasks as processes: started, listened to, signalled, and cleaned up after."""

import asyncio
import errno
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from shutil import which
from typing import Any, Final, Protocol

import msgspec

from warren.base.errors import WarrenError
from warren.base.processes import adopt_orphans, descendants, send_signal
from warren.instance.shell.reading import Reader
from warren.instance.shell.terminal import Terminal
from warren.rfc import idset

_SH: Final = "/bin/sh"


class CannotStart(WarrenError):
    """A task cannot be started; the sentence says why."""


class Inherited(msgspec.Struct, frozen=True, kw_only=True):
    """What a task gets from the shell beside its environment."""

    stdin: int | None = None
    """A descriptor to read from; without one the task reads nothing."""
    descriptors: Sequence[int] = ()
    """Descriptors that keep their numbers."""
    before_exec: Callable[[], None] | None = None
    """Called in the new process. Raises CannotStart's reason as an OSError or a ValueError."""
    own_group: bool = True
    """Whether it has a process group of its own, which signals go to."""
    cpus: frozenset[int] | None = None
    """The CPUs that it may run on; None for those of the shell."""
    terminal: Terminal | None = None
    """What it has for its standard streams, but for a `stdin` of its own, and as its terminal."""


INHERIT_NOTHING: Final = Inherited()


class Task(Protocol):
    """A running task."""

    async def read(self, stream: str) -> bytes:
        """Return what the task wrote to `stdout` or `stderr`; nothing at the end."""
        ...

    async def wait(self) -> int:
        """Wait for the end, and return the wait status."""
        ...

    def signal(self, signum: int) -> None:
        """Send a signal to the task and its process group."""
        ...


class Spawner(Protocol):
    """Starts tasks."""

    def directory_problem(self, directory: str) -> str | None:
        """Return why tasks cannot begin in a directory; None where they can."""
        ...

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        """Start a task. Raises CannotStart."""
        ...

    async def clean_up(self) -> None:
        """End whatever the tasks have left behind."""
        ...


class Readable(Protocol):
    """Where what a task writes to a stream is read."""

    async def read(self) -> bytes:
        """Return what is there, as soon as there is something; nothing at the end."""
        ...


class ProcessTask:
    """A task that is a process, in a process group of its own."""

    def __init__(self, pid: int, readers: Mapping[str, "Readable"], *, group: bool) -> None:
        self._pid = pid
        self._readers = readers
        self._has_group = group
        self._status: int | None = None
        self._ended = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        return await self._readers[stream].read()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self._status is not None
        return self._status

    def signal(self, signum: int) -> None:
        if self._status is None:  # no process has its number, or its group's, before it is reaped
            with suppress(ProcessLookupError):
                (os.killpg if self._has_group else os.kill)(self._pid, signum)
        elif self._has_group:
            send_signal(self._left_in_group, signum)

    def _left_in_group(self) -> list[int]:
        """Return what the task has left in its group, which is below us as all that it starts."""
        return [each for each in descendants(os.getpid()) if _group_of(each) == self._pid]

    def mark_ended(self, status: int) -> None:
        """Note that the process has ended, with its wait status."""
        self._status = status
        self._ended.set()


class ProcessSpawner:
    """Starts processes. Orphans of theirs become ours, so that none is left behind.

    All children of this process are its own: no other code may wait for any.
    """

    def __init__(self) -> None:
        """To be made where an event loop runs that has SIGCHLD for it."""
        adopt_orphans()
        self._tasks: dict[int, ProcessTask] = {}
        # asyncio would have a thread wait for each process.
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def directory_problem(self, directory: str) -> str | None:
        try:
            os.close(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            return error.strerror
        except ValueError as error:  # no text of paths
            return str(error)
        return None if os.access(directory, os.X_OK) else os.strerror(errno.EACCES)

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        streams, settings = _streams(inherited)
        settings |= {
            "env": environment,
            "cwd": cwd,
            "pass_fds": tuple(inherited.descriptors),
        }
        try:
            # It waits for no more than the exec.
            with _bound_to_cpus(inherited.cpus):
                try:
                    process = subprocess.Popen(command, **settings)  # noqa: ASYNC220
                except OSError as error:
                    if error.errno != errno.ENOEXEC:
                        raise
                    # A script that does not name its interpreter is sh's, as execvp has it.
                    sh_command = [_SH, _which(command[0], environment), *command[1:]]
                    process = subprocess.Popen(sh_command, **settings)  # noqa: ASYNC220
        except OSError as error:
            raise CannotStart(_start_problem(error, command[0], cwd)) from error
        except (ValueError, subprocess.SubprocessError) as error:
            raise CannotStart(f"{command[0]}: {error}") from error
        finally:
            if inherited.terminal is None:
                os.close(settings["stdout"])
                os.close(settings["stderr"])
        process.returncode = 0  # it is not Popen that waits for it
        # On a terminal it leads a session, and so a group.
        group = inherited.own_group or inherited.terminal is not None
        task = ProcessTask(process.pid, streams, group=group)
        self._tasks[process.pid] = task
        return task

    async def clean_up(self) -> None:
        while self._reap():
            send_signal(lambda: descendants(os.getpid()), signal.SIGKILL)
            await asyncio.sleep(0.01)

    def _reap(self) -> bool:
        """Take the statuses of children that have ended; return whether others live.

        If none does, then nothing does that they have started: it would be our child by now.
        """
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                task = self._tasks.pop(pid, None)
                if task is not None:  # not an orphan
                    task.mark_ended(status)
        except ChildProcessError:
            return False


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def _streams(inherited: Inherited) -> tuple[dict[str, Readable], dict[str, Any]]:
    """Make a task's standard streams; return those that are read, and Popen's settings."""
    terminal, before_exec = inherited.terminal, inherited.before_exec
    if terminal is None:
        stdout, stdout_descriptor = _pipe()
        stderr, stderr_descriptor = _pipe()
        return {"stdout": stdout, "stderr": stderr}, {
            "stdin": subprocess.DEVNULL if inherited.stdin is None else inherited.stdin,
            "stdout": stdout_descriptor,
            "stderr": stderr_descriptor,
            "process_group": 0 if inherited.own_group else None,
            "preexec_fn": before_exec,
        }

    def begin() -> None:
        fcntl.ioctl(1, termios.TIOCSCTTY, 0)  # for Ctrl-C, and for programs that open /dev/tty
        if before_exec is not None:
            before_exec()

    return {"stdout": terminal, "stderr": _NoStream()}, {
        "stdin": terminal.slave if inherited.stdin is None else inherited.stdin,
        "stdout": terminal.slave,
        "stderr": terminal.slave,
        "start_new_session": True,
        "preexec_fn": begin,
    }


class _NoStream:
    """Where there is nothing to read: a terminal has one stream."""

    async def read(self) -> bytes:
        return b""


@contextmanager
def _bound_to_cpus(cpus: frozenset[int] | None) -> Iterator[None]:
    """Bind what this thread starts in a block to CPUs. Raises CannotStart.

    By being bound itself meanwhile: code of ours in the new process would need a fork, which copies
    all that a shell is, where Popen does without.
    """
    if cpus is None:
        yield
        return
    previous = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        message = f"the task cannot be bound to CPUs {idset.encode(cpus)}: {error.strerror}"
        raise CannotStart(message) from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)


def _which(program: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program that is looked for as execvp does."""
    return program if "/" in program else which(program, path=environment.get("PATH")) or program


def _pipe() -> tuple[Reader, int]:
    """Make a pipe, and return its reader and the end that is written to."""
    read_descriptor, write_descriptor = os.pipe()
    return Reader(read_descriptor), write_descriptor


def _start_problem(error: OSError, program: str, cwd: str | None) -> str:
    if cwd is not None and error.filename == cwd:
        return f"working directory {cwd}: {error.strerror}"
    return f"{program}: {error.strerror}"
