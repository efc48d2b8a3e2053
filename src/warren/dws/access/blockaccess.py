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
    clients: dict[str, list[str]] = {}
    if nodes:
        if snapshot.configuration is None:
            return []
        rabbits = snapshot.configuration.rabbits_of_computes()
        for node in nodes:
            # A node that another one has mounted it on may have left the system.
            if (rabbit := rabbits.get(node)) is not None:
                clients.setdefault(rabbit, []).append(node)
    found = []
    for block in snapshot.blocks:
        rabbit = block.metadata.namespace
        wanted = (rabbit, *clients.get(rabbit, ()))
        # In any order: several accesses may write the same.
        same = all({*each.access} == {*wanted} for each in block.spec.allocations)
        if block.metadata.deleting or same:
            continue
        sizes = [each.capacity for each in block.spec.allocations]
        allocations = [{"capacity": size, "access": list(wanted)} for size in sizes]
        found.append(
            Change(
                kind=kinds.NNF_NODE_BLOCK_STORAGE,
                key=block.metadata.key,
                patch={"spec": {"allocations": allocations}},
                resource_version=block.metadata.resource_version,
            )
        )
    return found
