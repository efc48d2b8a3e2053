"""What a job waits for, as far as its storage is concerned, in words for its author."""

from typing import TYPE_CHECKING, Final

from warren.dws.binding import Phase
from warren.dws.faults import Fault
from warren.dws.nodelocal import node_counts_by_rabbit
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import State, Workflow
from warren.rfc import hostlist

if TYPE_CHECKING:
    from warren.dws.jobs.jobsnapshot import Job

PHASES: Final = (Phase.HELD, Phase.STARTING, Phase.ENDING)
"""Those in which a job may wait for its storage."""

_STATES_ON_NODES: Final = (State.PRE_RUN, State.POST_RUN)


def reason(
    job: "Job",
    workflow: Workflow | None,
    configuration: SystemConfiguration | None,
    quota_reason: str | None = None,
) -> str | None:
    """Say what a job waits for; None if it does not wait for its storage.

    `quota_reason` is why it has no Workflow yet, if that is not for a moment only.
    """
    if job.phase not in PHASES:
        return None
    if workflow is None:
        return (quota_reason or "waits for its Workflow") if job.phase is Phase.HELD else None
    desired, status = workflow.spec.desired_state, workflow.status
    if status.state is not desired:
        return f"waits for {desired}, which no controller has taken up"
    if status.ready:
        return None
    hosts = job.nodes if desired in _STATES_ON_NODES else _rabbits(job, configuration)
    where = f" on {hostlist.encode(sorted(hosts))}" if hosts else ""
    return f"waits for {desired}{where}" + (f": {status.message}" if status.message else "")


def _rabbits(job: "Job", configuration: SystemConfiguration | None) -> list[str]:
    try:
        return list(node_counts_by_rabbit(job.nodes, configuration))
    except Fault:
        return []
