"""A jobspec is rewritten with the flash that its directives need."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import need
from tests.rfc.vectors import vector
from warren.base.bytesize import GIB
from warren.dws.faults import Fault
from warren.dws.jobs.resources import RewrittenResources, rewrite
from warren.dws.objects.breakdowns import AllocationNeed, BreakdownStatus
from warren.dws.objects.decoding import read

NODE: dict[str, Any] = {
    "type": "node",
    "count": 2,
    "exclusive": True,
    "with": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
}

FLOOR = 4 * GIB
OST = need("ost", 10 * GIB, "AllocateAcrossServers")


def vector_needs(name: str) -> list[AllocationNeed]:
    """Read the needs of a breakdown of flux-coral2's own tests."""
    raw = yaml.safe_load(vector(f"coral2/breakdown/{name}.yaml").read_text())
    storage = {"allocationSets": raw["status"]["storage"]["allocationSets"]}
    found = read({"ready": True, "storage": storage}, BreakdownStatus)
    assert found.storage is not None
    return list(found.storage.allocation_sets)


def ssds(needs: list[AllocationNeed], nodes: int = 2, floor: int = FLOOR) -> int:
    changed = rewrite([{**NODE, "count": nodes}], needs, floor).resources
    assert changed is not None
    count = changed[0]["with"][1]["count"]
    assert isinstance(count, int)
    return count


def test_each_node_gets_flash_beside_it() -> None:
    assert rewrite([NODE], [need()], FLOOR).resources == [
        {
            "type": "slot",
            "count": 2,
            "label": "rabbit",
            "with": [{**NODE, "count": 1}, {"type": "ssd", "count": 4, "exclusive": True}],
        }
    ]
    assert NODE["count"] == 2


@pytest.mark.parametrize(
    ("needs", "nodes", "gib"),
    [
        ([need(size=1)], 1, 4),
        ([need(size=10 * GIB)], 1, 10),
        ([need(size=10 * GIB)], 7, 10),
        ([need(size=10 * GIB + 1)], 7, 11),
        ([need(size=10 * GIB), need(size=1)], 3, 14),
        ([OST], 2, 5),
        ([OST, need(size=1)], 2, 9),
    ],
)  # fmt: skip
def test_flash_is_counted_in_whole_gib_with_a_floor_for_each_allocation(
    needs: list[AllocationNeed], nodes: int, gib: int
) -> None:
    assert ssds(needs, nodes) == gib


@pytest.mark.parametrize(("nodes", "gib"), [(1, 10240), (2, 5120), (3, 3414), (4, 2560)])
def test_the_lustre_of_flux_coral2_is_spread_over_the_nodes(nodes: int, gib: int) -> None:
    found = rewrite([{**NODE, "count": nodes}], vector_needs("lustre10tb"), FLOOR)
    changed = found.resources
    assert changed[0]["with"][1]["count"] == gib
    # Its MGT and MDT are smaller than what each node's part of them would be raised to.
    assert changed[1:] == [shared(1, 4)]


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_the_xfs_of_flux_coral2_is_beside_each_node(nodes: int) -> None:
    assert ssds(vector_needs("xfs10gb"), nodes) == 10


def shared(count: int, gib: int) -> dict[str, Any]:
    ssd = {"type": "ssd", "count": gib, "exclusive": True}
    return {"type": "chassis", "count": count, "with": [ssd]}


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (need("mgt", 5 * GIB, "AllocateSingleServer"), shared(1, 5)),
        (need("mgt", 5 * GIB + 1, "AllocateSingleServer", count=1), shared(1, 6)),
        (need("mgt", 1, "AllocateSingleServer"), shared(1, 4)),
        (need("ost", 90 * GIB, "AllocateAcrossServers", count=2), shared(2, 45)),
        (need("ost", 90 * GIB, "AllocateAcrossServers", count=4), shared(4, 23)),
        (need("ost", GIB, "AllocateAcrossServers", count=3), shared(3, 4)),
        (need("ost", GIB, "AllocateAcrossServers"), shared(1, 4)),
        (need("ost", 7 * GIB, "AllocateAcrossServers"), shared(1, 7)),
    ],
)
def test_flash_that_is_not_beside_each_node_is_asked_for_as_the_allocations_that_it_will_be(
    one: AllocationNeed, asked: dict[str, Any]
) -> None:
    changed = rewrite([NODE], [one], FLOOR).resources
    assert changed[0]["with"] == [{**NODE, "count": 1}]
    assert changed[1:] == [asked]


@pytest.mark.parametrize(
    ("one", "nodes", "fault"),
    [
        (
            need("mgt", 1, "AllocateSingleServer", count=2),
            2,
            "^set mgt cannot be placed because AllocateSingleServer is one allocation, "
            "and its constraints ask for 2$",
        ),
        (
            need(strategy="AllocatePerServer"),
            2,
            "^set xfs cannot be placed because AllocatePerServer does not say on how many rabbits",
        ),
        (
            need(strategy="AllocateAnywhere"),
            2,
            "^set xfs cannot be placed because the allocation strategy 'AllocateAnywhere' is not",
        ),
        (OST, "2-4", "^set ost cannot be placed because .* number is left open: give -N one"),
    ],
)
def test_what_cannot_be_reserved_is_refused_before_the_scheduler_has_the_job(
    one: AllocationNeed, nodes: Any, fault: str
) -> None:
    with pytest.raises(Fault, match=fault):
        rewrite([{**NODE, "count": nodes}], [one], FLOOR)


@pytest.mark.parametrize("one", [need(), need("mgt", 1, "AllocateSingleServer")])
def test_a_jobspec_that_was_rewritten_stays_as_it_is(one: AllocationNeed) -> None:
    once = rewrite([NODE], [one], FLOOR)
    assert rewrite(once.resources, [one], FLOOR) == once


@pytest.mark.parametrize(
    ("mine", "needs"),
    [
        ([need(size=9 * GIB)], [need(size=10 * GIB)]),
        ([need(size=9 * GIB)], [need("mgt", 5 * GIB, "AllocateSingleServer")]),
        (
            [need("mgt", 5 * GIB, "AllocateSingleServer")],
            [need("mgt", 6 * GIB, "AllocateSingleServer")],
        ),
    ],
)
def test_flash_that_an_author_asks_for_himself_is_refused_where_it_is_not_what_is_needed(
    mine: list[AllocationNeed], needs: list[AllocationNeed]
) -> None:
    own = rewrite([NODE], mine, FLOOR)
    with pytest.raises(Fault, match=r"is not what its #DW directives need: leave its ssds out"):
        rewrite(own.resources, needs, FLOOR)


def test_an_author_may_ask_for_more_flash_beside_each_node_than_is_needed() -> None:
    own = rewrite([NODE], [need(size=9 * GIB)], FLOOR)
    assert rewrite(own.resources, [need(size=8 * GIB)], FLOOR) == own


def test_a_single_slot_is_on_a_node_that_others_may_share() -> None:
    """ADR 054: a job that is one task has storage without a node of its own."""
    slot = NODE["with"][0]
    found = rewrite([slot], [need(size=8 * GIB)], FLOOR)
    assert found.resources == [
        {
            "type": "slot",
            "count": 1,
            "label": "rabbit",
            "with": [
                {"type": "node", "count": 1, "exclusive": False, "with": [slot]},
                {"type": "ssd", "count": 8, "exclusive": True},
            ],
        }
    ]
    assert rewrite(found.resources, [need(size=8 * GIB)], FLOOR) == found


def test_a_job_that_needs_no_storage_keeps_its_resources() -> None:
    assert rewrite([NODE], [], FLOOR) == RewrittenResources([NODE], {})


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        ([], "the resources must have a single entry at the top"),
        ([NODE, NODE], "the resources must have a single entry at the top"),
        (
            [{**NODE["with"][0], "count": 2}],
            "a job with #DW directives asks for nodes, or for a single slot: say how many with -N",
        ),
    ],
)
def test_a_jobspec_that_flash_cannot_be_put_into_is_the_users_fault(
    resources: Any, fault: str
) -> None:
    with pytest.raises(Fault, match=fault) as raised:
        rewrite(resources, [need()], FLOOR)
    assert raised.value.type == "User"


@given(st.lists(st.integers(1, 2**43), min_size=1, max_size=3), st.integers(1, 50))
def test_the_flash_that_is_asked_for_holds_what_is_needed(sizes: list[int], nodes: int) -> None:
    each = [need(size=size) for size in sizes]
    across = [need("ost", size, "AllocateAcrossServers") for size in sizes]
    assert ssds(each, nodes) * GIB >= sum(sizes)
    assert ssds(across, nodes, 0) * GIB * nodes >= sum(sizes)
