"""Small jobspecs, to be changed by tests."""

from typing import Any

CORE = {"type": "core", "count": 1}
SLOT = {"type": "slot", "count": 1, "label": "task", "with": [CORE]}
NODE = {"type": "node", "count": 2, "with": [SLOT]}


def spec(*resources: Any, **changes: Any) -> dict[str, Any]:
    """Make a small jobspec, with `changes` at its top."""
    made = {
        "version": 1,
        "resources": list(resources or [SLOT]),
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60}},
    }
    return {**made, **changes}


def task(**changes: Any) -> list[dict[str, Any]]:
    return [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}, **changes}]


def system(**changes: Any) -> dict[str, Any]:
    return {"system": {"duration": 60, **changes}}
