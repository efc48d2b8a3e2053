"""What a SystemStatus says of the compute nodes (dws-spec section 6)."""

from collections.abc import Mapping

from warren.base.objects import Object

ENABLED = "Enabled"
DISABLED = "Disabled"


def changes(current: Mapping[str, str], online: Mapping[str, bool]) -> dict[str, str | None]:
    """Return what is to be changed of what is said; None for nodes that are none any more.

    `online` has all nodes, and whether each of them is there.
    """
    wanted = {node: ENABLED if is_online else DISABLED for node, is_online in online.items()}
    changed: dict[str, str | None] = {
        node: state for node, state in wanted.items() if current.get(node) != state
    }
    return changed | dict.fromkeys(current.keys() - wanted.keys())


def disabled_nodes(status: Object | None) -> frozenset[str]:
    """Return the nodes that a SystemStatus, if there is one, says are out of reach."""
    nodes = ((status or {}).get("data") or {}).get("nodes") or {}
    return frozenset(node for node, state in nodes.items() if state == DISABLED)
