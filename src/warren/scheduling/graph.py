"""The resource graph: what is there, what is taken, and what a request would get.

Sets of cores and of ssds are bits of integers. What is taken is changed by `take` and
`give_back` only, what may be given out by `set_ssds` and `set_drained`; `match` just looks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from warren.rfc import hostlist, jgf, resource_set
from warren.rfc.errors import BadFormat
from warren.scheduling.request import Request


@dataclass(kw_only=True)
class _Node:
    rank: int
    host: str
    chassis: int | None
    cores: int
    free: int
    path: str

    @cached_property
    def line(self) -> jgf.Line:
        metadata = {"name": self.host, "rank": self.rank}
        return jgf.line(jgf.Vertex(type="node", path=self.path, metadata=metadata))

    @cached_property
    def core_lines(self) -> Mapping[int, jgf.Line]:
        return {
            core: jgf.line(
                jgf.Vertex(
                    type="core",
                    path=f"{self.path}/core{core}",
                    metadata={"id": core, "rank": self.rank},
                )
            )
            for core in _ids(self.cores)
        }


@dataclass(kw_only=True)
class _Chassis:
    path: str
    rabbit: str
    ssd_gib: int = 0
    ssds: int = 0
    free: int = 0
    up: int = 0

    @cached_property
    def line(self) -> jgf.Line:
        metadata = {"properties": {"rabbit": self.rabbit}}
        return jgf.line(jgf.Vertex(type="chassis", path=self.path, metadata=metadata))

    @cached_property
    def ssd_lines(self) -> Mapping[int, jgf.Line]:
        return {
            index: jgf.line(
                jgf.Vertex(
                    type="ssd",
                    path=f"{self.path}/ssd{index}",
                    metadata={
                        "id": index,
                        "unit": "GiB",
                        "size": self.ssd_gib,
                        "exclusive": True,
                    },
                )
            )
            for index in _ids(self.ssds)
        }


@dataclass(frozen=True)
class Piece:
    """One node of an allocation: its cores, and the ssds beside it, both as bits."""

    rank: int
    cores: int
    ssds: int = 0


@dataclass(frozen=True)
class Allocation:
    """What a job gets."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Use:
    """One node, how many cores it has, and how many of them are taken."""

    rank: int
    host: str
    cores: int
    taken: int


@dataclass(frozen=True)
class Refusal:
    """Why a request is not met, in words; `never` if waiting would not help."""

    reason: str
    never: bool = False


class Graph:
    """The system's resources, from its R with `scheduling` graph."""

    def __init__(self, r: Mapping[str, Any]) -> None:
        self._root = jgf.Vertex(type="cluster", path="")
        self._chassis: list[_Chassis] = []
        self._nodes: dict[int, _Node] = {}
        self._drained: frozenset[int] = frozenset()
        scheduling = r.get("scheduling")
        if scheduling is not None:
            self._read(scheduling)
        for rank in resource_set.decode(r):
            known = self._nodes.setdefault(
                rank.rank,
                _Node(rank=rank.rank, host=rank.host, chassis=None, cores=0, free=0, path=""),
            )
            known.cores = known.free = _bits(rank.cores)
        self._order = sorted(self._nodes)

    def _read(self, scheduling: Mapping[str, Any]) -> None:
        chassis: dict[str, int] = {}
        for vertex in jgf.decode(scheduling):
            if vertex.type == "cluster":
                self._root = vertex
            elif vertex.type in ("chassis", "rack"):
                chassis[vertex.path] = len(self._chassis)
                rabbit = vertex.metadata.get("properties", {}).get("rabbit", "")
                self._chassis.append(_Chassis(path=vertex.path, rabbit=rabbit))
            elif vertex.type == "ssd":
                self._add_ssd(self._chassis[chassis[vertex.parent]], vertex)
            elif vertex.type == "node":
                rank = vertex.metadata["rank"]
                self._nodes[rank] = _Node(
                    rank=rank,
                    host=vertex.metadata["name"],
                    chassis=chassis.get(vertex.parent),
                    cores=0,
                    free=0,
                    path=vertex.path,
                )

    @staticmethod
    def _add_ssd(chassis: _Chassis, vertex: jgf.Vertex) -> None:
        size = vertex.metadata.get("size", 1)
        if chassis.ssds and size != chassis.ssd_gib:
            raise BadFormat(f"the ssds of {chassis.path} are not of one size")
        chassis.ssd_gib = size
        bit = 1 << chassis.ssds.bit_length()
        chassis.ssds |= bit
        chassis.free |= bit
        if vertex.metadata.get("status", 0) == 0:
            chassis.up |= bit

    @property
    def nodes(self) -> int:
        return len(self._nodes)

    def set_ssds(self, rabbit: str, *, up: bool) -> None:
        """Say whether a rabbit's flash may be allocated. Unknown rabbits are ignored."""
        for chassis in self._chassis:
            if chassis.rabbit == rabbit:
                chassis.up = chassis.ssds if up else 0

    def set_drained(self, ranks: Iterable[int]) -> None:
        """Say which nodes may not be given out, in place of what was said before.

        Jobs keep what they have of them, and give it back. Unknown ranks are ignored.
        """
        self._drained = frozenset(self._nodes.keys() & ranks)

    def use(self) -> list[Use]:
        """Give all nodes by rank, with how much of each is taken."""
        return [
            Use(
                node.rank,
                node.host,
                node.cores.bit_count(),
                (node.cores & ~node.free).bit_count(),
            )
            for node in (self._nodes[rank] for rank in self._order)
        ]

    def match(self, request: Request) -> Allocation | Refusal:
        """Find room for a request, first fit by rank; or say why there is none."""
        refusal = self._impossible(request)
        if refusal is not None:
            return refusal
        pieces = self._fit(request, idle=False, drained=False)
        return Allocation(pieces) if pieces else Refusal(self._busy(request))

    def feasible(self, request: Request) -> Refusal | None:
        """Say why a request could never be met; None if it can be, with time.

        A drained node counts: it will be given out again.
        """
        return self._impossible(request)

    def take(self, allocation: Allocation) -> None:
        """Mark an allocation as taken."""
        for piece in allocation.pieces:
            node = self._nodes[piece.rank]
            node.free &= ~piece.cores
            if node.chassis is not None:
                self._chassis[node.chassis].free &= ~piece.ssds

    def give_back(self, allocation: Allocation) -> None:
        """Mark an allocation as free again."""
        for piece in allocation.pieces:
            node = self._nodes[piece.rank]
            node.free |= piece.cores
            if node.chassis is not None:
                self._chassis[node.chassis].free |= piece.ssds

    def _impossible(self, request: Request) -> Refusal | None:
        if request.nodes is not None and request.nodes > len(self._nodes):
            return Refusal(
                f"{request.nodes} nodes are asked for, and the cluster has {len(self._nodes)}.",
                never=True,
            )
        if self._fit(request, idle=True, drained=True):
            return None
        widest = max((node.cores.bit_count() for node in self._nodes.values()), default=0)
        cores = request.cores_per_slot * request.slots_per_node
        if request.nodes is not None and cores > widest:
            return Refusal(
                f"{cores} cores on a node are asked for, and the widest node has {widest}.",
                never=True,
            )
        if request.ssd_gib:
            largest = max((self._gib(each, each.ssds) for each in self._chassis), default=0)
            return Refusal(
                f"{request.nodes} nodes with {request.ssd_gib} GiB of flash each are asked for, "
                f"and a rabbit has {largest} GiB for the nodes that are wired to it.",
                never=True,
            )
        total = sum(node.cores.bit_count() for node in self._nodes.values())
        return Refusal(
            f"{request.slots * request.cores_per_slot} cores are asked for, "
            f"and the cluster has {total}.",
            never=True,
        )

    def _busy(self, request: Request) -> str:
        return f"waits for {self._wanting(request)}{self._kept_back(request)}"

    def _wanting(self, request: Request) -> str:
        if request.nodes is None:
            return f"{request.slots * request.cores_per_slot} cores"
        needed = request.cores_per_slot * request.slots_per_node
        idle = sum(
            1
            for node in self._nodes.values()
            if node.rank not in self._drained
            and node.free.bit_count() >= needed
            and (node.free == node.cores or not request.exclusive)
        )
        wanted = request.nodes
        if idle < wanted:
            return f"{wanted - idle} more of {wanted} nodes"
        down = [each.rabbit for each in self._chassis if each.ssds and not each.up]
        also = f"; not ready: {', '.join(down)}" if down else ""
        return f"{request.ssd_gib} GiB of flash beside each of {wanted} nodes{also}"

    def _kept_back(self, request: Request) -> str:
        """Name the drained nodes where they matter.

        They do if a request would fit at once with them, or would not fit without them however
        long it waited. Otherwise it waits for other jobs, and to undrain would not help.
        """
        if not self._drained:
            return ""
        needless = self._fit(request, idle=True, drained=False) is not None
        useless = self._fit(request, idle=False, drained=True) is None
        if needless and useless:
            return ""
        hosts = hostlist.encode(self._nodes[rank].host for rank in sorted(self._drained))
        return f"; drained: {hosts}"

    def _fit(self, request: Request, *, idle: bool, drained: bool) -> tuple[Piece, ...] | None:
        """First fit, on what is free now or on all that there is, `drained` nodes included or not.

        On an `idle` system flash that is not ready counts, too.
        """
        ssds = [(each.ssds if idle else each.free & each.up) for each in self._chassis]
        pieces: list[Piece] = []
        slots = request.slots
        for rank in self._order:
            if rank in self._drained and not drained:
                continue
            node = self._nodes[rank]
            piece = self._piece(node, node.cores if idle else node.free, request, slots, ssds)
            if piece is None:
                continue
            pieces.append(piece)
            if request.nodes is None:
                slots -= piece.cores.bit_count() // request.cores_per_slot
                if slots == 0:
                    return tuple(pieces)
            elif len(pieces) == request.nodes:
                return tuple(pieces)
        return None

    def _piece(
        self, node: _Node, free: int, request: Request, slots: int, ssds: list[int]
    ) -> Piece | None:
        """Give what one node can contribute, taking its ssds out of `ssds`."""
        if request.nodes is None:
            count = min(slots, free.bit_count() // request.cores_per_slot)
            return (
                Piece(node.rank, _lowest(free, count * request.cores_per_slot)) if count else None
            )
        wanted = request.slots_per_node * request.cores_per_slot
        if request.exclusive:
            if free != node.cores or free.bit_count() < wanted:
                return None
            cores = free
        elif free.bit_count() < wanted:
            return None
        else:
            cores = _lowest(free, wanted)
        if not request.ssd_gib:
            return Piece(node.rank, cores)
        if node.chassis is None:
            return None
        chassis = self._chassis[node.chassis]
        if not chassis.ssd_gib:
            return None
        count = -(-request.ssd_gib // chassis.ssd_gib)
        if ssds[node.chassis].bit_count() < count:
            return None
        chosen = _lowest(ssds[node.chassis], count)
        ssds[node.chassis] &= ~chosen
        return Piece(node.rank, cores, chosen)

    @staticmethod
    def _gib(chassis: _Chassis, ssds: int) -> int:
        return ssds.bit_count() * chassis.ssd_gib

    def encode(
        self, allocation: Allocation, *, slots: int, starttime: float, expiration: float
    ) -> dict[str, Any]:
        """Write an allocation as R, with the part of the graph that was allocated."""
        ranks = [
            resource_set.Rank(piece.rank, self._nodes[piece.rank].host, tuple(_ids(piece.cores)))
            for piece in allocation.pieces
        ]
        return resource_set.encode(
            ranks,
            slots=slots,
            starttime=starttime,
            expiration=expiration,
            scheduling=jgf.encode(self._subgraph(allocation)),
        )

    def _subgraph(self, allocation: Allocation) -> Iterable[jgf.Line]:
        if not self._root.path:
            return
        yield jgf.line(self._root)
        chassis_seen: set[int] = set()
        for piece in allocation.pieces:
            node = self._nodes[piece.rank]
            if node.chassis is not None:
                chassis = self._chassis[node.chassis]
                if node.chassis not in chassis_seen:
                    chassis_seen.add(node.chassis)
                    yield chassis.line
                yield from _chosen(chassis.ssd_lines, piece.ssds)
            yield node.line
            if piece.cores == node.cores:
                yield from node.core_lines.values()
            else:
                yield from _chosen(node.core_lines, piece.cores)

    def decode(self, r: Mapping[str, Any]) -> Allocation:
        """Read an R that this graph has written. Raises BadFormat if it names what is not here."""
        ranks = resource_set.decode(r)
        for rank in ranks:
            if rank.rank not in self._nodes:
                raise BadFormat(f"R names rank {rank.rank}, which the system does not have")
        ssds = self._allocated_ssds(r)
        pieces = []
        for rank in ranks:
            node = self._nodes[rank.rank]
            own = 0 if node.chassis is None else ssds.pop(node.chassis, 0)
            pieces.append(Piece(rank.rank, _bits(rank.cores), own))
        return Allocation(tuple(pieces))

    def _allocated_ssds(self, r: Mapping[str, Any]) -> dict[int, int]:
        """Give the ssds of an R as bits by chassis."""
        places = {chassis.path: index for index, chassis in enumerate(self._chassis)}
        found: dict[int, int] = {}
        if "scheduling" in r:
            for vertex in jgf.decode(r["scheduling"]):
                if vertex.type == "ssd" and vertex.parent in places:
                    place = places[vertex.parent]
                    found[place] = found.get(place, 0) | 1 << vertex.metadata["id"]
        return found


def _chosen(lines: Mapping[int, jgf.Line], bits: int) -> Iterable[jgf.Line]:
    return (lines[index] for index in _ids(bits))


def _bits(ids: Iterable[int]) -> int:
    bits = 0
    for number in ids:
        bits |= 1 << number
    return bits


def _ids(bits: int) -> Iterable[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _lowest(bits: int, count: int) -> int:
    """Keep the lowest `count` bits."""
    kept = 0
    for _ in range(count):
        low = bits & -bits
        kept |= low
        bits ^= low
    return kept
