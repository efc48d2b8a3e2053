"""Flash in the jobspec: resources rewritten so that the scheduler co-schedules it.

`node` becomes `slot(rabbit) > [node, ssd]`, which binds each node to flash of
its own chassis (coral2-spec section 14). Flash that is not beside each node stands
next to that slot, as `chassis > ssd`: so many allocations, on chassis of the job's nodes or on any.
What flash demands of its rabbits stands in the system attribute `dw_constraints`, by the labels of
slot and chassis, in the words of DWS: a jobspec's own constraints are about nodes (RFC 31).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.placing import AllocationSet, Locality
from warren.dws.faults import Fault
from warren.dws.jobs import placement
from warren.dws.objects.breakdowns import EXCLUSIVE, AllocationNeed

_ACCESS_TYPE_BY_LOCALITY: Final = {
    Locality.EVERY_RABBIT_OF_JOB: "physical",
    Locality.ANY: "network",
}
"""How nodes reach what they must be wired to, and what may be anywhere."""

_SLOT_LABEL: Final = "rabbit"
"""The label of the slot around each node."""


class RewrittenResources(msgspec.Struct, frozen=True):
    """What a jobspec asks for, flash included."""

    resources: Sequence[Mapping[str, Any]]
    constraints: Mapping[str, Any]
    """What its flash demands of rabbits, by the labels of the resources (`dw_constraints`)."""


def rewrite(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation_bytes: int,
    largest_rabbit_gib: int | None = None,
    localities: Sequence[Locality] = (),
) -> RewrittenResources:
    """Return the resources with the flash that is needed, where it is not there already.

    `min_allocation_bytes` is the least size of one allocation, and `largest_rabbit_gib` how many
    GiB the largest rabbit has, where that is known. `localities` say of each set which rabbits may
    hold it (`dws.location`). The ssd counts are in GiB. Raises Fault for a jobspec that
    asks for no nodes, or for flash that is not what is needed, and for needs that cannot be
    placed.
    """
    if not needs:
        return RewrittenResources(list(resources), {})
    if any(_contains(each, "ssd") for each in resources):
        return RewrittenResources(
            list(resources),
            _own_constraints(
                resources, needs, min_allocation_bytes, largest_rabbit_gib, localities
            ),
        )
    if len(resources) != 1:
        raise Fault("jobspec: the resources must have a single entry at the top", type="User")
    top = _on_node(resources[0])
    if top["type"] == "chassis":
        return _on_chassis(
            top, _reservation(top, needs, min_allocation_bytes, largest_rabbit_gib, localities)
        )
    if top["type"] != "node":
        raise Fault(
            "a job with #DW directives asks for nodes, or for a single slot: say how many with -N",
            type="User",
        )
    node_count, reservation = (
        top["count"],
        _reservation(top, needs, min_allocation_bytes, largest_rabbit_gib, localities),
    )
    ssds = [_ssd(reservation.gib_per_node)] if reservation.gib_per_node else []
    slot = {"type": "slot", "count": node_count, "label": _SLOT_LABEL}
    return RewrittenResources(
        [
            {**slot, "with": [{**top, "count": 1}, *ssds]},
            *(_chassis(each, number) for number, each in enumerate(reservation.shared_sets)),
        ],
        _constraints(reservation),
    )


def _on_node(top: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a single slot as one on a node that it need not have alone; all else as it is."""
    if top["type"] != "slot" or top["count"] != 1 or least_node_count(top.get("with", ())):
        return top
    return {"type": "node", "count": 1, "exclusive": False, "with": [top]}


def _on_chassis(top: Mapping[str, Any], reservation: placement.Reservation) -> RewrittenResources:
    """Put flash beside the nodes of each chassis: it is shared out between them there."""
    nodes_per_chassis = _nodes_per_chassis(top)
    label_field = {"label": _SLOT_LABEL} if reservation.labels else {}
    ssds = (
        [_ssd(reservation.gib_per_node * nodes_per_chassis)]
        if reservation.gib_per_node and nodes_per_chassis
        else []
    )
    return RewrittenResources(
        [
            {**top, **label_field, "with": [*top.get("with", ()), *ssds]},
            *(_chassis(each, number) for number, each in enumerate(reservation.shared_sets)),
        ],
        _constraints(reservation),
    )


def _nodes_per_chassis(top: Mapping[str, Any]) -> int | None:
    """Return how many nodes are on each chassis, where that is one number. Raises Fault."""
    nodes = [child for child in top.get("with", ()) if child["type"] == "node"]
    if len(nodes) != 1:
        raise Fault("jobspec: a chassis holds nodes once: say how many are on each", type="User")
    count = nodes[0]["count"]
    return count if type(count) is int else None


def _exact_node_count(top: Mapping[str, Any]) -> int | None:
    """Return how many nodes a job has, where that is one number."""
    count = top["count"] if type(top["count"]) is int else None
    if top["type"] != "chassis" or count is None:
        return count
    nodes_per_chassis = _nodes_per_chassis(top)
    return None if nodes_per_chassis is None else count * nodes_per_chassis


def counts_across_nodes(resources: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the numbers of allocations in the sets of a rewritten jobspec that nodes share.

    Sets beside each node are not among them. The numbers are read again when storage is placed:
    what they came from may have changed.
    """
    return tuple(
        each["count"]
        for each in resources[1:]
        if each["type"] == "chassis" and type(each["count"]) is int
    )


def _chassis(allocation_set: AllocationSet, number: int) -> Mapping[str, Any]:
    label_field = {"label": _set_label(number)} if _needs_constraints(allocation_set) else {}
    return {
        "type": "chassis",
        "count": allocation_set.count,
        **label_field,
        "with": [_ssd(allocation_set.gib)],
    }


def _set_label(number: int) -> str:
    return f"{_SLOT_LABEL}-{number}"


def _constraints(reservation: placement.Reservation) -> Mapping[str, Any]:
    """Write in DWS's words what flash demands of rabbits (dws-spec section 3)."""
    constraints: dict[str, Any] = {}
    if reservation.labels:
        constraints[_SLOT_LABEL] = {"labels": list(reservation.labels)}
    for number, each in enumerate(reservation.shared_sets):
        if _needs_constraints(each):
            access_type = _ACCESS_TYPE_BY_LOCALITY.get(each.locality)
            access = [{"type": access_type, "priority": "mandatory"}] if access_type else []
            constraints[_set_label(number)] = {
                "labels": list(each.labels),
                "colocation": [{"type": EXCLUSIVE, "key": key} for key in each.colocation_keys],
                **({"access": access} if access else {}),
            }
    return constraints


def _needs_constraints(allocation_set: AllocationSet) -> bool:
    """Return whether more must be said of allocations than that they are on the job's rabbits."""
    return allocation_set.constrained or allocation_set.locality is not Locality.JOB


def least_node_count(resources: Sequence[Mapping[str, Any]]) -> int:
    """Return the least number of nodes that a jobspec asks for by number; 0 where it does not."""
    total = 0
    for vertex in resources:
        count = vertex["count"] if type(vertex["count"]) is int else 1
        total += count * (
            1 if vertex["type"] == "node" else least_node_count(vertex.get("with", ()))
        )
    return total


def _reservation(
    top: Mapping[str, Any],
    needs: Sequence[AllocationNeed],
    min_allocation_bytes: int,
    largest_rabbit_gib: int | None,
    localities: Sequence[Locality],
    reserved_counts: Sequence[int] = (),
) -> placement.Reservation:
    return placement.reservation(
        needs,
        _exact_node_count(top),
        min_allocation_bytes,
        largest_rabbit_gib,
        reserved_counts,
        localities,
    )


def _own_constraints(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation_bytes: int,
    largest_rabbit_gib: int | None,
    localities: Sequence[Locality],
) -> Mapping[str, Any]:
    """Return what the flash of a jobspec's own demands of rabbits.

    Raises Fault for flash that is not what is needed: it would not be used.
    """
    reservation = _reservation(
        resources[0],
        needs,
        min_allocation_bytes,
        largest_rabbit_gib,
        localities,
        counts_across_nodes(resources),
    )
    if not _has_flash_of(resources, reservation):
        raise Fault(
            "the flash that the jobspec asks for is not what its #DW directives need: "
            "leave its ssds out, and they are put in",
            type="User",
        )
    return _constraints(reservation)


def is_still_enough(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation_bytes: int,
    localities: Sequence[Locality] = (),
) -> bool:
    """Return whether resources that were rewritten have the flash that is needed now.

    Raises Fault for needs that cannot be placed.
    """
    if not needs:
        return True
    top = resources[0]
    return _has_flash_of(
        resources,
        _reservation(
            top, needs, min_allocation_bytes, None, localities, counts_across_nodes(resources)
        ),
    )


def _has_flash_of(
    resources: Sequence[Mapping[str, Any]], reservation: placement.Reservation
) -> bool:
    top, *shared = resources
    needed_shared = [_chassis(each, number) for number, each in enumerate(reservation.shared_sets)]
    nodes_per_chassis = _nodes_per_chassis(top) or 1 if top["type"] == "chassis" else 1
    return (
        _ssd_count(top) >= reservation.gib_per_node * nodes_per_chassis
        and (not reservation.labels or top.get("label") == _SLOT_LABEL)
        and [_comparison_key(each) for each in shared]
        == [_comparison_key(each) for each in needed_shared]
    )


def _comparison_key(vertex: Mapping[str, Any]) -> tuple[Any, ...]:
    return vertex["type"], vertex["count"], vertex.get("label"), _ssd_count(vertex)


def _ssd_count(vertex: Mapping[str, Any]) -> int:
    """Return how many ssds of a GiB a vertex holds, of those whose number is plain."""
    return sum(
        child["count"]
        for child in vertex.get("with", ())
        if child["type"] == "ssd" and type(child["count"]) is int
    )


def _ssd(gib: int) -> Mapping[str, Any]:
    return {"type": "ssd", "count": gib, "exclusive": True}


def _contains(vertex: Mapping[str, Any], vertex_type: str) -> bool:
    return any(
        child["type"] == vertex_type or _contains(child, vertex_type)
        for child in vertex.get("with", ())
    )
