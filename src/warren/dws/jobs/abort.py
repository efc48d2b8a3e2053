"""What is done about storage whose job was let go before it: `dws.abort` (coral2-spec section 10).

Nodes that have it mounted take no other job, and rabbits that hold flash of it make nothing more,
until an admin has looked at them. Its Teardown goes on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from warren.base.objects import Change, Object
from warren.base.times import rfc3339
from warren.dws import kinds, labels
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.outofservice import Action
from warren.rfc import hostlist

DRAIN_REASON: Final = "failed to unmount rabbit"
"""Why nodes are drained. Those that are drained for this are Disabled in the SystemStatus."""

DISABLED_BY: Final = "warren"
"""Who disables rabbits."""


def mounted_nodes(computes: Computes | None, nodes: Collection[str]) -> tuple[str, ...]:
    """Return which of a job's compute nodes are among those that have its storage mounted."""
    data = computes.data if computes is not None else ()
    return tuple(sorted({each.name for each in data if each.name in nodes}))


def rabbits_with_allocations(servers: Iterable[Servers]) -> list[str]:
    """Return the rabbits that hold an allocation, as the status of Servers says."""
    return sorted(
        {
            rabbit
            for each in servers
            for allocation_set in each.status.allocation_sets
            for rabbit, entry in allocation_set.get("storage", {}).items()
            if entry.get("allocationSize", 0) > 0
        }
    )


def disable_rabbits(
    workflow: Workflow, servers: Iterable[Servers], storages: Mapping[str, Storage], now: float
) -> Iterator[Change]:
    """Disable the rabbits that hold an allocation, but for those that are Disabled."""
    reason = f"workflow {workflow.metadata.name} timed out with an active allocation on this rabbit"
    for rabbit in rabbits_with_allocations(servers):
        storage = storages.get(rabbit)
        if storage is not None and storage.spec.state != "Disabled":
            annotations = {
                "disable_reason": reason,
                "disable_date": rfc3339(now),
                labels.DISABLED_FOR: str(workflow.metadata.key),
            }
            change = outofservice.change(
                storage, Action.DISABLE, by=DISABLED_BY, now=now, reason=reason
            )
            yield outofservice.annotate(change, annotations)


def is_marked_aborted(workflow: Workflow) -> bool:
    """Return whether a job was aborted: its Workflow has the annotation of `mark_aborted`."""
    return labels.ABORTED in workflow.metadata.annotations


def has_abort_annotation(workflow: Object) -> bool:
    """Return the same as `is_marked_aborted`, also for a Workflow that cannot be read."""
    return labels.ABORTED in (workflow["metadata"].get("annotations") or {})


def nodes_of_abort(workflow: Object) -> frozenset[str]:
    """Return the compute nodes of an aborted job; of one that was not, none."""
    annotations = workflow["metadata"].get("annotations") or {}
    return frozenset(hostlist.decode(annotations.get(labels.ABORTED_NODES, "")))


def mark_aborted(workflow: Workflow, computes: Computes | None, now: float) -> Change:
    """Note on a Workflow that its job was aborted, so that what admins put back stays so."""
    data = computes.data if computes is not None else ()
    annotations = {
        labels.ABORTED: rfc3339(now),
        labels.ABORTED_NODES: hostlist.encode(sorted(each.name for each in data)),
    }
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch={"metadata": {"annotations": annotations}},
        resource_version=workflow.metadata.resource_version,
    )
