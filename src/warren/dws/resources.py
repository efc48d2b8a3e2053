"""Flash in the jobspec: resources rewritten so that the scheduler co-schedules it.

`node` becomes `slot(rabbit) > [node, ssd]`, which binds each node to flash of
its own chassis (coral2-spec section 14).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from warren.base.bytesize import whole_gib
from warren.dws.breakdown import PER_COMPUTE
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed


def rewritten(
    resources: Sequence[Mapping[str, Any]], needs: Sequence[AllocationNeed], floor: int
) -> list[Mapping[str, Any]] | None:
    """Give the resources with flash beside each node; None if it is there already.

    `floor` is the least size of one allocation, in bytes. The ssd count is in
    GiB. Raises Fault for a jobspec that asks for no nodes.
    """
    if not needs:
        return list(resources)
    if len(resources) != 1:
        raise Fault("jobspec: the resources must have a single entry at the top", type="User")
    top = resources[0]
    if _has(top, "ssd"):
        return None
    if top["type"] != "node":
        raise Fault("a job with #DW directives asks for nodes: say how many with -N", type="User")
    nodes = top["count"]
    gib = sum(_gib_per_node(need, nodes, floor) for need in needs)
    return [
        {
            "type": "slot",
            "count": nodes,
            "label": "rabbit",
            "with": [
                {**top, "count": 1},
                {"type": "ssd", "count": gib, "exclusive": True},
            ],
        }
    ]


def _gib_per_node(need: AllocationNeed, nodes: int, floor: int) -> int:
    size = whole_gib(max(need.minimum_capacity, floor))
    return size if need.allocation_strategy == PER_COMPUTE else -(-size // nodes)


def _has(vertex: Mapping[str, Any], kind: str) -> bool:
    return any(child["type"] == kind or _has(child, kind) for child in vertex.get("with", ()))
