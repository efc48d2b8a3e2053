"""What becomes of a rabbit's compute nodes when it, or a link of theirs to it, is lost.

Whether the rabbit's flash is given out is another matter (`rabbitstorages.is_usable`): that a
rabbit is not Ready drains none of its nodes, which jobs without storage may go on using.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from warren.dws.objects.storages import Storage

DRAIN_REASON: Final = "rabbit lost PCIe connection"
"""Why nodes are drained. Those that are drained for this, and no others, are undrained again."""


class DrainPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a site wants of nodes that have lost their rabbit (coral2-spec section 8)."""

    drain_compute_nodes: bool = True
    soft_drain: bool = True
    """Whether nodes that are not drained are kept from jobs with storage, by a tag."""
    drainable: Collection[str] | None = None
    """The nodes that may be drained; None is all of them."""


class DrainDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be of the nodes of one rabbit. Nothing else about them is meant to change."""

    nodes: frozenset[str] = frozenset()
    nodes_to_drain: frozenset[str] = frozenset()
    nodes_to_tag: frozenset[str] = frozenset()


def decide_drains(storage: Storage | None, policy: DrainPolicy) -> DrainDecision:
    """Return what is to be of the nodes of a rabbit, by what its Storage says now.

    A node is drained while its link is lost, whatever the rabbit is itself. One whose link is
    lost and that is not to be drained is tagged, while the rabbit is Ready: of one that is not,
    no flash is given out. Of a rabbit that is gone nothing is left.
    """
    if storage is None:
        return DrainDecision()
    links = storage.status.access.computes
    lost_nodes = frozenset(each.name for each in links if each.status != "Ready")
    nodes_to_drain = frozenset[str]()
    if policy.drain_compute_nodes:
        nodes_to_drain = (
            lost_nodes if policy.drainable is None else lost_nodes & frozenset(policy.drainable)
        )
    tags_others = policy.soft_drain and storage.status.status == "Ready"
    return DrainDecision(
        nodes=frozenset(each.name for each in links),
        nodes_to_drain=nodes_to_drain,
        nodes_to_tag=lost_nodes - nodes_to_drain if tags_others else frozenset(),
    )
