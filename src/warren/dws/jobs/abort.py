"""What is done about storage that is left when a job is let go by `dws.abort`.

Nodes that do not unmount it take no other job, and rabbits that do not give it back make nothing
more, until an admin has looked at them. What is only in use is no fault of theirs (ADR 110). Its
Teardown goes on (coral2-spec section 10).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from warren.base.objects import Change, Object
from warren.base.times import rfc3339
from warren.dws import kinds, labels
from warren.dws.node import says_kept, says_waiting
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.nnfstorages import NnfNodeStorage
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.outofservice import ServiceAction
from warren.rfc import hostlist

DRAIN_REASON: Final = "failed to unmount rabbit"
"""Why nodes are drained. Those that are drained for this are Disabled in the SystemStatus."""

DISABLED_BY: Final = "warren"
"""Who disables rabbits."""


_WELL_STATUSES: Final = ("Ready", "Drained")
"""The statuses of rabbits that are heard of, and whose flash can be used."""


_WAIT_SECONDS: Final = 300.0
"""For how long it is waited for what nodes and rabbits wait for themselves, so that they say then
whether it is kept or fails. Longer than `busy-timeout` is with most sites."""


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of a job's storage when it is let go."""

    seconds: float
    """For how long it has been looked at."""
    mounts: Sequence[ClientMount] = ()
    """On its nodes, and on its rabbits."""
    shares: Sequence[NnfNodeStorage] | None = ()
    """Of its flash on rabbits; None where they cannot be listed."""
    storages: Mapping[str, Storage] = {}
    """The rabbits that hold flash of it, by name."""
    unreachable_nodes: Collection[str] = ()
    """The nodes that the SystemStatus says are out of reach."""
    rabbits_of_nodes: Mapping[str, str] = {}
    """The rabbit of each node, as far as that is known."""


def is_waited_for(leftovers: Leftovers) -> bool:
    """Return whether to look again before anything is taken out of service.

    An agent waits for whatever it cannot give back, and says only then why that is (ADR 028).
    """
    errors = [
        *(each.status.error for each in leftovers.mounts if not each.all_in("unmounted")),
        *(each.status.error for each in leftovers.shares or () if each.metadata.deleting),
    ]
    return leftovers.seconds < _WAIT_SECONDS and any(says_waiting(error) for error in errors)


def nodes_to_drain(computes: Computes | None, mounts: Iterable[ClientMount]) -> tuple[str, ...]:
    """Return the compute nodes that have a job's storage mounted, and not for that it is in use."""
    # By the namespace of the mount: its node's agent may write the rest.
    nodes = {
        each.metadata.namespace
        for each in mounts
        if not (each.all_in("unmounted") or says_kept(each.status.error))
    }
    data = computes.data if computes is not None else ()
    return tuple(sorted({each.name for each in data if each.name in nodes}))


def rabbits_with_allocations(servers: Iterable[Servers]) -> list[str]:
    """Return the rabbits that hold an allocation, as the status of Servers says."""
    return sorted(
        {
            rabbit
            for each in servers
            for allocation_set in each.status.allocation_sets
            for rabbit, rabbit_status in allocation_set.get("storage", {}).items()
            if rabbit_status.get("allocationSize", 0) > 0
        }
    )


def rabbits_to_disable(
    workflow: Workflow, servers: Iterable[Servers], leftovers: Leftovers
) -> list[str]:
    """Return the rabbits that hold an allocation and may not be well.

    They are not heard of, or have been asked to give it back, or nodes to unmount it, and have not
    done so, for another reason than that it is in use. Copies and containers may take their time.
    Where it is not known what was asked of them, it is all of them.
    """
    rabbits = rabbits_with_allocations(servers)
    if leftovers.shares is None:
        suspects = set(rabbits)
    else:
        suspects = {
            each.metadata.namespace
            for each in leftovers.shares
            if each.metadata.deleting and not says_kept(each.status.error)
        }
    for mount in leftovers.mounts:
        # A node that is out of reach says nothing of its rabbit.
        if _hangs(mount) and mount.metadata.namespace not in leftovers.unreachable_nodes:
            suspects |= _rabbits_of(mount, rabbits, workflow, leftovers.rabbits_of_nodes)
    return [
        rabbit
        for rabbit in rabbits
        if rabbit in leftovers.storages
        and (rabbit in suspects or leftovers.storages[rabbit].status.status not in _WELL_STATUSES)
    ]


def _hangs(mount: ClientMount) -> bool:
    """Return whether a mount was to be taken away and is there, and not for that it is in use."""
    is_asked = mount.metadata.deleting or mount.spec.desired_state == "unmounted"
    return is_asked and not (mount.all_in("unmounted") or says_kept(mount.status.error))


def _rabbits_of(
    mount: ClientMount,
    rabbits: Collection[str],
    workflow: Workflow,
    rabbits_of_nodes: Mapping[str, str],
) -> set[str]:
    """Return the rabbits that a mount is of; where that cannot be told, all `rabbits` of the job.

    A Lustre is on any of them, if it is the job's own.
    """
    node = mount.metadata.namespace
    devices = [each.device for each in mount.spec.mounts]
    if all(each.lustre is None for each in devices):
        # Only our volume groups are called as their rabbit.
        names = {node, *(each.lvm.volume_group for each in devices if each.lvm is not None)}
        if not names.isdisjoint(rabbits):
            return names
        if node in rabbits_of_nodes:
            return {rabbits_of_nodes[node]}
    # Mounts of before may not say whose they are.
    uid = workflow.metadata.uid
    is_own = mount.metadata.labels.get(labels.TARGET_OWNER, uid) == uid
    return set(rabbits) if is_own else set()


def disable_rabbits(
    workflow: Workflow, servers: Iterable[Servers], leftovers: Leftovers, now: float
) -> Iterator[Change]:
    """Disable the rabbits that may not be well, but for those that are Disabled."""
    reason = f"workflow {workflow.metadata.name} timed out with an active allocation on this rabbit"
    for rabbit in rabbits_to_disable(workflow, servers, leftovers):
        storage = leftovers.storages[rabbit]
        if storage.spec.state != "Disabled":
            annotations = {
                "disable_reason": reason,
                "disable_date": rfc3339(now),
                labels.DISABLED_FOR: str(workflow.metadata.key),
            }
            change = outofservice.change(
                storage, ServiceAction.DISABLE, by=DISABLED_BY, now=now, reason=reason
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
