"""What a job asks for: version 1 jobspecs (RFC 14, 25), made, checked and counted.

After the storage side has rewritten a jobspec's resources they are no longer
version 1 by the letter (`slot > [node > slot > core, ssd]`), so counting walks
whatever tree there is.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.words import plural
from warren.rfc import counts
from warren.rfc.errors import BadFormat

Jobspec = Mapping[str, Any]

_DEEPEST: Final = 100
"""Levels of resources in resources: no machine has as many, and each is a call on the stack."""


_LONGEST_NAME: Final = 1024
"""Characters of a job's name."""
_LONGEST_PATH: Final = 4096
"""Characters of a path (PATH_MAX)."""
_LONGEST_PROGRAM: Final = 255
"""Characters of a file's name (NAME_MAX): there is no program with a longer one."""


def make(
    command: Sequence[str],
    *,
    nodes: int | None = None,
    tasks: int | None = None,
    cores: int = 1,
    gpus: int = 0,
    exclusive: bool = False,
    duration: float = 0.0,
    cwd: str | None = None,
    environment: Mapping[str, str] | None = None,
    name: str | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make a jobspec as `flux submit` would from the same options.

    `cores` and `gpus` are per task, `duration` is in seconds. `nodes` alone asks for whole nodes
    and one task on each.
    `attributes` are further system attributes.
    """
    slots = tasks or nodes or 1
    if nodes is not None and slots < nodes:
        raise BadFormat(
            f"{plural(slots, 'task')} cannot be spread over {nodes} nodes: ask for -n {nodes}"
        )
    slot_contents = [{"type": "core", "count": cores}]
    if gpus:
        slot_contents.append({"type": "gpu", "count": gpus})
    resource: dict[str, Any]
    if nodes is None:
        resource = {"type": "slot", "count": slots, "with": slot_contents, "label": "task"}
    else:
        slot = {"type": "slot", "count": -(-slots // nodes), "with": slot_contents, "label": "task"}
        resource = {"type": "node", "count": nodes, "with": [slot]}
        if exclusive or tasks is None:
            resource["exclusive"] = True
    count = {"per_slot": 1} if nodes is None or slots % nodes == 0 else {"total": slots}
    system: dict[str, Any] = {"duration": duration, "environment": dict(environment or {})}
    if cwd is not None:
        system["cwd"] = cwd
    if name is not None:
        system["job"] = {"name": name}
    system.update(attributes or {})
    return {
        "version": 1,
        "resources": [resource],
        "tasks": [{"command": list(command), "slot": "task", "count": count}],
        "attributes": {"system": system},
    }


def check(spec: Any) -> Jobspec:
    """Return `spec` back if it is a jobspec that can be run; else say where it is not.

    What the RFCs let be written, and no more, is for `canonical.check` and `version1.check`.
    """
    _require(isinstance(spec, Mapping), "jobspec", "is not an object")
    _require(spec.get("version") == 1, "version", "is not 1")
    resources = spec.get("resources")
    _require(
        isinstance(resources, list) and bool(resources), "resources", "is not a list of resources"
    )
    for index, resource in enumerate(resources):
        _check_resource(resource, f"resources[{index}]", _DEEPEST)
    tasks = spec.get("tasks")
    _require(isinstance(tasks, list) and len(tasks) == 1, "tasks", "does not hold exactly one task")
    _check_task(tasks[0])
    attributes = spec.get("attributes")
    _require(isinstance(attributes, Mapping), "attributes", "is not an object")
    system = attributes.get("system")
    _require(isinstance(system, Mapping), "attributes.system", "is not an object")
    _require(
        _is_number(system.get("duration")) and system["duration"] >= 0,
        "attributes.system.duration",
        "is not a number of seconds",
    )
    environment = system.get("environment", {})
    _require(
        isinstance(environment, Mapping)
        and all(value is None or isinstance(value, str) for value in environment.values()),
        "attributes.system.environment",
        "does not map names to strings or null",
    )
    job = system.get("job", {})
    _require(isinstance(job, Mapping), "attributes.system.job", "is not an object")
    _require_short(job.get("name"), "attributes.system.job.name", _LONGEST_NAME)
    for key in ("project", "bank"):
        _require_short(system.get(key), f"attributes.system.{key}", _LONGEST_NAME)
    _require_short(system.get("cwd"), "attributes.system.cwd", _LONGEST_PATH)
    resource_counts(spec)
    return spec  # type: ignore[no-any-return]


def _require_short(value: Any, path: str, max_length: int) -> None:
    """Refuse a text that is long: every user has it in every list of jobs."""
    if isinstance(value, str) and len(value) > max_length:
        _require(False, path, f"has {len(value)} characters, and {max_length} at most")


def _check_resource(resource: Any, path: str, depth: int) -> None:
    _require(depth > 0, "resources", f"is nested more than {_DEEPEST} deep")
    _require(isinstance(resource, Mapping), path, "is not an object")
    _require(isinstance(resource.get("type"), str), f"{path}.type", "is not a string")
    exclusive = resource.get("exclusive", False)
    _require(isinstance(exclusive, bool), f"{path}.exclusive", "is not true or false")
    _min_count(resource, path)
    children = resource.get("with", [])
    _require(isinstance(children, list), f"{path}.with", "is not a list")
    if resource["type"] == "slot":
        _require(isinstance(resource.get("label"), str), f"{path}.label", "is missing")
        _require(bool(children), f"{path}.with", "is empty")
    _require(isinstance(resource.get("label", ""), str), f"{path}.label", "is not a string")
    for index, child in enumerate(children):
        _check_resource(child, f"{path}.with[{index}]", depth - 1)


def _check_task(task: Any) -> None:
    _require(isinstance(task, Mapping), "tasks[0]", "is not an object")
    command = task.get("command")
    _require(
        isinstance(command, list)
        and bool(command)
        and all(isinstance(word, str) for word in command),
        "tasks[0].command",
        "is not a list of words",
    )
    _require(isinstance(task.get("slot"), str), "tasks[0].slot", "is not a string")
    count = task.get("count")
    _require(isinstance(count, Mapping) and len(count) == 1, "tasks[0].count", "is not one count")
    (kind, value), *_ = count.items()
    if kind == "per_resource" and isinstance(value, Mapping):
        kind, value = "total", value.get("count")
    _require(
        kind in ("per_slot", "total") and _is_positive(value),
        "tasks[0].count",
        "is none of per_slot, total and per_resource, from 1 on",
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _min_count(resource: Mapping[str, Any], path: str) -> int:
    """Return the least that a count allows."""
    count = resource.get("count")
    if type(count) is int and count >= 1:
        return count
    try:
        return counts.parse(count).min
    except BadFormat as error:
        raise BadFormat(f"jobspec: {path}.{error}") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _require(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise BadFormat(f"jobspec: {path} {problem}")


class ResourceCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How much a jobspec asks for, at the least. `nodes` is None where any number will do."""

    nodes: int | None
    slots: int
    cores_per_slot: int
    exclusive: bool
    tasks: int
    moldable: bool = False
    """Whether there may be more slots than that."""


def resource_counts(spec: Jobspec) -> ResourceCounts:
    """Count nodes, task slots and cores. Raises BadFormat where there is not one task slot."""
    label = spec["tasks"][0]["slot"]
    found_slots = [
        (ancestors, vertex)
        for ancestors, vertex in _walk(spec["resources"])
        if vertex["type"] == "slot" and vertex.get("label") == label
    ]
    if len(found_slots) != 1:
        raise BadFormat(
            f"jobspec: resources holds {len(found_slots)} slots labelled {label!r}, not 1"
        )
    ancestors, slot = found_slots[0]
    nodes = None
    slots = 1
    for vertex in (*ancestors, slot):
        slots *= _min_count(vertex, "resources")
        if vertex["type"] == "node":
            nodes = slots
    cores = sum(_min_count(child, "resources") for child in slot["with"] if child["type"] == "core")
    if cores < 1:
        raise BadFormat("jobspec: the task slot holds no core")
    return ResourceCounts(
        nodes=nodes,
        slots=slots,
        cores_per_slot=cores,
        exclusive=any(vertex.get("exclusive") for vertex in ancestors if vertex["type"] == "node"),
        tasks=_task_count(spec, slots, cores, nodes),
        moldable=any(type(vertex["count"]) is not int for vertex in (*ancestors, slot)),
    )


def per_resource(spec: Jobspec) -> tuple[str, int] | None:
    """Return how many tasks there are for each node or core, where a jobspec says it that way."""
    shell = system(spec).get("shell")
    options = shell.get("options") if isinstance(shell, Mapping) else None
    option = options.get("per-resource") if isinstance(options, Mapping) else None
    for candidate in (option, spec["tasks"][0]["count"].get("per_resource")):
        if isinstance(candidate, Mapping) and candidate.get("type") in ("node", "core"):
            number = candidate.get("count", 1)
            return (candidate["type"], number) if _is_positive(number) else None
    return None


def _task_count(spec: Jobspec, slots: int, cores: int, nodes: int | None) -> int:
    for_each = per_resource(spec)
    if for_each is not None:
        type_, number = for_each
        return number * (slots * cores if type_ == "core" else nodes or 1)
    return tasks_in_slots(spec, slots)


def tasks_in_slots(spec: Jobspec, slots: int) -> int:
    """Return how many tasks there are in so many slots."""
    count = spec["tasks"][0]["count"]
    return int(count.get("total", slots * count.get("per_slot", 1)))


def _walk(
    vertices: Sequence[Mapping[str, Any]], ancestors: tuple[Mapping[str, Any], ...] = ()
) -> Iterator[tuple[tuple[Mapping[str, Any], ...], Mapping[str, Any]]]:
    """Return every vertex, after those that it lies in, from the outermost on."""
    for vertex in vertices:
        yield ancestors, vertex
        yield from _walk(vertex.get("with", ()), (*ancestors, vertex))


def system(spec: Jobspec) -> Mapping[str, Any]:
    """Return the system attributes."""
    return spec["attributes"]["system"]  # type: ignore[no-any-return]


def name(spec: Jobspec) -> str:
    """Return the job's name: the one it asked for, or that of its program."""
    requested = system(spec).get("job", {}).get("name")
    program: str = spec["tasks"][0]["command"][0]
    return str(requested) if requested else program.rsplit("/", 1)[-1][:_LONGEST_PROGRAM]


def without_environment(spec: Jobspec) -> dict[str, Any]:
    """Return the jobspec as the KVS keeps it: environments stay in J alone, the tasks' too."""
    kept_attributes = {key: value for key, value in system(spec).items() if key != "environment"}
    return {
        **spec,
        "tasks": [_task_without_environment(task) for task in spec["tasks"]],
        "attributes": {**spec["attributes"], "system": kept_attributes},
    }


def _task_without_environment(task: Mapping[str, Any]) -> Mapping[str, Any]:
    attributes = task.get("attributes")
    if not isinstance(attributes, Mapping) or "environment" not in attributes:
        return task
    return {
        **task,
        "attributes": {key: attributes[key] for key in attributes if key != "environment"},
    }


def update(spec: Jobspec, updates: Mapping[str, Any]) -> dict[str, Any]:
    """Apply the context of a `jobspec-update` event: dotted paths and their new values."""
    result: dict[str, Any] = dict(spec)
    for path, value in updates.items():
        *parents, last = path.split(".")
        target = result
        for parent in parents:
            target[parent] = dict(target.get(parent) or {})
            target = target[parent]
        target[last] = value
    return result
