"""Which volumes a rabbit offers over a network, and to which nodes, by its NnfNodeBlockStorage."""

from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.dws.storage.nnfstorage import volume_group_and_name


def nodes_by_volume(
    share: NnfNodeStorage, block_storage: NnfNodeBlockStorage | None
) -> dict[str, list[str]]:
    """Return each volume of a share with the nodes that reach it: none when it is about to go.

    The rabbit itself needs no network for what it has. A share in trouble keeps its nodes:
    they may have it mounted.
    """
    rabbit = share.metadata.namespace
    is_going = share.metadata.deleting or block_storage is None or block_storage.metadata.deleting
    allocations = () if block_storage is None or is_going else block_storage.spec.allocations
    is_shared = block_storage is not None and block_storage.spec.shared_allocation
    reaching_nodes: dict[str, list[str]] = {}
    for number in range(share.spec.count):
        _, name = volume_group_and_name(share, number)
        index = 0 if is_shared else number
        access = allocations[index].access if index < len(allocations) else ()
        reaching_nodes[name] = [node for node in access if node != rabbit]
    return reaching_nodes
