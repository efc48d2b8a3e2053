"""What is reserved for a job's storage, and what of that each of its rabbits holds.

One arithmetic for both: `reserve` says from a breakdown what the job's R must hold, and `filled`
writes from the same breakdown and that R who holds what (dws-spec section 4, coral2-spec section
14). Only strategies, counts and capacities of the breakdown are read, never the name of a file
system.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from warren.base.bytesize import gib, whole_gib
from warren.base.placing import Held, Place, Shared, placed, units
from warren.base.words import plural
from warren.dws.breakdown import ACROSS_SERVERS, PER_COMPUTE, PER_SERVER, SINGLE_SERVER
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed


@dataclass(frozen=True)
class Reservation:
    """The flash that a job is to have, in whole GiB."""

    beside: int
    """Beside each of its nodes, on the rabbit that the node is wired to."""
    shared: tuple[Shared, ...] = ()
    """Beside that, on any of the rabbits that its nodes are wired to."""


@dataclass(frozen=True)
class _Share:
    """How one allocation set is met: beside each node, in proportion to nodes, or as `count`."""

    size: int = 0
    """Bytes of each allocation; of all together, where they are in proportion."""
    proportional: bool = False
    count: int | None = None


def reserve(needs: Sequence[AllocationNeed], nodes: int | None, floor: int) -> Reservation:
    """Return the flash that a job of so many nodes needs; None for a number that is left open.

    `floor` is the least size of one allocation, in bytes. Raises Fault for what cannot be placed.
    """
    beside, shared = 0, []
    for need in needs:
        share = _share(need, nodes, floor)
        size = whole_gib(share.size)
        if share.count is not None:
            shared.append(Shared(share.count, size))
        elif share.proportional:
            assert nodes is not None
            beside += -(-size // nodes)
        else:
            beside += size
    return Reservation(beside, tuple(shared))


def filled(
    needs: Sequence[AllocationNeed],
    per_rabbit: Mapping[str, int],
    floor: int,
    held: Sequence[Held] = (),
) -> list[dict[str, Any]]:
    """Return the allocation sets that serve a job with `per_rabbit` nodes on each rabbit.

    `held` is the flash that its R holds, in the order of the job's nodes; it is looked at where
    a set is not beside each node. Raises Fault for what cannot be placed, and where R holds less
    than was to be reserved.
    """
    nodes = sum(per_rabbit.values())
    places = iter(_placed(reserve(needs, nodes, floor), held))
    sets = []
    for need in needs:
        share = _share(need, nodes, floor)
        size, counts = share.size, per_rabbit
        if share.count is not None:
            counts = next(places)
        elif share.proportional:
            # As few and as large as the proportions of the job's nodes allow.
            part = gcd(*per_rabbit.values())
            counts = {rabbit: each // part for rabbit, each in per_rabbit.items()}
            size = -(-size // (nodes // part))
        sets.append(
            {
                "label": need.label,
                "allocationSize": size,
                "storage": [
                    {"name": rabbit, "allocationCount": counts[rabbit]} for rabbit in sorted(counts)
                ],
            }
        )
    return sets


def spreads(needs: Sequence[AllocationNeed]) -> bool:
    """Return whether a set is not beside each node, so that R says which rabbits hold it."""
    return any(need.allocation_strategy != PER_COMPUTE for need in needs)


def _share(need: AllocationNeed, nodes: int | None, floor: int) -> _Share:
    wanted, count = need.minimum_capacity, need.constraints.count
    if need.allocation_strategy == PER_COMPUTE:
        return _Share(max(wanted, floor))
    if need.allocation_strategy == SINGLE_SERVER:
        if count not in (None, 1):
            raise Fault(
                f"set {need.label} cannot be placed because {SINGLE_SERVER} is one allocation, "
                f"and its constraints ask for {count}"
            )
        return _Share(max(wanted, floor), count=1)
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
    if count is None:
        if nodes is None:
            raise Fault(
                f"set {need.label} cannot be placed because it is shared out between the job's "
                "nodes, and their number is left open: give -N one number",
                type="User",
            )
        if wanted >= nodes * floor:
            return _Share(wanted, proportional=True)
        # A part for each node would be less than an allocation can be.
        count = max(wanted // floor, 1)
    return _Share(max(-(-wanted // count), floor), count=count)


def _placed(wanted: Reservation, held: Sequence[Held]) -> list[dict[str, int]]:
    """Return how many allocations of each shared set each rabbit holds."""
    if not wanted.shared:
        return []
    places = [
        Place(each.nodes, each.unit, each.units - each.nodes * units(wanted.beside, each.unit))
        for each in held
    ]
    found = placed(wanted.shared, places)
    if found is None:
        raise Fault(_lacking(wanted, held), type="WLM")
    counts = []
    for numbers in found:
        by_rabbit: dict[str, int] = {}
        for each, number in zip(held, numbers, strict=True):
            if number:
                by_rabbit[each.rabbit] = by_rabbit.get(each.rabbit, 0) + number
        counts.append(by_rabbit)
    return counts


def _lacking(wanted: Reservation, held: Sequence[Held]) -> str:
    asked = " and ".join(
        f"{plural(each.count, 'allocation')} of {gib(each.gib, up=True)}" for each in wanted.shared
    )
    beside = f" and {gib(wanted.beside, up=True)} beside each node" if wanted.beside else ""
    there = ", ".join(f"{gib(each.gib, up=False)} on {each.rabbit}" for each in held)
    return (
        f"the storage cannot be placed because it is {asked}{beside}, "
        f"and the job was given {there or 'no flash'}"
    )
