"""Jobs that say on how many chassis their nodes are to be."""

from itertools import combinations
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import need
from tests.scheduling.systems import matched, system, want, written
from warren.base.bytesize import GIB
from warren.base.placing import AllocationSet
from warren.dws.faults import Fault
from warren.dws.jobs.resources import rewrite
from warren.rfc import jobspec
from warren.rfc.errors import BadFormat
from warren.scheduling.allocatedflash import allocated_flash
from warren.scheduling.graph import Allocation, Graph, Refusal
from warren.scheduling.request import from_jobspec

POOLS: dict[str, Any] = {"quantum": None}


def of(count: int, nodes: int, *more: dict[str, Any]) -> dict[str, Any]:
    """Make a jobspec of so many nodes on each of so many chassis."""
    plain = jobspec.make(["true"], nodes=nodes, tasks=nodes)
    (node,) = plain["resources"]
    return {**plain, "resources": [{"type": "chassis", "count": count, "with": [node, *more]}]}


def given_to(graph: Graph, request: Any) -> list[tuple[str, int, int]]:
    found = allocated_flash(orjson.dumps(written(graph, matched(graph, request))))
    return [(each.rabbit, each.node_count, each.gib) for each in found]


def test_a_chassis_holds_nodes_and_flash_for_all_of_them() -> None:
    assert from_jobspec(of(2, 3)) == want(6, chassis_count=2)
    assert from_jobspec(of(2, 3, {"type": "ssd", "count": 7})) == want(6, chassis_count=2, ssd=3)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ([], "holds no node"),
        ([{"type": "storage_node", "count": 1}], "'storage_node' cannot be scheduled in a chassis"),
    ],
)
def test_what_else_a_chassis_holds_is_refused(inside: list[Any], problem: str) -> None:
    spec = of(1, 1)
    resources = [{"type": "chassis", "count": 1, "with": inside}]
    with pytest.raises(BadFormat, match=problem):
        from_jobspec({**spec, "resources": resources})


def test_nodes_are_as_many_on_each_of_so_many_chassis() -> None:
    graph = Graph(system((1, 9), (3, 9), (3, 9), **POOLS))
    assert given_to(graph, want(4, chassis_count=2)) == [("r1", 2, 0), ("r2", 2, 0)]
    assert given_to(graph, want(3, chassis_count=1)) == [("r1", 3, 0)]
    assert given_to(graph, want(3, chassis_count=3)) == [("r0", 1, 0), ("r1", 1, 0), ("r2", 1, 0)]
    assert given_to(graph, want(2, ssd=4, chassis_count=1)) == [("r1", 2, 8)]


def test_shared_flash_is_on_chassis_that_have_all_their_nodes() -> None:
    graph = Graph(system((3, 9), (3, 9), (3, 20), **POOLS))
    request = want(3, ssd=3, chassis_count=1, shared_flash=(AllocationSet(1, 5),))
    assert given_to(graph, request) == [("r2", 3, 14)]
    request = want(6, ssd=3, chassis_count=2, shared_flash=(AllocationSet(1, 5),))
    assert given_to(graph, request) == [("r0", 3, 9), ("r2", 3, 14)]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            want(4, chassis_count=1),
            "1 chassis with 4 nodes is asked for, and the cluster has none.",
        ),
        (
            want(6, chassis_count=3),
            "3 chassis with 2 nodes each are asked for, and the cluster has 2.",
        ),
    ],
)
def test_chassis_that_are_not_there_are_told_of(request_: Any, reason: str) -> None:
    graph = Graph(system((1, 9), (3, 9), (3, 9), **POOLS))
    assert graph.match(request_) == Refusal(reason, never=True)


def test_chassis_whose_nodes_are_taken_are_waited_for() -> None:
    graph = Graph(system((3, 9), (3, 9), **POOLS))
    graph.take(matched(graph, want(4, exclusive=True)))
    assert graph.match(want(2, chassis_count=1)) == matched(graph, want(2))
    refusal = graph.match(want(2, chassis_count=2, exclusive=True))
    assert refusal == Refusal("waits for 1 node on each of 2 chassis")


def test_a_jobspec_of_chassis_gets_its_flash_there() -> None:
    """coral2-spec section 14: each node's flash, times the nodes of a chassis."""
    plain = of(2, 3)
    needs = [need("xfs", 5 * GIB), need("mgt", 2 * GIB, "AllocateSingleServer")]
    found = rewrite(plain["resources"], needs, 0).resources
    (node,) = plain["resources"][0]["with"]
    ssd = {"type": "ssd", "count": 15, "exclusive": True}
    assert found[0] == {"type": "chassis", "count": 2, "with": [node, ssd]}
    assert from_jobspec({**plain, "resources": found}) == want(
        6, chassis_count=2, ssd=5, shared_flash=(AllocationSet(1, 2),)
    )
    assert rewrite(found, needs, 0).resources == found
    with pytest.raises(Fault, match="leave its ssds out"):
        rewrite(found, [need("xfs", 6 * GIB), needs[1]], 0)
    with pytest.raises(Fault, match="a chassis holds nodes once"):
        rewrite([{"type": "chassis", "count": 1, "with": []}], needs, 0)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_chassis_are_found_whenever_there_are_such(
    shape: list[tuple[int, int]], count: int, nodes: int, beside: int, alone: int
) -> None:
    """With one allocation more, or none, against every choice of chassis."""
    graph = Graph(system(*shape, **POOLS))
    shared = (AllocationSet(1, alone),) if alone else ()
    found = graph.match(want(count * nodes, ssd=beside, chassis_count=count, shared_flash=shared))
    fits = any(
        all(n >= nodes and gib >= nodes * beside for n, gib in chosen)
        and (not alone or any(gib - nodes * beside >= alone for _, gib in chosen))
        for chosen in combinations(shape, count)
    )
    assert isinstance(found, Allocation) == fits
    if isinstance(found, Allocation):
        there = allocated_flash(orjson.dumps(written(graph, found)))
        assert [each.node_count for each in there] == [nodes] * count
