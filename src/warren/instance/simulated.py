"""Execution without processes: real shells, whose tasks only take time.

For tests, benchmarks and emulation, on a virtual clock or a real one. Tasks do
what a `TaskBehavior` says; everything else of a shell is the real thing.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence

import msgspec

from warren.instance.exec.execution import ShellsLost
from warren.instance.exec.perilog import Command
from warren.instance.shell.shell import Shell
from warren.instance.shell.tasks import INHERIT_NOTHING, Inherited, Task
from warren.rfc.fluid import JobId


class TaskBehavior(msgspec.Struct, frozen=True, kw_only=True):
    """What a task does: prints, takes its time, and ends with a wait status."""

    output: bytes = b""
    seconds: float = 1.0
    status: int = 0
    stubborn: bool = False
    """Whether it ignores every signal but SIGKILL."""


class _Task:
    def __init__(self, behavior: TaskBehavior) -> None:
        self._behavior = behavior
        self._unread = {"stdout": behavior.output, "stderr": b""}
        self._killed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    async def read(self, stream: str) -> bytes:
        chunk, self._unread[stream] = self._unread[stream], b""
        if not chunk:
            await self._over.wait()
        return chunk

    async def wait(self) -> int:
        try:
            async with asyncio.timeout(self._behavior.seconds):
                return await asyncio.shield(self._killed)
        except TimeoutError:
            return self._behavior.status
        finally:
            self._over.set()

    def signal(self, signum: int) -> None:
        is_heeded = signum == signal.SIGKILL or not self._behavior.stubborn
        if is_heeded and not self._killed.done():
            self._killed.set_result(signum)


class SimulatedSpawner:
    """A `Spawner` whose tasks do what `behavior_of` says of their command and environment."""

    def __init__(
        self, behavior_of: Callable[[Sequence[str], Mapping[str, str]], TaskBehavior]
    ) -> None:
        self._behavior_of = behavior_of

    def directory_problem(self, directory: str) -> str | None:
        return None

    async def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        inherited: Inherited = INHERIT_NOTHING,
    ) -> Task:
        return _Task(self._behavior_of(command, environment))

    async def clean_up(self) -> None:
        return None


class SimulatedCommands:
    """A `Commands` of the site, whose commands do what `behavior_of` says."""

    def __init__(
        self, behavior_of: Callable[[Sequence[str], Mapping[str, str]], TaskBehavior]
    ) -> None:
        self._behavior_of = behavior_of

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        return _Task(self._behavior_of(argv, environment))

    async def kill_leftovers(self, job: str | None = None) -> None:
        return None


class SimulatedLauncher:
    """A `Launcher` whose shells are tasks of a group that outlives the instance."""

    def __init__(
        self, group: asyncio.TaskGroup, make_shell: Callable[[JobId, int, str], Shell]
    ) -> None:
        self._group = group
        self._make_shell = make_shell
        self._shells: dict[tuple[JobId, int], tuple[Shell, asyncio.Task[int]]] = {}

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        if (job, rank) not in self._shells:
            shell = self._make_shell(job, rank, host)
            self._shells[job, rank] = (shell, self._group.create_task(shell.run()))

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        ranks_by_job: dict[JobId, frozenset[int]] = {}
        for job, rank in self._shells:
            ranks_by_job[job] = ranks_by_job.get(job, frozenset()) | {rank}
        return ranks_by_job

    async def wait(self, job: JobId, rank: int) -> int:
        if (job, rank) not in self._shells:
            raise ShellsLost("the job's shells are gone")
        _, running = self._shells[job, rank]
        try:
            return await asyncio.shield(running) << 8
        except asyncio.CancelledError:
            if running.cancelled():
                return int(signal.SIGKILL)
            raise

    async def kill(self, job: JobId, signum: int) -> None:
        for (other, _), (shell, running) in self._shells.items():
            if other == job:
                if signum == signal.SIGKILL:
                    running.cancel()
                else:
                    shell.deliver(signum)

    async def forget(self, job: JobId) -> None:
        for key in [key for key in self._shells if key[0] == job]:
            _, running = self._shells.pop(key)
            running.cancel()
