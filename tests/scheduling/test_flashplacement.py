"""Flash that is not beside each node: reserved on rabbits of the job's nodes, and used there."""

from itertools import combinations, product
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import need
from tests.scheduling.systems import matched, system, want, written
from warren.base.bytesize import GIB
from warren.base.placing import (
    AllocationSet,
    FreeFlash,
    HeldFlash,
    Locality,
    placement,
    units_needed,
)
from warren.dws.jobs.placement import allocation_sets, reservation
from warren.dws.objects.breakdowns import AllocationNeed
from warren.rfc import resource_set
from warren.rfc.errors import BadFormat
from warren.scheduling.allocatedflash import allocated_flash
from warren.scheduling.graph import Allocation, Graph, Refusal

POOLS: dict[str, Any] = {"quantum": None}


def given_to(graph: Graph, request: Any) -> list[tuple[str, int, int]]:
    """Match, and give rabbit, nodes and GiB of what the job holds."""
    found = allocated_flash(orjson.dumps(written(graph, matched(graph, request))))
    return [(each.rabbit, each.node_count, each.gib) for each in found]


def test_an_allocation_is_on_one_rabbit_of_the_jobs_nodes() -> None:
    graph = Graph(system((2, 64), (2, 64), **POOLS))
    assert given_to(graph, want(2, shared_flash=(AllocationSet(1, 50),))) == [("r0", 2, 50)]
    assert given_to(graph, want(4, shared_flash=(AllocationSet(1, 50),))) == [
        ("r0", 2, 50),
        ("r1", 2, 0),
    ]
    assert given_to(graph, want(4, ssd=10, shared_flash=(AllocationSet(1, 40),))) == [
        ("r0", 2, 60),
        ("r1", 2, 20),
    ]


def test_allocations_are_shared_out_between_the_rabbits_of_the_jobs_nodes() -> None:
    graph = Graph(system((2, 64), (2, 64), **POOLS))
    assert given_to(graph, want(4, shared_flash=(AllocationSet(2, 50),))) == [
        ("r0", 2, 50),
        ("r1", 2, 50),
    ]
    assert given_to(graph, want(4, shared_flash=(AllocationSet(3, 20),))) == [
        ("r0", 2, 40),
        ("r1", 2, 20),
    ]


def test_nodes_follow_an_allocation_to_the_rabbit_that_has_room() -> None:
    graph = Graph(system((4, 20), (4, 64), **POOLS))
    assert given_to(graph, want(2, shared_flash=(AllocationSet(1, 50),))) == [
        ("r0", 1, 0),
        ("r1", 1, 50),
    ]
    assert given_to(graph, want(1, shared_flash=(AllocationSet(1, 50),))) == [("r1", 1, 50)]
    assert given_to(graph, want(3, ssd=7, shared_flash=(AllocationSet(1, 50),))) == [
        ("r0", 2, 14),
        ("r1", 1, 57),
    ]


def test_flash_that_is_given_in_quanta_holds_whole_quanta_of_each_allocation() -> None:
    graph = Graph(system((2, 12), (2, 12), quantum=4))
    assert given_to(graph, want(4, ssd=1, shared_flash=(AllocationSet(1, 3),))) == [
        ("r0", 2, 12),
        ("r1", 2, 8),
    ]
    refusal = graph.match(want(4, ssd=1, shared_flash=(AllocationSet(1, 5),)))
    assert isinstance(refusal, Refusal)
    assert refusal.never


def test_a_rabbit_that_is_not_ready_holds_nothing_for_its_nodes() -> None:
    graph = Graph(system((2, 64), (2, 64), **POOLS))
    graph.set_rabbit("r0", up=False, state="Disabled")
    assert given_to(graph, want(3, shared_flash=(AllocationSet(1, 50),))) == [
        ("r0", 2, 0),
        ("r1", 1, 50),
    ]
    refusal = graph.match(want(3, shared_flash=(AllocationSet(2, 50),)))
    assert refusal == Refusal(
        "waits for 2 allocations of 50 GiB, on rabbits of 3 nodes; not ready: r0 (Disabled)"
    )


def test_what_is_reserved_is_kept_from_others_until_it_is_given_back() -> None:
    graph = Graph(system((2, 64), **POOLS))
    found = matched(graph, want(1, shared_flash=(AllocationSet(1, 50),)))
    graph.take(found)
    refusal = graph.match(want(1, ssd=20))
    assert isinstance(refusal, Refusal)
    assert not refusal.never
    again = Graph(system((2, 64), **POOLS))
    kept = again.decode(written(graph, found))
    again.take(kept)
    assert isinstance(again.match(want(1, ssd=20)), Refusal)
    again.give_back(kept)
    assert isinstance(again.match(want(1, ssd=20)), Allocation)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            want(1, shared_flash=(AllocationSet(1, 65),)),
            "The job's storage cannot be placed because an allocation of 65 GiB is on one rabbit, "
            "and the largest has 64 GiB.",
        ),
        (
            want(2, ssd=20, shared_flash=(AllocationSet(1, 50),)),
            "The job's storage cannot be placed because an allocation of 50 GiB is on one rabbit, "
            "and the largest has 64 GiB, 20 GiB of it beside a node.",
        ),
        (
            want(3, shared_flash=(AllocationSet(3, 60),)),
            "The job's storage cannot be placed because it is 3 allocations of 60 GiB, 180 GiB "
            "together, on rabbits of the job's own nodes, and 3 nodes can have no more than "
            "2 rabbits with 128 GiB together, of which each allocation is on one.",
        ),
        (
            want(1, ssd=1, shared_flash=(AllocationSet(2, 40),)),
            "The job's storage cannot be placed because it is 2 allocations of 40 GiB and 1 GiB "
            "beside each node, 81 GiB together, on rabbits of the job's own nodes, and 1 node "
            "can have no more than 1 rabbit with 64 GiB together, of which each allocation is on "
            "one.",
        ),
    ],
)
def test_what_can_never_be_placed_is_told_with_its_numbers(request_: Any, words: str) -> None:
    graph = Graph(system((2, 64), (2, 64), **POOLS))
    assert graph.match(request_) == Refusal(words, never=True)


systems = st.builds(
    lambda chassis, quantum: system(*chassis, quantum=quantum),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=4),
    st.sampled_from([None, None, 1, 2, 3]),
)
strategies = st.sampled_from(
    ["AllocatePerCompute", "AllocateAcrossServers", "AllocateSingleServer"]
)


@st.composite
def breakdowns(draw: st.DrawFn) -> list[AllocationNeed]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        strategy = draw(strategies)
        count = None
        if strategy == "AllocateAcrossServers":
            count = draw(st.none() | st.integers(1, 4))
        found.append(need(str(number), draw(st.integers(1, 12 * GIB)), strategy, count))
    return found


localities = st.sampled_from([Locality.JOB, Locality.ANY])


@given(
    systems,
    st.lists(st.tuples(breakdowns(), st.integers(1, 5), localities), min_size=1, max_size=4),
)
def test_what_is_reserved_on_each_rabbit_holds_what_is_used_there_and_nothing_is_used_elsewhere(
    r: dict[str, Any], jobs: list[tuple[list[AllocationNeed], int, Locality]]
) -> None:
    floor = GIB
    graph = Graph(r)
    capacity = {each.rabbit: each.flash for each in graph._inventory.chassis}
    used_by_all = dict.fromkeys(capacity, 0)
    for needs, nodes, where in jobs:
        places = [where] * len(needs)
        wanted = reservation(needs, nodes, floor, localities=places)
        found = graph.match(
            want(nodes, exclusive=True, ssd=wanted.gib_per_node, shared_flash=wanted.shared_sets)
        )
        if isinstance(found, Refusal):
            continue
        graph.take(found)
        given_ = allocated_flash(orjson.dumps(written(graph, found)))
        per_rabbit = {each.rabbit: each.node_count for each in given_ if each.node_count}
        assert sum(per_rabbit.values()) == nodes
        assert where is Locality.ANY or len(per_rabbit) == len(given_)
        sets = allocation_sets(needs, per_rabbit, floor, given_, (), places)
        assert len(sets) == len(needs)
        for each in given_:
            # Exactly what was to be reserved, in units of the rabbit; used in whole GiB of each.
            reserved = each.node_count * units_needed(wanted.gib_per_node, each.unit_gib)
            used = 0
            for one, part in zip(needs, sets, strict=True):
                count = {at["name"]: at["allocationCount"] for at in part["storage"]}
                mine = count.get(each.rabbit, 0)
                used += mine * part["allocationSize"]
                if _is_shared(one, nodes, floor):
                    reserved += mine * units_needed(
                        -(-part["allocationSize"] // GIB), each.unit_gib
                    )
            assert each.units == reserved
            assert used <= each.gib * GIB
            used_by_all[each.rabbit] += used
        assert {at["name"] for part in sets for at in part["storage"]} <= {
            each.rabbit for each in given_
        }
    for rabbit, used in used_by_all.items():
        assert used <= capacity[rabbit].gib * GIB


def _is_shared(one: AllocationNeed, nodes: int, floor: int) -> bool:
    return bool(reservation([one], nodes, floor).shared_sets)


@given(
    systems,
    st.integers(1, 4),
    st.sampled_from([0, 0, 1, 2, 4]),
    st.integers(1, 12),
    st.sets(st.integers(0, 3)),
)
def test_one_allocation_is_placed_whenever_some_choice_of_nodes_has_room_for_it(
    r: dict[str, Any], nodes: int, beside: int, gib: int, late: set[int]
) -> None:
    graph = Graph(r)
    for number in late:
        graph.set_rabbit(f"r{number}", up=False)
    request = want(nodes, ssd=beside, shared_flash=(AllocationSet(1, gib),))
    found = graph.match(request)
    assert isinstance(found, Allocation) == _fits(graph, nodes, beside, gib, late)
    assert graph.fits(request) == isinstance(found, Allocation)
    if isinstance(found, Refusal):
        assert found.never != _fits(graph, nodes, beside, gib, set())


def _fits(graph: Graph, nodes: int, beside: int, gib: int, late: set[int]) -> bool:
    """Return whether it fits, by trying every choice of nodes."""
    system_ = graph._inventory
    for chosen in combinations(system_.nodes, nodes):
        counts: dict[int, int] = {}
        for node in chosen:
            assert node.chassis_index is not None
            counts[node.chassis_index] = counts.get(node.chassis_index, 0) + 1
        left = []
        for index, count in counts.items():
            flash = system_.chassis[index].flash
            free = flash.unit_count(0 if index in late else flash.whole_portion)
            left.append(
                (
                    free - count * units_needed(beside, flash.unit_gib),
                    units_needed(gib, flash.unit_gib),
                )
            )
        if all(free >= 0 for free, _ in left) and any(free >= more for free, more in left):
            return True
    return False


def test_an_r_without_a_graph_holds_no_flash() -> None:
    r = system((2, 64))
    del r["scheduling"]
    assert allocated_flash(orjson.dumps(r)) == []
    assert allocated_flash(orjson.dumps(system((2, 64), (1, 8), **POOLS))) == [
        HeldFlash("r0", 2, 1, 64),
        HeldFlash("r1", 1, 1, 8),
    ]
    assert allocated_flash(orjson.dumps(system((2, 65), quantum=4))) == [HeldFlash("r0", 2, 4, 16)]
    with pytest.raises(BadFormat, match=r"^R cannot be read: "):
        allocated_flash('{"scheduling": {"graph": {"nodes": [{}]}}}')


# Labels and colocation (seed statements 002.15, 002.16)

FAST = "tier=fast"
KEY = ("lustre-mgt",)


def carrying(*labels: set[str], nodes: int = 2, gib: int = 64) -> Graph:
    """Make a system of rabbits that carry labels."""
    graph = Graph(system(*((nodes, gib) for _ in labels), **POOLS))
    for number, each in enumerate(labels):
        graph.set_rabbit(f"r{number}", up=True, labels=each)
    return graph


def test_flash_beside_nodes_is_on_rabbits_with_all_labels() -> None:
    """Statement 002.15: labels of rabbits."""
    graph = carrying({"a=1"}, {"a=1", FAST}, {FAST})
    assert given_to(graph, want(2, ssd=5, labels=("a=1", FAST))) == [("r1", 2, 10)]
    assert given_to(graph, want(3, ssd=5, labels=(FAST,))) == [("r1", 2, 10), ("r2", 1, 5)]
    assert graph.match(want(3, ssd=5, labels=("a=1", FAST))) == Refusal(
        "The job's storage cannot be placed because it is 5 GiB beside each node, 15 GiB "
        "together, on rabbits of the job's own nodes with a=1 and tier=fast, and 3 nodes can have "
        "no more than 1 rabbit with 64 GiB together, of which each allocation is on one.",
        never=True,
    )


def test_nodes_follow_allocations_to_the_rabbits_that_carry_their_labels() -> None:
    """Statement 002.15: labels of rabbits."""
    graph = carrying(set(), {FAST}, {FAST})
    request = want(2, shared_flash=(AllocationSet(1, 5, (FAST,)),))
    assert given_to(graph, request) == [("r0", 1, 0), ("r1", 1, 5)]
    assert given_to(graph, want(2, shared_flash=(AllocationSet(2, 5, (FAST,), KEY),))) == [
        ("r1", 1, 5),
        ("r2", 1, 5),
    ]


def test_sets_with_one_key_get_rabbits_of_their_own_and_nodes_there() -> None:
    """Statement 002.16: exclusive keys."""
    graph = carrying(set(), set())
    pair = (AllocationSet(1, 5, (), KEY), AllocationSet(1, 3, (), KEY))
    assert given_to(graph, want(2, shared_flash=pair)) == [("r0", 1, 5), ("r1", 1, 3)]
    # Though the first one has much more room than the second.
    uneven = Graph(system((2, 64), (2, 8), **POOLS))
    assert given_to(uneven, want(2, shared_flash=pair)) == [("r0", 1, 5), ("r1", 1, 3)]
    other = (AllocationSet(1, 5, (), KEY), AllocationSet(1, 3, (), ("another",)))
    assert given_to(graph, want(2, shared_flash=other)) == [("r0", 2, 8)]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            want(1, ssd=5, labels=("tier=cheap",)),
            "each of its nodes is to have flash of a rabbit with tier=cheap, and no rabbit of "
            "nodes that would do has that.",
        ),
        (
            want(2, shared_flash=(AllocationSet(1, 5, ("tier=cheap",)),)),
            "it is 1 allocation of 5 GiB on rabbits with tier=cheap, and there is no such rabbit "
            "of its nodes.",
        ),
        (
            want(4, shared_flash=(AllocationSet(2, 5, (FAST,), KEY),)),
            "it is 2 allocations of 5 GiB each on a rabbit of its own (colocation key "
            "'lustre-mgt') on rabbits with tier=fast, and there is no more than 1 such rabbit.",
        ),
        (
            want(1, shared_flash=(AllocationSet(1, 5, (), KEY), AllocationSet(1, 3, (), KEY))),
            "2 allocations with the colocation key 'lustre-mgt' are each on a rabbit of its own, "
            "and 1 node can have no more than 1 rabbit.",
        ),
    ],
)
def test_constraints_that_can_never_be_met_are_told_with_their_numbers(
    request_: Any, reason: str
) -> None:
    graph = carrying(set(), {FAST})
    expected = Refusal(f"The job's storage cannot be placed because {reason}", never=True)
    assert graph.match(request_) == expected


def test_before_it_is_known_what_rabbits_carry_no_job_is_refused_and_none_starts() -> None:
    graph = Graph(system((2, 64), **POOLS))
    graph.set_rabbit("r0", up=False)
    request = want(1, ssd=5, labels=(FAST,))
    assert graph.infeasibility(request) is None
    assert not graph.fits(request)
    graph.set_rabbit("r0", up=True, labels=())
    assert graph.infeasibility(request) is not None


def test_what_a_rabbit_carried_is_read_again_from_r() -> None:
    """Set by set, storage is placed by what the scheduler saw, whatever has changed since."""
    graph = carrying({"rabbit=other", FAST})
    (found,) = allocated_flash(orjson.dumps(written(graph, matched(graph, want(1, ssd=5)))))
    assert found == HeldFlash("r0", 1, 1, 5, frozenset({FAST}))
    graph.set_rabbit("r0", up=True, labels={"a=1"})
    (found,) = allocated_flash(orjson.dumps(written(graph, matched(graph, want(1, ssd=5)))))
    assert found.labels == {"a=1"}


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(1, 12),
            st.sampled_from([set[str](), {FAST}, {FAST, "a=1"}]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 4),
    st.lists(
        st.builds(
            AllocationSet,
            st.integers(1, 2),
            st.integers(1, 5),
            st.sampled_from([(), (FAST,), ("a=1",)]),
            st.sampled_from([(), KEY]),
            st.sampled_from([Locality.JOB, Locality.ANY]),
        ),
        min_size=1,
        max_size=2,
    ),
)
def test_what_is_matched_is_what_storage_can_be_placed_on(
    shape: list[tuple[int, int, set[str]]], nodes: int, shared: list[AllocationSet]
) -> None:
    """Statements 002.7, 002.15, 002.16: what R holds is enough, keeps all, and is all used."""
    graph = Graph(system(*((n, gib) for n, gib, _ in shape), **POOLS))
    for number, (_, _, labels) in enumerate(shape):
        graph.set_rabbit(f"r{number}", up=True, labels=labels)
    found = graph.match(want(nodes, shared_flash=tuple(shared)))
    if isinstance(found, Refusal):
        return
    given_ = allocated_flash(orjson.dumps(written(graph, found)))
    counts = placement(
        shared, [FreeFlash(e.node_count, e.unit_gib, e.units, e.labels) for e in given_]
    )
    assert counts is not None
    for number, each in enumerate(given_):
        there = [one for one, own in zip(shared, counts, strict=True) for _ in range(own[number])]
        assert sum(one.gib for one in there) == each.gib
        assert all(each.labels >= set(one.labels) for one in there)
        keys = [key for one in there for key in one.colocation_keys]
        assert len(keys) == len(set(keys))


# Storage that all nodes must be wired to (seed statements 002.20, 002.23, 002.24)


def near(count: int, gib: int, **more: Any) -> AllocationSet:
    return AllocationSet(count, gib, locality=Locality.EVERY_RABBIT_OF_JOB, **more)


def test_nodes_are_gathered_on_rabbits_that_hold_what_they_must_be_wired_to() -> None:
    graph = Graph(system((2, 64), (4, 64), (4, 64), **POOLS))
    assert given_to(graph, want(2, shared_flash=(near(1, 5),))) == [("r0", 2, 5)]
    assert given_to(graph, want(4, shared_flash=(near(1, 5),))) == [("r1", 4, 5)]
    assert given_to(graph, want(6, shared_flash=(near(2, 5),))) == [("r0", 2, 5), ("r1", 4, 5)]
    assert given_to(graph, want(8, shared_flash=(near(2, 5),))) == [("r1", 4, 5), ("r2", 4, 5)]
    refusal = graph.match(want(5, shared_flash=(near(1, 5),)))
    assert isinstance(refusal, Refusal)
    assert refusal.never
    assert refusal.reason.startswith(
        "The job's storage cannot be placed because it is 1 allocation of 5 GiB on whose rabbits "
        "all nodes are"
    )


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=3),
    st.integers(1, 5),
    st.integers(0, 2),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_nodes_are_gathered_whenever_there_is_such_a_choice(
    shape: list[tuple[int, int]], nodes: int, beside: int, count: int, gib: int
) -> None:
    graph = Graph(system(*shape, **POOLS))
    found = graph.match(want(nodes, ssd=beside, shared_flash=(near(count, gib),)))
    ways = [
        all(flash >= n * beside + gib for (_, flash), n in zip(shape, taken, strict=True) if n)
        and 0 < sum(map(bool, taken)) <= count
        and sum(
            (flash - n * beside) // gib for (_, flash), n in zip(shape, taken, strict=True) if n
        )
        >= count
        for taken in product(*(range(n + 1) for n, _ in shape))
        if sum(taken) == nodes
    ]
    if isinstance(found, Allocation):
        assert any(ways)
    elif count == 1:
        assert not any(ways)


# Storage that may be on any rabbit, as a site may allow it (seed statements 002.7, 002.20)


def anywhere(
    count: int, gib: int, labels: tuple[str, ...] = (), apart: tuple[str, ...] = ()
) -> AllocationSet:
    return AllocationSet(count, gib, labels, apart, Locality.ANY)


def test_what_may_be_anywhere_is_on_rabbits_of_the_jobs_nodes_while_these_have_room() -> None:
    """Statement 002.20: bestEffort access is as near as can be."""
    graph = Graph(system((2, 64), (2, 64), (2, 64), **POOLS))
    assert given_to(graph, want(2, shared_flash=(anywhere(2, 30),))) == [("r0", 2, 60)]
    assert given_to(graph, want(2, shared_flash=(anywhere(3, 30),))) == [
        ("r0", 2, 60),
        ("r1", 0, 30),
    ]
    assert given_to(graph, want(1, ssd=10, shared_flash=(anywhere(2, 60),))) == [
        ("r0", 1, 10),
        ("r1", 0, 60),
        ("r2", 0, 60),
    ]
    # Nodes that are taken, or would not do, keep no flash from it.
    low = '{"ranks":["0"]}'
    request = want(1, constraint=low, shared_flash=(anywhere(1, 64),))
    assert given_to(graph, want(1, constraint=low, ssd=1, shared_flash=(anywhere(1, 64),))) == [
        ("r0", 1, 1),
        ("r1", 0, 64),
    ]
    graph.take(matched(graph, want(1, ssd=1)))
    assert given_to(graph, request) == [("r0", 1, 0), ("r1", 0, 64)]


def test_flash_of_another_rabbit_is_the_jobs_until_its_end_and_after_a_restart() -> None:
    r = system((1, 8), (1, 8), **POOLS)
    graph = Graph(r)
    allocation = matched(graph, want(1, shared_flash=(anywhere(2, 8),)))
    told = written(graph, allocation)
    assert [each.rank for each in resource_set.decode_nodes(told)] == [0]

    again = Graph(r)
    assert again.decode(told) == allocation
    assert again.conflict(allocation) is None
    again.take(allocation)
    assert again.conflict(allocation) is not None
    assert again.fits(want(1))
    assert not again.fits(want(1, ssd=1))
    again.give_back(allocation)
    assert again.fits(want(2, ssd=8))


@pytest.mark.parametrize(
    ("request_", "refusal"),
    [
        (
            want(1, shared_flash=(anywhere(1, 70),)),
            "an allocation of 70 GiB is on one rabbit, and the largest has 64 GiB.",
        ),
        (
            want(1, ssd=4, shared_flash=(anywhere(2, 62),)),
            "it is 2 allocations of 62 GiB and 4 GiB beside each node, 128 GiB together, and the "
            "cluster has 2 rabbits with 80 GiB together, of which each allocation is on one.",
        ),
        (
            want(1, shared_flash=(anywhere(1, 5, (FAST,)),)),
            "it is 1 allocation of 5 GiB on rabbits with tier=fast, and there is no such rabbit.",
        ),
        (
            want(1, shared_flash=(anywhere(3, 5, (), KEY),)),
            "3 allocations with the colocation key 'lustre-mgt' are each on a rabbit of its own, "
            "and the cluster has 2 rabbits.",
        ),
    ],
)
def test_what_has_no_room_anywhere_is_told_with_the_numbers_of_the_cluster(
    request_: Any, refusal: str
) -> None:
    graph = Graph(system((2, 64), (2, 16), **POOLS))
    for rabbit in ("r0", "r1"):
        graph.set_rabbit(rabbit, up=True, labels=())
    expected = Refusal(f"The job's storage cannot be placed because {refusal}", never=True)
    assert graph.match(request_) == expected


def test_what_may_be_anywhere_waits_for_rabbits_that_are_not_ready() -> None:
    graph = Graph(system((1, 8), (1, 64), **POOLS))
    graph.set_rabbit("r1", up=False, state="Offline")
    assert graph.match(want(1, shared_flash=(anywhere(1, 20),))) == Refusal(
        "waits for 1 allocation of 20 GiB, on any rabbits, and 1 node; not ready: r1 (Offline)"
    )


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12)), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(1, 12),
    st.sets(st.integers(0, 3)),
)
def test_one_allocation_is_placed_whenever_a_rabbit_has_room_and_there_are_nodes(
    shape: list[tuple[int, int]], nodes: int, gib: int, late: set[int]
) -> None:
    graph = Graph(system(*shape, **POOLS))
    for number in late:
        graph.set_rabbit(f"r{number}", up=False)
    room = any(flash >= gib for number, (_, flash) in enumerate(shape) if number not in late)
    enough = sum(n for n, _ in shape) >= nodes
    found = graph.match(want(nodes, shared_flash=(anywhere(1, gib),)))
    assert isinstance(found, Allocation) == (room and enough)
