"""What a system consists of, and how parts of it are written as R and read again.

Nodes have places: 0 is that of the lowest rank. Sets of nodes are bits of integers by place;
sets of cores, of gpus and of ssds are bits by id. Nothing here knows what is taken.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from warren.rfc import constraint, jgf, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import Text, Vertex

Properties = Mapping[str, Container[str]]
"""The hosts that have each property."""

_ROOT: Final = 0
"""The id of the cluster in graphs."""


class Piece(NamedTuple):
    """What is allocated of one node: its cores, the ssds beside it, and its gpus, all as bits."""

    rank: int
    cores: int
    ssds: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class Allocation:
    """What a job gets."""

    pieces: tuple[Piece, ...]
    slots: int = 1
    """How many task slots are in it; 0 if it is nobody's."""


@dataclass(kw_only=True)
class Chassis:
    """A rabbit's chassis, with as many ssds as there are bits, all of one size."""

    path: str
    rabbit: str
    number: int = 0
    """Its id in graphs; its ssds have the next ones."""
    ssd_gib: int = 0
    ssds: int = 0
    ready: int = 0
    """The ssds that the system says can be used."""
    places: int = 0
    """Its nodes."""

    def pieces(self, gib: int) -> int:
        """Give how many ssds make up so much flash; 0 where there are none."""
        return -(-gib // self.ssd_gib) if self.ssd_gib else 0

    @cached_property
    def text(self) -> Text:
        metadata = {"properties": {"rabbit": self.rabbit}}
        return jgf.text(
            Vertex(type="chassis", path=self.path, metadata=metadata), self.number, _ROOT
        )

    @cached_property
    def ssd_texts(self) -> Mapping[int, Text]:
        common = {"unit": "GiB", "size": self.ssd_gib, "exclusive": True}
        return {
            index: jgf.text(
                Vertex(
                    type="ssd", path=f"{self.path}/ssd{index}", metadata={"id": index, **common}
                ),
                self.number + 1 + index,
                self.number,
            )
            for index in ids(self.ssds)
        }


@dataclass(kw_only=True)
class Node:
    """A node, and what it has."""

    rank: int
    host: str
    chassis: int | None = None
    above: int = _ROOT
    """The id in graphs of what it stands in."""
    path: str = ""
    number: int = 0
    """Its own id in graphs; its cores have the next ones, and then its gpus."""
    cores: int = 0
    gpus: int = 0
    properties: frozenset[str] = frozenset()

    @cached_property
    def known_by(self) -> constraint.Node:
        """What constraints go by."""
        return constraint.Node(self.rank, self.host, constraint.implied(self.properties))

    @cached_property
    def whole(self) -> Text:
        """The node as a graph tells of it if all of it is allocated."""
        return jgf.joined(self._texts(self.cores, self.gpus))

    def text(self, cores: int, gpus: int) -> Text:
        """Write the node as it is in a graph, with some of its cores and gpus."""
        if cores == self.cores and gpus == self.gpus:
            return self.whole
        return jgf.joined(self._texts(cores, gpus))

    def _texts(self, cores: int, gpus: int) -> Iterator[Text]:
        metadata: dict[str, Any] = {"name": self.host, "rank": self.rank}
        yield jgf.text(
            Vertex(type="node", path=self.path, metadata=metadata), self.number, self.above
        )
        first = self.number + 1
        for kind, chosen in (("core", cores), ("gpu", gpus)):
            for each in ids(chosen):
                metadata = {"id": each, "rank": self.rank}
                vertex = Vertex(type=kind, path=f"{self.path}/{kind}{each}", metadata=metadata)
                yield jgf.text(vertex, first + each, self.number)
            first += self.cores.bit_length()


class Inventory:
    """All nodes by place, and all chassis. Made from the system's R and its graph."""

    def __init__(self, r: Mapping[str, Any], properties: Properties) -> None:
        """`properties` are told beside those in R. Raises BadFormat."""
        self.chassis: list[Chassis] = []
        self._root = Vertex(type="cluster", path="")
        known: dict[int, Node] = {}
        if r.get("scheduling") is not None:
            known = self._read(r["scheduling"])
        for rank in resource_set.decode(r):
            node = known.setdefault(rank.rank, Node(rank=rank.rank, host=rank.host))
            node.cores, node.gpus = bits(rank.cores), bits(rank.gpus)
        self.nodes = [known[rank] for rank in sorted(known)]
        self.places = {node.rank: place for place, node in enumerate(self.nodes)}
        self._number()
        self._name(resource_set.read(r).properties, properties)

    def _read(self, scheduling: Mapping[str, Any]) -> dict[int, Node]:
        nodes: dict[int, Node] = {}
        found: dict[str, int] = {}
        for vertex in jgf.decode(scheduling):
            if vertex.type == "cluster":
                self._root = vertex
            elif vertex.type in ("chassis", "rack"):
                found[vertex.path] = len(self.chassis)
                rabbit = vertex.properties.get("rabbit", "")
                self.chassis.append(Chassis(path=vertex.path, rabbit=rabbit))
            elif vertex.type == "ssd":
                _add_ssd(self.chassis[found[vertex.parent]], vertex)
            elif vertex.type == "node":
                nodes[vertex.rank] = Node(
                    rank=vertex.rank,
                    host=vertex.name,
                    chassis=found.get(vertex.parent),
                    path=vertex.path,
                )
        return nodes

    def _number(self) -> None:
        """Give everything an id that it has in the graph of whoever gets it."""
        number = _ROOT + 1
        for chassis in self.chassis:
            chassis.number = number
            number += 1 + chassis.ssds.bit_length()
        for place, node in enumerate(self.nodes):
            node.number = number
            number += 1 + node.cores.bit_length() + node.gpus.bit_length()
            if node.chassis is not None:
                chassis = self.chassis[node.chassis]
                node.above = chassis.number
                chassis.places |= 1 << place

    def _name(self, told: Mapping[str, Iterable[int]], properties: Properties) -> None:
        named: dict[int, set[str]] = {}
        for name, ranks in told.items():
            for rank in ranks:
                named.setdefault(rank, set()).add(name)
        for node in self.nodes:
            mine = named.get(node.rank, set())
            mine.update(name for name, hosts in properties.items() if node.host in hosts)
            if mine:
                node.properties = frozenset(mine)

    def meeting(self, wanted: Mapping[str, Any]) -> int:
        """Give the places of the nodes that meet a constraint."""
        meets = constraint.matcher(wanted)
        return bits(place for place, node in enumerate(self.nodes) if meets(node.known_by))

    # R

    def encode(
        self,
        allocation: Allocation,
        starttime: float = 0.0,
        expiration: float = 0.0,
        *,
        local: bool = False,
    ) -> dict[str, Any]:
        """Write an allocation as R, without `scheduling`.

        Properties that only this instance knows are left out (RFC 20), unless `local`.
        """
        ranks: list[resource_set.Rank] = []
        properties: dict[str, list[int]] = {}
        for piece in allocation.pieces:
            node = self.nodes[self.places[piece.rank]]
            ranks.append(
                resource_set.Rank(piece.rank, node.host, _listed(piece.cores), _listed(piece.gpus))
            )
            for name in node.properties:
                if local or not name.startswith("+"):
                    properties.setdefault(name, []).append(piece.rank)
        return resource_set.encode(
            ranks,
            slots=allocation.slots or None,
            properties=dict(sorted(properties.items())),
            starttime=starttime,
            expiration=expiration,
        )

    def scheduling(self, allocation: Allocation) -> bytes | None:
        """Write the part of the graph that was allocated, as JSON; None if there is no graph."""
        if not self._root.path:
            return None
        return jgf.document(self._texts(allocation))

    def _texts(self, allocation: Allocation) -> Iterator[Text]:
        yield jgf.text(self._root, _ROOT, None)
        told: set[int] = set()
        for rank, cores, ssds, gpus in allocation.pieces:
            node = self.nodes[self.places[rank]]
            if node.chassis is not None:
                chassis = self.chassis[node.chassis]
                if node.chassis not in told:
                    told.add(node.chassis)
                    yield chassis.text
                for index in ids(ssds):
                    yield chassis.ssd_texts[index]
            yield node.text(cores, gpus)

    def decode(self, r: Mapping[str, Any]) -> Allocation:
        """Read an R that was written here. Raises BadFormat if it names what is not here."""
        pieces = []
        ssds = self._ssds(r)
        for rank in resource_set.decode(r):
            place = self.places.get(rank.rank)
            if place is None:
                raise BadFormat(f"R names rank {rank.rank}, which the system does not have")
            node = self.nodes[place]
            if node.host != rank.host:
                raise BadFormat(f"R names {rank.host} as rank {rank.rank}, which is {node.host}")
            cores, gpus = bits(rank.cores), bits(rank.gpus)
            if cores & ~node.cores or gpus & ~node.gpus:
                raise BadFormat(f"R names cores or gpus of {node.host} that it does not have")
            own = 0 if node.chassis is None else ssds.pop(node.chassis, 0)
            pieces.append(Piece(rank.rank, cores, own, gpus))
        if ssds:
            raise BadFormat("R names flash that is beside none of its nodes")
        return Allocation(tuple(pieces), r["execution"].get("nslots", 1))

    def _ssds(self, r: Mapping[str, Any]) -> dict[int, int]:
        """Give the ssds of an R as bits by chassis."""
        places = {chassis.path: index for index, chassis in enumerate(self.chassis)}
        found: dict[int, int] = {}
        for vertex in jgf.decode(r["scheduling"]) if "scheduling" in r else ():
            if vertex.type != "ssd":
                continue
            place = places.get(vertex.parent)
            bit = 1 << max(vertex.id, 0)
            if place is None or not bit & self.chassis[place].ssds:
                raise BadFormat(f"R names {vertex.path}, which the system does not have")
            found[place] = found.get(place, 0) | bit
        return found


def _add_ssd(chassis: Chassis, vertex: Vertex) -> None:
    if chassis.ssds and vertex.size != chassis.ssd_gib:
        raise BadFormat(f"the ssds of {chassis.path} are not of one size")
    chassis.ssd_gib = vertex.size
    bit = 1 << chassis.ssds.bit_length()
    chassis.ssds |= bit
    if vertex.up:
        chassis.ready |= bit


def bits(numbers: Iterable[int]) -> int:
    """Give a set of numbers as bits."""
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def ids(given: int) -> Iterator[int]:
    """Give the numbers that a few bits stand for, ascending."""
    while given:
        low = given & -given
        yield low.bit_length() - 1
        given ^= low


@lru_cache(maxsize=4096)
def _listed(given: int) -> tuple[int, ...]:
    return tuple(ids(given))
