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

from warren.base.bytesize import format_gib
from warren.base.words import plural

_MOST_TRIES: Final = 4096
"""How often it is tried whether a rabbit would do, where the first choice did not work out."""


class Locality(Enum):
    """Which rabbits may hold an allocation, by the nodes that are wired to them."""

    JOB = auto()
    """Those of the job's nodes."""
    EVERY_RABBIT_OF_JOB = auto()
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
        return bool(
            self.labels or self.colocation_keys or self.locality is Locality.EVERY_RABBIT_OF_JOB
        )

    def allows_rabbit(self, node_count: int, labels: Collection[str] | None) -> bool:
        """Return whether a rabbit that `node_count` of the job's nodes are wired to may hold one.

        `labels` are those that it carries; None where they are not known yet.
        """
        return bool(node_count or self.locality is Locality.ANY) and has_labels(labels, self.labels)


class HeldFlash(msgspec.Struct, frozen=True):
    """The flash that a job holds on one rabbit, in units of `unit_gib` each."""

    rabbit: str
    node_count: int
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

    node_count: int
    """How many of the job's nodes are wired to it."""
    unit_gib: int
    """GiB that are given out together."""
    units: int
    """How many such units are free."""
    labels: frozenset[str] | None = frozenset()
    """None where it is not known yet what the rabbit carries: it may be anything."""


def description(allocation_set: AllocationSet) -> str:
    """Write allocations for a person, with what they demand of rabbits."""
    text = (
        f"{plural(allocation_set.count, 'allocation')} of {format_gib(allocation_set.gib, up=True)}"
    )
    if allocation_set.colocation_keys:
        where = (
            "on a rabbit of its own" if allocation_set.count == 1 else "each on a rabbit of its own"
        )
        keys = " and ".join(repr(key) for key in allocation_set.colocation_keys)
        text += f" {where} (colocation key {keys})"
    if allocation_set.locality is Locality.EVERY_RABBIT_OF_JOB:
        text += " on whose rabbits all nodes are"
    if allocation_set.labels:
        text += f" on rabbits with {' and '.join(allocation_set.labels)}"
    return text


def units_needed(gib: int, unit_gib: int) -> int:
    """Return how many units hold so many GiB."""
    return -(-gib // max(unit_gib, 1))


def has_labels(labels: Collection[str] | None, required: Sequence[str]) -> bool:
    """Return whether a rabbit that carries `labels`, if they are known, has all `required` ones."""
    return not required or labels is None or all(each in labels for each in required)


def placement(
    allocation_sets: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]
) -> list[list[int]] | None:
    """Return for each set of `allocation_sets` how many of its allocations each rabbit holds.

    None if they do not fit. What may be on any rabbit is placed last, what is constrained first,
    and of each the larger. An allocation goes where nodes are, if it can; of such rabbits to those
    with the fewest of its own set; of these to the one with the most nodes; of those to the
    first. Rabbits that are not allowed are passed over.
    Where that leads nowhere, the last choices are taken back one by one, for so long as bounded
    effort allows.

    Nothing of this looks at how much room there is but whether it is enough, so the answer is
    the same where there is no more room than the answer needs.
    """
    order = sorted(
        range(len(allocation_sets)), key=lambda index: placing_order(allocation_sets[index])
    )
    ordered = [allocation_sets[index] for index in order]
    if any(_never_fits(each, rabbits) for each in ordered):
        return None
    counts_in_order = _place_in_order(ordered, rabbits)
    if counts_in_order is None and (
        len(ordered) > 1 or any(each.colocation_keys for each in ordered)
    ):
        counts_in_order = _Search(ordered, rabbits).first_choice()
    if counts_in_order is None or any(
        each.locality is Locality.EVERY_RABBIT_OF_JOB
        and any(
            rabbit.node_count and not count for rabbit, count in zip(rabbits, counts, strict=True)
        )
        for each, counts in zip(ordered, counts_in_order, strict=True)
    ):
        return None
    counts_by_index = dict(zip(order, counts_in_order, strict=True))
    return [counts_by_index[index] for index in range(len(allocation_sets))]


def placing_order(allocation_set: AllocationSet) -> tuple[bool, bool, int]:
    """Return a key that sorts allocation sets by which is placed first."""
    return (
        allocation_set.locality is Locality.ANY,
        not allocation_set.constrained,
        -allocation_set.gib,
    )


def _never_fits(allocation_set: AllocationSet, rabbits: Sequence[FreeFlash]) -> bool:
    """Return whether an allocation set would not fit even if it were alone."""
    count_left = allocation_set.count
    for rabbit in rabbits:
        if allocation_set.allows_rabbit(rabbit.node_count, rabbit.labels):
            fits = max(rabbit.units, 0) // max(units_needed(allocation_set.gib, rabbit.unit_gib), 1)
            count_left -= min(fits, 1) if allocation_set.colocation_keys else fits
            if count_left <= 0:
                return False
    return True


def _place_in_order(
    allocation_sets: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]
) -> list[list[int]] | None:
    """Place allocation sets in order, without ever taking anything back."""
    free_units = [rabbit.units for rabbit in rabbits]
    keys_used: list[set[str]] = [set() for _ in rabbits]
    placed = [[0] * len(rabbits) for _ in allocation_sets]
    for each, counts in zip(allocation_sets, placed, strict=True):
        heap = [
            (not rabbit.node_count, 0, -rabbit.node_count, index)
            for index, rabbit in enumerate(rabbits)
            if each.allows_rabbit(rabbit.node_count, rabbit.labels)
            and keys_used[index].isdisjoint(each.colocation_keys)
        ]
        heapify(heap)
        count_left = each.count
        while count_left and heap:
            has_no_nodes, _, negated_node_count, index = heap[0]
            need = units_needed(each.gib, rabbits[index].unit_gib)
            if free_units[index] < need:
                heappop(heap)  # and it will not have more
                continue
            free_units[index] -= need
            counts[index] += 1
            count_left -= 1
            if each.colocation_keys:
                keys_used[index].update(each.colocation_keys)
                heappop(heap)
            else:
                heapreplace(heap, (has_no_nodes, counts[index], negated_node_count, index))
        if count_left:
            return None
    return placed


class _Search:
    """Goes through choices in the order in which they are preferred, depth first."""

    def __init__(
        self, allocation_sets: Sequence[AllocationSet], rabbits: Sequence[FreeFlash]
    ) -> None:
        self._allocation_sets = allocation_sets
        self._rabbits = rabbits
        self._free_units = [rabbit.units for rabbit in rabbits]
        self._keys_used: list[set[str]] = [set() for _ in rabbits]
        self._counts = [[0] * len(rabbits) for _ in allocation_sets]
        self._tries_left = _MOST_TRIES

    def first_choice(self) -> list[list[int]] | None:
        """Return the first choice that works out, if one does before the effort is spent."""
        set_indexes = [
            set_index
            for set_index, each in enumerate(self._allocation_sets)
            for _ in range(each.count)
        ]
        choices_left = [self._choices(set_indexes[0])] if set_indexes else []
        chosen: list[int] = []
        while choices_left and len(chosen) < len(set_indexes):
            set_index = set_indexes[len(chosen)]
            rabbit_index = next(choices_left[-1], None)
            if rabbit_index is None:
                choices_left.pop()
                if not chosen:
                    return None
                self._take_back(set_indexes[len(chosen) - 1], chosen.pop())
                continue
            self._take(set_index, rabbit_index)
            chosen.append(rabbit_index)
            if len(chosen) < len(set_indexes):
                choices_left.append(self._choices(set_indexes[len(chosen)]))
        return self._counts if len(chosen) == len(set_indexes) else None

    def _choices(self, set_index: int) -> Iterator[int]:
        """Yield the rabbits for an allocation of a set, the preferred ones first."""
        allocation_set, counts = self._allocation_sets[set_index], self._counts[set_index]
        order = sorted(
            range(len(self._rabbits)),
            key=lambda rabbit_index: (
                not self._rabbits[rabbit_index].node_count,
                counts[rabbit_index],
                -self._rabbits[rabbit_index].node_count,
                rabbit_index,
            ),
        )
        for rabbit_index in order:
            if self._tries_left <= 0:
                return
            self._tries_left -= 1
            rabbit = self._rabbits[rabbit_index]
            if (
                self._free_units[rabbit_index] >= units_needed(allocation_set.gib, rabbit.unit_gib)
                and allocation_set.allows_rabbit(rabbit.node_count, rabbit.labels)
                and self._keys_used[rabbit_index].isdisjoint(allocation_set.colocation_keys)
            ):
                yield rabbit_index

    def _take(self, set_index: int, rabbit_index: int) -> None:
        allocation_set = self._allocation_sets[set_index]
        self._free_units[rabbit_index] -= units_needed(
            allocation_set.gib, self._rabbits[rabbit_index].unit_gib
        )
        self._keys_used[rabbit_index].update(allocation_set.colocation_keys)
        self._counts[set_index][rabbit_index] += 1

    def _take_back(self, set_index: int, rabbit_index: int) -> None:
        allocation_set = self._allocation_sets[set_index]
        self._free_units[rabbit_index] += units_needed(
            allocation_set.gib, self._rabbits[rabbit_index].unit_gib
        )
        self._keys_used[rabbit_index].difference_update(allocation_set.colocation_keys)
        self._counts[set_index][rabbit_index] -= 1
