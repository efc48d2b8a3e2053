"""Flash in the jobspec: resources rewritten so that the scheduler co-schedules it.

`node` becomes `slot(rabbit) > [node, ssd]`, which binds each node to flash of
its own chassis (coral2-spec section 14). Flash that is not beside each node stands
next to that slot, as `chassis > ssd`: so many allocations, on chassis of the job's nodes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from warren.dws import placement
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed


def rewritten(
    resources: Sequence[Mapping[str, Any]], needs: Sequence[AllocationNeed], floor: int
) -> list[Mapping[str, Any]] | None:
    """Return the resources with the flash that is needed; None if it is there already.

    `floor` is the least size of one allocation, in bytes. The ssd counts are in
    GiB. Raises Fault for a jobspec that asks for no nodes, or for flash that is not
    what is needed, and for needs that cannot be placed.
    """
    if not needs:
        return list(resources)
    if any(_has(each, "ssd") for each in resources):
        _check_own(resources, needs, floor)
        return None
    if len(resources) != 1:
        raise Fault("jobspec: the resources must have a single entry at the top", type="User")
    top = resources[0]
    if top["type"] != "node":
        raise Fault("a job with #DW directives asks for nodes: say how many with -N", type="User")
    nodes, wanted = top["count"], _wanted(top, needs, floor)
    beside = [_ssd(wanted.beside)] if wanted.beside else []
    return [
        {"type": "slot", "count": nodes, "label": "rabbit", "with": [{**top, "count": 1}, *beside]},
        *(
            {"type": "chassis", "count": each.count, "with": [_ssd(each.gib)]}
            for each in wanted.shared
        ),
    ]


def _wanted(
    top: Mapping[str, Any], needs: Sequence[AllocationNeed], floor: int
) -> placement.Reservation:
    nodes = top["count"]
    return placement.reserve(needs, nodes if type(nodes) is int else None, floor)


def _check_own(
    resources: Sequence[Mapping[str, Any]], needs: Sequence[AllocationNeed], floor: int
) -> None:
    """Raise Fault for flash in a jobspec that is not what is needed: it would not be used."""
    top, *others = resources
    wanted = _wanted(top, needs, floor)
    if _gib(top) < wanted.beside or [(each["count"], _gib(each)) for each in others] != [
        (each.count, each.gib) for each in wanted.shared
    ]:
        raise Fault(
            "the flash that the jobspec asks for is not what its #DW directives need: "
            "leave its ssds out, and they are put in",
            type="User",
        )


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
