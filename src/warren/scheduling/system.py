"""A system described: rabbits, the nodes wired to each, and the graph of both as R.

The shape is Fluxion's: cluster -> chassis (with property `rabbit`) -> ssds and
nodes -> cores, so that a site can hand the graph to Fluxion and the reverse.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warren.base.bytesize import GIB
from warren.rfc import jgf, resource_set

SSDS = 36
"""Into how many schedulable pieces a rabbit's capacity is cut (as dws2jgf does)."""


@dataclass(frozen=True, kw_only=True)
class Chassis:
    """One rabbit, its capacity in bytes, and the compute nodes wired to it."""

    rabbit: str
    capacity: int
    hosts: tuple[str, ...]


def describe(
    cluster: str, chassis: Sequence[Chassis], cores: int, ssds: int = SSDS
) -> dict[str, Any]:
    """Write the system as R with its graph. Nodes get ranks in the order given.

    `cores` is per node. A chassis of less than `ssds` GiB has fewer ssds, of one GiB.
    """
    ranks = [
        resource_set.Rank(rank, host, tuple(range(cores)))
        for rank, host in enumerate(host for each in chassis for host in each.hosts)
    ]
    return resource_set.encode(
        ranks, scheduling=jgf.encode(map(jgf.line, _vertices(cluster, chassis, cores, ssds)))
    )


def _vertices(
    cluster: str, chassis: Sequence[Chassis], cores: int, ssds: int
) -> Iterator[jgf.Vertex]:
    yield jgf.Vertex(type="cluster", path=f"/{cluster}", metadata={"name": cluster})
    rank = 0
    for number, each in enumerate(chassis):
        path = f"/{cluster}/chassis{number}"
        gib = each.capacity // GIB
        pieces = min(ssds, gib)
        properties = {"rabbit": each.rabbit, "ssdcount": str(pieces)}
        yield jgf.Vertex(
            type="chassis", path=path, metadata={"id": number, "properties": properties}
        )
        for index in range(pieces):
            size: Mapping[str, Any] = {"unit": "GiB", "size": gib // pieces, "id": index}
            yield jgf.Vertex(type="ssd", path=f"{path}/ssd{index}", metadata=size)
        for host in each.hosts:
            yield jgf.Vertex(
                type="node", path=f"{path}/{host}", metadata={"name": host, "rank": rank}
            )
            for core in range(cores):
                yield jgf.Vertex(
                    type="core",
                    path=f"{path}/{host}/core{core}",
                    metadata={"id": core, "rank": rank},
                )
            rank += 1
