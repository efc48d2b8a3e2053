"""Why a request is not met, in words: what would have to be there, or what it waits for."""

from dataclasses import dataclass

import orjson

from warren.rfc import hostlist, query
from warren.rfc.errors import BadFormat
from warren.scheduling.inventory import Inventory, ids
from warren.scheduling.request import Request
from warren.scheduling.room import Room


@dataclass(frozen=True)
class Refusal:
    """Why a request is not met, in words; `never` if waiting would not help."""

    reason: str
    never: bool = False


@dataclass(frozen=True, kw_only=True)
class View:
    """A system as a request finds it. Nodes are bits by place."""

    inventory: Inventory
    whole: Room
    """All that there is."""
    room: Room
    """What of it is free."""
    meeting: int
    """The nodes that meet the request's constraint."""
    excluded: int
    drained: int
    offline: int

    @property
    def offered(self) -> int:
        return self.meeting & ~self.excluded

    @property
    def usable(self) -> int:
        return self.offered & ~self.drained & ~self.offline


def never(request: Request, view: View) -> str:
    """Say why a request does not fit though everything were free and ready."""
    said = _missing(request, view)
    if view.excluded and view.whole.fits(request, view.meeting):
        said += f" Some are excluded: {_hosts(view.inventory, view.excluded)}."
    return said


def _missing(request: Request, view: View) -> str:
    return _missing_slots(request, view) if request.nodes is None else _missing_nodes(request, view)


def _missing_slots(request: Request, view: View) -> str:
    those = _those(request)
    here = f"the cluster's nodes{those} have" if those else "the cluster has"
    cores, gpus = view.whole.total(view.offered)
    if request.slots * request.cores > cores:
        return f"{request.slots * request.cores} cores are asked for, and {here} {cores}."
    if request.slots * request.gpus > gpus:
        return f"{request.slots * request.gpus} gpus are asked for, and {here} {gpus}."
    narrow = _too_narrow(request, view, request.cores, request.gpus, "in a slot")
    if narrow is not None:
        return narrow
    room = view.whole.slots(request, view.offered)
    return (
        f"{request.slots} slots with {_each(request.cores, request.gpus)} are asked for, "
        f"and there is room for {room}{' on nodes' + those if those else ''}."
    )


def _missing_nodes(request: Request, view: View) -> str:
    asked = f"{request.all_nodes} nodes{_those(request)}"
    there = view.offered.bit_count()
    if request.all_nodes > there:
        return f"{asked} are asked for, and the cluster has {there}."
    cores, gpus = request.node_cores, request.node_gpus
    narrow = _too_narrow(request, view, cores, gpus, "on a node")
    if narrow is not None:
        return narrow
    able = view.whole.able(request, view.offered).bit_count()
    if able < request.all_nodes:
        return f"{asked} with {_each(cores, gpus)} are asked for, and the cluster has {able}."
    largest = max(
        (each.ssds.bit_count() * each.ssd_gib for each in view.inventory.chassis), default=0
    )
    return (
        f"{asked} with {request.ssd_gib} GiB of flash each are asked for, "
        f"and a rabbit has {largest} GiB for the nodes that are wired to it."
    )


def _too_narrow(request: Request, view: View, cores: int, gpus: int, place: str) -> str | None:
    meets = f" that meets {_words(request)}" if request.constraint else ""
    widest, most_gpus = view.whole.widest(view.offered)
    if cores > widest:
        return f"{cores} cores {place} are asked for, and the widest node{meets} has {widest}."
    if gpus > most_gpus:
        return f"{gpus} gpus {place} are asked for, and no node{meets} has more than {most_gpus}."
    return None


def busy(request: Request, view: View) -> str:
    """Say what a request waits for."""
    return f"waits for {_wanting(request, view)}{_kept_back(request, view)}"


def _wanting(request: Request, view: View) -> str:
    those = _those(request)
    if request.nodes is None:
        gpus = f" and {request.slots * request.gpus} gpus" if request.gpus else ""
        where = f" on nodes{those}" if those else ""
        return f"{request.slots * request.cores} cores{gpus}{where}"
    wanted = request.all_nodes
    able = view.room.able(request, view.usable).bit_count()
    if able < wanted:
        return f"{wanted - able} more of {wanted} nodes{those}"
    down = [
        each.rabbit
        for index, each in enumerate(view.inventory.chassis)
        if view.room.not_ready(index)
    ]
    also = f"; not ready: {', '.join(down)}" if down else ""
    return f"{request.ssd_gib} GiB of flash beside each of {wanted} nodes{those}{also}"


def _kept_back(request: Request, view: View) -> str:
    """Name the nodes that are kept from jobs where they matter.

    They do if a request would fit at once with them, or would not fit without them however
    long it waited. Otherwise it waits for other jobs, and to give them back would not help.
    """
    if not (view.drained or view.offline):
        return ""
    needless = view.whole.fits(request, view.usable)
    useless = not view.room.fits(request, view.offered)
    if needless and useless:
        return ""
    told = (("drained", view.drained), ("offline", view.offline & ~view.drained))
    return "".join(f"; {word}: {_hosts(view.inventory, nodes)}" for word, nodes in told if nodes)


def _those(request: Request) -> str:
    return f" that meet {_words(request)}" if request.constraint else ""


def _each(cores: int, gpus: int) -> str:
    return f"{cores} cores and {gpus} gpus each" if gpus else f"{cores} cores each"


def _words(request: Request) -> str:
    """Write a constraint as `--requires` takes it, if it does."""
    try:
        return query.encode(orjson.loads(request.constraint), query.REQUIRES)
    except BadFormat:
        return request.constraint


def _hosts(inventory: Inventory, nodes: int) -> str:
    return hostlist.encode(inventory.nodes[place].host for place in ids(nodes))
