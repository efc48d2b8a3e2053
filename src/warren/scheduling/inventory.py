"""What a system consists of, and how parts of it are written as R and read again.

Nodes have indexes: 0 is that of the lowest rank. Sets of nodes are bits of integers by node
index; sets of cores and of gpus are bits by id, and portions of flash are what `flash` says.
Nothing here knows what is taken.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from warren.rfc import constraint, jgf, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import GraphText, Vertex
from warren.scheduling import flash
from warren.scheduling.flash import Flash, Pool, Quanta

HostsByProperty = Mapping[str, Container[str]]
"""The hosts that have each property, beside those of R."""

_ROOT_ID: Final = 0
"""The id of the cluster in graphs."""

_MAX_ID: Final = 65535
"""Of cores and gpus on one node: sets of them are kept as bits."""


class Piece(NamedTuple):
    """What is allocated of one node: its cores and gpus as bits, and a portion of its flash.

    Without cores and gpus the node is not in the allocation: only flash of its chassis is.
    """

    rank: int
    cores: int
    portion: int = 0
    gpus: int = 0


class Allocation(msgspec.Struct, frozen=True):
    """What a job gets."""

    pieces: tuple[Piece, ...]
    slots: int = 1
    """How many task slots are in it; 0 if it is in no slot."""


@dataclass(kw_only=True)
class Chassis:
    """A rabbit's chassis."""

    path: str
    rabbit: str
    vertex_id: int = 0
    """Its id in graphs; its ssds have the next ones."""
    flash: Flash = field(default_factory=Quanta)
    node_mask: int = 0
    """Its nodes, as bits by node index."""
    labels: frozenset[str] | None = None
    """What its rabbit carries, each as `key=value`; None where that is not known yet."""
    _quantum_texts: dict[int, GraphText] = field(default_factory=dict)

    @cached_property
    def text(self) -> GraphText:
        properties = {"rabbit": self.rabbit}
        if isinstance(self.flash, Pool):
            properties[flash.KIND_PROPERTY] = flash.POOL
        # With them, so that the storage side decides by what the scheduler has seen.
        pairs = (label.partition("=") for label in sorted(self.labels or ()))
        metadata = {"properties": {key: value for key, _, value in pairs} | properties}
        return jgf.vertex_text(
            Vertex(type="chassis", path=self.path, metadata=metadata), self.vertex_id, _ROOT_ID
        )

    def set_labels(self, labels: Iterable[str]) -> None:
        """Set what its rabbit carries. What has the name of a property here is left out."""
        carried = frozenset(
            each for each in labels if each.partition("=")[0] not in flash.RESERVED_PROPERTIES
        )
        if carried != self.labels:
            self.labels = carried
            self.__dict__.pop("text", None)  # it is written anew

    def ssd_texts(self, portion: int) -> Iterator[GraphText]:
        """Write a portion of its flash. Quanta are written once: they are the same for all jobs."""
        for index, gib in self.flash.ssds(portion):
            text = self._quantum_texts.get(index)
            if text is None:
                metadata = {"id": index, "unit": "GiB", "size": gib, "exclusive": True}
                ssd = Vertex(type="ssd", path=f"{self.path}/ssd{index}", metadata=metadata)
                text = jgf.vertex_text(ssd, self.vertex_id + 1 + index, self.vertex_id)
                if isinstance(self.flash, Quanta):
                    self._quantum_texts[index] = text
            yield text


class Node(msgspec.Struct, kw_only=True, dict=True):
    """A node, and what it has."""

    rank: int
    host: str
    chassis_index: int | None = None
    parent_id: int = _ROOT_ID
    """The id in graphs of its parent: its chassis, or the cluster."""
    path: str = ""
    vertex_id: int = 0
    """Its own id in graphs; its cores have the next ones, and then its gpus."""
    cores: int = 0
    gpus: int = 0
    properties: frozenset[str] = frozenset()

    @cached_property
    def constraint_node(self) -> constraint.Node:
        """What constraints go by."""
        return constraint.Node(
            self.rank, self.host, constraint.with_implied_properties(self.properties)
        )

    @cached_property
    def whole_text(self) -> GraphText:
        """The node as a graph tells of it if all of it is allocated."""
        return jgf.join_texts(self._texts(self.cores, self.gpus))

    def text(self, cores: int, gpus: int) -> GraphText:
        """Write the node as it is in a graph, with some of its cores and gpus."""
        if cores == self.cores and gpus == self.gpus:
            return self.whole_text
        return jgf.join_texts(self._texts(cores, gpus))

    def _texts(self, cores: int, gpus: int) -> Iterator[GraphText]:
        metadata: dict[str, Any] = {"name": self.host, "rank": self.rank}
        yield jgf.vertex_text(
            Vertex(type="node", path=self.path, metadata=metadata), self.vertex_id, self.parent_id
        )
        first_id = self.vertex_id + 1
        for kind, chosen in (("core", cores), ("gpu", gpus)):
            for each in bit_numbers(chosen):
                metadata = {"id": each, "rank": self.rank}
                vertex = Vertex(type=kind, path=f"{self.path}/{kind}{each}", metadata=metadata)
                yield jgf.vertex_text(vertex, first_id + each, self.vertex_id)
            first_id += self.cores.bit_length()


class Inventory:
    """All nodes by index, and all chassis. Made from the system's R and its graph."""

    def __init__(self, r: Mapping[str, Any], hosts_by_property: HostsByProperty) -> None:
        """`hosts_by_property` is for properties beside those in R. Raises BadFormat."""
        self.chassis: list[Chassis] = []
        self._root = Vertex(type="cluster", path="")
        node_by_rank: dict[int, Node] = {}
        if r.get("scheduling") is not None:
            node_by_rank = self._read_graph(r["scheduling"])
        has_graph = bool(node_by_rank)
        r_nodes = resource_set.decode_nodes(r)
        for r_node in r_nodes:
            node = node_by_rank.setdefault(r_node.rank, Node(rank=r_node.rank, host=r_node.host))
            if node.host != r_node.host:
                raise BadFormat(
                    f"R names {r_node.host} as rank {r_node.rank}, and its graph {node.host}"
                )
            if max((*r_node.cores, *r_node.gpus)) > _MAX_ID:
                raise BadFormat(f"R names cores or gpus of {r_node.host} beyond {_MAX_ID}")
            node.cores, node.gpus = bits(r_node.cores), bits(r_node.gpus)
        if has_graph and len(node_by_rank) > len(r_nodes):
            extra_rank = min(node_by_rank.keys() - {r_node.rank for r_node in r_nodes})
            raise BadFormat(
                f"the graph has {node_by_rank[extra_rank].host} as rank {extra_rank}, "
                "and R_lite has not"
            )
        self.nodes = [node_by_rank[rank] for rank in sorted(node_by_rank)]
        self.node_index_by_rank = {
            node.rank: node_index for node_index, node in enumerate(self.nodes)
        }
        self.node_index_by_host = {
            node.host: node_index for node_index, node in enumerate(self.nodes)
        }
        self.chassis_indexes_by_rabbit: dict[str, list[int]] = {}
        """Indexes in `chassis`, by the names of the rabbits."""
        self._chassis_index_by_path = {
            chassis.path: index for index, chassis in enumerate(self.chassis)
        }
        for index, chassis in enumerate(self.chassis):
            self.chassis_indexes_by_rabbit.setdefault(chassis.rabbit, []).append(index)
        self._assign_ids()
        self._set_properties(resource_set.decode_all(r).properties, hosts_by_property)

    def _read_graph(self, scheduling: Mapping[str, Any]) -> dict[int, Node]:
        """Read the graph. Raises BadFormat for one that is no tree, or not of what is known here.

        Vertices of other types are passed over: Fluxion's graphs may have them.
        """
        jgf.check(scheduling)
        node_by_rank: dict[int, Node] = {}
        hosts: set[str] = set()
        chassis_index_by_path: dict[str, int] = {}
        properties_of_chassis: list[dict[str, str]] = []
        ssds_of_chassis: list[list[Vertex]] = []
        for vertex in jgf.decode(scheduling):
            if vertex.type == "cluster":
                if self._root.path:
                    raise BadFormat(f"the graph has {vertex.path} beside {self._root.path}")
                self._root = vertex
            elif vertex.type in ("chassis", "rack"):
                chassis_index_by_path[vertex.path] = len(self.chassis)
                rabbit = vertex.properties.get("rabbit", "")
                self.chassis.append(Chassis(path=vertex.path, rabbit=rabbit))
                properties_of_chassis.append(dict(vertex.properties))
                ssds_of_chassis.append([])
            elif vertex.type == "ssd":
                if vertex.parent_path not in chassis_index_by_path:
                    raise BadFormat(
                        f"the graph has {vertex.path}, which is in no chassis before it"
                    )
                if vertex.unit not in ("", "GiB"):
                    raise BadFormat(f"the graph has {vertex.path} in {vertex.unit}, not in GiB")
                ssds_of_chassis[chassis_index_by_path[vertex.parent_path]].append(vertex)
            elif vertex.type == "node":
                if vertex.rank < 0 or vertex.rank in node_by_rank or vertex.name in hosts:
                    raise BadFormat(
                        f"the graph has {vertex.name} as rank {vertex.rank}: each node has a name "
                        "and a rank of its own"
                    )
                hosts.add(vertex.name)
                node_by_rank[vertex.rank] = Node(
                    rank=vertex.rank,
                    host=vertex.name,
                    chassis_index=chassis_index_by_path.get(vertex.parent_path),
                    path=vertex.path,
                )
        if self.chassis and not self._root.path:
            raise BadFormat("the graph has chassis, and no cluster that they are in")
        for chassis, chassis_properties, chassis_ssds in zip(
            self.chassis, properties_of_chassis, ssds_of_chassis, strict=True
        ):
            chassis.flash = flash.from_vertices(chassis.path, chassis_properties, chassis_ssds)
        return node_by_rank

    def _assign_ids(self) -> None:
        """Set the id of each vertex, which it has in the R of every job."""
        next_id = _ROOT_ID + 1
        for chassis in self.chassis:
            chassis.vertex_id = next_id
            next_id += 1 + chassis.flash.id_count
        for node_index, node in enumerate(self.nodes):
            node.vertex_id = next_id
            next_id += 1 + node.cores.bit_length() + node.gpus.bit_length()
            if node.chassis_index is not None:
                chassis = self.chassis[node.chassis_index]
                node.parent_id = chassis.vertex_id
                chassis.node_mask |= 1 << node_index

    def _set_properties(
        self, ranks_by_property: Mapping[str, Iterable[int]], hosts_by_property: HostsByProperty
    ) -> None:
        properties_by_rank: dict[int, set[str]] = {}
        for name, ranks in ranks_by_property.items():
            for rank in ranks:
                properties_by_rank.setdefault(rank, set()).add(name)
        for node in self.nodes:
            properties = properties_by_rank.get(node.rank, set())
            properties.update(
                name for name, hosts in hosts_by_property.items() if node.host in hosts
            )
            if properties:
                node.properties = frozenset(properties)

    def matching_nodes(self, wanted: Mapping[str, Any]) -> int:
        """Return the nodes that meet a constraint, as bits."""
        meets = constraint.matcher(wanted)
        return bits(
            node_index for node_index, node in enumerate(self.nodes) if meets(node.constraint_node)
        )

    # R

    def encode(
        self,
        allocation: Allocation,
        starttime: float = 0.0,
        expiration: float = 0.0,
        *,
        include_local: bool = False,
    ) -> dict[str, Any]:
        """Write an allocation as R, without `encode_scheduling`.

        Properties that only this instance knows are left out (RFC 20), unless `include_local`.
        """
        r_nodes: list[resource_set.NodeResources] = []
        properties: dict[str, list[int]] = {}
        for piece in allocation.pieces:
            if not (piece.cores or piece.gpus):
                continue
            node = self.nodes[self.node_index_by_rank[piece.rank]]
            r_nodes.append(
                resource_set.NodeResources(
                    piece.rank, node.host, _bit_numbers(piece.cores), _bit_numbers(piece.gpus)
                )
            )
            for name in node.properties:
                if include_local or not name.startswith("+"):
                    properties.setdefault(name, []).append(piece.rank)
        return resource_set.encode_nodes(
            r_nodes,
            slots=allocation.slots or None,
            properties=dict(sorted(properties.items())),
            starttime=starttime,
            expiration=expiration,
        )

    def encode_scheduling(self, allocation: Allocation) -> bytes | None:
        """Write the part of the graph that was allocated, as JSON; None if there is no graph."""
        if not self._root.path:
            return None
        return jgf.encode_texts(self._texts(allocation))

    def _texts(self, allocation: Allocation) -> Iterator[GraphText]:
        yield jgf.vertex_text(self._root, _ROOT_ID, None)
        flash_portions = self.flash_portions(allocation.pieces)
        written: set[int] = set()
        for rank, cores, _, gpus in allocation.pieces:
            node = self.nodes[self.node_index_by_rank[rank]]
            if node.chassis_index is not None and node.chassis_index not in written:
                written.add(node.chassis_index)
                chassis = self.chassis[node.chassis_index]
                yield chassis.text
                yield from chassis.ssd_texts(flash_portions.get(node.chassis_index, 0))
            if cores or gpus:
                yield node.text(cores, gpus)

    def representative_rank(self, chassis_index: int) -> int:
        """Return the rank that stands for a chassis of which only flash is allocated."""
        node_mask = self.chassis[chassis_index].node_mask
        return self.nodes[(node_mask & -node_mask).bit_length() - 1].rank

    def flash_portions(self, pieces: Iterable[Piece]) -> dict[int, int]:
        """Put together the flash of some pieces, by the indexes of the chassis."""
        portion_by_chassis: dict[int, int] = {}
        for piece in pieces:
            if piece.portion:
                index = self.nodes[self.node_index_by_rank[piece.rank]].chassis_index
                assert index is not None
                portion_by_chassis[index] = self.chassis[index].flash.add(
                    portion_by_chassis.get(index, 0), piece.portion
                )
        return portion_by_chassis

    def decode(self, r: Mapping[str, Any]) -> Allocation:
        """Read an R that was written here. Raises BadFormat if it names what is not here."""
        pieces = []
        portions = self._portions_in(r)
        for r_node in resource_set.decode_nodes(r):
            node_index = self.node_index_by_rank.get(r_node.rank)
            if node_index is None:
                raise BadFormat(f"R names rank {r_node.rank}, which the system does not have")
            node = self.nodes[node_index]
            if node.host != r_node.host:
                raise BadFormat(
                    f"R names {r_node.host} as rank {r_node.rank}, which is {node.host}"
                )
            cores, gpus = (
                _bits_within(r_node.cores, node.cores),
                _bits_within(r_node.gpus, node.gpus),
            )
            if cores is None or gpus is None:
                raise BadFormat(f"R names cores or gpus of {node.host} that it does not have")
            portion = 0 if node.chassis_index is None else portions.pop(node.chassis_index, 0)
            pieces.append(Piece(r_node.rank, cores, portion, gpus))
        for index, portion in portions.items():
            if not self.chassis[index].node_mask:
                raise BadFormat(f"R names flash of {self.chassis[index].path}, which has no nodes")
            pieces.append(Piece(self.representative_rank(index), 0, portion))
        return Allocation(tuple(pieces), r["execution"].get("nslots", 1))

    def _portions_in(self, r: Mapping[str, Any]) -> dict[int, int]:
        """Return the portions of flash of an R, by the indexes of the chassis."""
        ssds_by_chassis: dict[int, list[Vertex]] = {}
        vertices = jgf.decode(r["scheduling"]) if "scheduling" in r else ()
        for index, vertex in enumerate(vertices):
            if vertex.type != "ssd":
                continue
            jgf.check_vertex(vertex, index)
            chassis_index = self._chassis_index_by_path.get(vertex.parent_path)
            if chassis_index is None:
                raise BadFormat(f"R names {vertex.path}, which the system does not have")
            ssds_by_chassis.setdefault(chassis_index, []).append(vertex)
        return {
            chassis_index: self.chassis[chassis_index].flash.read_portion(ssds)
            for chassis_index, ssds in ssds_by_chassis.items()
        }


def _bits_within(numbers: Iterable[int], available: int) -> int | None:
    """Return numbers as bits, if all of them are there."""
    length = available.bit_length()
    bitset = bits(number for number in numbers if number < length)
    missing = bitset & ~available or any(number >= length for number in numbers)
    return None if missing else bitset


def bits(numbers: Iterable[int]) -> int:
    """Return a set of numbers as bits."""
    bitset = 0
    for number in numbers:
        bitset |= 1 << number
    return bitset


def bit_numbers(bitset: int) -> Iterator[int]:
    """Return the numbers that a few bits stand for, ascending."""
    while bitset:
        low = bitset & -bitset
        yield low.bit_length() - 1
        bitset ^= low


@lru_cache(maxsize=4096)
def _bit_numbers(bitset: int) -> tuple[int, ...]:
    return tuple(bit_numbers(bitset))
