"""The topology of a system: rabbits, the nodes wired to each, and the graph of both as R.

The shape is Fluxion's: cluster -> chassis (with property `rabbit`) -> ssds and
nodes -> cores, so that a site can hand the graph to Fluxion and the reverse.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from warren.base.bytesize import GIB
from warren.rfc import jgf, resource_set
from warren.scheduling import flash


class ChassisTopology(msgspec.Struct, frozen=True, kw_only=True):
    """One rabbit, the bytes of its flash, and the compute nodes wired to it."""

    rabbit: str
    capacity_bytes: int
    hosts: tuple[str, ...]


def resource_set_with_graph(
    cluster: str,
    chassis: Sequence[ChassisTopology],
    cores_per_node: int,
    quantum_gib: int | None = None,
) -> dict[str, Any]:
    """Write the system as R with its graph. Nodes get ranks in the order given.

    Each rabbit's flash is one pool, or as many ssds of `quantum_gib` GiB as there is room for.
    """
    nodes = [
        resource_set.NodeResources(rank, host, tuple(range(cores_per_node)))
        for rank, host in enumerate(host for each in chassis for host in each.hosts)
    ]
    return resource_set.encode_nodes(
        nodes,
        scheduling=jgf.encode(
            map(jgf.encode_vertex, _vertices(cluster, chassis, cores_per_node, quantum_gib))
        ),
    )


def _vertices(
    cluster: str, chassis: Sequence[ChassisTopology], cores_per_node: int, quantum_gib: int | None
) -> Iterator[jgf.Vertex]:
    yield jgf.Vertex(type="cluster", path=f"/{cluster}", metadata={"name": cluster})
    rank = 0
    for number, each in enumerate(chassis):
        path = f"/{cluster}/chassis{number}"
        gib = each.capacity_bytes // GIB
        ssd_gib = quantum_gib or gib
        ssd_count = gib // ssd_gib if ssd_gib else 0
        properties = {"rabbit": each.rabbit, "ssdcount": str(ssd_count)}
        if quantum_gib is None:
            properties[flash.KIND_PROPERTY] = flash.POOL
        yield jgf.Vertex(
            type="chassis", path=path, metadata={"id": number, "properties": properties}
        )
        for index in range(ssd_count):
            metadata = {"unit": "GiB", "size": ssd_gib, "id": index}
            yield jgf.Vertex(type="ssd", path=f"{path}/ssd{index}", metadata=metadata)
        for host in each.hosts:
            yield jgf.Vertex(
                type="node", path=f"{path}/{host}", metadata={"name": host, "rank": rank}
            )
            for core in range(cores_per_node):
                yield jgf.Vertex(
                    type="core",
                    path=f"{path}/{host}/core{core}",
                    metadata={"id": core, "rank": rank},
                )
            rank += 1
