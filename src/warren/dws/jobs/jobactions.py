"""What may be done for a job and its Workflow (`dws.jobs.conduct` decides)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Object, Write
from warren.dws import kinds, labels, reports
from warren.dws.jobs import summary
from warren.dws.jobs.jobsnapshot import Job, JobSnapshot
from warren.dws.objects.workflows import State, Workflow
from warren.dws.pods import podsummary
from warren.dws.pods.podsummary import LogRef


class ReleaseToScheduler(msgspec.Struct, frozen=True):
    """Let the scheduler have the job, with these resources."""

    resources: Sequence[Mapping[str, Any]]
    constraints: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What their flash demands of rabbits (`dws.jobs.resources`)."""
    nodes: tuple[str, ...] | None = None
    """The nodes that it may have; None for all."""
    daemons: tuple[str, ...] = ()
    """The daemons that are to be enabled for it."""


class Start(msgspec.Struct, frozen=True):
    """Let the job's tasks start, with these environment variables."""

    variables: Mapping[str, str]


class Finish(msgspec.Struct, frozen=True):
    """Let the job end: nothing of its storage keeps it any more."""


class FreeNodes(msgspec.Struct, frozen=True):
    """Give nodes back before the job goes: its flash stays with it."""

    nodes: tuple[str, ...]


class Drain(msgspec.Struct, frozen=True):
    """Keep jobs from nodes, for a reason."""

    nodes: tuple[str, ...]
    reason: str


class Undrain(msgspec.Struct, frozen=True):
    """Let jobs have nodes again that were drained for a reason."""

    nodes: tuple[str, ...]
    reason: str


class RaiseException(msgspec.Struct, frozen=True):
    """Give the job an exception; one of severity 0 ends it."""

    type: str
    note: str
    severity: int = 0


class KeepValues(msgspec.Struct, frozen=True):
    """Keep values with the job's record, by their keys in its KVS directory."""

    values: Mapping[str, Any]


class KeepLogs(msgspec.Struct, frozen=True):
    """Keep with the job's record what containers have printed."""

    logs: tuple[LogRef, ...]


class Memo(msgspec.Struct, frozen=True):
    """Show something in listings of the job."""

    values: Mapping[str, str]


class RequeueAfter(msgspec.Struct, frozen=True):
    """Reconcile the job again after so many seconds."""

    seconds: float


Action = (
    Write
    | ReleaseToScheduler
    | Start
    | Finish
    | FreeNodes
    | Drain
    | Undrain
    | RaiseException
    | KeepValues
    | KeepLogs
    | Memo
    | RequeueAfter
)


SUMMARY_KEY: Final = "rabbit_storage"
"""The key of what there is to say of a job's storage (`dws.jobs.summary`)."""

CONTAINER_LOG: Final = "rabbit_container_log"
"""The key of what containers beside a job have printed; flux-coral2's."""

TIMING_KEY_PATTERN: Final = re.compile("rabbit_([a-z]+)_timing")
"""The keys of values that say how long a state took."""


def merge_kept_values(actions: Iterable[Action]) -> list[Action]:
    """Return the same actions, with adjacent KeepValues as one: each costs a job a commit."""
    merged: list[Action] = []
    for action in actions:
        last = merged[-1] if merged else None
        if isinstance(action, KeepValues) and isinstance(last, KeepValues):
            merged[-1] = KeepValues({**last.values, **action.values})
        else:
            merged.append(action)
    return merged


def record_duration(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Return what keeps how long the present state took, if that is known."""
    state = workflow.status.state
    if state is None or workflow.status.elapsed_time_last_state is None:
        return []
    return [KeepValues({f"rabbit_{state.lower()}_timing": workflow.status.elapsed_time_last_state})]


def record_summary(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Return what keeps the Workflow, the summary of its storage, copies as a site wants, and logs.

    Asked for before Teardown, which takes them away.
    """
    storage_summary = summary.summary(
        workflow,
        snapshot.servers.values(),
        snapshot.computes,
        snapshot.mounted_nodes,
        snapshot.movements,
        snapshot.pods,
    )
    values: dict[str, Any] = {
        "rabbit_workflow": snapshot.raw_workflow,
        SUMMARY_KEY: storage_summary,
    }
    if snapshot.max_recorded_movements:
        kept_movements = sorted(snapshot.movements, key=_has_not_failed)[
            : snapshot.max_recorded_movements
        ]
        values["rabbit_datamovements"] = kept_movements
    actions: list[Action] = [KeepValues(values)]
    logs = podsummary.logs_to_keep(snapshot.pods)
    if logs:
        actions.append(KeepLogs(tuple(logs)))
    return actions


def _has_not_failed(movement: Object) -> bool:
    status = movement.get("status") or {}
    return status.get("state") != "Finished" or status.get("status") == "Success"


def request_state(snapshot: JobSnapshot, workflow: Workflow, state: State) -> Change:
    """Return the write that asks for a state; for Teardown, it removes our finalizer, too."""
    finalizer = snapshot.job.binding.finalizer
    metadata: dict[str, Any] = {}
    if state is State.DATA_OUT:
        metadata["annotations"] = {labels.ENDED_AT: workflow.status.desired_state_change}
    if state is State.TEARDOWN and finalizer in workflow.metadata.finalizers:
        metadata |= labels.without_finalizer(workflow.metadata, finalizer)["metadata"]
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch={"spec": {"desiredState": state}, **({"metadata": metadata} if metadata else {})},
        resource_version=workflow.metadata.resource_version,
    )


def release_workflow(job: Job, workflow: Workflow) -> Change:
    """Return the write that removes our finalizer: the Workflow may be deleted then."""
    return reports.remove_finalizer(kinds.WORKFLOW, workflow.metadata, job.binding.finalizer)
