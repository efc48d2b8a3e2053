"""Which nodes a job gets that wants flash on whichever of its nodes' rabbits, or on any.

Nodes are taken in the order of their ranks, as by every other job, if the rabbits of those have
the room. If not, allocations choose their rabbits, and nodes follow them; what may be on any rabbit
needs no nodes there. In all cases `base.placing` has the last word on what is where, so that the
storage side comes to the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

import msgspec

from warren.base.placing import (
    FreeFlash,
    Locality,
    has_labels,
    placement,
    placing_order,
    units_needed,
)
from warren.scheduling.request import Request


class Candidate(msgspec.Struct, frozen=True):
    """What a request could have of one chassis. Flash is counted in units of the chassis."""

    chassis: int
    node_mask: int
    """The nodes that would do, as bits; none where only its flash matters."""
    max_nodes: int
    """How many of them could have what is to be beside each."""
    units_per_node: int
    """Flash beside each node."""
    free_units: int
    unit_gib: int
    """GiB of a unit."""
    labels: frozenset[str] | None = frozenset()
    """What its rabbit carries; None where that is not known yet."""


class Choice(msgspec.Struct, frozen=True):
    """What a request gets of one chassis: so many nodes, the first, and flash for all of them."""

    candidate: Candidate
    nodes: int
    shared_units: int
    """Flash that its nodes share, in units of the chassis."""


def choose(
    request: Request, candidates: Iterator[Candidate], flash_candidates: Iterable[Candidate] = ()
) -> list[Choice] | None:
    """Return what a request gets of each chassis; None where it does not fit.

    Of `candidates`, which are in order, no more are looked at than it takes. `flash_candidates`
    are all chassis with their flash, for what may be on any; they are looked at only if there is
    such. Where one allocation is shared, it is found if there is any such choice. Of several, some
    that would fit may be missed, if only a roundabout choice of nodes made room for them.
    """
    seen: list[Candidate] = []
    there = 0
    for candidate in candidates:
        seen.append(candidate)
        there += candidate.max_nodes
        if there >= request.node_count:
            break
    else:
        return None
    all_chassis = [*flash_candidates] if request.any_rabbit else []
    found = _place_shared(
        request,
        _take_in_order(seen, [candidate.max_nodes for candidate in seen], request),
        all_chassis,
    )
    if found is not None:
        return found
    rest = [*seen, *candidates]
    gather = any(each.locality is Locality.NODE for each in request.shared_flash)
    found = (_on_fewest_rabbits if gather else _follow_allocations)(request, rest, all_chassis)
    each = request.nodes_per_chassis
    if found is not None and each and any(choice.nodes not in (0, each) for choice in found):
        return None
    return found


def _on_fewest_rabbits(
    request: Request, candidates: Sequence[Candidate], all_chassis: Sequence[Candidate]
) -> list[Choice] | None:
    """Choose nodes on as few rabbits as there are allocations that all nodes must be beside."""
    near = [each for each in request.shared_flash if each.locality is Locality.NODE]
    room: list[tuple[int, int]] = []
    for index, candidate in enumerate(candidates):
        left = candidate.free_units - sum(
            units_needed(each.gib, candidate.unit_gib) for each in near
        )
        allowed = all(has_labels(candidate.labels, each.labels) for each in near)
        nodes = (
            min(candidate.max_nodes, left // candidate.units_per_node)
            if candidate.units_per_node
            else candidate.max_nodes
        )
        if left >= 0 and nodes > 0 and allowed:
            room.append((-nodes, index))
    # Those that hold the most nodes: of fewer than all, no others would hold as many.
    chosen = sorted(room)[: min(each.count for each in near)]
    there = 0
    for used, (nodes, _) in enumerate(chosen, 1):
        there -= nodes
        if there >= request.node_count:
            chosen = sorted(chosen[:used], key=lambda each: each[1])
            picked = [candidates[index] for _, index in chosen]
            max_nodes = [-nodes for nodes, _ in chosen]
            return _place_shared(request, _take_in_order(picked, max_nodes, request), all_chassis)
    return None


def _take_in_order(
    candidates: Sequence[Candidate],
    max_nodes: Sequence[int],
    request: Request,
    first: Iterable[int] = (),
) -> list[tuple[Candidate, int]]:
    """Take nodes in order, up to `max_nodes` of each chassis; of those that are `first`, one."""
    counts = [0] * len(max_nodes)
    for index in first:
        counts[index] = 1
    left = request.node_count - sum(counts)
    for index, bound in enumerate(max_nodes):
        more = min(bound - counts[index], left)
        counts[index] += more
        left -= more
    return [
        (candidate, count) for candidate, count in zip(candidates, counts, strict=True) if count
    ]


def _place_shared(
    request: Request, chosen: Sequence[tuple[Candidate, int]], all_chassis: Sequence[Candidate]
) -> list[Choice] | None:
    """Place what is shared on the chassis of the nodes that were chosen, and where it may be."""
    # In the order in which R tells of them: by the first node on each, and then those of no node.
    ordered = sorted(chosen, key=lambda each: each[0].node_mask & -each[0].node_mask)
    taken = {candidate.chassis for candidate, _ in chosen}
    ordered += [(candidate, 0) for candidate in all_chassis if candidate.chassis not in taken]
    counts = placement(
        request.shared_flash,
        [
            FreeFlash(
                nodes,
                candidate.unit_gib,
                candidate.free_units - nodes * candidate.units_per_node,
                candidate.labels,
            )
            for candidate, nodes in ordered
        ],
    )
    if counts is None:
        return None
    choices = (
        Choice(
            candidate,
            nodes,
            sum(
                own[number] * units_needed(each.gib, candidate.unit_gib)
                for each, own in zip(request.shared_flash, counts, strict=True)
            ),
        )
        for number, (candidate, nodes) in enumerate(ordered)
    )
    return [each for each in choices if each.nodes or each.shared_units]


@dataclass
class _TrialChassis:
    """A chassis on which allocations are tried."""

    candidate: Candidate
    shared_units: int = 0
    colocation_keys: set[str] = field(default_factory=set)
    """Those of the allocations on it: no other allocation with one of them may be there."""
    nodes: int = field(init=False)
    """How many can have flash beside them still."""
    min_nodes: int = 0
    """How many there must be, if any."""

    def __post_init__(self) -> None:
        self.nodes = self.candidate.max_nodes

    def nodes_after(self, need: int) -> int:
        """Return how many nodes could be there beside so much more."""
        left = self.candidate.free_units - self.shared_units - need
        if left < 0:
            return 0
        candidate = self.candidate
        nodes = (
            min(candidate.max_nodes, left // candidate.units_per_node)
            if candidate.units_per_node
            else self.nodes
        )
        return nodes if nodes >= self.min_nodes else 0


def _follow_allocations(
    request: Request, candidates: Sequence[Candidate], all_chassis: Sequence[Candidate]
) -> list[Choice] | None:
    """Place each allocation where it costs the fewest nodes, and choose the nodes after it."""
    trials = [
        _TrialChassis(candidate, min_nodes=request.nodes_per_chassis) for candidate in candidates
    ]
    max_rabbits = request.chassis or request.node_count
    used: set[int] = set()
    bound = [each for each in request.shared_flash if each.locality is not Locality.ANY]
    for each in sorted(bound, key=placing_order):

        def cost(index: int, gib: int = each.gib) -> tuple[int, int, int]:
            one = trials[index]
            lost = one.nodes - one.nodes_after(units_needed(gib, one.candidate.unit_gib))
            return (lost, one.shared_units - one.candidate.free_units, index)

        heap = [
            cost(index)
            for index, one in enumerate(trials)
            if has_labels(one.candidate.labels, each.labels)
            and one.colocation_keys.isdisjoint(each.colocation_keys)
        ]
        heapify(heap)
        left = each.count
        while left and heap:
            index = heap[0][2]
            one, need = trials[index], units_needed(each.gib, trials[index].candidate.unit_gib)
            after = one.nodes_after(need)
            if not after or (index not in used and len(used) == max_rabbits):
                heappop(heap)
                continue
            used.add(index)
            one.shared_units += need
            one.nodes = after
            left -= 1
            if each.colocation_keys:
                one.colocation_keys.update(each.colocation_keys)
                heappop(heap)
            else:
                heapreplace(heap, cost(index))
        if left:
            return None
    if request.chassis:
        others = [index for index in range(len(trials)) if index not in used]
        chosen = {*used, *others[: request.chassis - len(used)]}
        trials = [one for index, one in enumerate(trials) if index in chosen]
        candidates, used = [one.candidate for one in trials], set()
    max_nodes = [one.nodes for one in trials]
    if sum(max_nodes) < request.node_count:
        return None
    return _place_shared(request, _take_in_order(candidates, max_nodes, request, used), all_chassis)
