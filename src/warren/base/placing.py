"""Which of a job's rabbits holds which of its allocations, where those are not beside its nodes.

The scheduler asks with the flash that is free, and writes what comes of it into the job's R; the
storage side asks with the flash that R holds. Both get the same answer (`placed`), and so what
is reserved is what is used, on the rabbits where it is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace


@dataclass(frozen=True)
class Shared:
    """Allocations of one size that any rabbits of a job may hold."""

    count: int
    gib: int
    """Of each, in whole GiB."""


@dataclass(frozen=True)
class Held:
    """The flash that a job holds on one rabbit, in `unit`s of so many GiB."""

    rabbit: str
    nodes: int
    """How many of the job's nodes are wired to the rabbit."""
    unit: int
    units: int

    @property
    def gib(self) -> int:
        return self.unit * self.units


@dataclass(frozen=True)
class Place:
    """A rabbit of a job, as far as its flash is not taken by what is beside the job's nodes."""

    nodes: int
    unit: int
    """GiB that are given out together."""
    room: int
    """In such units."""


def units(gib: int, unit: int) -> int:
    """Return how many units hold so many GiB."""
    return -(-gib // max(unit, 1))


def placed(wanted: Sequence[Shared], places: Sequence[Place]) -> list[list[int]] | None:
    """Return for each entry of `wanted` how many of its allocations each place holds.

    None if they do not fit. Larger allocations are placed first. Each goes where the fewest of
    its own entry are; of such places to the one with the most nodes; of those to the first.
    Places without room are passed over. Neither rule looks at how much room there is, so the
    answer is the same where there is no more room than the answer needs.
    """
    room = [place.room for place in places]
    found = [[0] * len(places) for _ in wanted]
    for index in sorted(range(len(wanted)), key=lambda each: -wanted[each].gib):
        gib, counts = wanted[index].gib, found[index]
        heap = [(0, -place.nodes, number) for number, place in enumerate(places)]
        heapify(heap)
        left = wanted[index].count
        while left and heap:
            _, nodes, number = heap[0]
            need = units(gib, places[number].unit)
            if room[number] < need:
                heappop(heap)  # and it will not have more
                continue
            room[number] -= need
            counts[number] += 1
            left -= 1
            heapreplace(heap, (counts[number], nodes, number))
        if left:
            return None
    return found
