"""Small systems, and a dumb oracle of what fits on them."""

from collections.abc import Container, Iterable, Mapping
from itertools import combinations
from typing import Any

import orjson
from msgspec.structs import replace

from warren.base.bytesize import GIB
from warren.rfc import constraint, jgf, resource_set
from warren.scheduling import flash, inventory
from warren.scheduling.flash import Pool
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.request import Request
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph


def system(
    *chassis: tuple[int, int], cores: int = 4, quantum: int | None = 2, gpus: int = 0
) -> dict[str, Any]:
    """Describe a system by its chassis: how many nodes, and how many GiB of flash, each has.

    Flash is in quanta of so many GiB, or without that a pool. The first half of the nodes has
    `gpus` each.
    """
    hosts = iter(f"n{number}" for number in range(100))
    made = [
        ChassisTopology(
            rabbit=f"r{number}",
            capacity_bytes=gib * GIB,
            hosts=tuple(next(hosts) for _ in range(nodes)),
        )
        for number, (nodes, gib) in enumerate(chassis)
    ]
    described = resource_set_with_graph("c", made, cores, quantum)
    if not gpus:
        return described
    ranks = resource_set.decode_nodes(described)
    few = tuple(range(gpus))
    ranks = [replace(each, gpus=few) if 2 * each.rank < len(ranks) else each for each in ranks]
    return resource_set.encode_nodes(ranks, scheduling=described["scheduling"])


def want(
    nodes: int | None = None,
    slots: int | None = None,
    *,
    cores: int = 1,
    exclusive: bool = False,
    ssd: int = 0,
    **others: Any,
) -> Request:
    """Make a request; without `slots`, one on each node."""
    return Request(
        nodes=nodes,
        slots=-(-(slots or nodes or 1) // (nodes or 1)),
        cores=cores,
        exclusive=exclusive,
        ssd_gib=ssd,
        **others,
    )


def matched(graph: Graph, request: Request) -> Allocation:
    """Match what is known to fit."""
    found = graph.match(request)
    assert isinstance(found, Allocation), found
    return found


def written(graph: Graph, allocation: Allocation) -> dict[str, Any]:
    """Return an allocation's R as it is stored, with `scheduling`."""
    r = graph.encode(allocation, starttime=0.0, expiration=0.0)
    found: dict[str, Any] = orjson.loads(graph.encode_text(allocation, r))
    return found


def paths(graph: Graph, allocation: Allocation, kind: str) -> list[str]:
    """Return the paths of the cores or ssds of an allocation, as its R names them."""
    r = written(graph, allocation)
    return [vertex.path for vertex in jgf.decode(r["scheduling"]) if vertex.type == kind]


Bits = dict[tuple[str, object], int]
"""Sets of cores and of gpus by node, and of ssds by chassis; GiB of pools by chassis."""


def taken(graph: Graph) -> Bits:
    """Return what the graph says is taken."""
    found: Bits = {}
    system_, room = graph._inventory, graph._free
    for place, node in enumerate(system_.nodes):
        found["core", node.rank], found["gpu", node.rank] = room.taken_cores_and_gpus(place)
    for each, free in zip(system_.chassis, room._free_flash, strict=True):
        assert free >= 0
        found[_flash(each)] = each.flash.subtract(each.flash.whole_portion, free)
    return {key: bits for key, bits in found.items() if bits}


def parts(graph: Graph, allocation: Allocation) -> Bits:
    """Return what an allocation consists of."""
    found: Bits = {}
    for piece in allocation.pieces:
        node = graph._inventory.nodes[graph._inventory.node_index_by_rank[piece.rank]]
        found["core", piece.rank], found["gpu", piece.rank] = piece.cores, piece.gpus
        if piece.portion:
            assert node.chassis_index is not None
            _add(found, _flash(graph._inventory.chassis[node.chassis_index]), piece.portion)
    return {key: bits for key, bits in found.items() if bits}


def together(each: Iterable[Bits]) -> Bits:
    """Put together what no two may have."""
    found: Bits = {}
    for one in each:
        for key, bits in one.items():
            _add(found, key, bits)
    return found


def _flash(chassis: inventory.Chassis) -> tuple[str, object]:
    return "pool" if isinstance(chassis.flash, Pool) else "ssd", chassis.path


def _add(found: Bits, key: tuple[str, object], bits: int) -> None:
    if key[0] == "pool":
        found[key] = found.get(key, 0) + bits
        return
    assert not found.get(key, 0) & bits, key
    found[key] = found.get(key, 0) | bits


class Oracle:
    """Says whether a request fits, by trying everything."""

    def __init__(self, r: Mapping[str, Any]) -> None:
        vertices = list(jgf.decode(r["scheduling"]))
        pools = {
            each.path
            for each in vertices
            if each.type == "chassis" and each.properties.get(flash.KIND_PROPERTY) == flash.POOL
        }
        ssds = [each for each in vertices if each.type == "ssd"]
        self._ssds = {each.path: each.size for each in ssds if each.parent_path not in pools}
        self._pools = {each.parent_path: each.size for each in ssds if each.parent_path in pools}
        self._paths = {each.rank: each.path for each in vertices if each.type == "node"}
        self._ranks = {each.rank: each for each in resource_set.decode_nodes(r)}

    def fits(self, request: Request, gone: Bits, drained: Container[int] = ()) -> bool:
        """Return whether there is room beside what is taken, on nodes that are not drained."""
        free: dict[int, tuple[int, int]] = {}
        for rank, has in self._ranks.items():
            if rank not in drained and self._meets(request, rank):
                free[rank] = (
                    sum(not gone.get(("core", rank), 0) >> core & 1 for core in has.cores),
                    sum(not gone.get(("gpu", rank), 0) >> gpu & 1 for gpu in has.gpus),
                )
        if request.nodes is None:
            return request.slots <= sum(
                max(n for n in range(cores + 1)
                    if n * request.cores <= cores and n * request.gpus <= gpus)
                for cores, gpus in free.values()
            )  # fmt: skip
        able = [
            rank
            for rank, (cores, gpus) in free.items()
            if cores >= request.slots * request.cores
            and gpus >= request.slots * request.gpus
            and not (
                request.exclusive
                and (cores, gpus) != (len(self._ranks[rank].cores), len(self._ranks[rank].gpus))
            )
        ]
        left = [path for path in self._ssds if not self._is_gone(path, gone)]
        pools = {path: gib - gone.get(("pool", path), 0) for path, gib in self._pools.items()}
        return any(
            self._flash([self._paths[rank] for rank in chosen], request.ssd_gib, left, pools)
            for chosen in combinations(able, request.nodes * request.nodes_per_slot)
        )

    def _meets(self, request: Request, rank: int) -> bool:
        if not request.constraint:
            return True
        node = constraint.Node(rank, self._ranks[rank].host)
        return constraint.matches(orjson.loads(request.constraint), node)

    @staticmethod
    def _is_gone(path: str, gone: Bits) -> bool:
        chassis, _, name = path.rpartition("/")
        return bool(gone.get(("ssd", chassis), 0) >> int(name.removeprefix("ssd")) & 1)

    def _flash(
        self, nodes: Iterable[str], gib: int, free: Iterable[str], pools: Mapping[str, int]
    ) -> bool:
        """Return whether each node can have its flash of its own chassis."""
        left, pooled = list(free), dict(pools)
        for node in nodes:
            got = 0
            chassis = node.rpartition("/")[0]
            if chassis in pooled:
                got = min(gib, pooled[chassis])
                pooled[chassis] -= got
            for ssd in list(left):
                if got < gib and ssd.rpartition("/")[0] == node.rpartition("/")[0]:
                    got += self._ssds[ssd]
                    left.remove(ssd)
            if got < gib:
                return False
        return True
