"""What a request that must wait is short of: the arithmetic, in numbers and in words.

`refusals.busy_reason` says the same in short for jobs that the scheduler passes over; this is for
users who ask why.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from warren.base.bytesize import format_gib
from warren.base.placing import has_labels
from warren.base.words import plural
from warren.scheduling.reasons import Reason, ReasonKind
from warren.scheduling.refusals import (
    SystemView,
    node_shortage,
    reachable_chassis_indexes,
    shortage_text,
    unavailable_text,
)
from warren.scheduling.request import Request

_MAX_NAMED_RABBITS: Final = 4
"""Rabbits that a sentence names."""

_MAX_RABBITS: Final = 64
"""Rabbits that the numbers tell of, those that lack the least first."""


def explain(
    request: Request,
    view: SystemView,
    needed_when_idle: Sequence[ReasonKind],
    needed_now: Sequence[ReasonKind] | None,
) -> Reason:
    """Explain what a request waits for.

    `needed_when_idle` is what must be given back even if all jobs end, and `needed_now` what would
    do without the end of any; None if nothing would.
    """
    short_kind = _short_kind(request, view)
    kinds = (
        *needed_when_idle,
        *(() if needed_when_idle and needed_now == needed_when_idle else (short_kind,)),
    )
    rabbits = list(_rabbit_numbers(request, view)) if request.wants_flash else []
    sentence = f"waits for {shortage_text(request, view)}"
    if short_kind in kinds or short_kind is ReasonKind.FLASH:
        sentence += _counts_text(short_kind, request, view, rabbits)
    nodes = view.whole.suitable_nodes(request, view.ever_usable)
    chassis_indexes = reachable_chassis_indexes(request, view, nodes)
    sentence += "".join(
        unavailable_text(kind, view, nodes, chassis_indexes) for kind in needed_when_idle
    )
    if not needed_when_idle and needed_now:
        withheld_text = "".join(
            unavailable_text(kind, view, nodes, chassis_indexes) for kind in needed_now
        ).removeprefix("; ")
        sentence += f"; without this it would start at once: {withheld_text}"
    return Reason(kinds=kinds, sentence=sentence, numbers=_numbers(request, view, rabbits))


def _short_kind(request: Request, view: SystemView) -> ReasonKind:
    """Return what is short, by what is free."""
    if request.nodes is None:
        return ReasonKind.CORES
    if node_shortage(request, view) > 0:
        return ReasonKind.NODES
    return ReasonKind.FLASH if request.wants_flash else ReasonKind.CHASSIS


def _counts_text(
    short_kind: ReasonKind, request: Request, view: SystemView, rabbits: Sequence[dict[str, Any]]
) -> str:
    match short_kind:
        case ReasonKind.NODES:
            counts = _node_numbers(request, view)
            parts = [f"{counts[key]} {key}" for key in _NODE_STATES if counts[key]]
            return f"; of {counts['would_do']} that would do, {' and '.join(_series(parts))}"
        case ReasonKind.CORES:
            cores, _ = view.free.total(view.usable)
            all_cores, _ = view.whole.total(view.ever_usable)
            return f"; {cores} of {all_cores} are free"
        case ReasonKind.FLASH if request.shared_flash:
            free = sorted((each["free_gib"] for each in rabbits), reverse=True)
            free_text = ", ".join(format_gib(each, up=False) for each in free[:_MAX_NAMED_RABBITS])
            others_text = (
                f" and {len(free) - _MAX_NAMED_RABBITS} others less"
                if len(free) > _MAX_NAMED_RABBITS
                else ""
            )
            are = "the rabbit has" if len(free) == 1 else "the rabbits have"
            return (
                f"; of that, {are} {free_text}{others_text} free"
                if free
                else "; no rabbit has any free"
            )
        case ReasonKind.FLASH:
            able_count = sum(each["nodes_with_flash"] for each in rabbits)
            # Of one that is not ready it is said that it is not.
            short_rabbits = [
                each for each in rabbits if each["lacks_gib"] and "not_ready" not in each
            ]
            lacking = ", ".join(
                f"{each['rabbit']} lacks {format_gib(each['lacks_gib'], up=True)}"
                for each in short_rabbits[:_MAX_NAMED_RABBITS]
            )
            others_count = len(short_rabbits) - _MAX_NAMED_RABBITS
            also = f" and {plural(others_count, 'other rabbit')} more" if others_count > 0 else ""
            nodes_text = plural(able_count, "node")
            return f"; {nodes_text} can have that now" + (
                f", and {lacking}{also}" if lacking else ""
            )
        case _:
            return ""


_NODE_STATES: Final = ("free", "taken", "drained", "offline", "tagged")


def _series(words: list[str]) -> list[str]:
    return [", ".join(words[:-1]), words[-1]] if len(words) > 1 else words


def _node_numbers(request: Request, view: SystemView) -> dict[str, int]:
    """Count the nodes that would do, each once."""
    suitable = view.whole.suitable_nodes(request, view.ever_usable)
    free = view.free.suitable_nodes(request, view.usable)
    withheld = {
        str(kind): (nodes & suitable).bit_count() for kind, nodes in view.withheld_nodes.items()
    }
    suitable_count = suitable.bit_count()
    taken = suitable_count - free.bit_count() - sum(withheld.values())
    return {
        "wanted": request.node_count,
        "would_do": suitable_count,
        "free": free.bit_count(),
        "taken": taken,
        **withheld,
        "excluded": (view.matching & view.excluded).bit_count(),
    }


def _rabbit_numbers(request: Request, view: SystemView) -> Iterator[dict[str, Any]]:
    """Yield what each rabbit whose flash would do has, those that lack the least first."""
    suitable = view.free.suitable_nodes(request, view.usable)
    ranked = []
    for index in reachable_chassis_indexes(request, view, suitable):
        chassis = view.inventory.chassis[index]
        if not has_labels(chassis.labels, request.labels):
            continue
        unit_gib, nodes = chassis.flash.unit_gib, (chassis.node_mask & suitable).bit_count()
        free_units, units_per_node = (
            view.free.available_units(index),
            chassis.flash.units_for(request.ssd_gib),
        )
        nodes_with_flash = min(nodes, free_units // units_per_node) if units_per_node else nodes
        lacking_gib = (
            (units_per_node - (free_units - nodes_with_flash * units_per_node)) * unit_gib
            if nodes_with_flash < nodes
            else 0
        )
        numbers = {
            "rabbit": chassis.rabbit,
            "free_gib": free_units * unit_gib,
            "of_gib": chassis.flash.gib,
            "nodes_free": nodes,
            "nodes_with_flash": nodes_with_flash,
            "lacks_gib": lacking_gib,
        }
        if view.free.has_no_ready_flash(index):
            numbers["not_ready"] = view.state_by_rabbit.get(chassis.rabbit) or "not known"
        ranked.append((lacking_gib, index, numbers))
    yield from (numbers for _, _, numbers in sorted(ranked, key=lambda each: each[:2]))


def _numbers(
    request: Request, view: SystemView, rabbits: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    if request.nodes is None:
        cores, gpus = view.free.total(view.usable)
        numbers["cores"] = {"wanted": request.slots * request.cores, "free": cores}
        if request.gpus:
            numbers["gpus"] = {"wanted": request.slots * request.gpus, "free": gpus}
    else:
        numbers["nodes"] = _node_numbers(request, view)
    if request.wants_flash:
        numbers["flash"] = {
            "beside_gib": request.ssd_gib,
            "shared": [{"count": each.count, "gib": each.gib} for each in request.shared_flash],
            "rabbits": list(rabbits[:_MAX_RABBITS]),
            "rabbits_more": max(len(rabbits) - _MAX_RABBITS, 0),
        }
    return numbers
