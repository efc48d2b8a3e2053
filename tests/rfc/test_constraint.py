"""Constraints: which nodes a job will have (RFC 31)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import constraint
from warren.rfc.constraint import Node
from warren.rfc.errors import BadFormat

NODES = [
    Node(0, "n0", frozenset({"ssd"})),
    Node(1, "n1", frozenset({"ssd", "slow"})),
    Node(2, "n2", frozenset()),
    Node(3, "m3", frozenset({"slow", "+batch"})),
]


@pytest.mark.parametrize(
    ("given_", "ranks"),
    [
        ({}, [0, 1, 2, 3]),
        ({"properties": []}, [0, 1, 2, 3]),
        ({"properties": ["ssd"]}, [0, 1]),
        ({"properties": ["ssd", "slow"]}, [1]),
        ({"properties": ["^slow"]}, [0, 2]),
        ({"properties": ["ssd", "^slow"]}, [0]),
        ({"properties": ["+batch"]}, [3]),
        ({"hostlist": ["n[0-1]", "m3,x"]}, [0, 1, 3]),
        ({"hostlist": []}, []),
        ({"ranks": ["0", "2-9"]}, [0, 2, 3]),
        ({"ranks": [""]}, []),
        ({"and": [{"properties": ["ssd"]}, {"ranks": ["1-3"]}]}, [1]),
        ({"and": []}, [0, 1, 2, 3]),
        ({"or": [{"properties": ["+batch"]}, {"hostlist": ["n2"]}]}, [2, 3]),
        ({"or": []}, [0, 1, 2, 3]),
        ({"not": [{"properties": ["ssd", "slow"]}]}, [0, 2, 3]),
        ({"not": [{"properties": ["ssd"]}, {"ranks": ["1"]}]}, [0, 2, 3]),
        ({"not": []}, []),
        ({"not": [{}]}, []),
    ],
)
def test_nodes_are_told_apart(given_: dict[str, Any], ranks: list[int]) -> None:
    assert constraint.check(given_) is given_
    matcher = constraint.matcher(given_)
    assert [node.rank for node in NODES if matcher(node)] == ranks
    assert [node.rank for node in NODES if constraint.matches(given_, node)] == ranks


def deep(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth - 1):
        found = {"not": [found]}
    return found


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (None, "constraints is not an object"),
        ([], "constraints is not an object"),
        ({"properties": "ssd"}, "constraints.properties is not a list"),
        ({"propertys": []}, "constraints.propertys is not an operator: they are properties, host"),
        ({"and": [], "or": []}, "constraints holds several operators: join them with and"),
        ({"and": [{}, 1]}, "constraints.and[1] is not an object"),
        ({"not": [{"or": [{"ranks": ["0", "2-1"]}]}]},
         "constraints.not[0].or[0].ranks[1] is no idset '2-1': the range '2-1' at 0 does not"),
        ({"ranks": [0]}, "constraints.ranks[0] is not a string"),
        ({"ranks": ["0-4294967294"]}, "constraints.ranks[0] is no idset"),
        ({"hostlist": ["n[0-99999999999]"]}, "constraints.hostlist[0] is no hostlist"),
        ({"hostlist": ["n[1"]}, "constraints.hostlist[0] is no hostlist 'n[1': the bracket at 1"),
        ({"properties": [""]}, "constraints.properties[0] is empty"),
        ({"properties": ["a", "^"]}, "constraints.properties[1] is empty"),
        ({"properties": ["a|b"]}, "constraints.properties[0] is no property 'a|b': it holds '|'"),
        ({"properties": ["^^a"]}, "constraints.properties[0] is no property '^^a': it holds '^'"),
        ({"properties": [None]}, "constraints.properties[0] is not a string"),
        (deep(101), "constraints.not[0].not[0]"),
    ],
)  # fmt: skip
def test_a_bad_constraint_is_refused_with_the_place_of_the_mistake(bad: Any, problem: str) -> None:
    with pytest.raises(BadFormat) as refused:
        constraint.check(bad)
    assert str(refused.value).startswith(problem)


def test_a_constraint_may_be_nested_but_not_without_end() -> None:
    assert constraint.check(deep(100))
    with pytest.raises(BadFormat, match="is nested more than 100 deep"):
        constraint.check(deep(5000))


def test_all_the_nodes_that_a_constraint_names_are_counted_together() -> None:
    many = {"hostlist": ["n[0-32767]"]}
    constraint.check({"and": [many, many]})

    with pytest.raises(BadFormat) as failed:
        constraint.check({"and": [many, many, {"ranks": ["0"]}]})
    assert str(failed.value) == (
        "constraints.and[2].ranks[0] is one too many: all together name over 65536 nodes"
    )


@pytest.mark.parametrize("letter", "!&'\"^`|()")
def test_a_property_has_none_of_the_letters_that_the_rfc_forbids(letter: str) -> None:
    with pytest.raises(BadFormat, match="is no property"):
        constraint.check({"properties": [f"a{letter}b"]})


def test_a_property_for_the_scheduler_implies_the_plain_one() -> None:
    assert constraint.with_implied_properties(["fast@gpu", "ssd"]) == {"fast@gpu", "fast", "ssd"}


leaves: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.sampled_from(["ssd", "^ssd", "slow", "^slow", "x"]), max_size=3).map(
        lambda names: {"properties": names}
    ),
    st.lists(st.sampled_from(["n[0-1]", "m3", "n2,n1", ""]), max_size=2).map(
        lambda hosts: {"hostlist": hosts}
    ),
    st.lists(st.sampled_from(["0", "1-2", "[0,3]", ""]), max_size=2).map(lambda r: {"ranks": r}),
    st.just({}),
)
trees = st.recursive(leaves, lambda inner: st.builds(
    lambda operator, parts: {operator: parts},
    st.sampled_from(["and", "or", "not"]), st.lists(inner, max_size=3),
), max_leaves=8)  # fmt: skip


@given(trees, trees, st.sampled_from(NODES))
def test_the_laws_of_logic_hold(one: Any, other: Any, node: Node) -> None:
    def holds(given_: Any) -> bool:
        return constraint.matches(given_, node)

    assert holds({"and": [one, other]}) is (holds(one) and holds(other))
    assert holds({"or": [one, other]}) is (holds(one) or holds(other))
    assert holds({"not": [one]}) is (not holds(one))
    assert holds({"not": [one, other]}) is holds({"or": [{"not": [one]}, {"not": [other]}]})


@given(st.recursive(
    st.none() | st.integers(-1, 2) | st.sampled_from(["", "a", "^a", "n[1", "0-2", "2-0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["and", "or", "not", "properties", "hostlist", "ranks", "x"]), inner,
        max_size=2,
    ),
    max_leaves=6,
))  # fmt: skip
def test_anything_is_read_or_refused(value: Any) -> None:
    try:
        matcher = constraint.matcher(value)
    except BadFormat as error:
        said = str(error)
    else:
        assert matcher(NODES[0]) in (True, False)
        return
    assert said.startswith("constraints")
