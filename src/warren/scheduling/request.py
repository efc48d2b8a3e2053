"""What a jobspec asks of the graph.

Two shapes are understood: version 1 jobspecs, and those that the storage side
has rewritten, `slot(rabbit) > [node, ssd]`, where each node's ssds must be of its own chassis.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warren.rfc import jobspec
from warren.rfc.errors import BadFormat


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is wanted. Without `nodes`, slots may lie anywhere."""

    nodes: int | None
    slots: int
    cores_per_slot: int
    exclusive: bool
    ssd_gib: int = 0
    """Flash beside each node, in GiB."""

    @property
    def slots_per_node(self) -> int:
        return -(-self.slots // self.nodes) if self.nodes else self.slots


def from_jobspec(spec: Mapping[str, Any]) -> Request:
    """Read what a jobspec asks for. Raises BadFormat for shapes that are not understood."""
    counted = jobspec.summary(spec)
    resources = spec["resources"]
    if len(resources) != 1:
        raise BadFormat(f"jobspec: resources holds {len(resources)} entries, not 1")
    top = resources[0]
    ssd = 0
    if top["type"] == "slot" and any(child["type"] == "node" for child in top["with"]):
        ssd = sum(child["count"] for child in top["with"] if child["type"] == "ssd")
    elif top["type"] not in ("node", "slot"):
        raise BadFormat(f"jobspec: resources of type {top['type']!r} cannot be scheduled")
    return Request(
        nodes=counted.nodes,
        slots=counted.slots,
        cores_per_slot=counted.cores_per_slot,
        exclusive=counted.exclusive,
        ssd_gib=ssd,
    )
