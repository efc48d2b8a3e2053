"""The jobs of this node, durable: what `put` and `drop` have said outlives the process."""

from collections.abc import Iterator

from warren.atom.registration import RegisteredJob, Removal, decode_record, encode, encode_removal
from warren.journal import Journal
from warren.journal.committer import Committer


class Register:
    """The registered jobs, in the order of registration. Nothing shows before it is on disk."""

    def __init__(self, journal: Journal) -> None:
        self._jobs: dict[str, RegisteredJob] = {}
        replayed_bytes = 0
        for record in journal.replay():
            replayed_bytes += len(record)
            match decode_record(record):
                case Removal(jobid):
                    self._jobs.pop(jobid, None)
                case job:
                    self._jobs[job.registration.jobid] = job
        self._committer = Committer(journal, self._snapshot, appended_bytes=replayed_bytes)

    async def run(self) -> None:
        """Commit until cancelled. Raises JournalBroken."""
        await self._committer.run()

    @property
    def full_reason(self) -> str | None:
        """Why no job can be registered: the disk is full, in a sentence. None if it is not."""
        return self._committer.full_reason

    def get(self, jobid: str) -> RegisteredJob | None:
        return self._jobs.get(jobid)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[RegisteredJob]:
        """Return the jobs that are registered now, whatever happens to them meanwhile."""
        return iter(tuple(self._jobs.values()))

    async def put(self, job: RegisteredJob) -> None:
        """Register a job, or replace what is known of it."""
        jobid = job.registration.jobid

        def show() -> None:
            self._jobs[jobid] = job

        await self._committer.submit(encode(job), show)

    async def drop(self, jobid: str) -> None:
        """Forget a job."""

        def show() -> None:
            self._jobs.pop(jobid, None)

        await self._committer.submit(encode_removal(jobid), show)

    def _snapshot(self) -> Iterator[bytes]:
        return map(encode, self)
