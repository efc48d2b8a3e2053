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

_ACCESS: Final = {Locality.NODE: "physical", Locality.ANY: "network"}
"""How nodes reach what they must be wired to, and what may be anywhere."""

_SLOT: Final = "rabbit"
"""The label of the slot around each node."""


class RewrittenResources(msgspec.Struct, frozen=True):
    """What a jobspec asks for, flash included."""

    resources: Sequence[Mapping[str, Any]]
    constraints: Mapping[str, Any]
    """What its flash demands of rabbits, by the labels of the resources (`dw_constraints`)."""


def rewrite(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation: int,
    largest_rabbit_gib: int | None = None,
    localities: Sequence[Locality] = (),
) -> RewrittenResources:
    """Return the resources with the flash that is needed, where it is not there already.

    `min_allocation` is the least size of one allocation, in bytes, and `largest_rabbit_gib` how
    many GiB the largest rabbit has, where that is known. `localities` say of each set which
    rabbits may hold it (`dws.location`). The ssd counts are in GiB. Raises Fault for a jobspec that
    asks for no nodes, or for flash that is not what is needed, and for needs that cannot be
    placed.
    """
    if not needs:
        return RewrittenResources(list(resources), {})
    if any(_has(each, "ssd") for each in resources):
        return RewrittenResources(
            list(resources),
            _own_constraints(resources, needs, min_allocation, largest_rabbit_gib, localities),
        )
    if len(resources) != 1:
        raise Fault("jobspec: the resources must have a single entry at the top", type="User")
    top = _on_node(resources[0])
    if top["type"] == "chassis":
        return _on_chassis(
            top, _reservation(top, needs, min_allocation, largest_rabbit_gib, localities)
        )
    if top["type"] != "node":
        raise Fault(
            "a job with #DW directives asks for nodes, or for a single slot: say how many with -N",
            type="User",
        )
    nodes, wanted = (
        top["count"],
        _reservation(top, needs, min_allocation, largest_rabbit_gib, localities),
    )
    beside = [_ssd(wanted.gib_per_node)] if wanted.gib_per_node else []
    slot = {"type": "slot", "count": nodes, "label": _SLOT}
    return RewrittenResources(
        [
            {**slot, "with": [{**top, "count": 1}, *beside]},
            *(_chassis(each, number) for number, each in enumerate(wanted.shared_sets)),
        ],
        _constraints(wanted),
    )


def _on_node(top: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a single slot as one on a node that it need not have alone; all else as it is."""
    if top["type"] != "slot" or top["count"] != 1 or least_node_count(top.get("with", ())):
        return top
    return {"type": "node", "count": 1, "exclusive": False, "with": [top]}


def _on_chassis(top: Mapping[str, Any], wanted: placement.Reservation) -> RewrittenResources:
    """Put flash beside the nodes of each chassis: it is shared out between them there."""
    nodes = _nodes_per_chassis(top)
    named = {"label": _SLOT} if wanted.labels else {}
    flash = [_ssd(wanted.gib_per_node * nodes)] if wanted.gib_per_node and nodes else []
    return RewrittenResources(
        [
            {**top, **named, "with": [*top.get("with", ()), *flash]},
            *(_chassis(each, number) for number, each in enumerate(wanted.shared_sets)),
        ],
        _constraints(wanted),
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
    each = _nodes_per_chassis(top)
    return None if each is None else count * each


def shared_counts(resources: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """Return the numbers of allocations that a rewritten jobspec asks for, beside those of nodes.

    They are read again when storage is placed: what they came from may have changed.
    """
    return tuple(
        each["count"]
        for each in resources[1:]
        if each["type"] == "chassis" and type(each["count"]) is int
    )


def _chassis(each: AllocationSet, number: int) -> Mapping[str, Any]:
    named = {"label": _label(number)} if _needs_constraints(each) else {}
    return {"type": "chassis", "count": each.count, **named, "with": [_ssd(each.gib)]}


def _label(number: int) -> str:
    return f"{_SLOT}-{number}"


def _constraints(wanted: placement.Reservation) -> Mapping[str, Any]:
    """Write in DWS's words what flash demands of rabbits (dws-spec section 3)."""
    found: dict[str, Any] = {}
    if wanted.labels:
        found[_SLOT] = {"labels": list(wanted.labels)}
    for number, each in enumerate(wanted.shared_sets):
        if _needs_constraints(each):
            reached = _ACCESS.get(each.locality)
            access = [{"type": reached, "priority": "mandatory"}] if reached else []
            found[_label(number)] = {
                "labels": list(each.labels),
                "colocation": [{"type": EXCLUSIVE, "key": key} for key in each.colocation_keys],
                **({"access": access} if access else {}),
            }
    return found


def _needs_constraints(each: AllocationSet) -> bool:
    """Return whether more must be said of allocations than that they are on the job's rabbits."""
    return each.constrained or each.locality is not Locality.JOB


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
    min_allocation: int,
    largest_rabbit_gib: int | None,
    localities: Sequence[Locality],
    counts: Sequence[int] = (),
) -> placement.Reservation:
    return placement.reserve(
        needs, _exact_node_count(top), min_allocation, largest_rabbit_gib, counts, localities
    )


def _own_constraints(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation: int,
    largest_rabbit_gib: int | None,
    localities: Sequence[Locality],
) -> Mapping[str, Any]:
    """Return what the flash of a jobspec's own demands of rabbits.

    Raises Fault for flash that is not what is needed: it would not be used.
    """
    wanted = _reservation(
        resources[0],
        needs,
        min_allocation,
        largest_rabbit_gib,
        localities,
        shared_counts(resources),
    )
    if not _has_flash_of(resources, wanted):
        raise Fault(
            "the flash that the jobspec asks for is not what its #DW directives need: "
            "leave its ssds out, and they are put in",
            type="User",
        )
    return _constraints(wanted)


def is_still_enough(
    resources: Sequence[Mapping[str, Any]],
    needs: Sequence[AllocationNeed],
    min_allocation: int,
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
        _reservation(top, needs, min_allocation, None, localities, shared_counts(resources)),
    )


def _has_flash_of(resources: Sequence[Mapping[str, Any]], wanted: placement.Reservation) -> bool:
    top, *others = resources
    needed = [_chassis(each, number) for number, each in enumerate(wanted.shared_sets)]
    each = _nodes_per_chassis(top) or 1 if top["type"] == "chassis" else 1
    return (
        _gib(top) >= wanted.gib_per_node * each
        and (not wanted.labels or top.get("label") == _SLOT)
        and [_comparison_key(each) for each in others] == [_comparison_key(each) for each in needed]
    )


def _comparison_key(vertex: Mapping[str, Any]) -> tuple[Any, ...]:
    return vertex["type"], vertex["count"], vertex.get("label"), _gib(vertex)


def _gib(vertex: Mapping[str, Any]) -> int:
    """Return how many ssds of a GiB a vertex holds, of those whose number is plain."""
    return sum(
        child["count"]
        for child in vertex.get("with", ())
        if child["type"] == "ssd" and type(child["count"]) is int
    )


def _ssd(gib: int) -> Mapping[str, Any]:
    return {"type": "ssd", "count": gib, "exclusive": True}


def _has(vertex: Mapping[str, Any], kind: str) -> bool:
    return any(child["type"] == kind or _has(child, kind) for child in vertex.get("with", ()))
