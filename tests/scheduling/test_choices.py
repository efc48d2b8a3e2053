"""Which chassis a job's nodes are on whose flash is on whichever of their rabbits."""

import pytest

from tests.scheduling.systems import want
from warren.base.placing import AllocationSet
from warren.scheduling.flashplacement import Candidate, choose


def reaches(*chassis: tuple[int, int], beside: int = 0) -> list[Candidate]:
    """Make chassis, each with so many nodes and so much free flash."""
    found, place = [], 0
    for number, (nodes, free) in enumerate(chassis):
        most = min(nodes, free // beside) if beside else nodes
        found.append(Candidate(number, ((1 << nodes) - 1) << place, most, beside, free, 1))
        place += nodes
    return found


@pytest.mark.parametrize(
    ("nodes", "shared", "beside", "chassis", "chosen"),
    [
        # In order, where that has the room.
        (2, [(1, 5)], 0, [(1, 5), (1, 9), (1, 9)], [(0, 1, 5), (1, 1, 0)]),
        (2, [(2, 5)], 0, [(1, 5), (1, 9), (1, 9)], [(0, 1, 5), (1, 1, 5)]),
        (3, [(1, 10)], 2, [(2, 4), (4, 12)], [(0, 2, 0), (1, 1, 10)]),
        # Else allocations choose, and nodes follow them: one to each that is used.
        (2, [(2, 10)], 0, [(1, 5), (1, 10), (1, 10)], [(1, 1, 10), (2, 1, 10)]),
        (2, [(3, 10)], 0, [(1, 5), (1, 10), (1, 20)], [(1, 1, 10), (2, 1, 20)]),
        (4, [(1, 10)], 2, [(2, 4), (4, 12), (1, 2)], [(0, 2, 0), (1, 1, 10), (2, 1, 0)]),
        (1, [(2, 10)], 0, [(1, 5), (1, 15), (1, 30)], [(2, 1, 20)]),
        (1, [(1, 10), (1, 20)], 0, [(1, 5), (1, 25), (1, 30)], [(2, 1, 30)]),
        (2, [(1, 10), (1, 20)], 0, [(1, 9), (1, 9), (1, 20), (1, 10)], [(2, 1, 20), (3, 1, 10)]),
        # Or there is no room.
        (2, [(3, 10)], 0, [(1, 5), (1, 10), (1, 10)], None),
        (5, [(1, 10)], 2, [(2, 4), (4, 12), (1, 2)], None),
        (3, [(1, 1)], 0, [(1, 9), (1, 9)], None),
        (1, [(2, 10)], 0, [(1, 15), (1, 15)], None),
    ],
)
def test_nodes_are_taken_in_order_or_follow_the_allocations(
    nodes: int,
    shared: list[tuple[int, int]],
    beside: int,
    chassis: list[tuple[int, int]],
    chosen: list[tuple[int, int, int]] | None,
) -> None:
    request = want(nodes, ssd=beside, shared_flash=tuple(AllocationSet(*each) for each in shared))
    found = choose(request, iter(reaches(*chassis, beside=beside)))

    told = (
        None
        if found is None
        else [(each.candidate.chassis_index, each.node_count, each.shared_units) for each in found]
    )
    assert told == chosen
