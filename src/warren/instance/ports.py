"""What the job manager needs of a scheduler and of execution.

Their messages have the payloads of RFC 27 and RFC 32: requests are calls, and
responses come back through `Replies`, any number of them, in any order.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from warren.rfc.fluid import JobId

Message = Mapping[str, Any]


class Scheduler(Protocol):
    """Gives resources to jobs (RFC 27)."""

    def alloc(self, message: Message) -> None:
        """Ask for resources: id, priority, userid, t_submit, jobspec."""
        ...

    def cancel(self, job: JobId) -> None:
        """Want them no more. Answered as any other request is."""
        ...

    def prioritize(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        """Say which jobs that wait have another priority now. Unknown ones are ignored."""
        ...

    def expiration(self, job: JobId, expiration: float) -> None:
        """Say until when a job now has its resources; 0 for no end."""
        ...

    def free(self, job: JobId, r: Message, final: bool) -> None:
        """Give them back, all or first the nodes that are in `r`, without `scheduling`.

        Flash stays the job's until `final`. What is free already stays so. Not answered.
        """
        ...

    def hello(self, job: JobId, r: Message, free: Collection[int]) -> str | None:
        """Say, after a restart, what a job still has: R as it was written, but for the ranks
        in `free`, of which it has the flash alone.

        Answered by why it cannot have that any more, if so: the job has nothing then.
        """
        ...


class Execution(Protocol):
    """Runs jobs (RFC 32)."""

    def start(self, message: Message) -> None:
        """Run a job: id, userid, jobspec, R, reattach."""
        ...

    def exception(self, job: JobId, type: str) -> None:
        """Say that a fatal exception has come over a job: its tasks are to end."""
        ...

    def kill(self, job: JobId, signum: int) -> None:
        """Send a signal to a job's tasks."""
        ...

    def expiration(self, job: JobId, expiration: float) -> None:
        """Say when a job's time is up, which has changed; 0 for never."""
        ...

    def restarted(self) -> None:
        """Say that every job that is to run has been started again: what else runs is lost."""
        ...


class Replies(Protocol):
    """Where the answers go."""

    def allocated(self, message: Message) -> None:
        """Take a scheduler's answer: id, type, and annotations, R or note."""
        ...

    def executed(self, message: Message) -> None:
        """Take an answer of execution: id, type, data."""
        ...


SUCCESS, ANNOTATE, DENY, CANCEL = 0, 1, 2, 3
"""Types of a scheduler's answer."""
