"""Which volumes a rabbit offers over a network, and to which nodes, by its NnfNodeBlockStorage."""

from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.dws.storage.nnfstorage import volume


def nodes_by_volume(
    share: NnfNodeStorage, block: NnfNodeBlockStorage | None
) -> dict[str, list[str]]:
    """Return each volume of a share with the nodes that reach it: none when it is about to go.

    The rabbit itself needs no network for what it has. A share in trouble keeps its nodes:
    they may have it mounted.
    """
    rabbit = share.metadata.namespace
    gone = share.metadata.deleting or block is None or block.metadata.deleting
    allocations = () if block is None or gone else block.spec.allocations
    shared = block is not None and block.spec.shared_allocation
    found: dict[str, list[str]] = {}
    for number in range(share.spec.count):
        _, name = volume(share, number)
        index = 0 if shared else number
        access = allocations[index].access if index < len(allocations) else ()
        found[name] = [node for node in access if node != rabbit]
    return found
