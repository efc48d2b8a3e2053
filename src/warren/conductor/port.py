"""What the conductor needs of a workload manager."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from warren.base.placing import Held
from warren.dws.binding import Binding
from warren.dws.conduct import Job


class WorkloadManager(Protocol):
    """The jobs that have storage directives, and what may be done for them.

    Every action may be repeated, and does nothing for a job that is past it.
    """

    @property
    def binding(self) -> Binding:
        """What it calls its own in DWS."""
        ...

    def listen(self, listener: Callable[[int], None]) -> None:
        """Tell `listener` the id of every job that changes."""
        ...

    async def wait_synced(self) -> None:
        """Return once all jobs are known: from then on, an unknown one is over."""
        ...

    def job(self, job: int) -> Job | None:
        """Return a job as of now."""
        ...

    def jobs(self) -> Iterable[int]:
        """Return the ids of the jobs that are known."""
        ...

    async def flash(self, job: Job) -> Sequence[Held]:
        """Return the flash that a job was given, rabbit by rabbit, in the order of its nodes."""
        ...

    async def release(self, job: Job, resources: Sequence[Mapping[str, Any]]) -> None:
        """Let the scheduler have the job, with these resources."""
        ...

    async def start(self, job: Job, variables: Mapping[str, str]) -> None:
        """Let the job's tasks start, with these environment variables."""
        ...

    async def finish(self, job: Job) -> None:
        """Let the job go."""
        ...

    async def free(self, job: Job, nodes: Sequence[str]) -> None:
        """Give back some of the nodes of a job that is ending, and no flash."""
        ...

    async def fail(self, job: Job, type: str, note: str, severity: int = 0) -> None:
        """Give the job an exception; one of severity 0 ends it."""
        ...

    async def note(self, job: Job, key: str, value: Any) -> None:
        """Keep a value with the job's record."""
        ...

    async def memo(self, job: Job, values: Mapping[str, str]) -> None:
        """Show values in listings of the job."""
        ...

    def passed(self, job: int, mistake: str | None) -> None:
        """Hear that a job was reconciled, or what was wrong with what it asked for."""
        ...
