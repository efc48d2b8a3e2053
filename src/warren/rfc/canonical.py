"""Canonical jobspecs by the letter of RFC 14: any resource graph, any number of tasks.

What this instance can run is asked of `jobspec.check`; this module knows only what
may be written. It is stricter than the RFC's schema where the RFC's words are: labels
are unique, slots hold something, tasks lie in slots that exist.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from warren.rfc import constraint, counts, dependency
from warren.rfc.errors import BadFormat

_REQUIRED_KEYS: Final = ("version", "resources", "tasks", "attributes")
_VERTEX_KEYS: Final = frozenset({"type", "count", "unit", "exclusive", "with", "label", "id"})
_TASK_KEYS: Final = frozenset({"command", "slot", "count", "distribution", "attributes"})
_DEEPEST: Final = 100


def check(spec: Any) -> Mapping[str, Any]:
    """Return `spec` back if it is a canonical jobspec.

    Raises BadFormat with the path of the mistake: `jobspec: resources[0].with[1].count ...`.
    System attributes that are not known are left alone.
    """
    require(isinstance(spec, Mapping), "jobspec", "is not an object")
    for key in _REQUIRED_KEYS:
        require(key in spec, key, "is missing")
    require(is_whole(spec["version"]), "version", "is not a whole number")
    resources = spec["resources"]
    require(isinstance(resources, list) and bool(resources), "resources",
            "is not a list of at least one resource")  # fmt: skip
    labels: set[str] = set()
    for index, resource in enumerate(resources):
        _check_vertex(resource, f"resources[{index}]", labels, 1)
    slots = {slot["label"]: slot for slot in _vertices(resources) if slot["type"] == "slot"}
    tasks = spec["tasks"]
    require(isinstance(tasks, list) and bool(tasks), "tasks", "is not a list of at least one task")
    for index, task in enumerate(tasks):
        _check_task(task, f"tasks[{index}]", slots)
    _check_attributes(spec["attributes"])
    return spec  # type: ignore[no-any-return]


def require(condition: bool, path: str, problem: str) -> None:
    """Raise BadFormat for the place `path` unless `condition` holds."""
    if not condition:
        raise BadFormat(f"jobspec: {path} {problem}")


def is_whole(value: Any) -> bool:
    """Return whether `value` is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_vertex(vertex: Any, path: str, labels: set[str], depth: int) -> None:
    require(isinstance(vertex, Mapping), path, "is not an object")
    require(depth <= _DEEPEST, "resources", f"is nested more than {_DEEPEST} deep")
    _require_known_keys(vertex, _VERTEX_KEYS, path)
    for key in ("type", "count"):
        require(key in vertex, f"{path}.{key}", "is missing")
    for key in ("type", "unit", "label", "id"):
        if key in vertex:
            require(isinstance(vertex[key], str), f"{path}.{key}", "is not a string")
    try:
        counts.parse(vertex["count"])
    except BadFormat as error:
        raise BadFormat(f"jobspec: {path}.{error}") from None
    if "exclusive" in vertex:
        require(isinstance(vertex["exclusive"], bool), f"{path}.exclusive", "is not true or false")
    children = vertex.get("with", [])
    require(isinstance(children, list), f"{path}.with", "is not a list")
    if vertex["type"] == "slot":
        require("label" in vertex, f"{path}.label", "is missing")
        require(bool(children), f"{path}.with", "is missing or empty: a slot holds something")
    if "label" in vertex:
        require(vertex["label"] not in labels, f"{path}.label", "is the label of another resource")
        labels.add(vertex["label"])
    for index, child in enumerate(children):
        _check_vertex(child, f"{path}.with[{index}]", labels, depth + 1)


def _vertices(resources: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for vertex in resources:
        yield vertex
        yield from _vertices(vertex.get("with", ()))


def _check_task(task: Any, path: str, slots: Mapping[str, Mapping[str, Any]]) -> None:
    require(isinstance(task, Mapping), path, "is not an object")
    _require_known_keys(task, _TASK_KEYS, path)
    for key in ("command", "slot", "count"):
        require(key in task, f"{path}.{key}", "is missing")
    command = task["command"]
    require(
        isinstance(command, list) and bool(command) and all(isinstance(w, str) for w in command),
        f"{path}.command",
        "is not a list of at least one word",
    )
    require(isinstance(task["slot"], str), f"{path}.slot", "is not a string")
    require(task["slot"] in slots, f"{path}.slot", "is not the label of a slot")
    _check_task_count(task["count"], f"{path}.count", slots[task["slot"]])
    require(
        isinstance(task.get("distribution", ""), str), f"{path}.distribution", "is not a string"
    )
    attributes = task.get("attributes", {})
    require(isinstance(attributes, Mapping), f"{path}.attributes", "is not an object")
    for key, value in attributes.items():
        if key == "environment":
            _check_environment(value, f"{path}.attributes.environment")
        else:
            require(isinstance(value, str), f"{path}.attributes.{key}", "is not a string")


def _check_task_count(count: Any, path: str, slot: Mapping[str, Any]) -> None:
    require(isinstance(count, Mapping) and len(count) == 1, path,
            "is not exactly one of per_slot, per_resource and total")  # fmt: skip
    (kind, value), *_ = count.items()
    match kind:
        case "per_slot" | "total":
            _check_positive(value, f"{path}.{kind}")
        case "per_resource":
            require(isinstance(value, Mapping), f"{path}.per_resource", "is not an object")
            resource_type = value.get("type")
            require(isinstance(resource_type, str), f"{path}.per_resource.type", "is not a string")
            require(any(vertex["type"] == resource_type for vertex in _vertices(slot["with"])),
                    f"{path}.per_resource.type", "is no resource of the task's slot")  # fmt: skip
            _check_positive(value.get("count"), f"{path}.per_resource.count")
        case _:
            require(False, path, "is not exactly one of per_slot, per_resource and total")


def _check_positive(value: Any, path: str) -> None:
    require(is_whole(value) and value >= 1, path, "is not a whole number of at least 1")


def _check_attributes(attributes: Any) -> None:
    if attributes is None:
        return
    require(isinstance(attributes, Mapping), "attributes", "is neither an object nor null")
    _require_known_keys(attributes, frozenset({"system", "user"}), "attributes")
    for key in attributes:
        require(isinstance(attributes[key], Mapping), f"attributes.{key}", "is not an object")
    system = attributes.get("system", {})
    for key in ("duration", "preemptible-after"):
        value = system.get(key, 0)
        require(
            (is_whole(value) or isinstance(value, float)) and value >= 0,
            f"attributes.system.{key}",
            "is not a number of seconds of at least 0",
        )
        require(value <= sys.float_info.max, f"attributes.system.{key}",
                "is more seconds than can be counted")  # fmt: skip
    for key in ("cwd", "queue", "bank", "project"):
        require(isinstance(system.get(key, ""), str), f"attributes.system.{key}", "is not a string")
    for key in ("job", "shell"):
        require(isinstance(system.get(key, {}), Mapping), f"attributes.system.{key}",
                "is not an object")  # fmt: skip
    require(isinstance(system.get("job", {}).get("name", ""), str), "attributes.system.job.name",
            "is not a string")  # fmt: skip
    require(isinstance(system.get("shell", {}).get("options", {}), Mapping),
            "attributes.system.shell.options", "is not an object")  # fmt: skip
    if "environment" in system:
        _check_environment(system["environment"], "attributes.system.environment")
    try:
        if "dependencies" in system:
            dependency.decode_list(system["dependencies"], "attributes.system.dependencies")
        if "constraints" in system:
            constraint.check(system["constraints"], "attributes.system.constraints")
    except BadFormat as error:
        raise BadFormat(f"jobspec: {error}") from None


def _check_environment(environment: Any, path: str) -> None:
    require(isinstance(environment, Mapping), path, "is not an object")
    for name, value in environment.items():
        if value is not None and not isinstance(value, str):
            raise BadFormat(f"jobspec: {path}.{name} is neither a string nor null")


def _require_known_keys(value: Mapping[str, Any], known: frozenset[str], path: str) -> None:
    for key in value:
        require(key in known, f"{path}.{key}", "is not a key that may stand here")
