"""What `resource.status` says of an instance's nodes (RFC 44)."""

from collections.abc import Collection

from warren.rfc import idset, resource_set
from warren.rpc.message import Payload
from warren.scheduling.drains import HostByRank


def hosts(status: Payload) -> HostByRank:
    """Return the host of each rank. Raises BadFormat."""
    return {each.rank: each.host for each in resource_set.decode_nodes(status["R"])}


def drain_reasons(status: Payload) -> dict[str, str]:
    """Return the hosts that are drained, with the reason of each. Raises BadFormat."""
    host_by_rank = hosts(status)
    return {
        host_by_rank[rank]: drain.get("reason", "")
        for ranks, drain in status["drain"].items()
        for rank in idset.decode(ranks)
        if rank in host_by_rank
    }


def hosts_with_properties(status: Payload, names: Collection[str]) -> frozenset[str]:
    """Return the hosts that have one of some properties. Raises BadFormat."""
    resources = resource_set.decode_all(status["R"])
    ranks = {rank for name in names for rank in resources.properties.get(name, ())}
    return frozenset(host for rank, host in hosts(status).items() if rank in ranks)
