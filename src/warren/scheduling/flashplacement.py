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

    chassis_index: int
    node_mask: int
    """The nodes that would do, as bits; none where only its flash matters."""
    max_nodes: int
    """How many of the nodes could have the flash that is to be beside each."""
    units_per_node: int
    """Flash beside each node."""
    free_units: int
    unit_gib: int
    """GiB of a unit."""
    labels: frozenset[str] | None = frozenset()
    """What its rabbit carries; None where that is not known yet."""


class Choice(msgspec.Struct, frozen=True):
    """What a request gets of one chassis: its first nodes, and flash that is not beside a node."""

    candidate: Candidate
    node_count: int
    shared_units: int
    """Flash that is shared, in units of the chassis."""


def choose(
    request: Request, candidates: Iterator[Candidate], flash_candidates: Iterable[Candidate] = ()
) -> list[Choice] | None:
    """Return what a request gets of each chassis; None where it does not fit.

    Of `candidates`, which are in order, no more are looked at than it takes. `flash_candidates`
    are all chassis with their flash, for what may be on any; they are looked at only if there is
    such. Where one allocation is shared, a choice is found if there is any; where several are, one
    that takes other nodes than are tried here may be missed.
    """
    seen: list[Candidate] = []
    nodes_seen = 0
    for candidate in candidates:
        seen.append(candidate)
        nodes_seen += candidate.max_nodes
        if nodes_seen >= request.node_count:
            break
    else:
        return None
    any_rabbit_candidates = [*flash_candidates] if request.any_rabbit else []
    choices = _place_shared(
        request,
        _take_in_order(seen, [candidate.max_nodes for candidate in seen], request),
        any_rabbit_candidates,
    )
    if choices is not None:
        return choices
    all_candidates = [*seen, *candidates]
    has_node_local = any(
        each.locality is Locality.EVERY_RABBIT_OF_JOB for each in request.shared_flash
    )
    choices = (_on_fewest_rabbits if has_node_local else _follow_allocations)(
        request, all_candidates, any_rabbit_candidates
    )
    per_chassis = request.nodes_per_chassis
    if (
        choices is not None
        and per_chassis
        and any(choice.node_count not in (0, per_chassis) for choice in choices)
    ):
        return None
    return choices


def _on_fewest_rabbits(
    request: Request, candidates: Sequence[Candidate], any_rabbit_candidates: Sequence[Candidate]
) -> list[Choice] | None:
    """Choose nodes on as few rabbits as there are allocations that all nodes must be beside."""
    node_local = [
        each for each in request.shared_flash if each.locality is Locality.EVERY_RABBIT_OF_JOB
    ]
    ranked: list[tuple[int, int]] = []
    for index, candidate in enumerate(candidates):
        units_left = candidate.free_units - sum(
            units_needed(each.gib, candidate.unit_gib) for each in node_local
        )
        labels_fit = all(has_labels(candidate.labels, each.labels) for each in node_local)
        nodes = (
            min(candidate.max_nodes, units_left // candidate.units_per_node)
            if candidate.units_per_node
            else candidate.max_nodes
        )
        if units_left >= 0 and nodes > 0 and labels_fit:
            ranked.append((-nodes, index))
    # Those that hold the most nodes: of fewer than all, no others would hold as many.
    chosen = sorted(ranked)[: min(each.count for each in node_local)]
    total_nodes = 0
    for used, (nodes, _) in enumerate(chosen, 1):
        total_nodes -= nodes
        if total_nodes >= request.node_count:
            chosen = sorted(chosen[:used], key=lambda each: each[1])
            picked = [candidates[index] for _, index in chosen]
            max_nodes = [-nodes for nodes, _ in chosen]
            return _place_shared(
                request, _take_in_order(picked, max_nodes, request), any_rabbit_candidates
            )
    return None


def _take_in_order(
    candidates: Sequence[Candidate],
    max_nodes: Sequence[int],
    request: Request,
    first_indexes: Iterable[int] = (),
) -> list[tuple[Candidate, int]]:
    """Take a node at each of `first_indexes`, and more in order, up to `max_nodes` of each."""
    counts = [0] * len(max_nodes)
    for index in first_indexes:
        counts[index] = 1
    nodes_left = request.node_count - sum(counts)
    for index, bound in enumerate(max_nodes):
        added = min(bound - counts[index], nodes_left)
        counts[index] += added
        nodes_left -= added
    return [
        (candidate, count) for candidate, count in zip(candidates, counts, strict=True) if count
    ]


def _place_shared(
    request: Request,
    chosen: Sequence[tuple[Candidate, int]],
    any_rabbit_candidates: Sequence[Candidate],
) -> list[Choice] | None:
    """Place what is shared on the chassis of the nodes that were chosen, and where it may be."""
    # In the order in which R tells of them: by the first node on each, and then those of no node.
    ordered = sorted(chosen, key=lambda each: each[0].node_mask & -each[0].node_mask)
    chosen_chassis = {candidate.chassis_index for candidate, _ in chosen}
    ordered += [
        (candidate, 0)
        for candidate in any_rabbit_candidates
        if candidate.chassis_index not in chosen_chassis
    ]
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
                set_counts[position] * units_needed(each.gib, candidate.unit_gib)
                for each, set_counts in zip(request.shared_flash, counts, strict=True)
            ),
        )
        for position, (candidate, nodes) in enumerate(ordered)
    )
    return [each for each in choices if each.node_count or each.shared_units]


@dataclass
class _TrialChassis:
    """A chassis on which allocations are tried."""

    candidate: Candidate
    shared_units: int = 0
    colocation_keys: set[str] = field(default_factory=set)
    """Those of the allocations on it: no other allocation with one of them may be there."""
    max_nodes: int = field(init=False)
    """How many nodes can have flash beside them still."""
    min_nodes: int = 0
    """How many nodes there must be, if any."""

    def __post_init__(self) -> None:
        self.max_nodes = self.candidate.max_nodes

    def nodes_after(self, needed_units: int) -> int:
        """Return how many nodes could be there beside so much more."""
        units_left = self.candidate.free_units - self.shared_units - needed_units
        if units_left < 0:
            return 0
        candidate = self.candidate
        max_nodes = (
            min(candidate.max_nodes, units_left // candidate.units_per_node)
            if candidate.units_per_node
            else self.max_nodes
        )
        return max_nodes if max_nodes >= self.min_nodes else 0


def _follow_allocations(
    request: Request, candidates: Sequence[Candidate], any_rabbit_candidates: Sequence[Candidate]
) -> list[Choice] | None:
    """Place each allocation where it costs the fewest nodes, and choose the nodes after it."""
    trials = [
        _TrialChassis(candidate, min_nodes=request.nodes_per_chassis) for candidate in candidates
    ]
    max_rabbits = request.chassis_count or request.node_count
    used_indexes: set[int] = set()
    local_sets = [each for each in request.shared_flash if each.locality is not Locality.ANY]
    for each in sorted(local_sets, key=placing_order):

        def cost(index: int, gib: int = each.gib) -> tuple[int, int, int]:
            trial = trials[index]
            lost = trial.max_nodes - trial.nodes_after(units_needed(gib, trial.candidate.unit_gib))
            return (lost, trial.shared_units - trial.candidate.free_units, index)

        heap = [
            cost(index)
            for index, trial in enumerate(trials)
            if has_labels(trial.candidate.labels, each.labels)
            and trial.colocation_keys.isdisjoint(each.colocation_keys)
        ]
        heapify(heap)
        allocations_left = each.count
        while allocations_left and heap:
            index = heap[0][2]
            trial, needed_units = (
                trials[index],
                units_needed(each.gib, trials[index].candidate.unit_gib),
            )
            nodes_left = trial.nodes_after(needed_units)
            if not nodes_left or (index not in used_indexes and len(used_indexes) == max_rabbits):
                heappop(heap)
                continue
            used_indexes.add(index)
            trial.shared_units += needed_units
            trial.max_nodes = nodes_left
            allocations_left -= 1
            if each.colocation_keys:
                trial.colocation_keys.update(each.colocation_keys)
                heappop(heap)
            else:
                heapreplace(heap, cost(index))
        if allocations_left:
            return None
    if request.chassis_count:
        unused_indexes = [index for index in range(len(trials)) if index not in used_indexes]
        chosen = {*used_indexes, *unused_indexes[: request.chassis_count - len(used_indexes)]}
        trials = [trial for index, trial in enumerate(trials) if index in chosen]
        candidates, used_indexes = [trial.candidate for trial in trials], set()
    max_nodes = [trial.max_nodes for trial in trials]
    if sum(max_nodes) < request.node_count:
        return None
    return _place_shared(
        request, _take_in_order(candidates, max_nodes, request, used_indexes), any_rabbit_candidates
    )
