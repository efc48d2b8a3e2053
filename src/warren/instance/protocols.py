"""The interfaces between job manager, scheduler and execution, as protocols.

Their messages have the payloads of RFC 27 and RFC 32: requests are calls, and
responses come back through `Responses`, any number of them, in any order.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from warren.rfc.fluid import JobId

Message = Mapping[str, Any]


class Scheduler(Protocol):
    """Allocates resources to jobs (RFC 27)."""

    def alloc(self, message: Message) -> None:
        """Ask for resources: id, priority, userid, t_submit, jobspec."""
        ...

    def cancel(self, job: JobId) -> None:
        """Cancel a request for resources. Answered as any other request is."""
        ...

    def prioritize(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        """Change the priorities of pending jobs. Unknown ones are ignored."""
        ...

    def set_expiration(self, job: JobId, expiration: float) -> None:
        """Set until when a job has its resources; 0 for no end."""
        ...

    def free(self, job: JobId, r: Message, final: bool) -> None:
        """Free the resources of a job, all or first the nodes in `r`, which lacks `scheduling`.

        Flash stays the job's until `final`. What is free already stays so. Not answered.
        """
        ...

    def hello(self, job: JobId, r: Message, freed: Collection[int]) -> str | None:
        """Announce, after a restart, what a job still has.

        That is `r`, R as it was written; of the ranks in `freed` the job has the flash alone.
        Return why it cannot have that any more, if so: the job has nothing then.
        """
        ...

    def retire(self, job: JobId) -> None:
        """Free what a job that is over has still, which is nothing where all went well."""
        ...


class Execution(Protocol):
    """Runs jobs (RFC 32)."""

    def start(self, message: Message) -> None:
        """Run a job: id, userid, jobspec, R, reattach."""
        ...

    def on_exception(self, job: JobId, type: str) -> None:
        """End the tasks of a job that has a fatal exception."""
        ...

    def kill(self, job: JobId, signum: int) -> None:
        """Send a signal to a job's tasks."""
        ...

    def set_expiration(self, job: JobId, expiration: float) -> None:
        """Change when a job's time is up; 0 for never."""
        ...

    def may_have_old_shells(self, job: JobId) -> bool:
        """Return whether shells of a job may be there that an earlier life has started."""
        ...

    def end_unclaimed_shells(self) -> None:
        """End the shells of all jobs that were not started again since the restart."""
        ...


class Responses(Protocol):
    """The job manager's side, to which scheduler and execution respond."""

    def alloc_response(self, message: Message) -> None:
        """Take a scheduler's answer: id, type, and annotations, R or note."""
        ...

    def start_response(self, message: Message) -> None:
        """Take an answer of execution: id, type, data."""
        ...


SUCCESS, ANNOTATE, DENY, CANCEL = 0, 1, 2, 3
"""Types of a scheduler's answer."""
