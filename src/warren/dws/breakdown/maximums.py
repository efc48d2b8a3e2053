"""How much storage a job may ask for, by the type of its file systems (coral2-spec section 13)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from warren.base.bytesize import gib, whole_gib
from warren.base.errors import UserMistake
from warren.directives.parse import parse
from warren.dws.breakdown.allocationneeds import PER_COMPUTE
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown

_METADATA: Final = ("mgt", "mdt", "mgtmdt")
"""What Lustre has besides room for data, which is not counted."""


def needs_by_type(
    breakdowns: Iterable[DirectiveBreakdown],
) -> Iterator[tuple[str, Sequence[AllocationNeed]]]:
    """Return the types of the file systems that a job has made, and what each needs."""
    for each in breakdowns:
        fs_type = parse(each.spec.directive).values.get("type")
        if fs_type is not None and each.status.storage is not None:
            yield fs_type, each.status.storage.allocation_sets


def check_maximums(
    asked: Iterable[tuple[str, Sequence[AllocationNeed]]],
    nodes: int,
    min_allocation: int,
    maximums: Mapping[str, int],
) -> None:
    """Raise UserMistake where a job asks for more than a site allows.

    `asked` are the types of the file systems that it has made, and what each needs;
    `min_allocation` is the least size of an allocation, in bytes, and `maximums` are GiB for each
    of the job's nodes.
    """
    totals: dict[str, int] = {}
    for fs_type, needs in asked:
        for need in needs:
            if need.label not in _METADATA:
                totals[fs_type] = totals.get(fs_type, 0) + _per_node(need, nodes, min_allocation)
    for fs_type, total in totals.items():
        most = maximums.get(fs_type)
        if most is not None and total > most:
            raise UserMistake(
                f"{gib(total, up=True)} of {fs_type} storage for each node are asked for, and jobs "
                f"have {gib(most, up=False)} at most (rabbit.policy.maximums)."
            )


def _per_node(need: AllocationNeed, nodes: int, min_allocation: int) -> int:
    size = max(whole_gib(need.minimum_capacity), whole_gib(min_allocation))
    return size if need.allocation_strategy == PER_COMPUTE else size // max(nodes, 1)
