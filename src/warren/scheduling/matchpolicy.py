"""How many nodes a request gets of each chassis, where several would do: the policy of a site."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class MatchPolicy(StrEnum):
    """Which nodes are taken, of those that would do."""

    FIRST = "first"
    """Those with the lowest ranks."""
    PACK = "pack"
    """Those on the fewest chassis, and of such chassis on those that are filled best."""
    SPREAD = "spread"
    """As many on each chassis, of as many chassis as there are: for the most bandwidth."""
    LEVEL = "level"
    """Those on chassis of whose flash the least has been given out: for even wear."""


class ChassisNodes(NamedTuple):
    """The nodes of one chassis that a request could have."""

    max_nodes: int
    """How many nodes."""
    given_gib: int
    """GiB of its flash that have been given out so far."""


def node_counts(policy: MatchPolicy, groups: Sequence[ChassisNodes], wanted: int) -> list[int]:
    """Return how many of the wanted nodes each group gives.

    There are as many as that: the caller has seen that the request fits.
    """
    match policy:
        case MatchPolicy.FIRST:
            return _in_turn(groups, range(len(groups)), wanted)
        case MatchPolicy.LEVEL:
            order = sorted(range(len(groups)), key=lambda index: (groups[index].given_gib, index))
            return _in_turn(groups, order, wanted)
        case MatchPolicy.PACK:
            return _packed(groups, wanted)
        case MatchPolicy.SPREAD:
            return _spread(groups, wanted)


def _in_turn(groups: Sequence[ChassisNodes], order: Sequence[int], wanted: int) -> list[int]:
    counts = [0] * len(groups)
    for index in order:
        counts[index] = min(groups[index].max_nodes, wanted)
        wanted -= counts[index]
        if not wanted:
            break
    return counts


def _packed(groups: Sequence[ChassisNodes], wanted: int) -> list[int]:
    """Take the largest groups, and for what is then left the smallest one that has it."""
    counts = [0] * len(groups)
    order = sorted(range(len(groups)), key=lambda index: (-groups[index].max_nodes, index))
    for position, index in enumerate(order):
        if groups[index].max_nodes >= wanted:
            enough = (each for each in order[position:] if groups[each].max_nodes >= wanted)
            counts[min(enough, key=lambda each: (groups[each].max_nodes, each))] = wanted
            break
        counts[index] = groups[index].max_nodes
        wanted -= counts[index]
    return counts


def _spread(groups: Sequence[ChassisNodes], wanted: int) -> list[int]:
    """Fill groups evenly: those that have less give all, and the others as many each."""
    counts = [0] * len(groups)
    order = sorted(range(len(groups)), key=lambda index: (groups[index].max_nodes, index))
    for groups_left, index in zip(range(len(groups), 0, -1), order, strict=True):
        # Rounded down, what does not divide is given by the largest, which come last.
        counts[index] = min(groups[index].max_nodes, wanted // groups_left)
        wanted -= counts[index]
    return counts
