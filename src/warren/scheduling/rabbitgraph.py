"""The graph of a system with rabbits as Fluxion reads it, of its R and of how it is wired.

As flux-coral2 makes it (coral2-spec section 17): cluster -> chassis -> ssds and nodes -> gpus and
cores. A rabbit that is in R itself is a `storage_node` of its chassis, and a node that is wired
to none is the cluster's own. Ssds are down until the conductor has seen their rabbit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.rfc import hostlist, idset, jgf
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import GraphText, Vertex
from warren.rfc.resource_set import NodeResources, ResourceSet
from warren.scheduling.topology import ChassisTopology


def missing_nodes(chassis: Sequence[ChassisTopology], resources: ResourceSet) -> list[str]:
    """Return the compute nodes that are wired to a rabbit, and not in R."""
    hosts_in_r = {node.host for node in resources.nodes}
    return [host for each in chassis for host in each.hosts if host not in hosts_in_r]


def excluded_hosts(text: str, resources: ResourceSet) -> set[str]:
    """Return the hosts that `resource.exclude` names, by rank or by name. Raises BadFormat."""
    try:
        ranks = set(idset.decode(text))
    except BadFormat:
        return set(hostlist.decode(text))
    return {node.host for node in resources.nodes if node.rank in ranks}


def encode_graph(
    cluster: str,
    chassis: Sequence[ChassisTopology],
    resources: ResourceSet,
    *,
    ssd_count: int,
    excluded: Collection[str] = (),
) -> bytes:
    """Write the graph, with `ssd_count` ssds for each rabbit's flash, without the `excluded` hosts.

    Raises UserMistake where R has a host twice: nodes of a graph are told apart by their names.
    """
    return jgf.encode_texts(_Graph(cluster, chassis, resources, ssd_count, excluded).texts())


class _Graph:
    def __init__(
        self,
        cluster: str,
        chassis: Sequence[ChassisTopology],
        resources: ResourceSet,
        ssd_count: int,
        excluded: Collection[str],
    ) -> None:
        self._cluster = cluster
        self._chassis = chassis
        self._ssd_count = ssd_count
        self._node_by_host = _node_by_host(resources, excluded)
        self._properties_by_rank = _properties_by_rank(resources.properties)
        self._next_id = 0

    def texts(self) -> Iterator[GraphText]:
        """Write each vertex with the edge to it, parents first."""
        path = f"/{self._cluster}"
        yield self._vertex_text(Vertex(type="cluster", path=path, metadata={"name": self._cluster}))
        for number, each in enumerate(self._chassis):
            yield from self._chassis_texts(number, each)
        wired = {name for each in self._chassis for name in (each.rabbit, *each.hosts)}
        for host, node in self._node_by_host.items():
            if host not in wired:
                yield from self._node_texts("node", path, node, 0)

    def _chassis_texts(self, number: int, chassis: ChassisTopology) -> Iterator[GraphText]:
        path = f"/{self._cluster}/chassis{number}"
        vertex_id = self._next_id
        properties = {"rabbit": chassis.rabbit, "ssdcount": str(self._ssd_count)}
        metadata = {"id": number, "properties": properties}
        yield self._vertex_text(Vertex(type="chassis", path=path, metadata=metadata), 0)
        ssd_gib = chassis.capacity_bytes // self._ssd_count // GIB
        ssd = {"unit": "GiB", "size": ssd_gib, "status": 1}
        for index in range(self._ssd_count):
            yield self._vertex_text(
                Vertex(type="ssd", path=f"{path}/ssd{index}", metadata=ssd), vertex_id
            )
        for host in chassis.hosts:
            if host in self._node_by_host:
                yield from self._node_texts("node", path, self._node_by_host[host], vertex_id)
        if chassis.rabbit in self._node_by_host:
            yield from self._node_texts(
                "storage_node", path, self._node_by_host[chassis.rabbit], vertex_id
            )

    def _node_texts(
        self, vertex_type: str, parent_path: str, node: NodeResources, parent_id: int
    ) -> Iterator[GraphText]:
        path = f"{parent_path}/{node.host}"
        vertex_id = self._next_id
        metadata: dict[str, object] = {"name": node.host, "rank": node.rank}
        if vertex_type == "storage_node":
            metadata["exclusive"] = True
        if node.rank in self._properties_by_rank:
            metadata["properties"] = self._properties_by_rank[node.rank]
        yield self._vertex_text(Vertex(type=vertex_type, path=path, metadata=metadata), parent_id)
        for name, ids in (("gpu", node.gpus), ("core", node.cores)):
            if ids:
                yield jgf.leaves_text(name, ids, node.rank, path, self._next_id, vertex_id)
                self._next_id += len(ids)

    def _vertex_text(self, vertex: Vertex, parent_id: int | None = None) -> GraphText:
        self._next_id += 1
        return jgf.vertex_text(vertex, self._next_id - 1, parent_id)


def _node_by_host(resources: ResourceSet, excluded: Collection[str]) -> dict[str, NodeResources]:
    node_by_host: dict[str, NodeResources] = {}
    for node in resources.nodes:
        if node_by_host.setdefault(node.host, node) is not node:
            raise UserMistake(
                f"R has {node.host} as rank {node_by_host[node.host].rank} and as rank "
                f"{node.rank}: a graph has one node of a name."
            )
    return {host: node for host, node in node_by_host.items() if host not in excluded}


def _properties_by_rank(
    ranks_by_property: Mapping[str, Sequence[int]],
) -> dict[int, dict[str, str]]:
    properties_by_rank: dict[int, dict[str, str]] = {}
    for name, ranks in ranks_by_property.items():
        for rank in ranks:
            properties_by_rank.setdefault(rank, {})[name] = ""
    return properties_by_rank
