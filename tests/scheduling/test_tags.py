"""Nodes that are tagged `badrabbit`, which jobs with storage do not get meanwhile."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.systems import matched, system, want
from warren.rfc import constraint
from warren.rfc import jobspec as jobspecs
from warren.scheduling.graph import Graph, Piece, Refusal
from warren.scheduling.request import from_jobspec
from warren.scheduling.tags import TAG, UNTAGGED_CONSTRAINT, strip_untagged


@pytest.fixture
def graph() -> Graph:
    return Graph(system((2, 8), (2, 8)))


def untagged(nodes: int, **asked: Any) -> Any:
    return want(nodes, **asked, needs_untagged=True)


def test_a_tagged_node_is_given_to_others_and_waited_for_by_those_who_do_not_want_it(
    graph: Graph,
) -> None:
    hosts = list(graph.host_by_rank.values())
    graph.set_tagged("rabbit0", [hosts[0], "elsewhere"])

    assert matched(graph, untagged(1)).pieces == (Piece(1, 0b1),)
    assert matched(graph, want(1)).pieces == (Piece(0, 0b1),)
    assert graph.match(untagged(4)) == Refusal(
        f"waits for 1 more of 4 nodes; tagged badrabbit: {hosts[0]}"
    )
    assert graph.infeasibility(untagged(4)) is None
    assert graph.cannot_fit_when_idle(untagged(4))

    graph.set_tagged("rabbit0", [])
    assert len(matched(graph, untagged(4)).pieces) == 4
    assert not graph.cannot_fit_when_idle(untagged(4))


def test_a_source_takes_away_its_own_tags_alone(graph: Graph) -> None:
    hosts = list(graph.host_by_rank.values())
    graph.set_tagged("rabbit0", hosts[:1])
    graph.set_tagged("mounts", hosts[:2])
    graph.set_tagged("rabbit0", [])
    assert matched(graph, untagged(1)).pieces == (Piece(2, 0b1),)
    graph.set_tagged("mounts", hosts[:1])
    assert matched(graph, untagged(1)).pieces == (Piece(1, 0b1),)


def test_a_tag_that_comes_while_something_is_tried_is_not_in_the_trial(graph: Graph) -> None:
    hosts = list(graph.host_by_rank.values())
    trial = graph.copy()
    graph.set_tagged("rabbit0", hosts[:1])
    assert matched(trial, untagged(1)).pieces == (Piece(0, 0b1),)


constraints = st.recursive(
    st.sampled_from([UNTAGGED_CONSTRAINT, {"properties": ["a"]}, {"hostlist": ["n[0-1]"]}, {}]),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"and": parts})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"or": parts})
    ),
    max_leaves=8,
)


@given(constraints, st.sampled_from(["n0", "n5"]), st.booleans(), st.booleans())
def test_a_constraint_without_the_exclusion_means_what_it_has_meant(
    given_: Any, host: str, has: bool, tagged: bool
) -> None:
    properties = frozenset(["a"] * has + [TAG] * tagged)
    node = constraint.Node(0, host, properties)
    rest, excluded = strip_untagged(given_)

    meets = constraint.matches(given_, node)
    assert meets == (constraint.matches(rest, node) and not (excluded and tagged))


@pytest.mark.parametrize(
    ("constraints", "rest", "excluded"),
    [
        (UNTAGGED_CONSTRAINT, "", True),
        ({"and": [{"properties": ["a"]}, UNTAGGED_CONSTRAINT]}, '{"properties":["a"]}', True),
        (
            {"and": [{"properties": ["a"]}, {"and": [UNTAGGED_CONSTRAINT, {"hostlist": ["n1"]}]}]},
            '{"and":[{"properties":["a"]},{"hostlist":["n1"]}]}',
            True,
        ),
        ({"or": [UNTAGGED_CONSTRAINT]}, '{"or":[{"not":[{"properties":["badrabbit"]}]}]}', False),
        ({"properties": ["a"]}, '{"properties":["a"]}', False),
    ],
)
def test_the_exclusion_is_read_out_of_what_a_job_asks_for(
    constraints: Any, rest: str, excluded: bool
) -> None:
    spec = jobspecs.make(["app"], nodes=1, attributes={"constraints": constraints})
    request = from_jobspec(spec)
    assert (request.constraint, request.needs_untagged) == (rest, excluded)
