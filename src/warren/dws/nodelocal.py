"""Which compute nodes node-local persistent storage is for.

One node at a time may mount a node-local file system, and jobs that use persistent storage come
and go, several at once. So each allocation is one node's: the n-th of a rabbit is for the n-th
compute node of that rabbit, as the SystemConfiguration lists them. So is each of a gfs2, which is
made for as many nodes. A node finds in it what the last job on this node has left. Nodes behind one
that leaves the SystemConfiguration have other allocations since, and wait for nodes that still
mount them (ADR 053, `storage.locks`).
"""

from collections.abc import Iterable, Mapping, Sequence

from warren.base.objects import Key
from warren.base.words import plural
from warren.dws import kinds, location
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers, ServersSet
from warren.dws.objects.breakdowns import DirectiveBreakdown, LocationConstraint
from warren.dws.objects.systemconfiguration import SystemConfiguration


def positions(configuration: SystemConfiguration) -> dict[str, int]:
    """Return each compute node's index among those of its rabbit, from 0."""
    return {
        compute.name: number
        for rabbit in configuration.spec.storage_nodes
        for number, compute in enumerate(rabbit.computes_access)
    }


def allocation_numbers(nodes: Iterable[str], wiring: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of the allocations of a job's own storage that are its nodes', by node.

    The n-th of a rabbit is for the n-th of the job's nodes there. Nodes that are wired to none have
    no number.
    """
    counts: dict[str, int] = {}
    number_by_node: dict[str, int] = {}
    for node in nodes:
        if rabbit := wiring.get(node):
            number_by_node[node] = counts.get(rabbit, 0)
            counts[rabbit] = number_by_node[node] + 1
    return number_by_node


def allocation_numbers_by_rabbit(
    nodes: Iterable[str], wiring: Mapping[str, str], positions: Mapping[str, int]
) -> dict[str, list[int]]:
    """Return the numbers of the allocations that are for some compute nodes, by rabbit.

    `wiring` gives each node's rabbit, and `positions` its index there. Raises Fault for a node that
    is wired to none.
    """
    numbers_by_rabbit: dict[str, list[int]] = {}
    for node in nodes:
        rabbit = wiring.get(node)
        if not rabbit:
            raise Fault(f"compute node {node} is wired to no rabbit", type="WLM")
        numbers_by_rabbit.setdefault(rabbit, []).append(positions[node])
    return {rabbit: sorted({*numbers}) for rabbit, numbers in numbers_by_rabbit.items()}


def nodes_of(servers_set: ServersSet, configuration: SystemConfiguration) -> list[str]:
    """Return the compute nodes that the allocations of a set are for, in order."""
    counts: dict[str, int] = {}
    for server in servers_set.storage:
        counts[server.name] = counts.get(server.name, 0) + server.allocation_count
    return [
        compute.name
        for rabbit in configuration.spec.storage_nodes
        for compute in rabbit.computes_access[: counts.get(rabbit.name, 0)]
    ]


def existing_storage_constraints(
    breakdowns: Iterable[DirectiveBreakdown],
) -> dict[Key, list[LocationConstraint]]:
    """Return what breakdowns say of node-local storage that they do not make, by its Servers.

    The type of access says that storage is node-local, never the type of a file system: that nodes
    must be wired to it, whatever else they must.
    """
    constraints_by_servers: dict[Key, list[LocationConstraint]] = {}
    for breakdown in breakdowns:
        status = breakdown.status
        if status.compute is None or status.storage is not None:
            continue
        for constraint in status.compute.constraints.location:
            is_for_wired_nodes = any(
                (each.type, each.priority) == ("physical", "mandatory")
                for each in constraint.access
            )
            if constraint.reference.kind == kinds.SERVERS.name and is_for_wired_nodes:
                constraints_by_servers.setdefault(constraint.reference.key, []).append(constraint)
    return constraints_by_servers


def allowed_nodes(
    breakdowns: Iterable[DirectiveBreakdown],
    servers: Mapping[Key, Servers],
    configuration: SystemConfiguration | None,
) -> tuple[str, ...] | None:
    """Return the nodes that have an allocation of all node-local storage; None for all nodes.

    `servers` are those that `existing_storage_constraints` names. Raises Fault where some are gone,
    and where no node has all of the storage.
    """
    allowed: list[str] | None = None
    for key, constraints in existing_storage_constraints(breakdowns).items():
        if key not in servers or configuration is None:
            raise Fault(f"persistent storage {key.name!r} is gone", type="User")
        for constraint in constraints:
            sets = servers[key].spec.allocation_sets
            set_nodes = nodes_of(sets[location.set_index(constraint, len(sets))], configuration)
            allowed = (
                set_nodes if allowed is None else [each for each in allowed if each in {*set_nodes}]
            )
            if not allowed:
                raise Fault(
                    f"no node has its part of persistent storage {key.name!r} and of all else that "
                    "the job uses: use them in jobs of their own",
                    type="User",
                )
    return None if allowed is None else tuple(allowed)


def check_enough_nodes(nodes: tuple[str, ...], wanted_count: int) -> None:
    """Raise Fault for a job that asks for more nodes than its persistent storage is for."""
    if wanted_count > len(nodes):
        raise Fault(
            f"the job asks for {plural(wanted_count, 'node')}, and its persistent storage has "
            f"allocations for {len(nodes)}: say -N{len(nodes)}, or less",
            type="User",
        )


def node_counts_by_rabbit(
    nodes: Sequence[str], configuration: SystemConfiguration | None
) -> Mapping[str, int]:
    """Count a job's nodes by the rabbit they are wired to. Raises Fault for one without."""
    wiring = configuration.rabbits_of_computes() if configuration else {}
    counts: dict[str, int] = {}
    for node in nodes:
        if node not in wiring:
            raise Fault(f"node {node} is wired to no rabbit")
        counts[wiring[node]] = counts.get(wiring[node], 0) + 1
    return counts
