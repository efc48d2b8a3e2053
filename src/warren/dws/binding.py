"""The names that one workload manager uses with DWS, and the phases of its jobs."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from warren.base.objects import Key
from warren.dws import kinds


class Phase(StrEnum):
    """Where a job is, as far as its storage is concerned."""

    NEW = "new"
    """Its storage is not asked for yet, or no more, and it waits for something else."""
    HELD = "held"
    """Accepted, and kept from the scheduler until it is known what it needs."""
    QUEUED = "queued"
    """Waiting for resources."""
    STARTING = "starting"
    """Has its nodes, and waits for its storage to be mounted."""
    RUNNING = "running"
    ENDING = "ending"
    """Its tasks are gone, and it waits for its storage to be given back."""
    OVER = "over"
    """Waits for nothing more; or there is no such job."""


class Binding(msgspec.Struct, frozen=True):
    """The names by which one workload manager is known to DWS."""

    wlm_id: str
    """The `wlmID` of its Workflows."""
    prefix: str
    """What the names of its Workflows begin with; the job's id follows."""
    finalizer: str
    """What keeps a Workflow until its job is over."""
    exceptions: Mapping[Phase, str]
    """The types of exception for jobs that cannot go on, by phase."""

    def workflow_key(self, job_id: int) -> Key:
        """Return the key of a job's Workflow."""
        return Key(kinds.DEFAULT_NAMESPACE, f"{self.prefix}{job_id}")

    def job_id(self, workflow_name: str) -> int | None:
        """Return the job that a Workflow of such a name is for; None if it is another's."""
        number = workflow_name.removeprefix(self.prefix)
        is_ours = workflow_name.startswith(self.prefix) and number.isascii() and number.isdecimal()
        return int(number) if is_ours else None

    def exception_type(self, phase: Phase) -> str:
        """Return the type of exception for a job that cannot go on."""
        return self.exceptions.get(phase, "exception")
