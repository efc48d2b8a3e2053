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
    whole, offered = view.whole, view.offered
    those = f" that meet {_words(request)}" if request.constraint else ""
    meets = f" that meets {_words(request)}" if request.constraint else ""
    there = offered.bit_count()
    if request.all_nodes > there:
        return f"{_nodes(request)}{those} are asked for, and the cluster has {there}."
    place, held = ("on a node", request.node_cores) if request.nodes else ("in a slot", 0)
    cores = held or request.cores
    gpus = request.node_gpus if request.nodes else request.gpus
    widest, most_gpus = whole.widest(offered)
    total, total_gpus = whole.total(offered)
    if request.nodes is None and request.slots * request.cores > total:
        return (
            f"{request.slots * request.cores} cores are asked for, and the {_all(those)} {total}."
        )
    if request.nodes is None and request.slots * request.gpus > total_gpus:
        return (
            f"{request.slots * request.gpus} gpus are asked for, "
            f"and the {_all(those)} {total_gpus}."
        )
    if cores > widest:
        return f"{cores} cores {place} are asked for, and the widest node{meets} has {widest}."
    if gpus > most_gpus:
        return f"{gpus} gpus {place} are asked for, and no node{meets} has more than {most_gpus}."
    what = f"{cores} cores" + (f" and {gpus} gpus" if gpus else "")
    if request.nodes is None:
        room = whole.slots(request, offered)
        return (
            f"{request.slots} slots with {what} each are asked for, "
            f"and there is room for {room}{' on nodes' + those if those else ''}."
        )
    able = whole.able(request, offered).bit_count()
    if able < request.all_nodes:
        return (
            f"{_nodes(request)}{those} with {what} each are asked for, and the cluster has {able}."
        )
    largest = max(
        (each.ssds.bit_count() * each.ssd_gib for each in view.inventory.chassis), default=0
    )
    return (
        f"{_nodes(request)}{those} with {request.ssd_gib} GiB of flash each are asked for, "
        f"and a rabbit has {largest} GiB for the nodes that are wired to it."
    )


def busy(request: Request, view: View) -> str:
    """Say what a request waits for."""
    return f"waits for {_wanting(request, view)}{_kept_back(request, view)}"


def _wanting(request: Request, view: View) -> str:
    those = f" that meet {_words(request)}" if request.constraint else ""
    if request.nodes is None:
        gpus = f" and {request.slots * request.gpus} gpus" if request.gpus else ""
        return f"{request.slots * request.cores} cores{gpus}" + (
            f" on nodes{those}" if those else ""
        )
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


def _nodes(request: Request) -> str:
    return f"{request.all_nodes} nodes"


def _all(those: str) -> str:
    return f"cluster's nodes{those} have" if those else "cluster has"


def _words(request: Request) -> str:
    """Write a constraint as `--requires` takes it, if it does."""
    try:
        return query.encode(orjson.loads(request.constraint), query.REQUIRES)
    except BadFormat:
        return request.constraint


def _hosts(inventory: Inventory, nodes: int) -> str:
    return hostlist.encode(inventory.nodes[place].host for place in ids(nodes))
