"""What is free of a system, and what of it would do for a request.

Nodes are kept together by how much of them is free, so that it costs little to see that
something does not fit, however many nodes there are. Which nodes may be given out is for
the caller to say, as bits by node index (`inventory`). A portion of flash is a number that only
`flash` reads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from warren.base.placing import has_labels
from warren.scheduling import flashplacement
from warren.scheduling.flash import lowest_bits
from warren.scheduling.flashplacement import Candidate, Choice
from warren.scheduling.inventory import Inventory, Piece
from warren.scheduling.matchpolicy import ChassisNodes, MatchPolicy, node_counts
from warren.scheduling.request import Part, Request

_BITS: Final = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))


class FreeResources:
    """Free cores and gpus of nodes, free flash of chassis. All are free in the beginning."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._free_cores = [node.cores for node in inventory.nodes]
        self._free_gpus = [node.gpus for node in inventory.nodes]
        self._free_flash = [chassis.flash.whole_portion for chassis in inventory.chassis]
        self._ready_flash = [chassis.flash.up_portion for chassis in inventory.chassis]
        self._withheld_units = [0] * len(inventory.chassis)
        """Units of flash that jobs do not get, whichever these are."""
        self._given_gib = [0] * len(inventory.chassis)
        """GiB that have been given out, be they back or not."""
        self.policy = MatchPolicy.FIRST
        self._nodes_by_free: dict[tuple[int, int], int] = {}
        """The nodes with so many free cores and gpus. Only those with any at all are here."""
        self._idle_nodes = (1 << len(inventory.nodes)) - 1
        node_indexes_by_count: dict[tuple[int, int], list[int]] = {}
        for node_index, node in enumerate(inventory.nodes):
            count = (node.cores.bit_count(), node.gpus.bit_count())
            node_indexes_by_count.setdefault(count, []).append(node_index)
        self._nodes_by_free = {
            count: _bits_of(node_indexes)
            for count, node_indexes in node_indexes_by_count.items()
            if any(count)
        }

    def copy(self) -> "FreeResources":
        other = FreeResources.__new__(FreeResources)
        other._inventory = self._inventory
        other._free_cores, other._free_gpus = self._free_cores.copy(), self._free_gpus.copy()
        other._free_flash, other._ready_flash = self._free_flash.copy(), self._ready_flash.copy()
        other._withheld_units, other._given_gib = (
            self._withheld_units.copy(),
            self._given_gib.copy(),
        )
        other.policy = self.policy
        other._nodes_by_free, other._idle_nodes = self._nodes_by_free.copy(), self._idle_nodes
        return other

    # Changes

    def take(self, pieces: Iterable[Piece]) -> None:
        """Mark pieces as taken, as far as they are free."""
        node_indexes, nodes = self._inventory.node_index_by_rank, self._inventory.nodes
        changed: dict[int, tuple[int, int]] = {}
        for rank, cores, portion, gpus in pieces:
            node_index = node_indexes[rank]
            if cores or gpus:
                before = changed.get(node_index) or (
                    self._free_cores[node_index],
                    self._free_gpus[node_index],
                )
                changed[node_index] = (before[0] & ~cores, before[1] & ~gpus)
            if portion:
                index = nodes[node_index].chassis_index
                assert index is not None
                flash = self._inventory.chassis[index].flash
                self._free_flash[index] = flash.subtract(self._free_flash[index], portion)
                self._given_gib[index] += flash.unit_count(portion) * flash.unit_gib
        self._update_nodes(changed)

    def take_and_limit_flash(self, pieces: Iterable[Piece], other: "FreeResources") -> None:
        """Take the cores and gpus of pieces, and keep only the free flash that `other` has, too.

        That may be other flash than the pieces have: of a pool it does not matter which.
        """
        pieces = tuple(pieces)
        self.take(piece._replace(portion=0) for piece in pieces)
        for index in self._inventory.flash_portions(pieces):
            flash = self._inventory.chassis[index].flash
            self._free_flash[index] = flash.intersect(
                self._free_flash[index], other._free_flash[index]
            )

    def give_back(self, pieces: Iterable[Piece]) -> None:
        node_indexes, nodes = self._inventory.node_index_by_rank, self._inventory.nodes
        changed: dict[int, tuple[int, int]] = {}
        for rank, cores, portion, gpus in pieces:
            node_index = node_indexes[rank]
            if cores or gpus:
                before = changed.get(node_index) or (
                    self._free_cores[node_index],
                    self._free_gpus[node_index],
                )
                changed[node_index] = (before[0] | cores, before[1] | gpus)
            if portion:
                index = nodes[node_index].chassis_index
                assert index is not None
                flash = self._inventory.chassis[index].flash
                self._free_flash[index] = flash.add(self._free_flash[index], portion)
        self._update_nodes(changed)

    def _update_nodes(self, changed: Mapping[int, tuple[int, int]]) -> None:
        node_indexes_by_change: dict[tuple[tuple[int, int], tuple[int, int]], list[int]] = {}
        idle: list[int] = []
        busy: list[int] = []
        for node_index, (cores, gpus) in changed.items():
            had_cores, had_gpus = self._free_cores[node_index], self._free_gpus[node_index]
            before = (had_cores.bit_count(), had_gpus.bit_count())
            after = (cores.bit_count(), gpus.bit_count())
            self._free_cores[node_index], self._free_gpus[node_index] = cores, gpus
            if before != after:
                node_indexes_by_change.setdefault((before, after), []).append(node_index)
            node = self._inventory.nodes[node_index]
            if cores == node.cores and gpus == node.gpus:
                idle.append(node_index)
            else:
                busy.append(node_index)
        for (before, after), node_indexes in node_indexes_by_change.items():
            nodes = _bits_of(node_indexes)
            if any(before):
                remaining = self._nodes_by_free[before] & ~nodes
                if remaining:
                    self._nodes_by_free[before] = remaining
                else:
                    del self._nodes_by_free[before]
            if any(after):
                self._nodes_by_free[after] = self._nodes_by_free.get(after, 0) | nodes
        if idle:
            self._idle_nodes |= _bits_of(idle)
        if busy:
            self._idle_nodes &= ~_bits_of(busy)

    def set_flash_ready(self, chassis_index: int, *, ready: bool) -> None:
        """Set whether the flash of a chassis can be used."""
        self._ready_flash[chassis_index] = (
            self._inventory.chassis[chassis_index].flash.whole_portion if ready else 0
        )

    def copy_flash_readiness(self, other: "FreeResources") -> None:
        """Take over from `other` which flash is ready."""
        self._ready_flash = other._ready_flash.copy()

    def set_withheld(self, chassis_index: int, units: int) -> None:
        """Set how many units of a chassis' flash jobs do not get."""
        self._withheld_units[chassis_index] = units

    def has_no_ready_flash(self, chassis_index: int) -> bool:
        """Return whether a chassis has flash, and none of it can be used."""
        return not self._ready_flash[chassis_index] and bool(
            self._inventory.chassis[chassis_index].flash.whole_portion
        )

    def unready_flash_units(self, chassis_index: int) -> int:
        """Return how many units of a chassis' flash cannot be used."""
        flash = self._inventory.chassis[chassis_index].flash
        return flash.unit_count(flash.whole_portion) - flash.unit_count(
            self._ready_flash[chassis_index]
        )

    # Looking

    def first_conflict(self, pieces: Iterable[Piece]) -> Piece | None:
        """Return the first of the pieces that is not free together with those before it."""
        taken_portions: dict[int, int] = {}
        for piece in pieces:
            node_index = self._inventory.node_index_by_rank[piece.rank]
            if (
                piece.cores & ~self._free_cores[node_index]
                or piece.gpus & ~self._free_gpus[node_index]
            ):
                return piece
            index = self._inventory.nodes[node_index].chassis_index
            if piece.portion and index is not None:
                flash = self._inventory.chassis[index].flash
                taken_portions[index] = flash.add(taken_portions.get(index, 0), piece.portion)
                if not flash.contains(self._free_flash[index], taken_portions[index]):
                    return piece
        return None

    def taken_cores_and_gpus(self, node_index: int) -> tuple[int, int]:
        """Return the cores and gpus of a node that are taken, as bits."""
        node = self._inventory.nodes[node_index]
        return node.cores & ~self._free_cores[node_index], node.gpus & ~self._free_gpus[node_index]

    def largest_per_node(self, usable: int) -> tuple[int, int]:
        """Return the most cores that are free on a node, and the most gpus."""
        counts = [count for count, nodes in self._nodes_by_free.items() if nodes & usable]
        return max((c for c, _ in counts), default=0), max((g for _, g in counts), default=0)

    def total(self, usable: int) -> tuple[int, int]:
        """Return how many cores and gpus are free on some nodes together."""
        cores = gpus = 0
        for (each_cores, each_gpus), nodes in self._nodes_by_free.items():
            count = (nodes & usable).bit_count()
            cores += count * each_cores
            gpus += count * each_gpus
        return cores, gpus

    def suitable_nodes(self, request: Request, usable: int) -> int:
        """Return the nodes with room for what is asked of each; flash is not looked at.

        Where nodes do not matter, these are the nodes with room for a slot.
        """
        if request.nodes is None:
            cores, gpus = request.cores, request.gpus
        else:
            cores, gpus = request.node_cores, request.node_gpus
        suitable = 0
        for (free_cores, free_gpus), nodes in self._nodes_by_free.items():
            if free_cores >= cores and free_gpus >= gpus:
                suitable |= nodes
        suitable &= usable
        return suitable & self._idle_nodes if request.exclusive else suitable

    def max_slots(self, request: Request, usable: int) -> int:
        """Return how many slots there is room for, where nodes do not matter."""
        return sum(
            (nodes & usable).bit_count() * slots
            for (cores, gpus), nodes in self._nodes_by_free.items()
            if (slots := _slots_on_node(cores, gpus, request))
        )

    def fits(self, request: Request, usable: int) -> bool:
        """Return whether there is room for the least that is asked for."""
        if request.nodes is None:
            return self.max_slots(request, usable) >= request.slots
        suitable_nodes = self.suitable_nodes(request, usable)
        if not (request.wants_flash or request.chassis_count):
            return suitable_nodes.bit_count() >= request.node_count
        if request.shared_flash or request.chassis_count:
            return self._choices(request, suitable_nodes) is not None
        nodes_wanted = request.node_count
        for nodes, _, _ in self._nodes_beside_flash(suitable_nodes, request):
            nodes_wanted -= nodes.bit_count()
            if nodes_wanted <= 0:
                return True
        return False

    def largest_fit(self, request: Request, usable: int) -> Request:
        """Return a request that leaves nothing open, with the greatest counts that fit.

        From the outside in: rather more nodes than more slots on each. The least must fit.
        """
        for part, count in request.open_counts:
            low, high = count.min, self._upper_bound(part)
            while low < high:
                middle = (low + high + 1) // 2
                if self.fits(
                    _with_count(request, part, count.greatest(middle) or count.min), usable
                ):
                    low = middle
                else:
                    high = middle - 1
            request = _with_count(request, part, count.greatest(low) or count.min)
        return replace(request, open_counts=()) if request.open_counts else request

    def pieces(self, request: Request, usable: int) -> tuple[Piece, ...]:
        """Return what a request is given. It must fit, and leave nothing open (`largest_fit`).

        Nodes are taken by rank, or as the policy has it.
        """
        if request.nodes is None:
            return tuple(self._slot_pieces(request, usable))
        suitable_nodes = self.suitable_nodes(request, usable)
        if request.shared_flash or request.chassis_count:
            pieces = self._shared_pieces(request, suitable_nodes)
        elif request.ssd_gib:
            pieces = self._flash_pieces(request, self._nodes_beside_flash(suitable_nodes, request))
        else:
            pieces = self._node_pieces(
                request, self._choose_nodes(suitable_nodes, request), request.node_count
            )
        # R names nodes by rank (RFC 20).
        return tuple(pieces if self.policy is MatchPolicy.FIRST else sorted(pieces))

    def _choose_nodes(self, suitable_nodes: int, request: Request) -> int:
        """Return the nodes that the policy takes, of those that would do."""
        if self.policy is MatchPolicy.FIRST:
            return suitable_nodes
        groups: list[tuple[int, ChassisNodes]] = []
        without_chassis = suitable_nodes
        for index, chassis in enumerate(self._inventory.chassis):
            nodes = suitable_nodes & chassis.node_mask
            without_chassis &= ~nodes
            if nodes:
                groups.append((nodes, ChassisNodes(nodes.bit_count(), self._given_gib[index])))
        # A node on no chassis is in the way of no flash.
        nodes_left = max(request.node_count - without_chassis.bit_count(), 0)
        counts = node_counts(self.policy, [group for _, group in groups], nodes_left)
        chosen = _lowest_nodes(
            without_chassis, min(without_chassis.bit_count(), request.node_count)
        )
        for (nodes, _), count in zip(groups, counts, strict=True):
            chosen |= _lowest_nodes(nodes, count)
        return chosen

    def _slot_pieces(self, request: Request, usable: int) -> Iterator[Piece]:
        nodes, slots = self._inventory.nodes, request.slots
        for node_index in _node_indexes(self.suitable_nodes(request, usable)):
            cores, gpus = self._free_cores[node_index], self._free_gpus[node_index]
            count = min(slots, _slots_on_node(cores.bit_count(), gpus.bit_count(), request))
            yield Piece(
                nodes[node_index].rank,
                lowest_bits(cores, count * request.cores),
                0,
                lowest_bits(gpus, count * request.gpus),
            )
            slots -= count
            if not slots:
                return

    def _node_pieces(self, request: Request, suitable_nodes: int, count: int) -> Iterator[Piece]:
        nodes = self._inventory.nodes
        for node_index in _node_indexes(suitable_nodes):
            cores, gpus = self._resources_of_node(request, node_index)
            yield Piece(nodes[node_index].rank, cores, 0, gpus)
            count -= 1
            if not count:
                return

    def _flash_pieces(
        self, request: Request, nodes_beside_flash: Iterable[tuple[int, int, int]]
    ) -> Iterator[Piece]:
        nodes, nodes_wanted = self._inventory.nodes, request.node_count
        if self.policy is not MatchPolicy.FIRST:
            candidates = [*nodes_beside_flash]
            groups = [
                ChassisNodes(each.bit_count(), self._given_gib[index])
                for each, index, _ in candidates
            ]
            counts = node_counts(self.policy, groups, nodes_wanted)
            nodes_beside_flash = [
                (_lowest_nodes(each, count), index, units)
                for (each, index, units), count in zip(candidates, counts, strict=True)
                if count
            ]
        for chosen, index, units in nodes_beside_flash:
            flash = self._inventory.chassis[index].flash
            free = self._available_portion(index)
            for node_index in _node_indexes(chosen):
                cores, gpus = self._resources_of_node(request, node_index)
                portion = flash.first_units(free, units)
                free = flash.subtract(free, portion)
                yield Piece(nodes[node_index].rank, cores, portion, gpus)
                nodes_wanted -= 1
                if not nodes_wanted:
                    return

    def _shared_pieces(self, request: Request, suitable_nodes: int) -> Iterator[Piece]:
        """Yield the pieces of nodes; what is shared of a rabbit is with the first of its nodes."""
        nodes = self._inventory.nodes
        for choice in self._choices(request, suitable_nodes) or ():
            candidate = choice.candidate
            flash = self._inventory.chassis[candidate.chassis_index].flash
            free, shared_units = (
                self._available_portion(candidate.chassis_index),
                choice.shared_units,
            )
            if not choice.node_count:
                yield Piece(
                    self._inventory.representative_rank(candidate.chassis_index),
                    0,
                    flash.first_units(free, shared_units),
                    0,
                )
                continue
            chosen = candidate.node_mask
            if choice.node_count < chosen.bit_count():
                chosen = _lowest_nodes(chosen, choice.node_count)
            for node_index in _node_indexes(chosen):
                cores, gpus = self._resources_of_node(request, node_index)
                portion = flash.first_units(free, candidate.units_per_node + shared_units)
                free, shared_units = flash.subtract(free, portion), 0
                yield Piece(nodes[node_index].rank, cores, portion, gpus)

    def _choices(self, request: Request, suitable_nodes: int) -> list[Choice] | None:
        candidates = self._candidates(suitable_nodes, request)
        if self.policy is not MatchPolicy.FIRST:
            all_candidates = [*candidates]
            choices = flashplacement.choose(
                request,
                self._preferred_candidates(request, all_candidates),
                self._flash_candidates(),
            )
            if choices is not None:
                return choices
            candidates = iter(all_candidates)
        return flashplacement.choose(request, candidates, self._flash_candidates())

    def _preferred_candidates(
        self, request: Request, candidates: Sequence[Candidate]
    ) -> Iterator[Candidate]:
        """Yield what the policy would take. Of so many chassis with so many nodes each, all."""
        groups = [
            ChassisNodes(each.max_nodes, self._given_gib[each.chassis_index]) for each in candidates
        ]
        if request.chassis_count:
            by_wear = self.policy is MatchPolicy.LEVEL
            order = sorted(
                range(len(candidates)), key=lambda index: groups[index].given_gib if by_wear else 0
            )
            return (candidates[index] for index in order)
        nodes_wanted = min(request.node_count, sum(each.max_nodes for each in groups))
        counts = node_counts(self.policy, groups, nodes_wanted)
        return (
            replace(candidate, max_nodes=count)
            for candidate, count in zip(candidates, counts, strict=True)
            if count
        )

    def _flash_candidates(self) -> Iterator[Candidate]:
        """Yield the flash of each chassis, whatever its nodes do."""
        for index, chassis in enumerate(self._inventory.chassis):
            free = chassis.flash.unit_count(self._available_portion(index))
            if free and chassis.node_mask:
                yield Candidate(index, 0, 0, 0, free, chassis.flash.unit_gib, chassis.labels)

    def _candidates(self, suitable_nodes: int, request: Request) -> Iterator[Candidate]:
        """Yield what a request could have of each chassis that has nodes for it."""
        gib = request.ssd_gib
        for index, chassis in enumerate(self._inventory.chassis):
            nodes = suitable_nodes & chassis.node_mask
            units = chassis.flash.units_for(gib)
            if not nodes or (gib and not units) or not has_labels(chassis.labels, request.labels):
                continue
            free = chassis.flash.unit_count(self._available_portion(index))
            max_nodes = nodes.bit_count()
            if units:
                max_nodes = min(max_nodes, free // units)
            if request.chassis_count:
                max_nodes = (
                    request.nodes_per_chassis if max_nodes >= request.nodes_per_chassis else 0
                )
            if max_nodes:
                yield Candidate(
                    index, nodes, max_nodes, units, free, chassis.flash.unit_gib, chassis.labels
                )

    def _resources_of_node(self, request: Request, node_index: int) -> tuple[int, int]:
        """Return the cores and gpus of one node that are to be allocated."""
        cores, gpus = self._free_cores[node_index], self._free_gpus[node_index]
        if request.exclusive:
            return cores, gpus
        return lowest_bits(cores, request.node_cores), lowest_bits(gpus, request.node_gpus)

    def _nodes_beside_flash(
        self, suitable_nodes: int, request: Request
    ) -> Iterator[tuple[int, int, int]]:
        """Yield nodes that can have flash, the index of their chassis, and each node's units."""
        for index, chassis in enumerate(self._inventory.chassis):
            units = chassis.flash.units_for(request.ssd_gib)
            nodes = suitable_nodes & chassis.node_mask
            if not units or not nodes or not has_labels(chassis.labels, request.labels):
                continue
            max_nodes = chassis.flash.unit_count(self._available_portion(index)) // units
            if max_nodes < nodes.bit_count():
                nodes = _lowest_nodes(nodes, max_nodes)
            if nodes:
                yield nodes, index, units

    def available_units(self, chassis_index: int) -> int:
        """Return how many units of a chassis' flash jobs can have now."""
        return self._inventory.chassis[chassis_index].flash.unit_count(
            self._available_portion(chassis_index)
        )

    def _available_portion(self, chassis_index: int) -> int:
        """Return the flash of a chassis that is free and ready, and not kept from jobs."""
        flash = self._inventory.chassis[chassis_index].flash
        free = flash.intersect(self._free_flash[chassis_index], self._ready_flash[chassis_index])
        withheld = self._withheld_units[chassis_index]
        return (
            flash.first_units(free, max(flash.unit_count(free) - withheld, 0)) if withheld else free
        )

    def _upper_bound(self, part: Part) -> int:
        """Return what no number of such parts exceeds here."""
        if part == "nodes":
            return len(self._free_cores)
        if part == "gpus":
            return max((gpus for _, gpus in self._nodes_by_free), default=0)
        max_cores = max((cores for cores, _ in self._nodes_by_free), default=0)
        return max_cores * len(self._free_cores) if part == "slots" else max_cores


def _with_count(request: Request, part: Part, number: int) -> Request:
    match part:
        case "nodes":
            return replace(request, nodes=number)
        case "slots":
            return replace(request, slots=number)
        case "cores":
            return replace(request, cores=number)
        case "gpus":
            return replace(request, gpus=number)


def _slots_on_node(cores: int, gpus: int, request: Request) -> int:
    """Return how many slots a node with so much free has room for."""
    slots = cores // request.cores
    return min(slots, gpus // request.gpus) if request.gpus else slots


def _node_indexes(nodes: int) -> Iterator[int]:
    """Return the numbers that many bits stand for, ascending."""
    if not nodes:
        return
    start = ((nodes & -nodes).bit_length() - 1) // 8
    rest = nodes >> 8 * start
    for index, byte in enumerate(rest.to_bytes((rest.bit_length() + 7) // 8, "little"), start):
        if byte:
            base = 8 * index
            for bit in _BITS[byte]:
                yield base + bit


def _bits_of(node_indexes: list[int]) -> int:
    """Return some nodes as bits: of many without going over all bits for each."""
    if len(node_indexes) < 8:
        node_bits = 0
        for node_index in node_indexes:
            node_bits |= 1 << node_index
        return node_bits
    data = bytearray(max(node_indexes) // 8 + 1)
    for node_index in node_indexes:
        data[node_index >> 3] |= 1 << (node_index & 7)
    return int.from_bytes(data, "little")


def _lowest_nodes(nodes: int, count: int) -> int:
    """Keep the first so many nodes."""
    if not count:
        return 0
    for node_index in _node_indexes(nodes):
        count -= 1
        if not count:
            return nodes & ((2 << node_index) - 1)
    return nodes
