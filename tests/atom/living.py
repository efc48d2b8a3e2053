"""A service whose commands do what a test says, and the journal that outlives it."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tests.harness.virtual import VirtualClock
from warren.atom.config import SiteCommand
from warren.atom.register import Register
from warren.atom.registration import Registration
from warren.atom.service import Service
from warren.atom.sitecommands import JobEvent, SiteCommandRunner
from warren.dws.node import NodeTrouble
from warren.journal import JournalBroken, MemoryJournal

TRUE = SiteCommand(command=("/bin/true",))


class Scripted(SiteCommandRunner):
    """Commands that take as long, and fail as often, as they are told."""

    def __init__(self, *, seconds: float = 1.0, failing: Iterable[JobEvent] = ()) -> None:
        super().__init__([TRUE], [TRUE], parallel=16, service_mark="test")
        self.seconds = seconds
        self.failing = set(failing)
        self.done: list[tuple[str, str]] = []
        """What has come to its end, by event and job, with `cut` for what did not."""

    async def kill_leftovers(self, job: Registration) -> None:
        """Look for what a dead service has left, which takes its time."""
        await asyncio.sleep(0.5)

    async def perform(self, event: JobEvent, job: Registration) -> None:
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.done.append((f"cut {event}", job.jobid))
            raise
        if event in self.failing:
            self.done.append((f"failed {event}", job.jobid))
            raise NodeTrouble(f"the {event} of {job.jobid} fails")
        self.done.append((event, job.jobid))


class Dying(MemoryJournal):
    """A journal whose disk breaks after some records."""

    def __init__(self, lives: int) -> None:
        super().__init__()
        self.lives = lives

    async def append(self, records: Sequence[bytes]) -> None:
        for record in records:
            if self.lives == 0:
                raise JournalBroken("no more")
            self.lives -= 1
            await super().append([record])


@asynccontextmanager
async def living(
    journal: MemoryJournal, actions: SiteCommandRunner, most: int = 100
) -> AsyncIterator[tuple[Service, Register]]:
    """Have a service run for the length of a block."""
    register = Register(journal)
    service = Service(register, actions, VirtualClock(), most)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(service.run())
        await asyncio.sleep(0)
        yield service, register
        running.cancel()


def job(number: int = 1, *, uid: int = 1000, exclusive: bool = False) -> Registration:
    return Registration(jobid=f"{number}.pbshost", uid=uid, exclusive=exclusive)
