"""In which ways nodes must reach storage, as breakdowns say it (002.19 to 002.24)."""

from typing import Any

import pytest

from tests.dws.builders import breakdown, need
from warren.base.bytesize import GIB
from warren.base.placing import HeldFlash, Locality
from warren.dws.faults import Fault
from warren.dws.jobs.placement import PlacementPolicy, allocation_sets, reservation
from warren.dws.jobs.resources import rewrite
from warren.dws.location import localities
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown

SETS = [need("one", GIB, "AllocateSingleServer"), need("two", GIB, "AllocateSingleServer")]
JOB_ALONE = (Locality.JOB, Locality.JOB)
NODE_ALONE = (Locality.JOB, Locality.EVERY_RABBIT_OF_JOB)
NODE = {"type": "node", "count": 2, "with": [{"type": "slot", "count": 1, "label": "task",
        "with": [{"type": "core", "count": 1}]}]}  # fmt: skip


def located(
    *access: tuple[str, str], servers: str = "wf-0", place: str = "servers.spec.allocationSets[1]"
) -> DirectiveBreakdown:
    reference = {"kind": "Servers", "name": servers, "namespace": "default", "fieldPath": place}
    told = [{"type": kind, "priority": priority} for kind, priority in access]
    location = [{"access": told, "reference": reference}]
    return breakdown(0, *SETS, compute={"constraints": {"location": location}})


def of(found: DirectiveBreakdown, *, anywhere: bool = False) -> tuple[Locality, ...]:
    return localities({"wf-0": SETS}, [found], allow_any_rabbit=anywhere)


@pytest.mark.parametrize(
    ("access", "wanted"),
    [
        ([("physical", "mandatory")], NODE_ALONE),
        ([("network", "mandatory"), ("physical", "mandatory")], NODE_ALONE),
        ([("network", "mandatory"), ("physical", "bestEffort")], JOB_ALONE),
        ([("network", "mandatory")], JOB_ALONE),
        ([], JOB_ALONE),
    ],
)
def test_only_what_is_physical_and_mandatory_binds_nodes_to_rabbits(
    access: list[tuple[str, str]], wanted: tuple[Locality, ...]
) -> None:
    """Statements 002.21, 002.23, 002.24: access is a list of types with priorities."""
    assert of(located(*access)) == wanted


def test_a_constraint_on_other_servers_says_nothing_of_a_jobs_own() -> None:
    """Statement 002.22: the reference names an allocation set."""
    assert of(located(("physical", "mandatory"), servers="pers")) == JOB_ALONE
    assert of(breakdown(0, *SETS)) == JOB_ALONE


@pytest.mark.parametrize("place", ["servers.spec.allocationSets[2]", "spec", ""])
def test_a_constraint_on_no_set_is_a_mistake(place: str) -> None:
    """Statement 002.22: the reference names an allocation set."""
    with pytest.raises(Fault, match="of Servers wf-0 names none of its allocation sets"):
        of(located(("physical", "mandatory"), place=place))


@pytest.mark.parametrize("access", [("near", "mandatory"), ("physical", "maybe")])
def test_access_that_is_not_understood_is_not_passed_over(access: tuple[str, str]) -> None:
    """Statement 002.20: all constraints are met, or told."""
    with pytest.raises(Fault, match=r"asks for .* access: there is network and physical"):
        of(located(access))


def test_the_scheduler_is_told_of_it_in_words_of_dws() -> None:
    found = rewrite([NODE], SETS, 0, None, NODE_ALONE)
    assert [each.get("label") for each in found.resources] == ["rabbit", None, "rabbit-1"]
    assert found.constraints["rabbit-1"]["access"] == [
        {"type": "physical", "priority": "mandatory"}
    ]
    assert rewrite(found.resources, SETS, 0, None, NODE_ALONE) == found


def test_servers_are_filled_in_so_that_each_node_has_what_it_must_be_wired_to() -> None:
    """Statement 002.20: all constraints are met, or told."""
    needs: list[AllocationNeed] = [need("ost", 2 * GIB, "AllocateAcrossServers", count=2)]
    held = [HeldFlash("r0", 1, 1, 9), HeldFlash("r1", 1, 1, 9)]
    (found,) = allocation_sets(
        needs, {"r0": 1, "r1": 1}, 0, held, (2,), (Locality.EVERY_RABBIT_OF_JOB,)
    )
    assert [each["name"] for each in found["storage"]] == ["r0", "r1"]
    assert (
        reservation(needs, 2, 0, None, (), (Locality.EVERY_RABBIT_OF_JOB,))
        .shared_sets[0]
        .constrained
    )

    alone: list[Any] = [need("mgt", GIB, "AllocateSingleServer")]
    with pytest.raises(Fault, match="because it is 1 allocation of 1 GiB on whose rabbits all"):
        allocation_sets(alone, {"r0": 1, "r1": 1}, 0, held, (1,), (Locality.EVERY_RABBIT_OF_JOB,))


@pytest.mark.parametrize(
    ("access", "wanted"),
    [
        ([("network", "mandatory")], Locality.ANY),
        ([("network", "mandatory"), ("physical", "bestEffort")], Locality.ANY),
        ([("network", "bestEffort")], Locality.JOB),
        ([("physical", "bestEffort")], Locality.JOB),
        ([("network", "mandatory"), ("physical", "mandatory")], Locality.EVERY_RABBIT_OF_JOB),
        ([], Locality.JOB),
    ],
)
def test_a_site_may_have_elsewhere_what_is_reached_over_the_network(
    access: list[tuple[str, str]], wanted: Locality
) -> None:
    """Statements 002.23, 002.24: access over the network is to any rabbit."""
    assert of(located(*access), anywhere=True) == (Locality.JOB, wanted)


def test_what_may_be_anywhere_is_as_many_allocations_as_its_rabbits_can_hold() -> None:
    policy = PlacementPolicy(allow_any_rabbit=True)
    needs = policy.with_site_limits([need("ost", 100 * GIB, "AllocateAcrossServers")])
    found = rewrite([NODE], needs, 0, 30, (Locality.ANY,))
    assert found.resources[1] == {
        "type": "chassis",
        "count": 4,
        "label": "rabbit-0",
        "with": [{"type": "ssd", "count": 25, "exclusive": True}],
    }
    assert found.constraints["rabbit-0"]["access"] == [{"type": "network", "priority": "mandatory"}]
    held = [HeldFlash("r0", 2, 1, 25), HeldFlash("r5", 0, 1, 50), HeldFlash("r7", 0, 1, 25)]
    (servers,) = allocation_sets(needs, {"r0": 2}, 0, held, (4,), (Locality.ANY,))
    assert {each["name"]: each["allocationCount"] for each in servers["storage"]} == {
        "r0": 1,
        "r5": 2,
        "r7": 1,
    }
    # Without the site's consent it is on the rabbits of the job's nodes, or nowhere.
    with pytest.raises(Fault, match="the storage cannot be placed"):
        allocation_sets(needs, {"r0": 2}, 0, held, (4,), (Locality.JOB,))
