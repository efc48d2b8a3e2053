"""Whether a queue takes a job: of this size, for so long, of this user (RFC 33)."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from warren.lifecycle.policy import QueueLimits
from warren.rfc import counts, duration, ranges

_VERTEX_TYPE_BY_SIZE_KEY = {"nnodes": "node", "ncores": "core", "ngpus": "gpu"}


def refusal(spec: Mapping[str, Any], limits: QueueLimits) -> str | None:
    """Return which limit a checked jobspec exceeds; None if it is within all of them.

    Counted is what the jobspec names: a job that asks for cores has no number of nodes, and whole
    nodes have an unknown number of cores, but not fewer than are named. Where a count leaves a
    choice, both ends of it have to be within the limits.
    """
    time_limit = spec["attributes"]["system"].get("duration", 0)
    if limits.max_duration < (time_limit or math.inf):
        asked = (
            f"a time limit of {duration.format_fsd(time_limit)}" if time_limit else "no time limit"
        )
        return f"The job has {asked}, and {_queue_text(limits)} allows {_fsd(limits.max_duration)}."
    if not (limits.min_sizes or limits.max_sizes):
        return None
    for size_key, greatest in sizes(spec, greatest=True).items():
        most = limits.max_sizes.get(size_key)
        if most is not None and greatest > most:
            return (
                f"The job asks for {greatest} {size_key}, and {_queue_text(limits)} allows {most}."
            )
    for size_key, count in sizes(spec).items():
        least = limits.min_sizes.get(size_key)
        may_be_more = size_key != "nnodes" and _has_whole_nodes(spec["resources"])
        if least is not None and count < least and not may_be_more:
            return (
                f"The job asks for {count} {size_key}, and {_queue_text(limits)} takes {least} or "
                "more."
            )
    return None


def sizes(spec: Mapping[str, Any], *, greatest: bool = False) -> dict[str, int]:
    """Count nodes, cores and gpus of a checked jobspec, at the least or at the most.

    Of a jobspec that names no nodes there is no `nnodes`.
    """
    count_by_type: dict[str, int] = {}
    for type_, count in _vertices(spec["resources"], 1, greatest):
        count_by_type[type_] = count_by_type.get(type_, 0) + count
    return {
        size_key: count_by_type.get(type_, 0)
        for size_key, type_ in _VERTEX_TYPE_BY_SIZE_KEY.items()
        if type_ != "node" or type_ in count_by_type
    }


def user_refusal(
    limits: QueueLimits, user_name: str | None, group_names: Collection[str]
) -> str | None:
    """Return why a user may not submit to a queue; None if it may.

    A user without a name is on no list.
    """
    if (
        not limits.restricted
        or user_name in limits.users
        or not limits.groups.isdisjoint(group_names)
    ):
        return None
    queue = _queue_text(limits)
    who = user_name or "a user without a name"
    return f"{queue[:1].upper()}{queue[1:]} is not open to {who}."


def _vertices(
    vertices: Sequence[Mapping[str, Any]], factor: int, greatest: bool
) -> Iterator[tuple[str, int]]:
    for vertex in vertices:
        count = factor * _number(vertex["count"], greatest)
        yield vertex["type"], count
        yield from _vertices(vertex.get("with", ()), count, greatest)


def _number(count: Any, greatest: bool) -> int:
    if type(count) is int:
        return count
    parsed = counts.parse(count)
    return (parsed.greatest(ranges.LARGEST) if greatest else None) or parsed.min


def _has_whole_nodes(vertices: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        (vertex["type"] == "node" and vertex.get("exclusive", False))
        or _has_whole_nodes(vertex.get("with", ()))
        for vertex in vertices
    )


def _queue_text(limits: QueueLimits) -> str:
    return "the instance" if limits.name is None else f"queue {limits.name}"


def _fsd(seconds: float) -> str:
    return duration.format_fsd(seconds)
