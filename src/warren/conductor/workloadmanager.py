"""The interface between the conductor and a workload manager, as a protocol."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from warren.base.placing import HeldFlash
from warren.dws.binding import Binding
from warren.dws.jobs.jobsnapshot import Job


class ComputeNodes(Protocol):
    """The compute nodes of a workload manager."""

    def follow(self) -> AsyncIterator[Mapping[str, bool]]:
        """Return all nodes with whether each can be reached, now and at each change.

        Raises a Retryable where the workload manager does not answer.
        """
        ...


class WorkloadManager(Protocol):
    """The jobs that have storage directives, and what may be done for them.

    Every action may be repeated, and does nothing for a job that is past it.
    """

    @property
    def binding(self) -> Binding:
        """The names of this workload manager in DWS objects."""
        ...

    @property
    def instance(self) -> str:
        """The id with which its Workflows are labelled: those of another instance have another.

        It is known once `wait_synced` has returned, and the same after each restart; empty where
        none could be kept.
        """
        ...

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the id of every job that changes."""
        ...

    async def wait_synced(self) -> None:
        """Return once all jobs are known: from then on, an unknown one is over."""
        ...

    def job(self, job_id: int) -> Job | None:
        """Return a job as it is now; None where it is not known."""
        ...

    def userid(self, job_id: int) -> int | None:
        """Return the id of a job's user; None where the job is not known."""
        ...

    def job_ids(self) -> Iterable[int]:
        """Return the ids of the jobs that are known."""
        ...

    def check_allowed(self, job: Job) -> None:
        """Raise UserMistake for a job that its site does not allow, before it has a Workflow."""
        ...

    async def flash(self, job: Job) -> Sequence[HeldFlash]:
        """Return the flash that a job was given, rabbit by rabbit, in the order of its nodes."""
        ...

    async def release_to_scheduler(
        self,
        job: Job,
        resources: Sequence[Mapping[str, Any]],
        constraints: Mapping[str, Any],
        nodes: Sequence[str] | None = None,
        daemons: Sequence[str] = (),
    ) -> None:
        """Release the job to the scheduler, with these resources, on some of these nodes.

        `constraints` are what their flash demands of rabbits, by the labels of the resources,
        and `daemons` are to be enabled on the job's nodes before its tasks start.
        """
        ...

    async def start(self, job: Job, variables: Mapping[str, str]) -> None:
        """Start the job's tasks, with these environment variables."""
        ...

    async def finish(self, job: Job) -> None:
        """Finish the job: its storage is gone."""
        ...

    async def ended_by_epilog_timeout(self, job: Job) -> bool:
        """Return whether the time limit of its epilog ended a job, so that its storage is left."""
        ...

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        """Keep jobs from nodes, until an admin undrains them. Those that are drained stay so."""
        ...

    async def undrain(self, nodes: Sequence[str], reason: str) -> None:
        """Undrain those of some nodes that are drained for this very reason."""
        ...

    async def free_nodes(self, job: Job, nodes: Sequence[str]) -> None:
        """Free some of the nodes of a job that is ending, and no flash."""
        ...

    async def raise_exception(
        self, job: Job, type: str, note: str, severity: int = 0
    ) -> float | None:
        """Raise an exception on the job. One of severity 0 ends it; others only tell of something.

        Return the seconds after which to look whether the job has it; None where that is known.
        """
        ...

    async def record(self, job: Job, values: Mapping[str, Any]) -> None:
        """Write values into the job's record, all at once."""
        ...

    async def memo(self, job: Job, values: Mapping[str, str]) -> None:
        """Show values in listings of the job."""
        ...

    def answer_requests(self, job: Job, mistake: str | None) -> None:
        """Answer the workload manager's requests about a job, which was reconciled.

        They are refused with `mistake` where that says why the job cannot go on.
        """
        ...
