"""What is reserved for a job's storage, and what of that each of its rabbits holds.

One arithmetic for both: `reservation` says from a breakdown what the job's R must hold, and
`allocation_sets` says from the same breakdown and that R which rabbit holds what (dws-spec
section 4, coral2-spec section 14). Only strategies, constraints and capacities of the breakdown
are read, never the name of a file system.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, Final

import msgspec
from msgspec import structs

from warren.base.bytesize import GIB, format_gib, whole_gib
from warren.base.placing import (
    AllocationSet,
    FreeFlash,
    HeldFlash,
    Locality,
    description,
    placement,
    units_needed,
)
from warren.base.words import plural
from warren.dws.breakdown.allocationneeds import (
    ACROSS_SERVERS,
    PER_COMPUTE,
    PER_SERVER,
    RABBIT_LABEL,
    SINGLE_SERVER,
)
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import EXCLUSIVE, AllocationNeed, Constraints

_MAX_SCALE: Final = 10

_MAX_NAMED_RABBITS: Final = 8
"""Rabbits of one sentence."""


class Reservation(msgspec.Struct, frozen=True):
    """The flash that a job is to have, in whole GiB."""

    gib_per_node: int
    """Beside each of its nodes, on the rabbit that the node is wired to."""
    shared_sets: tuple[AllocationSet, ...] = ()
    """What its nodes share, in addition: on rabbits that they are wired to, or on any."""
    labels: tuple[str, ...] = ()
    """What the rabbit of each node must carry, for what is beside it."""


class PlacementPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a site wants of sets that may have any number of allocations."""

    scale: int | None = None
    """The scale of those that have none; None leaves them in proportion to nodes."""
    max_allocations: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The most allocations that sets have, by their labels."""
    allow_any_rabbit: bool = False
    """Whether what nodes reach over the network may be on rabbits that none is wired to."""
    scheduler_places_flash: bool = True
    """Whether the scheduler gives jobs their flash. If it knows of none, jobs get their nodes, and
    whether there is room turns out when their storage is made."""
    max_gib_per_node: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The most GiB that a job may ask for, for each of its nodes, by the type of file system. Empty
    where a validator has checked that when the job was submitted."""

    def with_site_limits(self, needs: Sequence[AllocationNeed]) -> tuple[AllocationNeed, ...]:
        """Return sets as the site wants them. What breakdowns say of numbers counts for more."""
        return tuple(
            structs.replace(need, constraints=self._site_constraints(need))
            if need.allocation_strategy == ACROSS_SERVERS and need.constraints.count is None
            else need
            for need in needs
        )

    def _site_constraints(self, need: AllocationNeed) -> Constraints:
        constraints, max_allocations = need.constraints, self.max_allocations.get(need.label)
        scale = self.scale if constraints.scale is None else constraints.scale
        if scale is None and (max_allocations is not None or self.allow_any_rabbit):
            scale = _MAX_SCALE  # as close to one for each node as there may be
        return structs.replace(constraints, scale=scale, max_allocations=max_allocations)


DEFAULT_POLICY: Final = PlacementPolicy()

_UNBOUNDED_GIB: Final = 2**40
"""GiB of a rabbit of which nothing is known here."""


class _SetLayout(msgspec.Struct, frozen=True):
    """How one allocation set is met: beside each node, in proportion to nodes, or as `count`."""

    size: int = 0
    """Bytes of each allocation; of all together, where they are in proportion."""
    proportional: bool = False
    count: int | None = None


def reservation(
    needs: Sequence[AllocationNeed],
    node_count: int | None,
    min_allocation_bytes: int,
    largest_rabbit_gib: int | None = None,
    reserved_counts: Sequence[int] = (),
    localities: Sequence[Locality] = (),
) -> Reservation:
    """Return the flash that a job of so many nodes needs; None for a number that is left open.

    `min_allocation_bytes` is the least size of one allocation, and `largest_rabbit_gib` how many
    GiB the largest rabbit has, where that is known. `reserved_counts` are the numbers of
    allocations that were reserved already, set by set of those that are not beside each node: where
    they were chosen, they are kept. `localities` say of each set which rabbits may hold it
    (`dws.location`). Raises Fault for what cannot be placed.
    """
    layouts = _layouts(needs, node_count, min_allocation_bytes, largest_rabbit_gib, reserved_counts)
    shared_sets = tuple(
        AllocationSet(
            layout.count,
            whole_gib(layout.size),
            _required_labels(need),
            _colocation_keys(need),
            locality,
        )
        for need, layout, locality in zip(
            needs, layouts, localities or [Locality.JOB] * len(needs), strict=True
        )
        if layout.count is not None
    )
    _check_colocation(needs, layouts)
    return Reservation(
        _gib_per_node(layouts, node_count),
        shared_sets,
        tuple(
            dict.fromkeys(
                label
                for need, layout in zip(needs, layouts, strict=True)
                if layout.count is None
                for label in _required_labels(need)
            )
        ),
    )


def allocation_sets(
    needs: Sequence[AllocationNeed],
    node_counts_by_rabbit: Mapping[str, int],
    min_allocation_bytes: int,
    held_flash: Sequence[HeldFlash] = (),
    reserved_counts: Sequence[int] = (),
    localities: Sequence[Locality] = (),
) -> list[dict[str, Any]]:
    """Return the allocation sets that serve a job with so many nodes on each rabbit.

    `held_flash` is the flash that its R holds, in the order of the job's nodes; it is looked at
    where a set is not beside each node. `reserved_counts` are those that `reservation` came to,
    where they are known, and `localities` what it was given. Raises Fault for what cannot be
    placed, and where R holds less than was to be reserved.
    """
    node_count = sum(node_counts_by_rabbit.values())
    layouts = _layouts(needs, node_count, min_allocation_bytes, None, reserved_counts)
    reserved = reservation(
        needs, node_count, min_allocation_bytes, None, reserved_counts, localities
    )
    shared_placements = iter(_place_shared(reserved, held_flash))
    sets = []
    for need, layout in zip(needs, layouts, strict=True):
        size, count_by_rabbit = layout.size, node_counts_by_rabbit
        if layout.count is not None:
            count_by_rabbit = next(shared_placements)
        elif layout.proportional:
            # As few and as large as the proportions of the job's nodes allow.
            divisor = gcd(*node_counts_by_rabbit.values())
            count_by_rabbit = {
                rabbit: each // divisor for rabbit, each in node_counts_by_rabbit.items()
            }
            size = -(-size // (node_count // divisor))
        sets.append(
            {
                "label": need.label,
                "allocationSize": size,
                "storage": [
                    {"name": rabbit, "allocationCount": count_by_rabbit[rabbit]}
                    for rabbit in sorted(count_by_rabbit)
                ],
            }
        )
    return sets


def unreserved_flash(node_counts_by_rabbit: Mapping[str, int]) -> list[HeldFlash]:
    """Return the flash of a job to which none was given: all that its nodes' rabbits have."""
    return [
        HeldFlash(rabbit, node_count, 1, _UNBOUNDED_GIB)
        for rabbit, node_count in node_counts_by_rabbit.items()
    ]


def may_have_shared_sets(needs: Sequence[AllocationNeed]) -> bool:
    """Return whether R may have to say which rabbits hold a set: it is not one beside each node."""
    return any(need.allocation_strategy != PER_COMPUTE for need in needs)


def _layouts(
    needs: Sequence[AllocationNeed],
    node_count: int | None,
    min_allocation_bytes: int,
    largest_rabbit_gib: int | None,
    reserved_counts: Sequence[int],
) -> list[_SetLayout]:
    """Return how each set is met: first those beside each node, which leave the others less."""
    layout_by_index: dict[int, _SetLayout] = {}
    scaled_indexes: list[int] = []
    for index, need in enumerate(needs):
        layout = _fixed_layout(need, node_count, min_allocation_bytes)
        if layout is None:
            scaled_indexes.append(index)
        else:
            layout_by_index[index] = layout
    available_gib = (
        None
        if largest_rabbit_gib is None
        else largest_rabbit_gib - _gib_per_node(layout_by_index.values(), node_count)
    )
    for index in scaled_indexes:
        layout_by_index[index] = _scaled_layout(
            needs[index], node_count, min_allocation_bytes, available_gib
        )
    shared_indexes = [
        index for index in sorted(layout_by_index) if layout_by_index[index].count is not None
    ]
    if len(shared_indexes) == len(reserved_counts):
        # What was chosen before is kept: what it came from may have changed.
        for index, count in zip(shared_indexes, reserved_counts, strict=True):
            if index in scaled_indexes:
                layout_by_index[index] = _counted_layout(needs[index], count, min_allocation_bytes)
    return [layout_by_index[index] for index in range(len(needs))]


def _fixed_layout(
    need: AllocationNeed, node_count: int | None, min_allocation_bytes: int
) -> _SetLayout | None:
    """Return how a set is met; None where its number of allocations is to be chosen."""
    capacity, count = need.minimum_capacity, need.constraints.count
    if need.allocation_strategy == PER_COMPUTE:
        return _SetLayout(max(capacity, min_allocation_bytes))
    if need.allocation_strategy == SINGLE_SERVER:
        if count not in (None, 1):
            raise Fault(
                f"set {need.label} cannot be placed because {SINGLE_SERVER} is one allocation, "
                f"and its constraints ask for {count}"
            )
        return _SetLayout(max(capacity, min_allocation_bytes), count=1)
    if need.allocation_strategy == PER_SERVER:
        raise Fault(
            f"set {need.label} cannot be placed because {PER_SERVER} does not say on how many "
            f"rabbits: its breakdown must ask for {PER_COMPUTE}, {ACROSS_SERVERS} or "
            f"{SINGLE_SERVER}"
        )
    if need.allocation_strategy != ACROSS_SERVERS:
        raise Fault(
            f"set {need.label} cannot be placed because the allocation strategy "
            f"{need.allocation_strategy!r} is not understood"
        )
    if count is not None:
        return _counted_layout(need, count, min_allocation_bytes)
    if need.constraints.scale is not None or _colocation_keys(need):
        return None
    if node_count is None:
        raise _node_count_missing(need)
    if capacity >= node_count * min_allocation_bytes:
        return _SetLayout(capacity, proportional=True)
    # A part for each node would be less than an allocation can be.
    return _counted_layout(need, max(capacity // min_allocation_bytes, 1), min_allocation_bytes)


def _counted_layout(need: AllocationNeed, count: int, min_allocation_bytes: int) -> _SetLayout:
    return _SetLayout(max(-(-need.minimum_capacity // count), min_allocation_bytes), count=count)


def _scaled_layout(
    need: AllocationNeed,
    node_count: int | None,
    min_allocation_bytes: int,
    available_gib: int | None,
) -> _SetLayout:
    """Choose the number of allocations of a set by its scale.

    1 is as few as the rabbits can hold, 10 is one for each node, and what is between lies
    evenly between. Without a scale, of a set whose allocations must be apart, it is as few.
    """
    size_gib = whole_gib(need.minimum_capacity)
    min_count = (
        -(-size_gib // available_gib) if available_gib is not None and available_gib > 0 else 1
    )
    scale = need.constraints.scale
    if scale is None:
        return _counted_layout(need, min_count, min_allocation_bytes)
    if not 1 <= scale <= _MAX_SCALE:
        raise Fault(
            f"set {need.label} cannot be placed because its scale is {scale}, and a scale is from "
            f"1 to {_MAX_SCALE}"
        )
    if node_count is None:
        raise _node_count_missing(need)
    # What is smaller than a GiB, or than allocations can be, is not made smaller by its number.
    max_count = min(
        node_count,
        need.minimum_capacity // max(min_allocation_bytes, GIB),
        need.constraints.max_allocations or node_count,
    )
    max_count = max(max_count, min_count)
    return _counted_layout(
        need,
        min_count + (max_count - min_count) * (scale - 1) // (_MAX_SCALE - 1),
        min_allocation_bytes,
    )


def _node_count_missing(need: AllocationNeed) -> Fault:
    return Fault(
        f"set {need.label} cannot be placed because it is shared out between the job's "
        "nodes, and their number is left open: give -N one number",
        type="User",
    )


def _gib_per_node(layouts: Iterable[_SetLayout], node_count: int | None) -> int:
    """Return how many GiB are beside each node."""
    gib_beside = 0
    for layout in layouts:
        if layout.proportional:
            assert node_count is not None
            gib_beside += -(-whole_gib(layout.size) // node_count)
        elif layout.count is None:
            gib_beside += whole_gib(layout.size)
    return gib_beside


def _required_labels(need: AllocationNeed) -> tuple[str, ...]:
    """Return what rabbits must carry, each as `key=value`, but what all of them carry."""
    return tuple(
        f"{key}={value}"
        for key, _, value in (each.partition("=") for each in need.constraints.labels)
        if f"{key}={value}" != RABBIT_LABEL
    )


def _colocation_keys(need: AllocationNeed) -> tuple[str, ...]:
    """Return the keys that no two allocations on a rabbit may have in common."""
    for each in need.constraints.colocation:
        if each.type != EXCLUSIVE:
            raise Fault(
                f"set {need.label} cannot be placed because the colocation {each.type!r} is not "
                f"understood: there is {EXCLUSIVE!r}"
            )
    return tuple(dict.fromkeys(each.key for each in need.constraints.colocation))


def _check_colocation(needs: Sequence[AllocationNeed], layouts: Sequence[_SetLayout]) -> None:
    """Raise Fault for a set that is on every rabbit of the job, and must be on none with another.

    Its own allocations are as many on a rabbit as there are nodes: that is what it is for.
    """
    for index, need in enumerate(needs):
        if layouts[index].count is not None:
            continue
        for other_index, other in enumerate(needs):
            for key in _colocation_keys(need):
                if other_index != index and key in _colocation_keys(other):
                    raise Fault(
                        f"set {need.label} cannot be placed because it is beside each node, and "
                        f"must not be on a rabbit with set {other.label} (colocation key {key!r})"
                    )


def _place_shared(
    reservation: Reservation, held_flash: Sequence[HeldFlash]
) -> list[dict[str, int]]:
    """Return how many allocations of each shared set each rabbit holds."""
    if not reservation.shared_sets:
        return []
    free_flash = [
        FreeFlash(
            each.node_count,
            each.unit_gib,
            each.units - each.node_count * units_needed(reservation.gib_per_node, each.unit_gib),
            each.labels,
        )
        for each in held_flash
    ]
    placed_counts = placement(reservation.shared_sets, free_flash)
    if placed_counts is None:
        raise Fault(_no_room_message(reservation, held_flash), type="WLM")
    counts_by_rabbit = []
    for held_counts in placed_counts:
        count_by_rabbit: dict[str, int] = {}
        for each, count in zip(held_flash, held_counts, strict=True):
            if count:
                count_by_rabbit[each.rabbit] = count_by_rabbit.get(each.rabbit, 0) + count
        counts_by_rabbit.append(count_by_rabbit)
    return counts_by_rabbit


def _no_room_message(reservation: Reservation, held_flash: Sequence[HeldFlash]) -> str:
    sets_text = " and ".join(description(each) for each in reservation.shared_sets)
    beside_text = (
        f" and {format_gib(reservation.gib_per_node, up=True)} beside each node"
        if reservation.gib_per_node
        else ""
    )
    given_text = ", ".join(
        f"{format_gib(each.gib, up=False)} on {each.rabbit}"
        for each in held_flash[:_MAX_NAMED_RABBITS]
    )
    if len(held_flash) > _MAX_NAMED_RABBITS:
        given_text += f" and {plural(len(held_flash) - _MAX_NAMED_RABBITS, 'rabbit')} more"
    return (
        f"the storage cannot be placed because it is {sets_text}{beside_text}, "
        f"and the job was given {given_text or 'no flash'}"
    )
