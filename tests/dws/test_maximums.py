"""How much storage a job may ask for, by the type of its file systems."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.dws.breakdown.allocationneeds import ACROSS_SERVERS, PER_COMPUTE
from warren.dws.breakdown.maximums import check_maximums
from warren.dws.objects.breakdowns import AllocationNeed


def beside(gib: int) -> AllocationNeed:
    return AllocationNeed(allocation_strategy=PER_COMPUTE, minimum_capacity=gib * GIB, label="xfs")


def shared(gib: int, label: str = "ost") -> AllocationNeed:
    return AllocationNeed(
        allocation_strategy=ACROSS_SERVERS, minimum_capacity=gib * GIB, label=label
    )


def test_what_is_asked_for_is_counted_together_by_type() -> None:
    asked = [("xfs", [beside(300)]), ("xfs", [beside(200)]), ("raw", [beside(900)])]
    check_maximums(asked, 4, GIB, {"xfs": 500})
    with pytest.raises(UserMistake) as refused:
        check_maximums(asked, 4, GIB, {"xfs": 499})
    assert str(refused.value) == (
        "500 GiB of xfs storage for each node are asked for, and jobs have 499 GiB at most "
        "(rabbit.policy.maximums)."
    )


def test_what_nodes_share_is_counted_in_parts_and_metadata_is_not() -> None:
    asked = [("lustre", [shared(400), shared(90, "mdt"), shared(90, "mgt")])]
    check_maximums(asked, 4, GIB, {"lustre": 100})
    with pytest.raises(UserMistake, match="133 GiB of lustre"):
        check_maximums(asked, 3, GIB, {"lustre": 100})
    with pytest.raises(UserMistake, match="400 GiB"):
        check_maximums(asked, 0, GIB, {"lustre": 100})  # how many nodes is not said


def test_an_allocation_counts_as_it_will_be_made() -> None:
    with pytest.raises(UserMistake, match="4 GiB of xfs"):
        check_maximums([("xfs", [beside(1)])], 1, 4 * GIB, {"xfs": 3})


@given(st.lists(st.integers(1, 1000)), st.integers(1, 100), st.integers(0, 10_000))
def test_less_is_never_refused_where_more_is_allowed(
    sizes: list[int], nodes: int, most: int
) -> None:
    asked = [("xfs", [beside(size)]) for size in sizes]
    if sum(sizes) <= most:
        check_maximums(asked, nodes, GIB, {"xfs": most})
        check_maximums(asked[1:], nodes, GIB, {"xfs": most})
    else:
        with pytest.raises(UserMistake):
            check_maximums(asked, nodes, GIB, {"xfs": most})
    check_maximums(asked, nodes, GIB, {})
