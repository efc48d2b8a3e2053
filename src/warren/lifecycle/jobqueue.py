"""Which queue a job comes into, and what that makes of its jobspec (RFC 33).

A job that names no queue or no time limit has the site's; the nodes that its queue is
confined to are constraints (RFC 31) beside those of its own. All of it may be done again, and
changes nothing then. The signed request keeps what the author wrote.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.lifecycle.policy import QueueLimits, queue_choices
from warren.rfc import constraint
from warren.rfc.canonical import is_whole, require
from warren.rfc.constraint import Constraint

SYSTEM: Final = "attributes.system"
QUEUE: Final = f"{SYSTEM}.queue"
CONSTRAINTS: Final = f"{SYSTEM}.constraints"
_MAX_CONSTRAINT_BYTES: Final = 2**16
"""Of what an author demands of nodes, in JSON: it is read while all others wait. What the system
adds is not counted: a list of its nodes may be longer."""


def queue_of(spec: Mapping[str, Any]) -> str | None:
    """Return the queue that a checked jobspec names."""
    queue: str | None = spec["attributes"].get("system", {}).get("queue")
    return queue


def limits_of(
    spec: Mapping[str, Any], limits_by_queue: Mapping[str | None, QueueLimits]
) -> QueueLimits:
    """Return what holds in the queue of a checked jobspec. Raises UserMistake if there is none."""
    return _limits_of(queue_of(spec), limits_by_queue)


def apply_queue(
    spec: Any, limits_by_queue: Mapping[str | None, QueueLimits], default: str | None
) -> Mapping[str, Any]:
    """Return a jobspec with what its queue adds to it.

    The jobspec need not have been checked: BadFormat tells the place of a mistake in what is read.
    Raises UserMistake for a queue that is not there, and for constraints that are too long.
    """
    require(isinstance(spec, Mapping), "jobspec", "is not an object")
    attributes = spec.get("attributes")
    require(isinstance(attributes, Mapping), "attributes", "is not an object")
    system = attributes.get("system")
    require(isinstance(system, Mapping), SYSTEM, "is not an object")
    queue = system.get("queue", default)
    require(queue is None or isinstance(queue, str), QUEUE, "is not a string")
    _check_length(system.get("constraints"))
    added: dict[str, Any] = {}
    limits = _limits_of(queue, limits_by_queue)
    if queue is not None and "queue" not in system:
        added["queue"] = queue
    duration = system.get("duration", 0)
    if (
        limits.default_duration
        and (is_whole(duration) or isinstance(duration, float))
        and not duration
    ):
        added["duration"] = limits.default_duration
    if limits.properties:
        own_constraints = system.get("constraints", {})
        constraint.check(own_constraints, f"jobspec: {CONSTRAINTS}")
        required = with_properties(own_constraints, limits.properties)
        if required is not own_constraints:
            added["constraints"] = required
    if not added:
        return spec  # type: ignore[no-any-return]
    return {**spec, "attributes": {**attributes, "system": {**system, **added}}}


def expand_updates(
    spec: Mapping[str, Any],
    updates: Mapping[str, Any],
    limits_by_queue: Mapping[str | None, QueueLimits],
) -> dict[str, Any]:
    """Return what updates of a job come to, by dotted paths: those that are asked for, and more.

    What a job's old queue required of its nodes goes, and what the new one requires comes, also
    where only the constraints are updated. Whether the updated jobspec is within the limits is a
    question to `limits`. Raises UserMistake for a queue that is not there, BadFormat for what is
    no queue and no constraint, UserMistake also for constraints that are too long.
    """
    if QUEUE not in updates and CONSTRAINTS not in updates:
        return dict(updates)
    system = spec["attributes"]["system"]
    queue, requested_constraints = updates.get(QUEUE, queue_of(spec)), updates.get(CONSTRAINTS)
    require(queue is None or isinstance(queue, str), QUEUE, "is not a string")
    if requested_constraints is not None:
        _check_length(requested_constraints)
        constraint.check(requested_constraints, f"jobspec: {CONSTRAINTS}")
    old_constraints = system.get("constraints") or {}
    old_limits, new_limits = limits_by_queue.get(queue_of(spec)), _limits_of(queue, limits_by_queue)
    own_constraints = without_properties(
        old_constraints if requested_constraints is None else requested_constraints,
        old_limits.properties if old_limits is not None else (),
    )
    new_constraints = with_properties(own_constraints, new_limits.properties)
    return (
        {**updates, CONSTRAINTS: new_constraints}
        if requested_constraints is not None or new_constraints != old_constraints
        else dict(updates)
    )


def _check_length(constraints: Any) -> None:
    try:
        length = len(msgspec.json.encode(constraints))
    except RecursionError:
        raise UserMistake(f"jobspec: {CONSTRAINTS} is nested too deep.") from None
    if length > _MAX_CONSTRAINT_BYTES:
        raise UserMistake(
            f"jobspec: {CONSTRAINTS} has {length} bytes, and {_MAX_CONSTRAINT_BYTES} at most: "
            "name hosts as a list, such as node[01-64]."
        )


def with_properties(job_constraint: Constraint, properties: Sequence[str]) -> Constraint:
    """Return a constraint that also requires `properties`; the same one if it does already."""
    required = _required_properties(job_constraint)
    missing = [name for name in properties if name not in required]
    if not missing:
        return job_constraint
    if not job_constraint:
        return {"properties": missing}
    if "properties" in job_constraint:
        return {"properties": [*job_constraint["properties"], *missing]}
    return {"and": [job_constraint, {"properties": missing}]}


def without_properties(job_constraint: Constraint, properties: Sequence[str]) -> Constraint:
    """Take from a constraint what `with_properties` has added: the same properties, anded to it."""
    if _required_properties(job_constraint).isdisjoint(properties):
        return job_constraint
    if "properties" in job_constraint:
        remaining = [name for name in job_constraint["properties"] if name not in properties]
        return {"properties": remaining} if remaining else {}
    reduced = (without_properties(part, properties) for part in job_constraint["and"])
    parts = [part for part in reduced if part]
    return {"and": parts} if len(parts) > 1 else parts[0] if parts else {}


def _required_properties(job_constraint: Constraint) -> frozenset[str]:
    """Return the properties without which no node meets a constraint, as far as one sees it."""
    if "properties" in job_constraint:
        return frozenset(job_constraint["properties"])
    return frozenset().union(*map(_required_properties, job_constraint.get("and", ())))


def _limits_of(queue: str | None, limits_by_queue: Mapping[str | None, QueueLimits]) -> QueueLimits:
    limits = limits_by_queue.get(queue)
    if limits is not None:
        return limits
    names = [name for name in limits_by_queue if name is not None]
    if queue is None:
        raise UserMistake(f"The job names no queue: {queue_choices(names)}.")
    raise UserMistake(f"There is no queue {queue!r}: {queue_choices(names)}.")
