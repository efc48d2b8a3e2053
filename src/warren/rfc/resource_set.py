"""What a job or a system has: resource sets, version 1 (RFC 20).

`encode_nodes` and `decode_nodes` know the nodes, which is what most need of R; `encode_all`
and `decode_all` know all of it. Ranks ascend, and hosts are in the order of their ranks. Times
are seconds since the epoch, 0 for unset. Set operations give new values; what the scheduler has
said about a set in `scheduling` holds for no other set, and is left out of their results.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import inf
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.rfc import hostlist, idset
from warren.rfc.errors import BadFormat

_ILLEGAL_PATTERN: Final = re.compile(r"[!&'\"^`|()]")
_TYPE_NAMES: Final[Mapping[type, str]] = {list: "an array", dict: "an object", str: "an idset"}
_SCHEME_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class NodeResources(msgspec.Struct, frozen=True):
    """One node: its rank, its host name, and its cores and gpus as ids."""

    rank: int
    host: str
    cores: tuple[int, ...]
    gpus: tuple[int, ...] = ()


class ResourceSet(msgspec.Struct, frozen=True, kw_only=True):
    """All that R says. Make it by `decode_all` or `from_nodes`; ranks are unique and ascend."""

    nodes: tuple[NodeResources, ...]
    properties: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    """The ranks that have each property. `+` begins one of this instance alone."""
    slots: int | None = None
    """In an allocation: how many task slots it has."""
    starttime: float = 0.0
    expiration: float = 0.0
    scheduling: Mapping[str, Any] | None = None


# The nodes


def encode_nodes(
    nodes: Iterable[NodeResources],
    *,
    slots: int | None = None,
    properties: Mapping[str, Iterable[int]] | None = None,
    starttime: float = 0.0,
    expiration: float = 0.0,
    scheduling: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write R. Times are seconds since the epoch, 0 for unset."""
    ordered = sorted(nodes, key=lambda node: node.rank)
    ranks_by_resources: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for node in ordered:
        ranks_by_resources.setdefault((node.cores, node.gpus), []).append(node.rank)
    execution: dict[str, Any] = {
        "R_lite": [
            {"rank": idset.encode(ranks), "children": _children(cores, gpus)}
            for (cores, gpus), ranks in ranks_by_resources.items()
        ],
        "starttime": starttime,
        "expiration": expiration,
        "nodelist": [hostlist.encode([node.host for node in ordered])] if ordered else [],
    }
    if slots is not None:
        execution["nslots"] = slots
    if properties:
        execution["properties"] = {name: idset.encode(ranks) for name, ranks in properties.items()}
    result: dict[str, Any] = {"version": 1, "execution": execution}
    if scheduling is not None:
        result["scheduling"] = scheduling
    return result


def _children(cores: tuple[int, ...], gpus: tuple[int, ...]) -> dict[str, str]:
    if not gpus:
        return {"core": idset.encode(cores)}
    return {"core": idset.encode(cores), "gpu": idset.encode(gpus)}


def decode_nodes(r: Mapping[str, Any]) -> list[NodeResources]:
    """Read R's nodes in ascending rank, and nothing else of it.

    Raises BadFormat, with the path of the mistake, where R is not RFC 20's.
    """
    execution = _execution(r)
    resources_by_rank: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for index, entry in enumerate(_typed_value(execution, "R_lite", list, "execution")):
        path = f"execution.R_lite[{index}]"
        ranks = _ids(entry, "rank", path)
        children = _typed_value(entry, "children", dict, path)
        path = f"{path}.children"
        cores = _ids(children, "core", path)
        if not cores:
            raise BadFormat(f"R: {path}.core names no core")
        resources = (cores, _ids(children, "gpu", path) if "gpu" in children else ())
        for rank in ranks:
            if rank in resources_by_rank:
                raise BadFormat(f"R: execution.R_lite[{index}].rank names {rank} again")
            resources_by_rank[rank] = resources
    hosts = _hosts(execution)
    if len(hosts) != len(resources_by_rank):
        raise BadFormat(
            f"R: execution.nodelist names {len(hosts)} hosts for {len(resources_by_rank)} ranks "
            "in R_lite"
        )
    return [
        NodeResources(rank, host, *resources_by_rank[rank])
        for rank, host in zip(sorted(resources_by_rank), hosts, strict=True)
    ]


def nodelist(r: Mapping[str, Any]) -> list[str]:
    """Return R's hosts, in ascending order of their ranks."""
    return _hosts(_execution(r))


def _hosts(execution: Mapping[str, Any]) -> list[str]:
    hosts: list[str] = []
    for index, entry in enumerate(_typed_value(execution, "nodelist", list, "execution")):
        if not isinstance(entry, str):
            raise BadFormat(f"R: execution.nodelist[{index}] is {entry!r}, not a hostlist")
        try:
            hosts += hostlist.decode(entry)
        except BadFormat as error:
            raise BadFormat(f"R: execution.nodelist[{index}]: {error}") from None
    return hosts


def without_scheduling(r: Mapping[str, Any]) -> dict[str, Any]:
    """Return R as everyone but the scheduler sees it."""
    return {key: value for key, value in r.items() if key != "scheduling"}


def ranks_text(nodes: Iterable[NodeResources]) -> str:
    """Return the ranks of nodes as an idset."""
    return idset.encode(node.rank for node in nodes)


# All of R


def from_nodes(nodes: Iterable[NodeResources]) -> ResourceSet:
    """Make a set of nodes. Raises BadFormat where a rank comes twice."""
    ordered = sorted(nodes, key=lambda node: node.rank)
    for one, other in pairwise(ordered):
        if one.rank == other.rank:
            raise BadFormat(f"R: rank {one.rank} is {one.host} and {other.host}")
    return ResourceSet(nodes=tuple(ordered))


def decode_all(r: Mapping[str, Any]) -> ResourceSet:
    """Read and check all of R. Raises BadFormat with the path of the mistake."""
    nodes = decode_nodes(r)
    execution = r["execution"]
    slots = execution.get("nslots")
    if "nslots" in execution and (type(slots) is not int or slots < 1):
        raise BadFormat(f"R: execution.nslots is {slots!r}, not a number from 1 on")
    start, end = _time(execution, "starttime"), _time(execution, "expiration")
    if start and end and end <= start:
        raise BadFormat(f"R: execution.expiration is {end}, not after the starttime {start}")
    scheduling = r.get("scheduling")
    if "scheduling" in r:
        if not isinstance(scheduling, dict):
            raise BadFormat("R: scheduling is not an object")
        writer(scheduling)
    return ResourceSet(
        nodes=tuple(nodes),
        properties=_properties(execution, {node.rank for node in nodes}),
        slots=slots,
        starttime=start,
        expiration=end,
        scheduling=scheduling,
    )


def encode_all(resources: ResourceSet) -> dict[str, Any]:
    """Write all of R.

    Raises BadFormat for a node of gpus alone, which a set operation may leave over and
    R cannot say.
    """
    for node in resources.nodes:
        if not node.cores:
            raise BadFormat(f"R: rank {node.rank} has no core, and R cannot say so")
    return encode_nodes(
        resources.nodes,
        slots=resources.slots,
        properties=resources.properties,
        starttime=resources.starttime,
        expiration=resources.expiration,
        scheduling=resources.scheduling,
    )


def writer(scheduling: Mapping[str, Any]) -> tuple[str, str]:
    """Return the writer of R's `scheduling`, as scheme and rest of a URI; by default fluxion's."""
    uri = scheduling.get("writer", "fluxion")
    if not isinstance(uri, str):
        raise BadFormat(f"R: scheduling.writer is {uri!r}, not a URI")
    scheme, _, path = uri.partition(":")
    if not _SCHEME_PATTERN.fullmatch(scheme):
        raise BadFormat(f"R: scheduling.writer is {uri!r}, which has no scheme of a URI")
    return scheme, path


def _properties(execution: Mapping[str, Any], ranks: set[int]) -> dict[str, tuple[int, ...]]:
    if "properties" not in execution:
        return {}
    ranks_by_property = {}
    path = "execution.properties"
    properties = _typed_value(execution, "properties", dict, "execution")
    for name in properties:
        illegal = _ILLEGAL_PATTERN.search(name)
        if illegal is not None:
            raise BadFormat(
                f"R: {path}: the name {name!r} holds {illegal[0]!r} at {illegal.start()}"
            )
        if not name:
            raise BadFormat(f"R: {path} holds a property without a name")
        ranks_with_it = _ids(properties, name, path)
        unknown = set(ranks_with_it) - ranks
        if unknown:
            raise BadFormat(f"R: {path}.{name} names rank {min(unknown)}, which R_lite does not")
        ranks_by_property[name] = ranks_with_it
    return ranks_by_property


def _execution(r: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(r, dict):
        raise BadFormat("R is not an object")
    if "version" not in r:
        raise BadFormat("R: version is missing")
    if type(r["version"]) is not int or r["version"] != 1:
        raise BadFormat(f"R: version is {r['version']!r}, not 1")
    execution: dict[str, Any] = _typed_value(r, "execution", dict, "")
    return execution


def _typed_value(container: Any, key: str, expected_type: type, path: str) -> Any:
    value = container.get(key) if isinstance(container, dict) else None
    if isinstance(value, expected_type):
        return value
    if not isinstance(container, dict):
        raise BadFormat(f"R: {path} is not an object")
    full_path = f"{path}.{key}" if path else key
    if key not in container:
        raise BadFormat(f"R: {full_path} is missing")
    raise BadFormat(f"R: {full_path} is not {_TYPE_NAMES[expected_type]}")


def _ids(container: Any, key: str, path: str) -> tuple[int, ...]:
    text = _typed_value(container, key, str, path)
    try:
        return idset.decode(text)
    except BadFormat as error:
        raise BadFormat(f"R: {path}.{key}: {error}") from None


def _time(execution: Mapping[str, Any], key: str) -> float:
    value = execution.get(key, 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise BadFormat(f"R: execution.{key} is {value!r}, not a time in seconds")
    return float(value)


# Sets of them


def union(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """Return what is in either. Times are those of `one`; slots are not known.

    Raises BadFormat where the two know a rank by different hosts.
    """
    combined = _by_rank(one, other, lambda mine, others: mine | others)
    node_by_rank = {node.rank: node for node in (*other.nodes, *one.nodes)}
    merged = tuple(combined.get(rank, node_by_rank[rank]) for rank in sorted(node_by_rank))
    properties = {
        name: tuple(sorted({*one.properties.get(name, ()), *other.properties.get(name, ())}))
        for name in {**one.properties, **other.properties}
    }
    return replace(one, nodes=merged, properties=properties, slots=None, scheduling=None)


def difference(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """Return what is in `one` and not in `other`; a node of which nothing is left is not in it.

    Raises BadFormat where the two know a rank by different hosts.
    """
    combined = _by_rank(one, other, lambda mine, others: mine - others)
    return _subset(one, (combined.get(node.rank, node) for node in one.nodes))


def intersection(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """Return what is in both; a node that has nothing in common is not in it.

    Raises BadFormat where the two know a rank by different hosts.
    """
    combined = _by_rank(one, other, lambda mine, others: mine & others)
    return _subset(one, combined.values())


def without_ranks(resources: ResourceSet, ranks: Iterable[int]) -> ResourceSet:
    """Leave nodes out. Ranks that are not there are ignored."""
    left_out = set(ranks)
    return _subset(resources, (node for node in resources.nodes if node.rank not in left_out))


def remap(resources: ResourceSet, ranks: Mapping[int, int] | None = None) -> ResourceSet:
    """Give the nodes other ranks: `ranks[old]`, or in the same order from 0 on.

    So an instance inside a job takes over the R of its parent. `scheduling` is kept: it
    goes by host names. Raises BadFormat for a node without a new rank, or with another's.
    """
    if ranks is None:
        ranks = {node.rank: new for new, node in enumerate(resources.nodes)}
    for node in resources.nodes:
        if node.rank not in ranks:
            raise BadFormat(f"R: rank {node.rank} gets no new rank")
    remapped = from_nodes(replace(node, rank=ranks[node.rank]) for node in resources.nodes)
    properties = {
        name: tuple(sorted(ranks[rank] for rank in old_ranks))
        for name, old_ranks in resources.properties.items()
    }
    return replace(resources, nodes=remapped.nodes, properties=properties)


def append(one: ResourceSet, other: ResourceSet) -> ResourceSet:
    """Add the nodes of `other` after those of `one`, ranked on from its greatest rank."""
    first_rank = one.nodes[-1].rank + 1 if one.nodes else 0
    new_ranks = {node.rank: first_rank + index for index, node in enumerate(other.nodes)}
    return union(one, remap(other, new_ranks))


def without_local_properties(resources: ResourceSet) -> ResourceSet:
    """Leave out what is true in this instance only, as allocations to jobs must."""
    properties = {
        name: ranks for name, ranks in resources.properties.items() if not name.startswith("+")
    }
    return replace(resources, properties=properties)


def _by_rank(
    one: ResourceSet, other: ResourceSet, combine: Callable[[set[int], set[int]], set[int]]
) -> dict[int, NodeResources]:
    """Combine the cores and the gpus of the nodes that both have, by rank."""
    other_by_rank = {node.rank: node for node in other.nodes}
    combined = {}
    for node in one.nodes:
        match = other_by_rank.get(node.rank)
        if match is None:
            continue
        if match.host != node.host:
            raise BadFormat(
                f"R: rank {node.rank} is {node.host} in one set and {match.host} in the other"
            )
        combined[node.rank] = replace(
            node,
            cores=tuple(sorted(combine(set(node.cores), set(match.cores)))),
            gpus=tuple(sorted(combine(set(node.gpus), set(match.gpus)))),
        )
    return combined


def _subset(resources: ResourceSet, nodes: Iterable[NodeResources]) -> ResourceSet:
    """Return a part of a set: the nodes that still have something, with their properties."""
    kept = tuple(node for node in nodes if node.cores or node.gpus)
    kept_ranks = {node.rank for node in kept}
    narrowed = {
        name: tuple(rank for rank in ranks if rank in kept_ranks)
        for name, ranks in resources.properties.items()
    }
    properties = {name: ranks for name, ranks in narrowed.items() if ranks}
    return replace(resources, nodes=kept, properties=properties, slots=None, scheduling=None)
