"""Which nodes a job gets that wants flash on whichever of its nodes' rabbits, or on any.

Nodes are taken in the order of their ranks, as by every other job, if the rabbits of those have
the room. If not, allocations choose their rabbits, and nodes follow them; what may be on any rabbit
needs no nodes there. In all cases `base.placing` has the last word on what is where, so that the
storage side comes to the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from warren.base.placing import Locality, RabbitRoom, has_labels, placement, precedence, units
from warren.scheduling.request import Request


@dataclass(frozen=True)
class Reach:
    """What a request could have of one chassis. Flash is counted in units of the chassis."""

    chassis: int
    nodes: int
    """The nodes that would do, as bits; none where only its flash matters."""
    most: int
    """How many of them could have what is to be beside each."""
    beside: int
    """Flash beside each node."""
    free: int
    unit: int
    """GiB of a unit."""
    labels: frozenset[str] | None = frozenset()
    """What its rabbit carries; None where that is not known yet."""


@dataclass(frozen=True)
class Choice:
    """What a request gets of one chassis: so many nodes, the first, and flash for all of them."""

    reach: Reach
    nodes: int
    shared: int
    """In units of the chassis."""


def choose(
    request: Request, reaches: Iterator[Reach], flash: Iterable[Reach] = ()
) -> list[Choice] | None:
    """Return what a request gets of each chassis; None where it does not fit.

    Of `reaches`, which are in order, no more are looked at than it takes. `flash` is that of all
    chassis, for what may be on any; it is looked at only if there is such. Where one allocation is
    shared, it is found if there is any such choice. Of several, some that would fit may be
    missed, if only a roundabout choice of nodes made room for them.
    """
    seen: list[Reach] = []
    there = 0
    for reach in reaches:
        seen.append(reach)
        there += reach.most
        if there >= request.all_nodes:
            break
    else:
        return None
    everywhere = [*flash] if request.anywhere else []
    found = _settled(request, _spread(seen, [reach.most for reach in seen], request), everywhere)
    if found is not None:
        return found
    rest = [*seen, *reaches]
    gather = any(each.locality is Locality.NODE for each in request.shared)
    found = (_gathered if gather else _following)(request, rest, everywhere)
    each = request.nodes_of_chassis
    if found is not None and each and any(choice.nodes not in (0, each) for choice in found):
        return None
    return found


def _gathered(
    request: Request, reaches: Sequence[Reach], everywhere: Sequence[Reach]
) -> list[Choice] | None:
    """Choose nodes on as few rabbits as there are allocations that all nodes must be beside."""
    near = [each for each in request.shared if each.locality is Locality.NODE]
    room: list[tuple[int, int]] = []
    for index, reach in enumerate(reaches):
        left = reach.free - sum(units(each.gib, reach.unit) for each in near)
        allowed = all(has_labels(reach.labels, each.labels) for each in near)
        nodes = min(reach.most, left // reach.beside) if reach.beside else reach.most
        if left >= 0 and nodes > 0 and allowed:
            room.append((-nodes, index))
    # Those that hold the most nodes: of fewer than all, no others would hold as many.
    chosen = sorted(room)[: min(each.count for each in near)]
    there = 0
    for used, (nodes, _) in enumerate(chosen, 1):
        there -= nodes
        if there >= request.all_nodes:
            chosen = sorted(chosen[:used], key=lambda each: each[1])
            picked = [reaches[index] for _, index in chosen]
            most = [-nodes for nodes, _ in chosen]
            return _settled(request, _spread(picked, most, request), everywhere)
    return None


def _spread(
    reaches: Sequence[Reach], most: Sequence[int], request: Request, first: Iterable[int] = ()
) -> list[tuple[Reach, int]]:
    """Take nodes in order, up to `most` of each chassis; but of those that are `first`, one."""
    counts = [0] * len(most)
    for index in first:
        counts[index] = 1
    left = request.all_nodes - sum(counts)
    for index, bound in enumerate(most):
        more = min(bound - counts[index], left)
        counts[index] += more
        left -= more
    return [(reach, count) for reach, count in zip(reaches, counts, strict=True) if count]


def _settled(
    request: Request, chosen: Sequence[tuple[Reach, int]], everywhere: Sequence[Reach]
) -> list[Choice] | None:
    """Place what is shared on the chassis of the nodes that were chosen, and where it may be."""
    # In the order in which R tells of them: by the first node on each, and then those of no node.
    ordered = sorted(chosen, key=lambda each: each[0].nodes & -each[0].nodes)
    taken = {reach.chassis for reach, _ in chosen}
    ordered += [(reach, 0) for reach in everywhere if reach.chassis not in taken]
    counts = placement(
        request.shared,
        [
            RabbitRoom(nodes, reach.unit, reach.free - nodes * reach.beside, reach.labels)
            for reach, nodes in ordered
        ],
    )
    if counts is None:
        return None
    choices = (
        Choice(
            reach,
            nodes,
            sum(
                own[number] * units(each.gib, reach.unit)
                for each, own in zip(request.shared, counts, strict=True)
            ),
        )
        for number, (reach, nodes) in enumerate(ordered)
    )
    return [each for each in choices if each.nodes or each.shared]


@dataclass
class _Taken:
    """A chassis on which allocations are tried."""

    reach: Reach
    shared: int = 0
    apart: set[str] = field(default_factory=set)
    """The keys of the allocations that must be with no other of such a key."""
    nodes: int = field(init=False)
    """How many can have flash beside them still."""
    least: int = 0
    """How many there must be, if any."""

    def __post_init__(self) -> None:
        self.nodes = self.reach.most

    def after(self, need: int) -> int:
        """Return how many nodes could be there beside so much more."""
        left = self.reach.free - self.shared - need
        if left < 0:
            return 0
        reach = self.reach
        nodes = min(reach.most, left // reach.beside) if reach.beside else self.nodes
        return nodes if nodes >= self.least else 0


def _following(
    request: Request, reaches: Sequence[Reach], everywhere: Sequence[Reach]
) -> list[Choice] | None:
    """Place each allocation where it costs the fewest nodes, and choose the nodes after it."""
    taken = [_Taken(reach, least=request.nodes_of_chassis) for reach in reaches]
    most_used = request.chassis or request.all_nodes
    used: set[int] = set()
    bound = [each for each in request.shared if each.locality is not Locality.ANY]
    for each in sorted(bound, key=precedence):

        def cost(index: int, gib: int = each.gib) -> tuple[int, int, int]:
            one = taken[index]
            lost = one.nodes - one.after(units(gib, one.reach.unit))
            return (lost, one.shared - one.reach.free, index)

        heap = [
            cost(index)
            for index, one in enumerate(taken)
            if has_labels(one.reach.labels, each.labels)
            and one.apart.isdisjoint(each.colocation_keys)
        ]
        heapify(heap)
        left = each.count
        while left and heap:
            index = heap[0][2]
            one, need = taken[index], units(each.gib, taken[index].reach.unit)
            after = one.after(need)
            if not after or (index not in used and len(used) == most_used):
                heappop(heap)
                continue
            used.add(index)
            one.shared += need
            one.nodes = after
            left -= 1
            if each.colocation_keys:
                one.apart.update(each.colocation_keys)
                heappop(heap)
            else:
                heapreplace(heap, cost(index))
        if left:
            return None
    if request.chassis:
        others = [index for index in range(len(taken)) if index not in used]
        chosen = {*used, *others[: request.chassis - len(used)]}
        taken = [one for index, one in enumerate(taken) if index in chosen]
        reaches, used = [one.reach for one in taken], set()
    most = [one.nodes for one in taken]
    if sum(most) < request.all_nodes:
        return None
    return _settled(request, _spread(reaches, most, request, used), everywhere)
