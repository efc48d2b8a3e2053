"""Say in each NnfNodeBlockStorage which nodes may reach it, as an NnfAccess asks for it."""

from warren.base.objects import Change
from warren.dws import kinds
from warren.dws.access.accesssnapshot import AccessSnapshot


def changes(snapshot: AccessSnapshot) -> list[Change]:
    """Have each rabbit's flash name the nodes that reach it: itself, and computes that mount it.

    Those of other accesses that hold persistent storage are among them.
    """
    if snapshot.access.spec.target == "all":
        return []
    nodes: dict[str, None] = {}
    if snapshot.access.spec.desired_state == "mounted" and snapshot.computes is not None:
        nodes.update(dict.fromkeys(compute.name for compute in snapshot.computes.data))
    for other in snapshot.other_holdings:
        if not other.on_rabbits:
            nodes.update(dict.fromkeys(sorted(other.nodes or ())))
    clients_by_rabbit: dict[str, list[str]] = {}
    if nodes:
        if snapshot.configuration is None:
            return []
        wiring = snapshot.configuration.rabbits_of_computes()
        for node in nodes:
            # A node on which another access has mounted it may have left the system.
            if (rabbit := wiring.get(node)) is not None:
                clients_by_rabbit.setdefault(rabbit, []).append(node)
    block_changes = []
    for block_storage in snapshot.block_storages:
        rabbit = block_storage.metadata.namespace
        wanted_nodes = (rabbit, *clients_by_rabbit.get(rabbit, ()))
        # In any order: several accesses may write the same.
        is_same = all({*each.access} == {*wanted_nodes} for each in block_storage.spec.allocations)
        if block_storage.metadata.deleting or is_same:
            continue
        capacities = [each.capacity for each in block_storage.spec.allocations]
        allocations = [
            {"capacity": capacity, "access": list(wanted_nodes)} for capacity in capacities
        ]
        block_changes.append(
            Change(
                kind=kinds.NNF_NODE_BLOCK_STORAGE,
                key=block_storage.metadata.key,
                patch={"spec": {"allocations": allocations}},
                resource_version=block_storage.metadata.resource_version,
            )
        )
    return block_changes
