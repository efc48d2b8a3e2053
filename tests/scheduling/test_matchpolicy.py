"""Which nodes jobs get, of those that would do, as a site's policy has it."""

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.scheduling.systems import matched, parts, system, taken, together, want
from tests.scheduling.test_properties import requests, systems
from warren.base.placing import AllocationSet
from warren.rfc import jgf
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.matchpolicy import ChassisNodes, MatchPolicy, node_counts
from warren.scheduling.request import Request

policies = st.sampled_from(MatchPolicy)
groups = st.lists(
    st.builds(ChassisNodes, st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=6
)


@given(policies, groups, st.data())
def test_as_many_nodes_are_shared_out_as_are_wanted_and_no_group_gives_what_it_lacks(
    policy: MatchPolicy, given_: list[ChassisNodes], data: st.DataObject
) -> None:
    wanted = data.draw(st.integers(1, sum(each.max_nodes for each in given_)))
    counts = node_counts(policy, given_, wanted)

    assert sum(counts) == wanted
    assert all(0 <= count <= each.max_nodes for count, each in zip(counts, given_, strict=True))
    used = [each for count, each in zip(counts, given_, strict=True) if count]
    match policy:
        case MatchPolicy.PACK:
            fewest = next(
                number
                for number in range(1, len(given_) + 1)
                if any(sum(each.max_nodes for each in some) >= wanted
                       for some in combinations(given_, number))
            )  # fmt: skip
            assert len(used) == fewest
        case MatchPolicy.SPREAD:
            assert len(used) == min(wanted, len(given_))
            most = max(counts)
            assert all(
                count >= most - 1 or count == each.max_nodes
                for count, each in zip(counts, given_, strict=True)
            )
        case MatchPolicy.LEVEL:
            last = max(each.given_gib for each in used)
            assert all(
                count == each.max_nodes
                for count, each in zip(counts, given_, strict=True)
                if each.given_gib < last
            )
        case MatchPolicy.FIRST:
            last_used = max(index for index, count in enumerate(counts) if count)
            assert counts[:last_used] == [each.max_nodes for each in given_[:last_used]]


THREE = system((4, 16), (4, 16), (4, 16))


def ranks(graph: Graph, request: Request) -> list[int]:
    return [piece.rank for piece in matched(graph, request).pieces]


@pytest.mark.parametrize("ssd", [0, 1])
@pytest.mark.parametrize(
    ("policy", "nodes", "found"),
    [
        (MatchPolicy.FIRST, 4, [2, 3, 4, 5]),
        (MatchPolicy.PACK, 4, [4, 5, 6, 7]),
        (MatchPolicy.PACK, 2, [2, 3]),
        (MatchPolicy.PACK, 6, [2, 3, 4, 5, 6, 7]),
        (MatchPolicy.SPREAD, 4, [2, 4, 8, 9]),
        (MatchPolicy.SPREAD, 9, [2, 3, 4, 5, 6, 8, 9, 10, 11]),
        (MatchPolicy.LEVEL, 4, [4, 5, 6, 7]),
        (MatchPolicy.LEVEL, 9, [2, *range(4, 12)]),
    ],
)
def test_nodes_are_chosen_by_their_chassis(
    policy: MatchPolicy, nodes: int, found: list[int], ssd: int
) -> None:
    graph = Graph(THREE)
    graph.take(matched(graph, want(2, exclusive=True, ssd=1)))
    graph.set_policy(policy)
    assert ranks(graph, want(nodes, exclusive=True, ssd=ssd)) == found


def test_flash_is_counted_as_given_out_though_it_is_back() -> None:
    graph = Graph(THREE)
    graph.set_policy(MatchPolicy.LEVEL)
    used = []
    for _ in range(6):
        held = matched(graph, want(1, ssd=2))
        graph.take(held)
        graph.give_back(held)
        used.append(held.pieces[0].rank)

    assert used == [0, 4, 8, 0, 4, 8]


def test_an_allocation_that_is_shared_goes_where_the_policy_has_room_for_its_nodes() -> None:
    one = want(2, shared_flash=(AllocationSet(2, 4),))
    graph = Graph(THREE)
    assert ranks(graph, one) == [0, 1]
    graph.set_policy(MatchPolicy.SPREAD)
    assert ranks(graph, one) == [4, 8]
    # Where the nodes of the policy's choice have no room, others do.
    assert len(ranks(graph, want(3, shared_flash=(AllocationSet(1, 16),)))) == 3
    graph.take(matched(graph, want(2, ssd=8, constraint='{"ranks":["8-11"]}')))
    graph.take(matched(graph, want(2, ssd=8, constraint='{"ranks":["4-7"]}')))
    assert ranks(graph, want(1, shared_flash=(AllocationSet(1, 16),))) == [0]


def test_nodes_on_no_chassis_are_taken_first_where_no_flash_is_wanted() -> None:
    r = system((2, 4), (2, 4))
    vertices = jgf.decode(r["scheduling"])
    moved = (replace(each, path=each.path.replace("chassis1/n", "n")) for each in vertices)
    graph = Graph({**r, "scheduling": jgf.encode(map(jgf.encode_vertex, moved))})
    graph.set_policy(MatchPolicy.PACK)

    assert ranks(graph, want(1, exclusive=True)) == [2]
    assert ranks(graph, want(3, exclusive=True)) == [0, 2, 3]
    assert ranks(graph, want(1, exclusive=True, ssd=1)) == [0]


@pytest.mark.parametrize("policy", MatchPolicy)
def test_chassis_are_whole_whatever_the_policy(policy: MatchPolicy) -> None:
    graph = Graph(THREE)
    graph.set_policy(policy)
    assert ranks(graph, want(4, chassis_count=2)) == [0, 1, 4, 5]
    graph.take(matched(graph, want(1, ssd=1)))
    assert len({rank // 4 for rank in ranks(graph, want(4, chassis_count=2))}) == 2


@settings(deadline=None, max_examples=200)
@given(systems, policies, st.lists(st.tuples(requests, st.integers(0, 3)), max_size=6))
def test_the_policy_changes_where_jobs_are_and_not_whether_there_is_room(
    r: dict[str, Any], policy: MatchPolicy, wanted: list[tuple[Request, int]]
) -> None:
    graph = Graph(r)
    graph.set_policy(policy)
    held: list[Allocation] = []
    for request, gib in wanted:
        each = (
            replace(request, shared_flash=(AllocationSet(1, gib),))
            if gib and request.nodes
            else request
        )
        by_rank = graph.copy()
        by_rank.set_policy(MatchPolicy.FIRST)
        found = graph.match(each)
        assert isinstance(found, Allocation) == by_rank.fits(each) == graph.fits(each)
        if isinstance(found, Allocation):
            assert graph.conflict(found) is None
            nodes = [piece.rank for piece in found.pieces if piece.cores]
            assert nodes == sorted(set(nodes))
            assert each.nodes is None or len(nodes) == each.nodes
            graph.take(found)
            held.append(found)
        assert taken(graph) == together(parts(graph, one) for one in held)
    graph.give_back(*held)
    assert taken(graph) == {}
