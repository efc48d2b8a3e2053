"""The seam: every write that outlives a process goes through it, and may be the last one.

What a process writes to outside of itself are its journals, its machines and its
launcher. Each is wrapped here. When the seam is told to stop after a write, that
write is done, and the process does nothing any more, not even in its `finally`s.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing

from warren.controllers.localnode import LocalNode
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, LustreMount, Progress, RawVolumeAccess, Volume
from warren.dws.persistent.sharing import Sharing
from warren.instance.exec.execution import Launcher
from warren.instance.exec.perilog import Command, Commands
from warren.journal import Journal
from warren.rfc.fluid import JobId


class Stopped(BaseException):
    """The process has been stopped. Not an Exception: no net catches it."""


class Seam:
    """Counts writes, and stops after one of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self._stop_after = stop_after
        self._stopped = False
        self.actions: list[str] = []
        self.listener: Callable[[], None] = lambda: None

    def check(self) -> None:
        """A stopped process does nothing any more."""
        if self._stopped:
            raise Stopped

    def done(self, action: str) -> None:
        """A write is done. One that was under way when the process was stopped does not count."""
        self.check()
        self.actions.append(action)
        self.listener()
        if self._stop_after == len(self.actions):
            self._stopped = True
            raise Stopped


class SeamJournal:
    def __init__(self, name: str, inner: Journal, seam: Seam) -> None:
        self._name, self._inner, self._seam = name, inner, seam

    def replay(self) -> Iterable[bytes]:
        return self._inner.replay()

    async def append(self, records: Sequence[bytes]) -> None:
        self._seam.check()
        await self._inner.append(records)
        self._seam.done(f"{self._name}: {len(records)} records")

    async def reserve(self) -> None:
        self._seam.check()
        await self._inner.reserve()

    async def rewrite(self, records: Iterable[bytes]) -> None:
        self._seam.check()
        await self._inner.rewrite(records)
        self._seam.done(f"{self._name}: rewritten")


class SeamMachine:
    def __init__(self, name: str, inner: LocalNode, seam: Seam) -> None:
        self._name, self._inner, self._seam = name, inner, seam

    async def capacity(self) -> int:
        return await self._inner.capacity()

    async def raw_volume_access(self) -> RawVolumeAccess:
        return await self._inner.raw_volume_access()

    async def unsupported_types(self) -> Mapping[str, str]:
        return await self._inner.unsupported_types()

    async def lnet_nid(self) -> str:
        return await self._inner.lnet_nid()

    async def make(self, volume: Volume) -> None:
        self._seam.check()
        await self._inner.make(volume)
        self._seam.done(f"{self._name}: make")

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        self._seam.check()
        await self._inner.release(rabbit, name, profile)
        self._seam.done(f"{self._name}: release")

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        self._seam.check()
        await self._inner.mount(rabbit, name, file_system, path, shared, profile)
        self._seam.done(f"{self._name}: mount")

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._inner.mount_lustre(source, path, profile)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        self._seam.check()
        await self._inner.configure_mgs(commands)
        self._seam.done(f"{self._name}: configure MGS")

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self._seam.check()
        await self._inner.unmount(path, userid, profile)
        self._seam.done(f"{self._name}: unmount")

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        self._seam.check()
        async with aclosing(self._inner.copy(copy)) as copying:  # type: ignore[type-var]
            async for progress in copying:
                self._seam.check()
                yield progress
        self._seam.done(f"{self._name}: copy")


class SeamCommands:
    def __init__(self, inner: Commands, seam: Seam) -> None:
        self._inner, self._seam = inner, seam

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        self._seam.check()
        command = await self._inner.start(argv, environment, keep_for_job)
        self._seam.done(f"command: {argv[0]}")
        return command

    async def kill_leftovers(self, job: str | None = None) -> None:
        self._seam.check()
        await self._inner.kill_leftovers(job)


class SeamLauncher:
    def __init__(self, inner: Launcher, seam: Seam) -> None:
        self._inner, self._seam = inner, seam

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        self._seam.check()
        await self._inner.start(job, rank, host, userid)
        self._seam.done(f"shell {rank}: start")

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        return await self._inner.started_jobs()

    async def wait(self, job: JobId, rank: int) -> int:
        return await self._inner.wait(job, rank)

    async def kill(self, job: JobId, signum: int) -> None:
        self._seam.check()
        await self._inner.kill(job, signum)
        self._seam.done(f"shells: signal {signum}")

    async def forget(self, job: JobId) -> None:
        self._seam.check()
        await self._inner.forget(job)
        self._seam.done("shells: forget")
