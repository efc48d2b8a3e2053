"""The jobs of this node, durable: what `put` and `drop` have said outlives the process."""

from collections.abc import Iterator

from warren.atom.registration import Gone, Held, forgotten, read, written
from warren.journal import Journal
from warren.journal.committer import Committer


class Register:
    """Who is registered, in the order of registration. Nothing shows before it is on disk."""

    def __init__(self, journal: Journal) -> None:
        self._held: dict[str, Held] = {}
        size = 0
        for record in journal.replay():
            size += len(record)
            match read(record):
                case Gone(jobid):
                    self._held.pop(jobid, None)
                case held:
                    self._held[held.registration.jobid] = held
        self._committer = Committer(journal, self._snapshot, appended=size)

    async def run(self) -> None:
        """Commit until cancelled. Raises JournalBroken."""
        await self._committer.run()

    @property
    def full(self) -> str | None:
        """Why no job is to be registered: the disk is full, in a sentence. None if it is not."""
        return self._committer.full

    def get(self, jobid: str) -> Held | None:
        return self._held.get(jobid)

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        """Return the jobs that are registered now, whatever happens to them meanwhile."""
        return iter(tuple(self._held.values()))

    async def put(self, held: Held) -> None:
        """Register a job, or say anew what is known of it."""
        jobid = held.registration.jobid

        def visible() -> None:
            self._held[jobid] = held

        await self._committer.submit(written(held), visible)

    async def drop(self, jobid: str) -> None:
        """Forget a job."""

        def visible() -> None:
            self._held.pop(jobid, None)

        await self._committer.submit(forgotten(jobid), visible)

    def _snapshot(self) -> Iterator[bytes]:
        return map(written, self)
