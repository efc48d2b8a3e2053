"""The resource graph: what is there, what is taken, and what a request would get.

What is taken is changed by `take` and `give_back` only, what may be given out by the `set_`
methods; `match` just looks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import orjson

from warren.scheduling import refusals, shortage
from warren.scheduling.free import FreeResources
from warren.scheduling.inventory import (
    Allocation,
    HostsByProperty,
    Inventory,
    Piece,
    bit_numbers,
    bits,
)
from warren.scheduling.matchpolicy import MatchPolicy
from warren.scheduling.reasons import WITHHELD_KINDS, Reason, ReasonKind
from warren.scheduling.refusals import Refusal, SystemView
from warren.scheduling.request import Request

__all__ = ["Allocation", "Graph", "NodeUse", "Piece", "Refusal"]

_MAX_CONSTRAINTS: Final = 4096
"""How many constraints are kept with the nodes that meet them: more than one look at all queues
comes upon, or none of them would be found when the next one comes."""
_MAX_CONSTRAINTS_LENGTH: Final = 2**26
"""And how many characters they have together."""


class NodeUse(msgspec.Struct, frozen=True):
    """One node, how many cores and gpus it has, and how many of them are taken."""

    rank: int
    host: str
    cores: int
    cores_taken: int
    gpus: int = 0
    gpus_taken: int = 0


class _MatchingNodes:
    """The nodes that meet constraints, of which the latest are kept."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._by_constraint: dict[str, int] = {}
        self._length = 0

    def of(self, constraint: str) -> int:
        """Return which nodes meet a constraint in JSON, as bits."""
        nodes = self._by_constraint.get(constraint)
        if nodes is None:
            nodes = self._inventory.matching_nodes(orjson.loads(constraint))
            self._by_constraint[constraint] = nodes
            self._length += len(constraint)
            while (
                len(self._by_constraint) > _MAX_CONSTRAINTS
                or self._length > _MAX_CONSTRAINTS_LENGTH
            ):
                oldest = next(iter(self._by_constraint))
                del self._by_constraint[oldest]
                self._length -= len(oldest)
        return nodes


class Graph:
    """The system's resources, from its R with `scheduling` graph."""

    def __init__(
        self,
        r: Mapping[str, Any],
        hosts_by_property: HostsByProperty | None = None,
        excluded: Iterable[int] = (),
    ) -> None:
        """`hosts_by_property` is for properties beside those in R.

        The ranks `excluded` are never given out.
        """
        self._inventory = Inventory(r, hosts_by_property or {})
        self._whole = FreeResources(self._inventory)
        for chassis_index in range(len(self._inventory.chassis)):
            # Flash that is not ready will be, with time.
            self._whole.set_flash_ready(chassis_index, ready=True)
        self._free = FreeResources(self._inventory)
        self._excluded = self._node_mask(excluded)
        self._drained = 0
        self._offline = 0
        self._tagged_by_source: dict[str, int] = {}
        """The nodes that are tagged, by the source that says so."""
        self._all_nodes = (1 << self.node_count) - 1
        self._idle = self._free.copy()
        """What there is when all jobs have ended."""
        self._external_gib_by_rabbit: dict[str, int] = {}
        self._capacity_gib_by_rabbit: dict[str, int] = {}
        self._matching_nodes = _MatchingNodes(self._inventory)
        self._state_by_rabbit: dict[str, str] = {}

    def copy(self) -> "Graph":
        """Return another graph of the same system, as it is now, to try things on."""
        other = Graph.__new__(Graph)
        other.__dict__ |= self.__dict__
        other._free = self._free.copy()
        return other

    @property
    def node_count(self) -> int:
        return len(self._inventory.nodes)

    @property
    def host_by_rank(self) -> dict[int, str]:
        """The nodes' names by rank."""
        return {node.rank: node.host for node in self._inventory.nodes}

    @property
    def excluded(self) -> frozenset[int]:
        """The ranks of the nodes that are never given out."""
        nodes = self._inventory.nodes
        return frozenset(nodes[node_index].rank for node_index in bit_numbers(self._excluded))

    def _node_mask(self, ranks: Iterable[int]) -> int:
        index_by_rank = self._inventory.node_index_by_rank
        return bits(index_by_rank[rank] for rank in ranks if rank in index_by_rank)

    # What may be given out

    def set_rabbit(
        self,
        rabbit: str,
        *,
        up: bool,
        state: str = "",
        capacity_gib: int | None = None,
        labels: Iterable[str] | None = None,
    ) -> None:
        """Set whether a rabbit's flash may be allocated. Unknown rabbits are ignored.

        `state` is the word for what the rabbit is, where it may not; `capacity_gib` how many GiB
        it says that it has, where it says so: more than the graph has is not given out. `labels`
        are what it carries, each as `key=value`, where that is known.
        """
        self._state_by_rabbit[rabbit] = state
        for index in self._inventory.chassis_indexes_by_rabbit.get(rabbit, ()):
            self._idle.set_flash_ready(index, ready=up)  # no job's end makes it ready
            self._free.set_flash_ready(index, ready=up)
            if labels is not None:
                self._inventory.chassis[index].set_labels(labels)
        if capacity_gib is not None and capacity_gib != self._capacity_gib_by_rabbit.get(rabbit):
            self._capacity_gib_by_rabbit[rabbit] = capacity_gib
            self._withhold(rabbit)

    def set_external_gib(self, rabbit: str, gib: int) -> None:
        """Set how many GiB of a rabbit's flash are taken by storage that is in no job's R."""
        self._external_gib_by_rabbit[rabbit] = gib
        self._withhold(rabbit)

    def _withhold(self, rabbit: str) -> None:
        """Keep from jobs what a rabbit has not, and what is taken of it otherwise."""
        for index, units in self._withheld_units(rabbit):
            # Both may change again: what could fit without them is waited for.
            self._idle.set_withheld(index, units)
            self._free.set_withheld(index, units)

    def _withheld_units(
        self, rabbit: str, returned_kinds: Collection[ReasonKind] = ()
    ) -> Iterator[tuple[int, int]]:
        """Yield how many units of which chassis are kept, but for what `returned_kinds` keep."""
        chassis_indexes = self._inventory.chassis_indexes_by_rabbit.get(rabbit, ())
        capacity_gib = (
            None
            if ReasonKind.CAPACITY in returned_kinds
            else self._capacity_gib_by_rabbit.get(rabbit)
        )
        external_gib = (
            0
            if ReasonKind.EXTERNAL in returned_kinds
            else self._external_gib_by_rabbit.get(rabbit, 0)
        )
        for index in chassis_indexes:
            flash = self._inventory.chassis[index].flash
            units_there = flash.unit_count(flash.whole_portion)
            if capacity_gib is not None and len(chassis_indexes) == 1:
                # A part of a unit is none.
                units_there = min(
                    units_there, capacity_gib // flash.unit_gib if flash.unit_gib else 0
                )
            external_units = min(flash.units_for(external_gib), units_there)
            # The last unit may be larger than what is left of it.
            external_gib = max(external_gib - external_units * flash.unit_gib, 0)
            yield index, flash.unit_count(flash.whole_portion) - units_there + external_units

    def set_policy(self, policy: MatchPolicy) -> None:
        """Set which nodes are taken, of those that would do."""
        self._free.policy = policy

    def set_drained(self, ranks: Iterable[int]) -> None:
        """Set which nodes are drained, in place of those set before.

        Jobs keep what they have of them, and give it back. Unknown ranks are ignored.
        """
        self._drained = self._node_mask(ranks)

    def set_offline(self, ranks: Iterable[int]) -> None:
        """Set which nodes are down, in place of those set before."""
        self._offline = self._node_mask(ranks)

    def set_tagged(self, source: str, hosts: Iterable[str]) -> None:
        """Set which nodes are tagged, as one source has it, in place of what that has said before.

        Requests that want no tagged nodes do not get them, and wait. Unknown nodes are ignored.
        """
        index_by_host = self._inventory.node_index_by_host
        nodes = bits(index_by_host[host] for host in hosts if host in index_by_host)
        other_sources = {
            name: tagged_nodes
            for name, tagged_nodes in self._tagged_by_source.items()
            if name != source
        }
        self._tagged_by_source = {**other_sources, source: nodes} if nodes else other_sources

    def reserve(self, request: Request) -> None:
        """Keep from all others whatever a request could ever get."""
        nodes = self.possible_nodes(request)
        self._excluded |= nodes
        if request.wants_flash:
            for index, chassis in enumerate(self._inventory.chassis):
                if request.any_rabbit or chassis.node_mask & nodes:
                    self._free.set_flash_ready(index, ready=False)

    # What is there

    def node_use(self) -> list[NodeUse]:
        """Return all nodes by rank, with how much of each is taken."""
        uses = []
        for node_index, node in enumerate(self._inventory.nodes):
            cores, gpus = self._free.taken_cores_and_gpus(node_index)
            uses.append(
                NodeUse(
                    rank=node.rank,
                    host=node.host,
                    cores=node.cores.bit_count(),
                    cores_taken=cores.bit_count(),
                    gpus=node.gpus.bit_count(),
                    gpus_taken=gpus.bit_count(),
                )
            )
        return uses

    def status(self) -> dict[str, dict[str, Any]]:
        """Return what there is for jobs, what they have, and what is kept from them, each as R."""
        nodes = self._inventory.nodes
        all_pieces, down_pieces, taken_pieces = [], [], []
        for node_index, node in enumerate(nodes):
            cores, gpus = self._free.taken_cores_and_gpus(node_index)
            if cores:
                taken_pieces.append(Piece(node.rank, cores, 0, gpus))
            if node.cores and not self._excluded >> node_index & 1:
                piece = Piece(node.rank, node.cores, 0, node.gpus)
                all_pieces.append(piece)
                if (self._drained | self._offline) >> node_index & 1:
                    down_pieces.append(piece)
        parts = {"all": all_pieces, "allocated": taken_pieces, "down": down_pieces}
        return {
            name: self._inventory.encode(Allocation(tuple(pieces), slots=0), include_local=True)
            for name, pieces in parts.items()
        }

    def matching_ranks(self, constraint: Mapping[str, Any]) -> list[int]:
        """Return the ranks of the nodes that meet a constraint. Raises BadFormat."""
        nodes = self._inventory.nodes
        return [
            nodes[node_index].rank
            for node_index in bit_numbers(self._inventory.matching_nodes(constraint))
        ]

    @property
    def largest_chassis_gib(self) -> int:
        """How many GiB of flash the largest chassis has."""
        return max((each.flash.gib for each in self._inventory.chassis), default=0)

    def possible_nodes(self, request: Request) -> int:
        """Return the nodes that a request could ever get, as bits."""
        return self._whole.suitable_nodes(request, self._view(request).ever_usable)

    def overlap(self, one: Request, other: Request) -> bool:
        """Return whether two requests may ever want the same."""
        mine, others = self.possible_nodes(one), self.possible_nodes(other)
        if mine & others:
            return True
        if not (one.wants_flash and other.wants_flash):
            return False
        return (one.any_rabbit or other.any_rabbit) or any(
            chassis.node_mask & mine and chassis.node_mask & others
            for chassis in self._inventory.chassis
        )

    # Matching

    def fits(self, request: Request) -> bool:
        """Return whether there is room for a request now."""
        return self._free.fits(request, self._view(request).usable)

    def cannot_fit_when_idle(self, request: Request) -> bool:
        """Return whether a request would not fit even if all jobs ended.

        Something is kept back then, or flash is not ready.
        """
        return not self._idle.fits(request, self._view(request).usable)

    def match(self, request: Request) -> Allocation | Refusal:
        """Find room for a request, first fit by rank; or say why there is none."""
        view = self._view(request)
        if self._free.fits(request, view.usable):
            settled = self._free.largest_fit(request, view.usable)
            return Allocation(self._free.pieces(settled, view.usable), settled.slot_count)
        return self.infeasibility(request) or Refusal(refusals.busy_reason(request, view))

    def infeasibility(self, request: Request) -> Refusal | None:
        """Return why a request could never be met; None if it can be, with time.

        A node that is drained or offline counts: it will be given out again.
        """
        view = self._view(request)
        if self._whole.fits(request, view.ever_usable):
            return None
        return Refusal(refusals.never_reason(request, view), never=True)

    def explain(self, request: Request) -> Reason:
        """Explain why a request does not fit: that takes a closer look."""
        view = self._view(request)
        never = self.infeasibility(request)
        if never is not None:
            kind = refusals.never_kind(request, view)
            return Reason(kinds=(kind,), sentence=f"can never start: {never.reason}")
        needed_when_idle = self.blockers(request, when_idle=True) or ()
        # Where jobs will end, that is what it waits for; and it may start sooner all the same.
        needed_now = self.blockers(request, when_idle=False)
        return shortage.explain(request, view, needed_when_idle, needed_now)

    def blockers(self, request: Request, *, when_idle: bool) -> tuple[ReasonKind, ...] | None:
        """Return what must be given back for a request to fit now, or when all jobs have ended.

        It is no more than is needed. None if the request would not fit even with all of it.
        """
        returned_kinds = set(WITHHELD_KINDS)
        if not self._would_fit(request, returned_kinds, when_idle=when_idle):
            return None
        needed = []
        for kind in WITHHELD_KINDS:
            if self._would_fit(request, returned_kinds - {kind}, when_idle=when_idle):
                returned_kinds.discard(kind)
            else:
                needed.append(kind)
        return tuple(reversed(needed))

    def _would_fit(
        self, request: Request, returned_kinds: Collection[ReasonKind], *, when_idle: bool
    ) -> bool:
        """Return whether there would be room if some of what is kept from jobs were given back."""
        view = self._view(request)
        nodes = view.ever_usable
        withheld_by_kind = {
            ReasonKind.DRAINED: view.drained,
            ReasonKind.OFFLINE: view.offline,
            ReasonKind.TAGGED: view.tagged,
        }
        for kind, withheld_nodes in withheld_by_kind.items():
            if kind not in returned_kinds:
                nodes &= ~withheld_nodes
        resources = self._whole if when_idle else self._free
        if request.wants_flash:
            resources = resources.copy()
            resources.copy_flash_readiness(
                self._whole if ReasonKind.RABBITS in returned_kinds else self._free
            )
            for rabbit in {*self._capacity_gib_by_rabbit, *self._external_gib_by_rabbit}:
                for index, units in self._withheld_units(rabbit, returned_kinds):
                    resources.set_withheld(index, units)
        return resources.fits(request, nodes)

    def take(self, allocation: Allocation) -> None:
        """Mark an allocation as taken."""
        self._free.take(allocation.pieces)

    def take_and_limit_flash(self, allocation: Allocation, other: "Graph") -> None:
        """Mark an allocation as taken, and as free flash only what is free in `other`, too."""
        self._free.take_and_limit_flash(allocation.pieces, other._free)

    def give_back(self, *allocations: Allocation) -> None:
        """Mark allocations as free again."""
        self._free.give_back(piece for each in allocations for piece in each.pieces)

    def conflict(self, allocation: Allocation) -> str | None:
        """Return which part of an allocation is not free; None if all of it is."""
        piece = self._free.first_conflict(allocation.pieces)
        return f"some of {self.host_by_rank[piece.rank]} is another job's" if piece else None

    # R

    def encode(
        self, allocation: Allocation, *, starttime: float, expiration: float
    ) -> dict[str, Any]:
        """Write an allocation as R, without `scheduling`: as everyone but we see it."""
        return self._inventory.encode(allocation, starttime, expiration)

    def encode_text(self, allocation: Allocation, r: Mapping[str, Any]) -> bytes:
        """Return the text of R with the part of the graph that was allocated."""
        scheduling = self._inventory.encode_scheduling(allocation)
        if scheduling is None:
            return orjson.dumps(r)
        return orjson.dumps({**r, "scheduling": orjson.Fragment(scheduling)})

    def decode(self, r: Mapping[str, Any]) -> Allocation:
        """Read an R that was written here. Raises BadFormat if it names what is not here."""
        return self._inventory.decode(r)

    def _view(self, request: Request) -> SystemView:
        return SystemView(
            inventory=self._inventory,
            whole=self._whole,
            free=self._free,
            matching=self._matching(request.constraint),
            excluded=self._excluded,
            drained=self._drained,
            offline=self._offline,
            tagged=self._all_tagged() if request.needs_untagged else 0,
            state_by_rabbit=self._state_by_rabbit,
            external_gib_by_rabbit=self._external_gib_by_rabbit,
            capacity_gib_by_rabbit=self._capacity_gib_by_rabbit,
        )

    def _all_tagged(self) -> int:
        tagged = 0
        for nodes in self._tagged_by_source.values():
            tagged |= nodes
        return tagged

    def _matching(self, constraint: str) -> int:
        return self._matching_nodes.of(constraint) if constraint else self._all_nodes
