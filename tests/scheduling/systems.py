"""Small systems, and a dumb oracle of what fits on them."""

from collections.abc import Container, Iterable, Mapping
from itertools import combinations
from typing import Any

from warren.base.bytesize import GIB
from warren.rfc import jgf
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.request import Request
from warren.scheduling.system import Chassis, describe


def system(*chassis: tuple[int, int], cores: int = 4, ssds: int = 4) -> dict[str, Any]:
    """Describe a system by its chassis: how many nodes, and how many GiB of flash, each has."""
    hosts = iter(f"n{number}" for number in range(100))
    made = [
        Chassis(
            rabbit=f"r{number}", capacity=gib * GIB, hosts=tuple(next(hosts) for _ in range(nodes))
        )
        for number, (nodes, gib) in enumerate(chassis)
    ]
    return describe("c", made, cores, ssds)


def want(
    nodes: int | None = None,
    slots: int | None = None,
    *,
    cores: int = 1,
    exclusive: bool = False,
    ssd: int = 0,
) -> Request:
    """Make a request; without `slots`, one on each node."""
    return Request(
        nodes=nodes,
        slots=slots or nodes or 1,
        cores_per_slot=cores,
        exclusive=exclusive,
        ssd_gib=ssd,
    )


def matched(graph: Graph, request: Request) -> Allocation:
    """Match what is known to fit."""
    found = graph.match(request)
    assert isinstance(found, Allocation), found
    return found


def paths(graph: Graph, allocation: Allocation, kind: str) -> list[str]:
    """Give the paths of the cores or ssds of an allocation, as its R names them."""
    r = graph.encode(allocation, slots=1, starttime=0.0, expiration=0.0)
    return [vertex.path for vertex in jgf.decode(r["scheduling"]) if vertex.type == kind]


class Oracle:
    """Says whether a request fits, by trying everything."""

    def __init__(self, r: Mapping[str, Any]) -> None:
        vertices = list(jgf.decode(r["scheduling"]))
        self._ssds = {each.path: each.metadata["size"] for each in vertices if each.type == "ssd"}
        self._cores = [each.path for each in vertices if each.type == "core"]
        self._nodes = [each.path for each in vertices if each.type == "node"]

    def fits(self, request: Request, taken: Iterable[str], drained: Container[int] = ()) -> bool:
        """Tell whether there is room beside what is taken, named by paths, and not on ranks."""
        gone = set(taken)
        gone.update(
            core
            for rank, node in enumerate(self._nodes)
            for core in self._cores
            if rank in drained and core.startswith(node + "/")
        )
        total = {node: sum(core.startswith(node + "/") for core in self._cores)
                 for node in self._nodes}  # fmt: skip
        free = {
            node: sum(core.startswith(node + "/") for core in self._cores if core not in gone)
            for node in self._nodes
        }
        if request.nodes is None:
            return sum(each // request.cores_per_slot for each in free.values()) >= request.slots
        wanted = -(-request.slots // request.nodes) * request.cores_per_slot
        able = [
            node
            for node in self._nodes
            if free[node] >= wanted and not (request.exclusive and free[node] != total[node])
        ]
        return any(
            self._flash(chosen, request.ssd_gib, gone)
            for chosen in combinations(able, request.nodes)
        )

    def _flash(self, nodes: Iterable[str], gib: int, gone: set[str]) -> bool:
        """Tell whether each node can have its flash of its own chassis."""
        left = [ssd for ssd in self._ssds if ssd not in gone]
        for node in nodes:
            got = 0
            for ssd in list(left):
                if got < gib and ssd.rpartition("/")[0] == node.rpartition("/")[0]:
                    got += self._ssds[ssd]
                    left.remove(ssd)
            if got < gib:
                return False
        return True
