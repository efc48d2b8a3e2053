"""From breakdowns to what is reserved, and from that to Servers: one arithmetic for both."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.dws.builders import need
from warren.base.bytesize import GIB
from warren.base.placing import AllocationSet, HeldFlash
from warren.dws.breakdown.allocationneeds import RABBIT_LABEL
from warren.dws.faults import Fault
from warren.dws.jobs.placement import PlacementPolicy, Reservation, allocation_sets, reservation
from warren.dws.jobs.resources import counts_across_nodes, rewrite
from warren.dws.objects.breakdowns import AllocationNeed, Colocation, Constraints

ACROSS, SINGLE = "AllocateAcrossServers", "AllocateSingleServer"
MGT = ("lustre-mgt",)
NODE = {"type": "node", "count": 4, "with": [{"type": "slot", "count": 1, "label": "task",
        "with": [{"type": "core", "count": 1}]}]}  # fmt: skip


def asking(
    label: str,
    gib: int,
    strategy: str = ACROSS,
    *,
    count: int | None = None,
    scale: int | None = None,
    labels: Sequence[str] = (),
    keys: Sequence[str] = (),
) -> AllocationNeed:
    """Make an allocation set as breakdowns have it, with the label that all of them have."""
    return msgspec.structs.replace(
        need(label, gib * GIB, strategy),
        constraints=Constraints(
            labels=(*labels, RABBIT_LABEL),
            count=count,
            scale=scale,
            colocation=tuple(Colocation(key=key) for key in keys),
        ),
    )


def test_labels_and_keys_of_a_set_come_with_what_is_reserved() -> None:
    """Statements 002.15, 002.16: labels and keys."""
    needs = [
        asking("xfs", 3, "AllocatePerCompute", labels=["tier=fast"]),
        asking("mgt", 5, SINGLE, labels=["meta"], keys=MGT),
    ]
    found = reservation(needs, 4, 0)
    assert found.gib_per_node == 3
    assert found.labels == ("tier=fast",)
    assert found.shared_sets == (AllocationSet(1, 5, ("meta=",), MGT),)


def test_the_label_that_every_rabbit_carries_is_not_asked_of_the_scheduler() -> None:
    found = reservation([asking("xfs", 3, "AllocatePerCompute"), asking("mgt", 5, SINGLE)], 4, 0)
    assert found.labels == ()
    assert not found.shared_sets[0].constrained


@pytest.mark.parametrize(("scale", "count"), [(1, 1), (2, 2), (4, 6), (5, 7), (9, 14), (10, 16)])
def test_scale_goes_from_the_least_number_of_allocations_to_one_for_each_node(
    scale: int, count: int
) -> None:
    """Statement 002.18: 1 is the least number, and 10 the most."""
    (found,) = reservation(
        [asking("ost", 1600, scale=scale)], 16, 0, largest_rabbit_gib=2000
    ).shared_sets
    assert found == AllocationSet(count, -(-1600 // count))


def test_the_least_number_is_what_it_takes_on_the_largest_rabbits() -> None:
    """Statement 002.18: less what is beside a node there."""
    needs = [asking("xfs", 200, "AllocatePerCompute"), asking("ost", 1600, scale=1)]
    assert reservation(needs, 16, 0, largest_rabbit_gib=1000).shared_sets == (
        AllocationSet(2, 800),
    )
    assert reservation(needs, 16, 0, largest_rabbit_gib=600).shared_sets == (AllocationSet(4, 400),)
    assert reservation(needs, 16, 0).shared_sets == (AllocationSet(1, 1600),)


def test_the_most_is_bounded_by_what_makes_sense_of_the_capacity() -> None:
    """Statement 002.18: no allocation is smaller than a GiB, or than allocations can be."""
    assert reservation([asking("ost", 5, scale=10)], 16, 0).shared_sets == (AllocationSet(5, 1),)
    assert reservation([asking("ost", 16, scale=10)], 16, 4 * GIB).shared_sets == (
        AllocationSet(4, 4),
    )


def test_a_set_whose_allocations_are_apart_has_as_few_as_hold_it() -> None:
    """Statement 002.16: in proportion to nodes, several of them would be on one rabbit."""
    wanted = [asking("mgtmdt", 8, keys=MGT)]
    assert reservation(wanted, 4, 0).shared_sets == (AllocationSet(1, 8, (), MGT),)
    assert reservation(wanted, 4, 0, largest_rabbit_gib=3).shared_sets == (
        AllocationSet(3, 3, (), MGT),
    )


def test_a_number_that_was_reserved_is_kept_whatever_it_came_from() -> None:
    needs = [asking("mgt", 5, SINGLE), asking("ost", 1600, scale=10)]
    spec = rewrite([{**NODE, "count": 16}], needs, 0, 2000).resources
    assert counts_across_nodes(spec) == (1, 16)
    assert reservation(needs, 16, 0, 800, (1, 3)).shared_sets == (
        AllocationSet(1, 5),
        AllocationSet(3, 534),
    )
    # But not where the breakdown says it.
    assert reservation([asking("ost", 90, count=2)], 16, 0, None, (3,)).shared_sets == (
        AllocationSet(2, 45),
    )

    held = [HeldFlash(f"r{number}", 2, 1, 300) for number in range(8)]
    per_rabbit = {each.rabbit: each.node_count for each in held}
    mgt, ost = allocation_sets(needs, per_rabbit, 0, held, counts_across_nodes(spec))
    assert mgt["storage"] == [{"name": "r0", "allocationCount": 1}]
    assert ost["allocationSize"] == 100 * GIB
    assert [each["allocationCount"] for each in ost["storage"]] == [2] * 8


def test_what_a_set_demands_of_rabbits_stands_in_the_jobspec_in_words_of_dws() -> None:
    needs = [
        asking("xfs", 3, "AllocatePerCompute", labels=["tier=fast"]),
        asking("ost", 9, count=2),
        asking("mgt", 5, SINGLE, keys=MGT),
    ]
    found = rewrite([NODE], needs, 0)
    ssd = {"type": "ssd", "exclusive": True}
    assert found.resources == [
        {
            "type": "slot",
            "count": 4,
            "label": "rabbit",
            "with": [{**NODE, "count": 1}, {**ssd, "count": 3}],
        },
        {"type": "chassis", "count": 2, "with": [{**ssd, "count": 5}]},
        {"type": "chassis", "count": 1, "label": "rabbit-1", "with": [{**ssd, "count": 5}]},
    ]
    assert found.constraints == {
        "rabbit": {"labels": ["tier=fast"]},
        "rabbit-1": {"labels": [], "colocation": [{"type": "exclusive", "key": "lustre-mgt"}]},
    }
    assert rewrite(found.resources, needs, 0) == found


def test_flash_of_an_authors_own_does_not_get_round_what_its_sets_demand() -> None:
    needs = [asking("mgt", 5, SINGLE, keys=MGT)]
    own = rewrite([NODE], [asking("mgt", 5, SINGLE)], 0).resources
    with pytest.raises(Fault, match="leave its ssds out"):
        rewrite(own, needs, 0)


@pytest.mark.parametrize(
    ("needs", "nodes", "reason"),
    [
        (
            [asking("ost", 9, scale=11)],
            4,
            "set ost cannot be placed because its scale is 11, and a scale is from 1 to 10",
        ),
        (
            [asking("ost", 9, scale=5)],
            None,
            "set ost cannot be placed because it is shared out between the job's nodes, and their "
            "number is left open: give -N one number",
        ),
        (
            [asking("xfs", 9, "AllocatePerCompute", keys=["a"]), asking("ost", 9, keys=["a"])],
            4,
            "set xfs cannot be placed because it is beside each node, and must not be on a rabbit "
            "with set ost (colocation key 'a')",
        ),
        (
            [
                msgspec.structs.replace(
                    asking("ost", 9), constraints=Constraints(colocation=(Colocation("near"),))
                )
            ],
            4,
            "set ost cannot be placed because the colocation 'near' is not understood: there is "
            "'exclusive'",
        ),
    ],
)
def test_what_cannot_be_placed_is_told_with_the_reason(
    needs: list[AllocationNeed], nodes: int | None, reason: str
) -> None:
    with pytest.raises(Fault) as caught:
        reservation(needs, nodes, 0)
    assert str(caught.value) == reason


def test_an_r_that_holds_less_than_was_asked_for_is_told_with_the_arithmetic() -> None:
    needs = [asking("mgt", 5, SINGLE, labels=["tier=fast"], keys=MGT)]
    with pytest.raises(Fault) as caught:
        allocation_sets(needs, {"r0": 2}, 0, [HeldFlash("r0", 2, 1, 9)])
    assert str(caught.value) == (
        "the storage cannot be placed because it is 1 allocation of 5 GiB on a rabbit of its own "
        "(colocation key 'lustre-mgt') on rabbits with tier=fast, and the job was given 9 GiB on r0"
    )


sets_ = st.lists(
    st.builds(
        asking,
        st.just("set"),
        st.integers(1, 40),
        st.sampled_from([ACROSS, SINGLE, "AllocatePerCompute"]),
        scale=st.none() | st.integers(1, 10),
        labels=st.sampled_from([(), ("tier=fast",)]),
    ),
    min_size=1,
    max_size=3,
)
rabbits_ = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4)


@given(sets_, rabbits_, st.integers(1, 200))
def test_each_set_is_met_by_equal_allocations_where_it_may_be(
    needs: list[AllocationNeed], shape: list[tuple[int, bool]], gib: int
) -> None:
    """Whatever is reserved is enough, and no rabbit gives more.

    Statements 002.7, 002.8, 002.9, 002.10: sets are met by themselves, by their strategies.
    """
    wanted = reservation(needs, sum(nodes for nodes, _ in shape), 0, gib)
    held = [
        HeldFlash(
            f"r{number}",
            nodes,
            unit_gib=1,
            units=gib + nodes * wanted.gib_per_node,
            labels=frozenset({"tier=fast"} if fast else ()),
        )
        for number, (nodes, fast) in enumerate(shape)
    ]
    per_rabbit = {each.rabbit: each.node_count for each in held}
    numbers = [each.count for each in wanted.shared_sets]
    try:
        found = allocation_sets(needs, per_rabbit, 0, held, numbers)
    except Fault:
        assume(False)
    used = {rabbit: nodes * wanted.gib_per_node * GIB for rabbit, nodes in per_rabbit.items()}
    for one, given_ in zip(needs, found, strict=True):
        size, storage = given_["allocationSize"], given_["storage"]
        by_rabbit = {each["name"]: each["allocationCount"] for each in storage}
        together = sum(by_rabbit.values())
        if one.allocation_strategy == "AllocatePerCompute":
            assert (size, by_rabbit) == (one.minimum_capacity, per_rabbit)
            continue
        assert size * together >= one.minimum_capacity
        if one.allocation_strategy == SINGLE:
            assert together == 1
        elif one.constraints.scale is None:
            continue  # in proportion to nodes: beside them
        for rabbit, count in by_rabbit.items():
            used[rabbit] += count * -(-size // GIB) * GIB
            carried = next(each.labels for each in held if each.rabbit == rabbit)
            assert carried >= {each for each in one.constraints.labels if each != RABBIT_LABEL}
    assert all(used[each.rabbit] <= each.gib * GIB for each in held)


def test_a_site_may_have_sets_shared_out_evenly_of_which_nothing_is_said() -> None:
    """Statements 002.9, 002.18: equal slices, rather than in proportion to nodes."""
    policy = PlacementPolicy(scale=10)
    per_rabbit = {"r0": 4, "r1": 3}
    needs = policy.with_site_limits([asking("ost", 700)])
    wanted = reservation(needs, 7, 0)
    assert wanted == Reservation(0, (AllocationSet(7, 100),))
    held = [HeldFlash("r0", 4, 1, 400), HeldFlash("r1", 3, 1, 300)]
    (found,) = allocation_sets(needs, per_rabbit, 0, held, (7,))
    assert found["allocationSize"] == 100 * GIB

    two = [HeldFlash("r0", 4, 1, 350), HeldFlash("r1", 3, 1, 350)]
    (found,) = allocation_sets(
        PlacementPolicy(scale=1).with_site_limits([asking("ost", 700)]), per_rabbit, 0, two, (2,)
    )
    assert [each["allocationCount"] for each in found["storage"]] == [1, 1]


def test_what_a_breakdown_says_of_numbers_counts_for_more_than_the_site() -> None:
    """Statements 002.17, 002.18: count and scale."""
    given_ = [asking("ost", 9, count=2), asking("mdt", 9, scale=1), asking("mgt", 9, SINGLE)]
    found = PlacementPolicy(scale=10).with_site_limits(given_)
    assert [each.constraints.scale for each in found] == [None, 1, None]
    assert found[0] is given_[0]
    assert found[2] is given_[2]


def test_a_site_may_bound_how_many_allocations_a_set_has() -> None:
    policy = PlacementPolicy(max_allocations={"mdt": 3})
    needs = policy.with_site_limits([asking("ost", 160), asking("mdt", 160)])
    assert reservation(needs, 16, 0) == Reservation(10, (AllocationSet(3, 54),))
    assert reservation(needs, 2, 0).shared_sets == (AllocationSet(2, 80),)
    # But a set has as many as it takes to hold it.
    assert reservation(needs, 16, 0, largest_rabbit_gib=50).shared_sets == (AllocationSet(4, 40),)


def test_a_sentence_names_a_few_of_many_rabbits() -> None:
    held = [HeldFlash(f"r{number}", 1, 1, 1) for number in range(100)]
    with pytest.raises(Fault, match=r"given 1 GiB on r0, .* on r7 and 92 rabbits more$"):
        allocation_sets([asking("mgt", 5, SINGLE)], {"r0": 1}, 0, held)
