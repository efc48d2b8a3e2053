"""Nodes that a job loses to failing storage, and goes on without (coral2-spec section 6, ADR 072).

Which they are stands in an annotation of the Workflow, and of the NnfAccesses that leave them out.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from warren.base.objects import Change
from warren.base.times import parse_rfc3339
from warren.dws import kinds, labels, nodelocal
from warren.dws.node import TIMED_OUT
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.meta import Meta
from warren.dws.objects.workflows import Workflow
from warren.rfc import hostlist
from warren.rfc.errors import BadFormat

EXCEPTION: Final = "dws-node-failure"
"""The type of the exception that tells a job of them; its note is a hostlist."""

DRAIN_REASON: Final = "rabbit storage is not there"
"""Why nodes are drained that have not mounted it."""


_ANSWER_SECONDS: Final = 180.0
"""Seconds after which a node says what came of a mount that it was asked for, if it says anything.

A mount is several commands, and each has its own time limit, and 10 s to die then. To look up a
rabbit, connect a volume and mount it takes 110 s at most, and a Lustre 130 s; in what is left two
commands of a profile may hang, or one.
"""


def says_it_cannot_mount(mount: ClientMount) -> bool:
    """Return whether a node says that it cannot mount, and not only that it takes long.

    That may come of what others of the job's user write to the same flash.
    """
    error = mount.status.error
    return error is not None and TIMED_OUT not in error.debug_message


def is_silent(mount: ClientMount, now: float) -> bool:
    """Return whether a node has said nothing of a mount for longer than it takes to answer."""
    created = mount.metadata.creation_timestamp
    return (
        mount.status.error is None
        and created is not None
        and parse_rfc3339(created) + _ANSWER_SECONDS <= now
    )


def nodes_without_storage(
    nodes: Iterable[str], servers: Iterable[Servers], wiring: Mapping[str, str]
) -> frozenset[str]:
    """Return the nodes whose rabbit has not made all that it is to hold."""
    late_rabbits = frozenset[str]().union(*(_rabbits_not_ready(each) for each in servers))
    return frozenset(node for node in nodes if wiring.get(node) in late_rabbits)


def _rabbits_not_ready(servers: Servers) -> set[str]:
    ready_sets_and_rabbits = {
        (allocation_set.get("label"), rabbit)
        for allocation_set in servers.status.allocation_sets
        for rabbit, rabbit_status in allocation_set.get("storage", {}).items()
        if rabbit_status.get("ready")
    }
    return {
        server.name
        for each in servers.spec.allocation_sets
        for server in each.storage
        if (each.label, server.name) not in ready_sets_and_rabbits
    }


def lost_nodes(meta: Meta) -> frozenset[str]:
    """Return the nodes that an object's annotation says are lost."""
    return node_names(meta.annotations.get(labels.LOST_NODES, ""))


def node_names(text: str) -> frozenset[str]:
    """Return the nodes of a hostlist; none where it is no hostlist."""
    try:
        return frozenset(hostlist.decode(text))
    except BadFormat:
        return frozenset()


def annotation(lost: Iterable[str]) -> dict[str, str]:
    """Return the annotation that says which nodes are lost; none where none are."""
    return {labels.LOST_NODES: hostlist.encode(sorted(lost))} if lost else {}


def change_to_go_on_without(workflow: Workflow, lost: Iterable[str]) -> Change:
    """Have a Workflow go on with its state as if these nodes had what they lack."""
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch={"metadata": {"annotations": annotation(lost)}, "spec": {"forceReady": True}},
        resource_version=workflow.metadata.resource_version,
    )


def remaining_allocations(
    computes: Computes | None, wiring: Mapping[str, str], lost: Collection[str]
) -> dict[str, list[int]]:
    """Return the allocations that are left, by rabbit: those of nodes that are not lost.

    A lost node may still have one of the others mounted: a second mount would damage it.
    """
    nodes = [node.name for node in computes.data] if computes is not None else []
    numbers_by_rabbit: dict[str, list[int]] = {}
    for node, number in nodelocal.allocation_numbers(nodes, wiring).items():
        if node not in lost:
            numbers_by_rabbit.setdefault(wiring[node], []).append(number)
    return numbers_by_rabbit
