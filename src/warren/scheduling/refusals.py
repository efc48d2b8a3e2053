"""Why a request is not met, in words: what would have to be there, or what it waits for."""

from collections.abc import Mapping, Sequence

import msgspec
import orjson

from warren.base.bytesize import format_gib
from warren.base.placing import description, has_labels
from warren.base.words import number_asked_for, plural
from warren.rfc import hostlist, query
from warren.rfc.errors import BadFormat
from warren.scheduling.free import FreeResources
from warren.scheduling.inventory import Inventory, bit_numbers
from warren.scheduling.reasons import ReasonKind
from warren.scheduling.request import Request
from warren.scheduling.tags import TAG


class Refusal(msgspec.Struct, frozen=True):
    """Why a request is not met, in words; `never` if waiting would not help."""

    reason: str
    never: bool = False


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """A system as a request finds it. Nodes are bits by node index."""

    inventory: Inventory
    whole: FreeResources
    """All that there is."""
    free: FreeResources
    """What of it is free."""
    matching: int
    """The nodes that meet the request's constraint."""
    excluded: int
    drained: int
    offline: int
    tagged: int
    """The nodes that the request does not want, for they are tagged."""
    state_by_rabbit: Mapping[str, str]
    """What rabbits are, by their names."""
    external_gib_by_rabbit: Mapping[str, int]
    """GiB of rabbits that are taken by storage of no job."""
    capacity_gib_by_rabbit: Mapping[str, int]
    """GiB that rabbits say they have, where they do."""

    @property
    def ever_usable(self) -> int:
        """The nodes that the request may get at some time: drained ones come back."""
        return self.matching & ~self.excluded

    @property
    def usable(self) -> int:
        """The nodes that the request may get now, if they are free."""
        return self.ever_usable & ~self.drained & ~self.offline & ~self.tagged

    @property
    def withheld_nodes(self) -> Mapping[ReasonKind, int]:
        """The nodes that are kept from the request for a time, each for one reason."""
        away = self.drained | self.offline
        return {
            ReasonKind.DRAINED: self.drained,
            ReasonKind.OFFLINE: self.offline & ~self.drained,
            ReasonKind.TAGGED: self.tagged & ~away,
        }


def never_reason(request: Request, view: SystemView) -> str:
    """Return why a request does not fit even if everything is free and ready."""
    sentence = _missing(request, view)
    if view.excluded and view.whole.fits(request, view.matching):
        sentence += f" Some are excluded: {_hosts(view.inventory, view.excluded)}."
    return sentence


def never_kind(request: Request, view: SystemView) -> ReasonKind:
    """Return which of the reasons it is for which a request does not fit."""
    if view.excluded and view.whole.fits(request, view.matching):
        return ReasonKind.EXCLUDED
    everything = (1 << len(view.inventory.nodes)) - 1
    return ReasonKind.CONSTRAINT if view.whole.fits(request, everything) else ReasonKind.NEVER


def _missing(request: Request, view: SystemView) -> str:
    return _missing_slots(request, view) if request.nodes is None else _missing_nodes(request, view)


def _missing_slots(request: Request, view: SystemView) -> str:
    clause = _constraint_clause(request)
    where = f" on nodes{clause}" if clause else ""
    here = "they have" if clause and view.ever_usable else "the cluster has"
    cores, gpus = view.whole.total(view.ever_usable)
    for wanted, there, noun in (
        (request.slots * request.cores, cores, "core"),
        (request.slots * request.gpus, gpus, "gpu"),
    ):
        if wanted > there:
            return f"{number_asked_for(wanted, noun, where)}, and {here} {there or 'none'}."
    problem = _missing_per_node(request, view, request.cores, request.gpus, "in a slot")
    if problem is not None:
        return problem
    room = view.whole.max_slots(request, view.ever_usable)
    slots = number_asked_for(
        request.slots, "slot", f" with {_slot_text(request.slots, request.cores, request.gpus)}"
    )
    return f"{slots}, and there is room for {room or 'none'}{where}."


def _missing_nodes(request: Request, view: SystemView) -> str:
    wanted, clause = request.node_count, _constraint_clause(request, wanted=request.node_count)
    there = view.ever_usable.bit_count()
    if wanted > there:
        return f"{number_asked_for(wanted, 'node', clause)}, and the cluster has {there or 'none'}."
    cores, gpus = request.node_cores, request.node_gpus
    problem = _missing_per_node(request, view, cores, gpus, "on a node")
    if problem is not None:
        return problem
    able_count = view.whole.suitable_nodes(request, view.ever_usable).bit_count()
    if able_count < wanted:
        clause_text = f"{clause} with {_slot_text(wanted, cores, gpus)}"
        asked = number_asked_for(wanted, "node", clause_text)
        return f"{asked}, and the cluster has {able_count or 'none'}."
    problem = _missing_chassis(request, view)
    if problem is not None:
        return problem
    if request.shared_flash or request.labels:
        return _missing_flash(request, view)
    largest = max((each.flash.gib for each in view.inventory.chassis), default=0)
    flash = f"{clause} with {format_gib(request.ssd_gib, up=True)} of flash{_apiece(wanted)}"
    return (
        f"{number_asked_for(wanted, 'node', flash)}, "
        f"and a rabbit has {format_gib(largest, up=False)} for the nodes that are wired to it."
    )


def _missing_chassis(request: Request, view: SystemView) -> str | None:
    """Return why nodes are not on as many chassis as is asked for, flash left out."""
    if not request.chassis_count:
        return None
    suitable, per_chassis = (
        view.whole.suitable_nodes(request, view.ever_usable),
        request.nodes_per_chassis,
    )
    suitable_count = sum(
        (each.node_mask & suitable).bit_count() >= per_chassis for each in view.inventory.chassis
    )
    if suitable_count >= request.chassis_count:
        return None
    clause = f"{_apiece(request.chassis_count)}{_constraint_clause(request, per_chassis)}"
    are = "is" if request.chassis_count == 1 else "are"
    return (
        f"{request.chassis_count} chassis with {plural(per_chassis, 'node')}{clause} {are} asked "
        f"for, and the cluster has {suitable_count or 'none'}."
    )


def _missing_flash(request: Request, view: SystemView) -> str:
    """Return why flash that is not only beside each node cannot be placed."""
    wanted = request.node_count
    suitable = view.whole.suitable_nodes(request, view.ever_usable)
    chassis = [
        view.inventory.chassis[index]
        for index in reachable_chassis_indexes(request, view, suitable)
    ]
    max_rabbits = len(chassis) if request.any_rabbit else wanted
    problem = _missing_rabbits(request, [each.labels for each in chassis], max_rabbits)
    if problem:
        return problem
    gib_by_rabbit = [
        each.flash.gib
        for each in chassis
        if request.any_rabbit or has_labels(each.labels, request.labels)
    ]
    largest = max(request.shared_flash, key=lambda each: each.gib, default=None)
    gib_beside = 0 if request.any_rabbit else request.ssd_gib
    if largest is not None and largest.gib > max(gib_by_rabbit, default=0) - gib_beside:
        beside_text = (
            f", {format_gib(gib_beside, up=True)} of it beside a node" if gib_beside else ""
        )
        largest_text = format_gib(max(gib_by_rabbit, default=0), up=False)
        return (
            f"The job's storage cannot be placed because an allocation of "
            f"{format_gib(largest.gib, up=True)} is on one rabbit, "
            f"and the largest has {largest_text}{beside_text}."
        )
    shared_gib = sum(each.count * each.gib for each in request.shared_flash)
    total = shared_gib + wanted * request.ssd_gib
    largest_gibs = sorted(gib_by_rabbit, reverse=True)[:max_rabbits]
    if request.any_rabbit:
        return (
            f"The job's storage cannot be placed because it is {_flash_text(request)}, "
            f"{format_gib(total, up=True)} together, and the cluster has "
            f"{plural(len(largest_gibs), 'rabbit')} with {format_gib(sum(largest_gibs), up=False)} "
            "together, of which each allocation is on one."
        )
    carrying = f" with {' and '.join(request.labels)}" if request.labels else ""
    return (
        f"The job's storage cannot be placed because it is {_flash_text(request)}, "
        f"{format_gib(total, up=True)} together, on rabbits of the job's own nodes{carrying}, and "
        f"{plural(wanted, 'node')} can have no more than {plural(len(largest_gibs), 'rabbit')} "
        f"with {format_gib(sum(largest_gibs), up=False)} together, of which each allocation is on "
        "one."
    )


def _missing_rabbits(
    request: Request, labels_of_rabbits: Sequence[frozenset[str] | None], wanted: int
) -> str | None:
    """Return why labels and colocation alone cannot be met, by the rabbits of the nodes."""
    beginning = "The job's storage cannot be placed because"
    if not any(has_labels(each, request.labels) for each in labels_of_rabbits):
        labels_text = " and ".join(request.labels)
        return (
            f"{beginning} each of its nodes is to have flash of a rabbit with {labels_text}, "
            "and no rabbit of nodes that would do has that."
        )
    count_by_key: dict[str, int] = {}
    for each in request.shared_flash:
        there = sum(
            has_labels(labels, each.labels) and has_labels(labels, request.labels)
            for labels in labels_of_rabbits
        )
        if not there:
            whose = "" if request.any_rabbit else " of its nodes"
            return f"{beginning} it is {description(each)}, and there is no such rabbit{whose}."
        if each.colocation_keys and each.labels and each.count > there:
            those = plural(there, "such rabbit")
            return f"{beginning} it is {description(each)}, and there is no more than {those}."
        for key in each.colocation_keys:
            count_by_key[key] = count_by_key.get(key, 0) + each.count
    for key, count in count_by_key.items():
        rabbits = min(wanted, len(labels_of_rabbits))
        have = f"{plural(wanted, 'node')} can have no more than"
        if request.any_rabbit:
            have = "the cluster has"
        if count > rabbits:
            return (
                f"{beginning} {plural(count, 'allocation')} with the colocation key {key!r} are "
                f"each on a rabbit of its own, and {have} {plural(rabbits, 'rabbit')}."
            )
    return None


def reachable_chassis_indexes(request: Request, view: SystemView, nodes: int) -> list[int]:
    """Return the indexes of the chassis whose flash would do, if it were of these nodes."""
    return [
        index
        for index, each in enumerate(view.inventory.chassis)
        if each.node_mask & (-1 if request.any_rabbit else nodes)
    ]


def _flash_text(request: Request) -> str:
    """Write the flash of a request that is not only beside each node."""
    parts = [description(each) for each in request.shared_flash]
    if request.ssd_gib:
        parts.append(f"{format_gib(request.ssd_gib, up=True)} beside each node")
    return " and ".join(parts)


def _missing_per_node(
    request: Request, view: SystemView, cores: int, gpus: int, where: str
) -> str | None:
    meets = f" that meets {_constraint_text(request)}" if request.constraint else ""
    most_cores, most_gpus = view.whole.largest_per_node(view.ever_usable)
    if cores > most_cores:
        asked = number_asked_for(cores, "core", f" {where}")
        return f"{asked}, and the widest node{meets} has {most_cores}."
    if gpus > most_gpus:
        more = f"more than {most_gpus}" if most_gpus else "one"
        return f"{number_asked_for(gpus, 'gpu', f' {where}')}, and no node{meets} has {more}."
    return None


def busy_reason(request: Request, view: SystemView) -> str:
    """Return what a request waits for, without a close look: for that see `scheduling.shortage`."""
    also = f"{_withheld_flash_text(request, view)}{_withheld_nodes_text(request, view)}"
    return f"waits for {shortage_text(request, view)}{also}"


def shortage_text(request: Request, view: SystemView) -> str:
    """Write what a request that does not fit now is short of."""
    if request.nodes is None:
        gpus = f" and {plural(request.slots * request.gpus, 'gpu')}" if request.gpus else ""
        where = f" on nodes{_constraint_clause(request)}" if request.constraint else ""
        return f"{plural(request.slots * request.cores, 'core')}{gpus}{where}"
    wanted, clause = request.node_count, _constraint_clause(request, wanted=request.node_count)
    missing_count = node_shortage(request, view)
    if missing_count > 0:
        more = f"{missing_count} more of " if wanted > 1 else ""
        return f"{more}{plural(wanted, 'node')}{clause}"
    if request.any_rabbit:
        return f"{_flash_text(request)}, on any rabbits, and {plural(wanted, 'node')}{clause}"
    if request.shared_flash:
        return f"{_flash_text(request)}, on rabbits of {plural(wanted, 'node')}{clause}"
    if not request.wants_flash:
        nodes_text = plural(request.nodes_per_chassis, "node")
        return f"{nodes_text} on each of {request.chassis_count} chassis{clause}"
    flash = format_gib(request.ssd_gib, up=True)
    beside = "1 node" if wanted == 1 else f"each of {wanted} nodes"
    on = f" of rabbits with {' and '.join(request.labels)}" if request.labels else ""
    return f"{flash} of flash{on} beside {beside}{clause}"


def node_shortage(request: Request, view: SystemView) -> int:
    """Return how many nodes are lacking, flash left out."""
    return request.node_count - view.free.suitable_nodes(request, view.usable).bit_count()


def _withheld_flash_text(request: Request, view: SystemView) -> str:
    """Tell of flash that no job's end will bring, where nodes are not lacking."""
    if not request.wants_flash or node_shortage(request, view) > 0:
        return ""
    chassis_indexes = reachable_chassis_indexes(
        request, view, view.free.suitable_nodes(request, view.usable)
    )
    return "".join(
        unavailable_text(kind, view, 0, chassis_indexes)
        for kind in (ReasonKind.RABBITS, ReasonKind.EXTERNAL, ReasonKind.CAPACITY)
    )


def unavailable_text(
    kind: ReasonKind, view: SystemView, nodes: int, chassis_indexes: Sequence[int]
) -> str:
    """Name what is kept from jobs for one reason, among some nodes, and some chassis by index.

    Empty where there is nothing.
    """
    chassis = [view.inventory.chassis[index] for index in chassis_indexes]
    parts = []
    match kind:
        case ReasonKind.RABBITS:
            names_by_state: dict[str, list[str]] = {}
            for each in filter(view.free.unready_flash_units, chassis_indexes):
                name = view.inventory.chassis[each].rabbit
                names_by_state.setdefault(_unready_text(view, each), []).append(name)
            parts = [f"{hostlist.encode(names)}{state}" for state, names in names_by_state.items()]
            return f"; not ready: {', '.join(parts)}" if parts else ""
        case ReasonKind.EXTERNAL:
            taken_gib = [
                each for one in chassis if (each := view.external_gib_by_rabbit.get(one.rabbit, 0))
            ]
            there = plural(len(taken_gib), "rabbit")
            size = format_gib(sum(taken_gib), up=True)
            return f"; storage of no running job has {size} of {there}" if taken_gib else ""
        case ReasonKind.CAPACITY:
            parts = [
                f"{each.rabbit} has {format_gib(has, up=False)} of "
                f"{format_gib(each.flash.gib, up=False)}"
                for each in chassis
                if (has := view.capacity_gib_by_rabbit.get(each.rabbit, each.flash.gib))
                < each.flash.gib
            ]
            return f"; {', '.join(parts)}" if parts else ""
        case ReasonKind.DRAINED | ReasonKind.OFFLINE | ReasonKind.TAGGED:
            withheld_nodes = view.withheld_nodes[kind] & nodes
            word = f"tagged {TAG}" if kind is ReasonKind.TAGGED else kind
            return f"; {word}: {_hosts(view.inventory, withheld_nodes)}" if withheld_nodes else ""
        case _:
            return ""


def _unready_text(view: SystemView, chassis_index: int) -> str:
    """Say why some or all of a rabbit's flash cannot be used, in brackets; empty if not known."""
    chassis = view.inventory.chassis[chassis_index]
    state = view.state_by_rabbit.get(chassis.rabbit)
    if not view.free.has_no_ready_flash(chassis_index):
        size = format_gib(
            view.free.unready_flash_units(chassis_index) * chassis.flash.unit_gib, up=True
        )
        state = f"{size} of {format_gib(chassis.flash.gib, up=True)} down"
    return f" ({state})" if state else ""


def _withheld_nodes_text(request: Request, view: SystemView) -> str:
    """Name the nodes that are kept from jobs where they matter.

    They do if a request would fit at once with them, or would not fit without them however
    long it waited. Otherwise it waits for other jobs, and to give them back would not help.
    """
    if not (view.drained or view.offline or view.tagged):
        return ""
    needless = view.whole.fits(request, view.usable)
    useless = not view.free.fits(request, view.ever_usable)
    if needless and useless:
        return ""
    return "".join(unavailable_text(kind, view, -1, ()) for kind in view.withheld_nodes)


def _constraint_clause(request: Request, wanted: int = 2) -> str:
    meet = "meets" if wanted == 1 else "meet"
    return f" that {meet} {_constraint_text(request)}" if request.constraint else ""


def _slot_text(number: int, cores: int, gpus: int) -> str:
    also = f" and {plural(gpus, 'gpu')}" if gpus else ""
    return f"{plural(cores, 'core')}{also}{_apiece(number)}"


def _apiece(number: int) -> str:
    return "" if number == 1 else " each"


def _constraint_text(request: Request) -> str:
    """Write a constraint as `--requires` takes it, if it does."""
    try:
        return query.encode(orjson.loads(request.constraint), query.REQUIRES)
    except BadFormat:
        return request.constraint


def _hosts(inventory: Inventory, nodes: int) -> str:
    return hostlist.encode(inventory.nodes[node_index].host for node_index in bit_numbers(nodes))
