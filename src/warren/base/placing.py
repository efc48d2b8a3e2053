"""Which of a job's rabbits holds which of its allocations, where those are not beside its nodes.

The scheduler asks with the flash that is free, and writes what comes of it into the job's R; the
storage side asks with the flash that R holds. Both get the same answer (`placement`), and so what
is reserved is what is used, on the rabbits where it is used.
"""

from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from heapq import heapify, heappop, heapreplace
from typing import Final

import msgspec

from warren.base.bytesize import gib
from warren.base.words import plural

_MOST_TRIES: Final = 4096
"""How often it is tried whether a rabbit would do, where the first choice did not work out."""


class Locality(Enum):
    """Which rabbits may hold an allocation, by the nodes that are wired to them."""

    JOB = auto()
    """Those of the job's nodes."""
    NODE = auto()
    """The same, and each of these must hold one: its nodes reach no other."""
    ANY = auto()
    """All."""


class AllocationSet(msgspec.Struct, frozen=True):
    """Allocations of one size that several rabbits may hold, if they meet what is said."""

    count: int
    gib: int
    """Of each, in whole GiB."""
    labels: tuple[str, ...] = ()
    """What a rabbit must carry, each as `key=value`."""
    colocation_keys: tuple[str, ...] = ()
    """Keys: no rabbit holds two allocations that have one in common."""
    locality: Locality = Locality.JOB

    @property
    def constrained(self) -> bool:
        return bool(self.labels or self.colocation_keys or self.locality is Locality.NODE)

    def allows_rabbit(self, nodes: int, labels: Collection[str] | None) -> bool:
        """Return whether a rabbit with so many of the job's nodes and such labels may hold one."""
        return bool(nodes or self.locality is Locality.ANY) and has_labels(labels, self.labels)


class HeldFlash(msgspec.Struct, frozen=True):
    """The flash that a job holds on one rabbit, in units of `unit_gib` each."""

    rabbit: str
    nodes: int
    """How many of the job's nodes are wired to the rabbit."""
    unit_gib: int
    units: int
    labels: frozenset[str] = frozenset()
    """What the rabbit carried when the job got it."""

    @property
    def gib(self) -> int:
        return self.unit_gib * self.units


class FreeFlash(msgspec.Struct, frozen=True):
    """The flash of one rabbit that is not taken by what is beside the job's nodes."""

    nodes: int
    """How many of the job's nodes are wired to it."""
    unit_gib: int
    """GiB that are given out together."""
    units: int
    """How many such units are free."""
    labels: frozenset[str] | None = frozenset()
    """None where it is not known yet what the rabbit carries: it may be anything."""


def description(each: AllocationSet) -> str:
    """Write allocations for a person, with what they demand of rabbits."""
    said = f"{plural(each.count, 'allocation')} of {gib(each.gib, up=True)}"
    if each.colocation_keys:
        own = "on a rabbit of its own" if each.count == 1 else "each on a rabbit of its own"
        keys = " and ".join(repr(key) for key in each.colocation_keys)
        said += f" {own} (colocation key {keys})"
    if each.locality is Locality.NODE:
        said += " on whose rabbits all nodes are"
    if each.labels:
        said += f" on rabbits with {' and '.join(each.labels)}"
    return said


def units_needed(gib: int, unit_gib: int) -> int:
    """Return how many units hold so many GiB."""
    return -(-gib // max(unit_gib, 1))


def has_labels(labels: Collection[str] | None, wanted: Sequence[str]) -> bool:
    """Return whether a rabbit that carries some labels has all that are wanted."""
    return not wanted or labels is None or all(each in labels for each in wanted)


def placement(
    wanted: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]
) -> list[list[int]] | None:
    """Return for each entry of `wanted` how many of its allocations each rabbit holds.

    None if they do not fit. What may be on any rabbit is placed last, what is constrained first,
    and of each the larger. An allocation goes where nodes are, if it can; of such rabbits to those
    with the fewest of its own entry; of these to the one with the most nodes; of those to the
    first. Rabbits that are not allowed are passed over.
    Where that leads nowhere, the last choices are taken back one by one, for so long as bounded
    effort allows.

    Nothing of this looks at how much room there is but whether it is enough, so the answer is
    the same where there is no more room than the answer needs.
    """
    order = sorted(range(len(wanted)), key=lambda index: placing_order(wanted[index]))
    ordered = [wanted[index] for index in order]
    if any(_never_fits(each, rabbits) for each in ordered):
        return None
    found = _place_in_order(ordered, rabbits)
    if found is None and (len(ordered) > 1 or any(each.colocation_keys for each in ordered)):
        found = _Search(ordered, rabbits).first_choice()
    if found is None or any(
        each.locality is Locality.NODE
        and any(rabbit.nodes and not count for rabbit, count in zip(rabbits, counts, strict=True))
        for each, counts in zip(ordered, found, strict=True)
    ):
        return None
    by_entry = dict(zip(order, found, strict=True))
    return [by_entry[index] for index in range(len(wanted))]


def placing_order(each: AllocationSet) -> tuple[bool, bool, int]:
    """Return a key that sorts entries by which is placed first."""
    return (each.locality is Locality.ANY, not each.constrained, -each.gib)


def _never_fits(each: AllocationSet, rabbits: Sequence[FreeFlash]) -> bool:
    """Return whether an entry would not fit even if it were alone."""
    left = each.count
    for rabbit in rabbits:
        if each.allows_rabbit(rabbit.nodes, rabbit.labels):
            fits = max(rabbit.units, 0) // max(units_needed(each.gib, rabbit.unit_gib), 1)
            left -= min(fits, 1) if each.colocation_keys else fits
            if left <= 0:
                return False
    return True


def _place_in_order(
    wanted: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]
) -> list[list[int]] | None:
    """Place entries in order, without ever taking anything back."""
    free_units = [rabbit.units for rabbit in rabbits]
    keys_used: list[set[str]] = [set() for _ in rabbits]
    found = [[0] * len(rabbits) for _ in wanted]
    for each, counts in zip(wanted, found, strict=True):
        heap = [
            (not rabbit.nodes, 0, -rabbit.nodes, number)
            for number, rabbit in enumerate(rabbits)
            if each.allows_rabbit(rabbit.nodes, rabbit.labels)
            and keys_used[number].isdisjoint(each.colocation_keys)
        ]
        heapify(heap)
        left = each.count
        while left and heap:
            away, _, nodes, number = heap[0]
            need = units_needed(each.gib, rabbits[number].unit_gib)
            if free_units[number] < need:
                heappop(heap)  # and it will not have more
                continue
            free_units[number] -= need
            counts[number] += 1
            left -= 1
            if each.colocation_keys:
                keys_used[number].update(each.colocation_keys)
                heappop(heap)
            else:
                heapreplace(heap, (away, counts[number], nodes, number))
        if left:
            return None
    return found


class _Search:
    """Goes through choices in the order in which they are preferred, depth first."""

    def __init__(self, wanted: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]) -> None:
        self._wanted = wanted
        self._rabbits = rabbits
        self._free_units = [rabbit.units for rabbit in rabbits]
        self._keys_used: list[set[str]] = [set() for _ in rabbits]
        self._counts = [[0] * len(rabbits) for _ in wanted]
        self._tries_left = _MOST_TRIES

    def first_choice(self) -> list[list[int]] | None:
        """Return the first choice that works out, if one does before the effort is spent."""
        entries = [entry for entry, each in enumerate(self._wanted) for _ in range(each.count)]
        tried = [self._choices(entries[0])] if entries else []
        made: list[int] = []
        while tried and len(made) < len(entries):
            entry = entries[len(made)]
            number = next(tried[-1], None)
            if number is None:
                tried.pop()
                if not made:
                    return None
                self._take_back(entries[len(made) - 1], made.pop())
                continue
            self._take(entry, number)
            made.append(number)
            if len(made) < len(entries):
                tried.append(self._choices(entries[len(made)]))
        return self._counts if len(made) == len(entries) else None

    def _choices(self, entry: int) -> Iterator[int]:
        """Yield the rabbits for an allocation of an entry, the preferred ones first."""
        each, counts = self._wanted[entry], self._counts[entry]
        order = sorted(
            range(len(self._rabbits)),
            key=lambda number: (
                not self._rabbits[number].nodes,
                counts[number],
                -self._rabbits[number].nodes,
                number,
            ),
        )
        for number in order:
            if self._tries_left <= 0:
                return
            self._tries_left -= 1
            rabbit = self._rabbits[number]
            if (
                self._free_units[number] >= units_needed(each.gib, rabbit.unit_gib)
                and each.allows_rabbit(rabbit.nodes, rabbit.labels)
                and self._keys_used[number].isdisjoint(each.colocation_keys)
            ):
                yield number

    def _take(self, entry: int, number: int) -> None:
        each = self._wanted[entry]
        self._free_units[number] -= units_needed(each.gib, self._rabbits[number].unit_gib)
        self._keys_used[number].update(each.colocation_keys)
        self._counts[entry][number] += 1

    def _take_back(self, entry: int, number: int) -> None:
        each = self._wanted[entry]
        self._free_units[number] += units_needed(each.gib, self._rabbits[number].unit_gib)
        self._keys_used[number].difference_update(each.colocation_keys)
        self._counts[entry][number] -= 1
