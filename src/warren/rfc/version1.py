"""Version 1 jobspecs by the letter of RFC 25: one slot, or one on each node, and one task.

Where the RFC's schema and its words differ: `exclusive` may stand on the node, as the
words have it and flux writes it, and on the slot, as the schema has it; a command is a
list; a total may be above the number of slots, as in the RFC's own use case 2.1.
"""

from collections.abc import Mapping
from typing import Any, Final

from warren.rfc import canonical
from warren.rfc.canonical import is_whole, require

_KEYS_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "node": frozenset({"type", "count", "unit", "with", "exclusive"}),
    "slot": frozenset({"type", "count", "unit", "with", "exclusive", "label"}),
    "core": frozenset({"type", "count", "unit"}),
    "gpu": frozenset({"type", "count", "unit"}),
}


def check(spec: Any) -> Mapping[str, Any]:
    """Return `spec` back if it is a version 1 jobspec.

    Raises BadFormat with the path of the mistake: `jobspec: resources[0].with[1].count ...`.
    """
    canonical.check(spec)
    require(spec["version"] == 1, "version", "is not 1")
    require(len(spec["resources"]) == 1, "resources", "is not exactly one resource")
    top = spec["resources"][0]
    require(top["type"] in ("node", "slot"), "resources[0].type", "is neither node nor slot")
    _check_keys(top, "resources[0]")
    slot, path = top, "resources[0]"
    if top["type"] == "node":
        children = top.get("with", [])
        require(len(children) == 1 and children[0]["type"] == "slot", "resources[0].with",
                "is not exactly one slot")  # fmt: skip
        slot, path = children[0], "resources[0].with[0]"
        _check_keys(slot, path)
    require(sorted(child["type"] for child in slot["with"]) in (["core"], ["core", "gpu"]),
            f"{path}.with", "is neither a core nor a core and a gpu")  # fmt: skip
    for index, child in enumerate(slot["with"]):
        _check_keys(child, f"{path}.with[{index}]")
    require(len(spec["tasks"]) == 1, "tasks", "is not exactly one task")
    _check_task(spec["tasks"][0], top["count"] if top["type"] == "node" else 1)
    attributes = spec["attributes"]
    require(attributes is not None and "system" in attributes, "attributes.system", "is missing")
    require("duration" in attributes["system"], "attributes.system.duration", "is missing")
    return spec  # type: ignore[no-any-return]


def _check_keys(vertex: Mapping[str, Any], path: str) -> None:
    for key in vertex:
        require(key in _KEYS_BY_TYPE[vertex["type"]], f"{path}.{key}",
                f"may not stand on a {vertex['type']} in version 1")  # fmt: skip
    require(is_whole(vertex["count"]), f"{path}.count", "is not a whole number of at least 1")


def _check_task(task: Mapping[str, Any], node_count: int) -> None:
    for key in task:
        require(key in ("command", "slot", "count"), f"tasks[0].{key}",
                "may not stand on a task in version 1")  # fmt: skip
    count = task["count"]
    require(count.get("per_slot") == 1 or "total" in count, "tasks[0].count",
            "is neither per_slot 1 nor a total")  # fmt: skip
    require(count.get("total", node_count) >= node_count, "tasks[0].count.total",
            f"is less than the {node_count} nodes")  # fmt: skip
