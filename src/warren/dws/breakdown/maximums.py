"""How much storage a job may ask for, by the type of its file systems (coral2-spec section 13)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from warren.base.bytesize import format_gib, whole_gib
from warren.base.errors import UserMistake
from warren.directives.parse import parse
from warren.dws.breakdown.allocationneeds import PER_COMPUTE
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown

_METADATA_LABELS: Final = ("mgt", "mdt", "mgtmdt")
"""What Lustre has besides room for data, which is not counted."""


def needs_with_types(
    breakdowns: Iterable[DirectiveBreakdown],
) -> Iterator[tuple[str, Sequence[AllocationNeed]]]:
    """Return the types of the file systems that a job has made, and what each needs."""
    for each in breakdowns:
        fs_type = parse(each.spec.directive).values.get("type")
        if fs_type is not None and each.status.storage is not None:
            yield fs_type, each.status.storage.allocation_sets


def check_maximums(
    typed_needs: Iterable[tuple[str, Sequence[AllocationNeed]]],
    node_count: int,
    min_allocation_bytes: int,
    max_gib_per_node: Mapping[str, int],
) -> None:
    """Raise UserMistake where a job asks for more than a site allows.

    `typed_needs` are the types of the file systems that it has made, and what each needs;
    `min_allocation_bytes` is the least size of an allocation, and `max_gib_per_node` what a job may
    ask for, for each of its nodes, by the type.
    """
    gib_by_type: dict[str, int] = {}
    for fs_type, needs in typed_needs:
        for need in needs:
            if need.label not in _METADATA_LABELS:
                gib_by_type[fs_type] = gib_by_type.get(fs_type, 0) + _gib_per_node(
                    need, node_count, min_allocation_bytes
                )
    for fs_type, total_gib in gib_by_type.items():
        max_gib = max_gib_per_node.get(fs_type)
        if max_gib is not None and total_gib > max_gib:
            raise UserMistake(
                f"{format_gib(total_gib, up=True)} of {fs_type} storage for each node are asked "
                f"for, and jobs have {format_gib(max_gib, up=False)} at most "
                "(rabbit.policy.maximums)."
            )


def _gib_per_node(need: AllocationNeed, node_count: int, min_allocation_bytes: int) -> int:
    size_gib = max(whole_gib(need.minimum_capacity), whole_gib(min_allocation_bytes))
    return size_gib if need.allocation_strategy == PER_COMPUTE else size_gib // max(node_count, 1)
