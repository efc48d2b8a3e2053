"""What a request that must wait is short of: the arithmetic, in numbers and in words.

`refusals.busy_reason` says the same in short for jobs that the scheduler passes over; this is for
users who ask why.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from warren.base.bytesize import gib
from warren.base.placing import has_labels
from warren.base.words import plural
from warren.scheduling.reasons import Reason, ReasonKind
from warren.scheduling.refusals import (
    SystemView,
    list_withheld,
    node_shortage,
    reachable_chassis,
    shortage_text,
)
from warren.scheduling.request import Request

_NAMED: Final = 4
"""Rabbits that a sentence names."""

_MOST_RABBITS: Final = 64
"""Rabbits that the numbers tell of, those that lack the least first."""


def explain(
    request: Request,
    view: SystemView,
    forever: Sequence[ReasonKind],
    now: Sequence[ReasonKind] | None,
) -> Reason:
    """Explain what a request waits for.

    `forever` is what must be given back even if all jobs end, and `now` what would do without
    the end of any; None if nothing would.
    """
    own = _short_kind(request, view)
    kinds = (*forever, *(() if forever and now == forever else (own,)))
    rabbits = list(_rabbits(request, view)) if request.wants_flash else []
    said = f"waits for {shortage_text(request, view)}"
    if own in kinds or own is ReasonKind.FLASH:
        said += _counts_text(own, request, view, rabbits)
    nodes = view.whole.suitable_nodes(request, view.offered)
    found = reachable_chassis(request, view, nodes)
    said += "".join(list_withheld(kind, view, nodes, found) for kind in forever)
    if not forever and now:
        sooner = "".join(list_withheld(kind, view, nodes, found) for kind in now).removeprefix("; ")
        said += f"; without this it would start at once: {sooner}"
    return Reason(kinds=kinds, sentence=said, numbers=_numbers(request, view, rabbits))


def _short_kind(request: Request, view: SystemView) -> ReasonKind:
    """Return what is short, by what is free."""
    if request.nodes is None:
        return ReasonKind.CORES
    if node_shortage(request, view) > 0:
        return ReasonKind.NODES
    return ReasonKind.FLASH if request.wants_flash else ReasonKind.CHASSIS


def _counts_text(
    own: ReasonKind, request: Request, view: SystemView, rabbits: Sequence[dict[str, Any]]
) -> str:
    match own:
        case ReasonKind.NODES:
            counts = _nodes(request, view)
            parts = [f"{counts[key]} {key}" for key in _NODE_STATES if counts[key]]
            return f"; of {counts['would_do']} that would do, {' and '.join(_series(parts))}"
        case ReasonKind.CORES:
            cores, _ = view.free.total(view.usable)
            all_cores, _ = view.whole.total(view.offered)
            return f"; {cores} of {all_cores} are free"
        case ReasonKind.FLASH if request.shared:
            free = sorted((each["free_gib"] for each in rabbits), reverse=True)
            most = ", ".join(gib(each, up=False) for each in free[:_NAMED])
            others = f" and {len(free) - _NAMED} others less" if len(free) > _NAMED else ""
            are = "the rabbit has" if len(free) == 1 else "the rabbits have"
            return f"; of that, {are} {most}{others} free" if free else "; no rabbit has any free"
        case ReasonKind.FLASH:
            able = sum(each["nodes_with_flash"] for each in rabbits)
            # Of one that is not ready it is said that it is not.
            short = [each for each in rabbits if each["lacks_gib"] and "not_ready" not in each]
            lacking = ", ".join(
                f"{each['rabbit']} lacks {gib(each['lacks_gib'], up=True)}"
                for each in short[:_NAMED]
            )
            more = len(short) - _NAMED
            also = f" and {plural(more, 'other rabbit')} more" if more > 0 else ""
            can = plural(able, "node")
            return f"; {can} can have that now" + (f", and {lacking}{also}" if lacking else "")
        case _:
            return ""


_NODE_STATES: Final = ("free", "taken", "drained", "offline", "tagged")


def _series(words: list[str]) -> list[str]:
    return [", ".join(words[:-1]), words[-1]] if len(words) > 1 else words


def _nodes(request: Request, view: SystemView) -> dict[str, int]:
    """Count the nodes that would do, each once."""
    able = view.whole.suitable_nodes(request, view.offered)
    free = view.free.suitable_nodes(request, view.usable)
    kept = {str(kind): (nodes & able).bit_count() for kind, nodes in view.withheld.items()}
    would = able.bit_count()
    taken = would - free.bit_count() - sum(kept.values())
    return {
        "wanted": request.node_count,
        "would_do": would,
        "free": free.bit_count(),
        "taken": taken,
        **kept,
        "excluded": (view.matching & view.excluded).bit_count(),
    }


def _rabbits(request: Request, view: SystemView) -> Iterator[dict[str, Any]]:
    """Yield what each rabbit whose flash would do has, those that lack the least first."""
    able = view.free.suitable_nodes(request, view.usable)
    found = []
    for index in reachable_chassis(request, view, able):
        chassis = view.inventory.chassis[index]
        if not has_labels(chassis.labels, request.labels):
            continue
        unit, nodes = chassis.flash.unit, (chassis.places & able).bit_count()
        free, each = view.free.units(index), chassis.flash.units(request.ssd_gib)
        fit = min(nodes, free // each) if each else nodes
        lacks = (each - (free - fit * each)) * unit if fit < nodes else 0
        entry = {
            "rabbit": chassis.rabbit,
            "free_gib": free * unit,
            "of_gib": chassis.flash.gib,
            "nodes_free": nodes,
            "nodes_with_flash": fit,
            "lacks_gib": lacks,
        }
        if view.free.not_ready(index):
            entry["not_ready"] = view.states.get(chassis.rabbit) or "not known"
        found.append((lacks, index, entry))
    yield from (entry for _, _, entry in sorted(found, key=lambda each: each[:2]))


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
        numbers["nodes"] = _nodes(request, view)
    if request.wants_flash:
        numbers["flash"] = {
            "beside_gib": request.ssd_gib,
            "shared": [{"count": each.count, "gib": each.gib} for each in request.shared],
            "rabbits": list(rabbits[:_MOST_RABBITS]),
            "rabbits_more": max(len(rabbits) - _MOST_RABBITS, 0),
        }
    return numbers
