"""Parts of a job's R: what is given back early, what is left, and until when."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from warren.rfc import resource_set
from warren.rfc.resource_set import NodeResources, ResourceSet


def only_ranks(r: Mapping[str, Any], ranks: Collection[int]) -> dict[str, Any]:
    """Return the nodes of an R that have these ranks, with their resources alone.

    Times, properties and what only the scheduler knows are dropped. Ranks that R does not have are
    ignored.
    """
    return resource_set.encode_nodes(
        node for node in resource_set.decode_nodes(r) if node.rank in ranks
    )


def without_freed(r: Mapping[str, Any], freed: Collection[int]) -> Mapping[str, Any]:
    """Return an R without the nodes that were given back: the same, if there were none."""
    if not freed:
        return r
    return resource_set.encode_nodes(
        node for node in resource_set.decode_nodes(r) if node.rank not in freed
    )


def ranks(r: Mapping[str, Any]) -> frozenset[int]:
    """Return the ranks of an R."""
    return frozenset(node.rank for node in resource_set.decode_nodes(r))


def union(rs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return all that is in any of them, as R."""
    cores: dict[int, set[int]] = {}
    gpus: dict[int, set[int]] = {}
    hosts: dict[int, str] = {}
    for r in rs:
        for node in resource_set.decode_nodes(r):
            hosts[node.rank] = node.host
            cores.setdefault(node.rank, set()).update(node.cores)
            gpus.setdefault(node.rank, set()).update(node.gpus)
    merged = (
        NodeResources(rank, host, tuple(sorted(cores[rank])), tuple(sorted(gpus[rank])))
        for rank, host in hosts.items()
    )
    return resource_set.encode_all(
        ResourceSet(nodes=tuple(sorted(merged, key=lambda each: each.rank)))
    )


def with_expiration(r: Mapping[str, Any], expiration: float) -> dict[str, Any]:
    """Return an R whose time is up at another moment."""
    return {**r, "execution": {**r["execution"], "expiration": expiration}}
