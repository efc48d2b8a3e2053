"""Where jobs, their Workflows, nodes and rabbits do not agree, and what repairs it.

Nothing should be found while a conductor works, but what a site wants admins to put back themselves
(ADR 071, 074). What nothing owns on nodes and in the API is `dws.audit`'s.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.objects import Change
from warren.dws import kinds, labels, tolerance
from warren.dws.jobs import abort
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import State, Workflow
from warren.dws.rabbits import nodedrains, outofservice
from warren.dws.rabbits.outofservice import ServiceAction

_STORAGE_DRAINS: Final = (abort.DRAIN_REASON, nodedrains.DRAIN_REASON, tolerance.DRAIN_REASON)
"""The reasons for which nodes are drained that have lost storage."""


class UndrainNode(msgspec.Struct, frozen=True):
    """Let jobs have a node again."""

    node: str


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    about: str
    """`Workflow NAME`, `job ID`, `node NAME` or `rabbit NAME`."""
    why: str
    remedy: Change | UndrainNode | None = None
    """None where it is the conductor's to repair, or an admin's to look at."""


class JobAuditSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs, the API and the nodes are seen to be."""

    workflow_name_by_job: Mapping[int, str | None]
    """The ids of the active jobs, each with the name of the Workflow that it was told it has."""
    workflows: Sequence[Workflow]
    storages: Sequence[Storage]
    mounts: Sequence[ClientMount]
    drain_reasons: Mapping[str, str]
    """Why nodes are drained."""
    wlm_instance: str
    """What marks the Workflows of these jobs; empty where no Workflow was marked yet."""


def differences(
    observed: JobAuditSnapshot,
    job_of: Callable[[str], int | None],
    format_id: Callable[[int], str],
    now: float,
) -> list[Difference]:
    """Return what does not agree.

    `job_of` returns the job of a Workflow's name, None for others'; `format_id` writes an id down.
    """
    return [
        *_workflow_differences(observed, job_of, format_id),
        *_job_differences(observed, format_id),
        *_node_differences(observed),
        *_rabbit_differences(observed, now),
    ]


def _workflow_differences(
    observed: JobAuditSnapshot, job_of: Callable[[str], int | None], format_id: Callable[[int], str]
) -> Iterator[Difference]:
    for each in observed.workflows:
        meta, job_id = each.metadata, job_of(each.metadata.name)
        if job_id is None or job_id in observed.workflow_name_by_job:
            continue
        if labels.is_of_another_wlm_instance(meta.labels, observed.wlm_instance):
            continue  # it is not told either: its job is known to that instance alone
        about, over_text = f"Workflow {meta.name}", f"its job {format_id(job_id)} is over"
        if each.spec.desired_state is not State.TEARDOWN:
            patch = {"spec": {"desiredState": State.TEARDOWN}}
            remedy = Change(
                kind=kinds.WORKFLOW,
                key=meta.key,
                patch=patch,
                resource_version=meta.resource_version,
            )
            yield Difference(
                about=about, why=f"{over_text}, and it is not torn down", remedy=remedy
            )
        elif each.status.status in ("Error", "TransientCondition"):
            yield Difference(
                about=about, why=f"{over_text}; its Teardown says: {each.status.message}"
            )


def _job_differences(
    observed: JobAuditSnapshot, format_id: Callable[[int], str]
) -> Iterator[Difference]:
    workflow_names = {each.metadata.name for each in observed.workflows}
    for job_id, name in observed.workflow_name_by_job.items():
        if name is not None and name not in workflow_names:
            yield Difference(
                about=f"job {format_id(job_id)}",
                why=f"its Workflow {name} is gone: the conductor ends it; is one running?",
            )


def _node_differences(observed: JobAuditSnapshot) -> Iterator[Difference]:
    mounted_nodes = {each.spec.node for each in observed.mounts if not each.all_in("unmounted")}
    cut_off_nodes = {
        link.name
        for storage in observed.storages
        for link in storage.status.access.computes
        if link.status != "Ready"
    }
    for node, reason in sorted(observed.drain_reasons.items()):
        if reason not in _STORAGE_DRAINS:
            continue
        about, drained_text = f"node {node}", f"is drained ({reason})"
        if reason == abort.DRAIN_REASON and node in mounted_nodes:
            yield Difference(about=about, why=f"{drained_text}, and still has storage mounted")
        elif node in cut_off_nodes:
            yield Difference(about=about, why=f"{drained_text}, and its rabbit is out of its reach")
        else:
            why = f"{drained_text}, and nothing of that is left"
            yield Difference(about=about, why=why, remedy=UndrainNode(node))


def _rabbit_differences(observed: JobAuditSnapshot, now: float) -> Iterator[Difference]:
    workflow_keys = {str(each.metadata.key) for each in observed.workflows}
    for each in observed.storages:
        annotations: Mapping[str, Any] = each.metadata.annotations
        workflow_key = annotations.get(labels.DISABLED_FOR)
        note = outofservice.note(annotations, labels.DISABLED)
        if (
            each.spec.state != "Disabled"
            or workflow_key is None
            or note.get("by") != abort.DISABLED_BY
        ):
            continue
        about, reason = f"rabbit {each.metadata.name}", note.get("reason", "")
        if workflow_key in workflow_keys:
            yield Difference(about=about, why=f"is Disabled ({reason}), and still holds that")
        elif labels.SELF_TEST in annotations:
            yield Difference(about=about, why=f"is Disabled ({reason})")
        else:
            remedy = outofservice.change(
                each, ServiceAction.ENABLE, by=abort.DISABLED_BY, now=now, reason=""
            )
            why = f"is Disabled ({reason}), and nothing of that is left"
            yield Difference(about=about, why=why, remedy=remedy)


def remedies(differences: Iterable[Difference]) -> list[Change | UndrainNode]:
    """Return what repairs differences, for those that have a remedy."""
    return [each.remedy for each in differences if each.remedy is not None]
