"""What is reserved for a job's storage, and what of that each of its rabbits holds.

One arithmetic for both: `reserve` says from a breakdown what the job's R must hold, and
`allocation_sets` says from the same breakdown and that R which rabbit holds what (dws-spec
section 4, coral2-spec section 14). Only strategies, constraints and capacities of the breakdown
are read, never the name of a file system.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Final

from msgspec import structs

from warren.base.bytesize import GIB, gib, whole_gib
from warren.base.placing import (
    AllocationSet,
    HeldFlash,
    Locality,
    RabbitRoom,
    description,
    placement,
    units,
)
from warren.base.words import plural
from warren.dws.breakdown.allocationneeds import (
    ACROSS_SERVERS,
    PER_COMPUTE,
    PER_SERVER,
    RABBIT,
    SINGLE_SERVER,
)
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import EXCLUSIVE, AllocationNeed, Constraints

_SCALES: Final = 10

_NAMED: Final = 8
"""Rabbits of one sentence."""


@dataclass(frozen=True)
class Reservation:
    """The flash that a job is to have, in whole GiB."""

    beside: int
    """Beside each of its nodes, on the rabbit that the node is wired to."""
    shared: tuple[AllocationSet, ...] = ()
    """Beside that, on rabbits that its nodes are wired to, or on any."""
    labels: tuple[str, ...] = ()
    """What the rabbit of each node must carry, for what is beside it."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a site wants of sets that may have any number of allocations."""

    scale: int | None = None
    """The scale of those that have none; None leaves them in proportion to nodes."""
    most: Mapping[str, int] = field(default_factory=dict)
    """The most allocations that sets have, by their labels."""
    anywhere: bool = False
    """Whether what nodes reach over the network may be on rabbits that none is wired to."""
    reserves: bool = True
    """Whether the scheduler gives jobs their flash. If it knows of none, jobs get their nodes, and
    whether there is room turns out when their storage is made."""
    maximums: Mapping[str, int] = field(default_factory=dict)
    """GiB for each of a job's nodes, by type, where nothing has looked at that before."""

    def applied(self, needs: Sequence[AllocationNeed]) -> tuple[AllocationNeed, ...]:
        """Return sets as the site wants them. What breakdowns say of numbers counts for more."""
        return tuple(
            structs.replace(need, constraints=self._of(need))
            if need.allocation_strategy == ACROSS_SERVERS and need.constraints.count is None
            else need
            for need in needs
        )

    def _of(self, need: AllocationNeed) -> Constraints:
        asked, most = need.constraints, self.most.get(need.label)
        scale = self.scale if asked.scale is None else asked.scale
        if scale is None and (most is not None or self.anywhere):
            scale = _SCALES  # as close to one for each node as there may be
        return structs.replace(asked, scale=scale, most=most)


NO_POLICY: Final = Policy()

_UNBOUNDED: Final = 2**40
"""GiB of a rabbit of which nothing is known here."""


@dataclass(frozen=True)
class _Share:
    """How one allocation set is met: beside each node, in proportion to nodes, or as `count`."""

    size: int = 0
    """Bytes of each allocation; of all together, where they are in proportion."""
    proportional: bool = False
    count: int | None = None


def reserve(
    needs: Sequence[AllocationNeed],
    nodes: int | None,
    floor: int,
    largest: int | None = None,
    counts: Sequence[int] = (),
    localities: Sequence[Locality] = (),
) -> Reservation:
    """Return the flash that a job of so many nodes needs; None for a number that is left open.

    `floor` is the least size of one allocation, in bytes, and `largest` how many GiB the
    largest rabbit has, where that is known. `counts` are the numbers of allocations that were
    reserved already, set by set of those that are not beside each node: where they were chosen,
    they are kept. `localities` say of each set which rabbits may hold it (`dws.location`). Raises
    Fault for what cannot be placed.
    """
    shares = _shares(needs, nodes, floor, largest, counts)
    shared = tuple(
        AllocationSet(share.count, whole_gib(share.size), _labels(need), _keys(need), near)
        for need, share, near in zip(
            needs, shares, localities or [Locality.JOB] * len(needs), strict=True
        )
        if share.count is not None
    )
    _check_colocation(needs, shares)
    return Reservation(
        _beside(shares, nodes),
        shared,
        tuple(
            dict.fromkeys(
                label
                for need, share in zip(needs, shares, strict=True)
                if share.count is None
                for label in _labels(need)
            )
        ),
    )


def allocation_sets(
    needs: Sequence[AllocationNeed],
    per_rabbit: Mapping[str, int],
    floor: int,
    held: Sequence[HeldFlash] = (),
    counts: Sequence[int] = (),
    localities: Sequence[Locality] = (),
) -> list[dict[str, Any]]:
    """Return the allocation sets that serve a job with `per_rabbit` nodes on each rabbit.

    `held` is the flash that its R holds, in the order of the job's nodes; it is looked at where
    a set is not beside each node. `counts` are those that `reserve` came to, where they are
    known, and `localities` what it was given. Raises Fault for what cannot be placed, and where R
    holds less than was to be reserved.
    """
    nodes = sum(per_rabbit.values())
    shares = _shares(needs, nodes, floor, None, counts)
    wanted = reserve(needs, nodes, floor, None, counts, localities)
    places = iter(_place_shared(wanted, held))
    sets = []
    for need, share in zip(needs, shares, strict=True):
        size, by_rabbit = share.size, per_rabbit
        if share.count is not None:
            by_rabbit = next(places)
        elif share.proportional:
            # As few and as large as the proportions of the job's nodes allow.
            part = gcd(*per_rabbit.values())
            by_rabbit = {rabbit: each // part for rabbit, each in per_rabbit.items()}
            size = -(-size // (nodes // part))
        sets.append(
            {
                "label": need.label,
                "allocationSize": size,
                "storage": [
                    {"name": rabbit, "allocationCount": by_rabbit[rabbit]}
                    for rabbit in sorted(by_rabbit)
                ],
            }
        )
    return sets


def unreserved_flash(per_rabbit: Mapping[str, int]) -> list[HeldFlash]:
    """Return the flash of a job to which none was given: all that its nodes' rabbits have."""
    return [HeldFlash(rabbit, nodes, 1, _UNBOUNDED) for rabbit, nodes in per_rabbit.items()]


def spreads(needs: Sequence[AllocationNeed]) -> bool:
    """Return whether a set is not beside each node, so that R says which rabbits hold it."""
    return any(need.allocation_strategy != PER_COMPUTE for need in needs)


def _shares(
    needs: Sequence[AllocationNeed],
    nodes: int | None,
    floor: int,
    largest: int | None,
    counts: Sequence[int],
) -> list[_Share]:
    """Return how each set is met: first those beside each node, which leave the others less."""
    found: dict[int, _Share] = {}
    open_: list[int] = []
    for index, need in enumerate(needs):
        share = _share(need, nodes, floor)
        if share is None:
            open_.append(index)
        else:
            found[index] = share
    room = None if largest is None else largest - _beside(found.values(), nodes)
    for index in open_:
        found[index] = _scaled(needs[index], nodes, floor, room)
    shared = [index for index in sorted(found) if found[index].count is not None]
    if len(shared) == len(counts):
        # What was chosen before is kept: what it came from may have changed.
        for index, count in zip(shared, counts, strict=True):
            if index in open_:
                found[index] = _share_of(needs[index], count, floor)
    return [found[index] for index in range(len(needs))]


def _share(need: AllocationNeed, nodes: int | None, floor: int) -> _Share | None:
    """Return how a set is met; None where its number of allocations is to be chosen."""
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
    if count is not None:
        return _share_of(need, count, floor)
    if need.constraints.scale is not None or _keys(need):
        return None
    if nodes is None:
        raise _left_open(need)
    if wanted >= nodes * floor:
        return _Share(wanted, proportional=True)
    # A part for each node would be less than an allocation can be.
    return _share_of(need, max(wanted // floor, 1), floor)


def _share_of(need: AllocationNeed, count: int, floor: int) -> _Share:
    return _Share(max(-(-need.minimum_capacity // count), floor), count=count)


def _scaled(need: AllocationNeed, nodes: int | None, floor: int, room: int | None) -> _Share:
    """Choose the number of allocations of a set by its scale.

    1 is as few as the rabbits can hold, 10 is one for each node, and what is between lies
    evenly between. Without a scale, of a set whose allocations must be apart, it is as few.
    """
    size = whole_gib(need.minimum_capacity)
    least = -(-size // room) if room is not None and room > 0 else 1
    scale = need.constraints.scale
    if scale is None:
        return _share_of(need, least, floor)
    if not 1 <= scale <= _SCALES:
        raise Fault(
            f"set {need.label} cannot be placed because its scale is {scale}, and a scale is from "
            f"1 to {_SCALES}"
        )
    if nodes is None:
        raise _left_open(need)
    # What is smaller than a GiB, or than allocations can be, is not made smaller by its number.
    most = min(nodes, need.minimum_capacity // max(floor, GIB), need.constraints.most or nodes)
    most = max(most, least)
    return _share_of(need, least + (most - least) * (scale - 1) // (_SCALES - 1), floor)


def _left_open(need: AllocationNeed) -> Fault:
    return Fault(
        f"set {need.label} cannot be placed because it is shared out between the job's "
        "nodes, and their number is left open: give -N one number",
        type="User",
    )


def _beside(shares: Iterable[_Share], nodes: int | None) -> int:
    """Return how many GiB are beside each node."""
    beside = 0
    for share in shares:
        if share.proportional:
            assert nodes is not None
            beside += -(-whole_gib(share.size) // nodes)
        elif share.count is None:
            beside += whole_gib(share.size)
    return beside


def _labels(need: AllocationNeed) -> tuple[str, ...]:
    """Return what rabbits must carry, each as `key=value`, but what all of them carry."""
    return tuple(
        f"{key}={value}"
        for key, _, value in (each.partition("=") for each in need.constraints.labels)
        if f"{key}={value}" != RABBIT
    )


def _keys(need: AllocationNeed) -> tuple[str, ...]:
    """Return the keys that no two allocations on a rabbit may have in common."""
    for each in need.constraints.colocation:
        if each.type != EXCLUSIVE:
            raise Fault(
                f"set {need.label} cannot be placed because the colocation {each.type!r} is not "
                f"understood: there is {EXCLUSIVE!r}"
            )
    return tuple(dict.fromkeys(each.key for each in need.constraints.colocation))


def _check_colocation(needs: Sequence[AllocationNeed], shares: Sequence[_Share]) -> None:
    """Raise Fault for a set that is on every rabbit of the job, and must be on none with another.

    Its own allocations are as many on a rabbit as there are nodes: that is what it is for.
    """
    for index, need in enumerate(needs):
        if shares[index].count is not None:
            continue
        for other_index, other in enumerate(needs):
            for key in _keys(need):
                if other_index != index and key in _keys(other):
                    raise Fault(
                        f"set {need.label} cannot be placed because it is beside each node, and "
                        f"must not be on a rabbit with set {other.label} (colocation key {key!r})"
                    )


def _place_shared(wanted: Reservation, held: Sequence[HeldFlash]) -> list[dict[str, int]]:
    """Return how many allocations of each shared set each rabbit holds."""
    if not wanted.shared:
        return []
    places = [
        RabbitRoom(
            each.nodes,
            each.unit,
            each.units - each.nodes * units(wanted.beside, each.unit),
            each.labels,
        )
        for each in held
    ]
    found = placement(wanted.shared, places)
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


def _lacking(wanted: Reservation, held: Sequence[HeldFlash]) -> str:
    asked = " and ".join(description(each) for each in wanted.shared)
    beside = f" and {gib(wanted.beside, up=True)} beside each node" if wanted.beside else ""
    there = ", ".join(f"{gib(each.gib, up=False)} on {each.rabbit}" for each in held[:_NAMED])
    if len(held) > _NAMED:
        there += f" and {plural(len(held) - _NAMED, 'rabbit')} more"
    return (
        f"the storage cannot be placed because it is {asked}{beside}, "
        f"and the job was given {there or 'no flash'}"
    )
