"""Strategic merge patches: what lists become, and what the directives do."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import merge_patch
from warren.kube.client import Refused
from warren.kube.server.schemas.strategic import strategic_merge

OWNERS = [{"uid": "a", "name": "one"}, {"uid": "b", "name": "two"}]

SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"])
NAMES = st.sampled_from(["a", "b", "c"])
OBJECTS: st.SearchStrategy[Any] = st.recursive(
    st.dictionaries(NAMES, SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(NAMES, inner | SCALARS, max_size=3),
    max_leaves=8,
)


@given(OBJECTS, OBJECTS)
def test_without_lists_that_merge_it_is_a_merge_patch(old: Any, patch: Any) -> None:
    before = copy.deepcopy((old, patch))
    assert strategic_merge(old, patch) == merge_patch(old, patch)
    assert (old, patch) == before


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ([{"uid": "c", "name": "three"}], [*OWNERS, {"uid": "c", "name": "three"}]),
        ([{"uid": "a", "name": "new"}], [{"uid": "a", "name": "new"}, OWNERS[1]]),
        ([{"uid": "a", "controller": True}], [{**OWNERS[0], "controller": True}, OWNERS[1]]),
        ([{"uid": "a", "name": None}], [{"uid": "a"}, OWNERS[1]]),
        ([{"uid": "a", "$patch": "delete"}], [OWNERS[1]]),
        ([{"uid": "x", "$patch": "delete"}], OWNERS),
        ([{"$patch": "replace"}, {"uid": "c"}], [{"uid": "c"}]),
        ([], OWNERS),
        (None, None),
    ],
    ids=str,
)
def test_a_list_is_merged_by_the_key_of_its_items(patch: Any, expected: Any) -> None:
    after = strategic_merge({"ownerReferences": OWNERS}, {"ownerReferences": patch})
    assert after.get("ownerReferences") == expected


def test_a_list_without_a_key_is_replaced() -> None:
    assert strategic_merge({"rules": [1, 2]}, {"rules": [3]}) == {"rules": [3]}


def test_a_set_of_plain_values_grows_and_shrinks() -> None:
    old = {"finalizers": ["a", "b"]}
    assert strategic_merge(old, {"finalizers": ["b", "c"]}) == {"finalizers": ["a", "b", "c"]}
    taken = {"$deleteFromPrimitiveList/finalizers": ["a"]}
    assert strategic_merge(old, taken) == {"finalizers": ["b"]}
    both = {**taken, "finalizers": ["c"], "$setElementOrder/finalizers": ["c", "b"]}
    assert strategic_merge(old, both) == {"finalizers": ["c", "b"]}


def test_items_come_in_the_order_that_is_asked_for() -> None:
    order = [{"uid": "c"}, {"uid": "b"}, {"uid": "a"}]
    patch = {"ownerReferences": [{"uid": "c"}], "$setElementOrder/ownerReferences": order}
    after = strategic_merge({"ownerReferences": OWNERS}, patch)
    assert [each["uid"] for each in after["ownerReferences"]] == ["c", "b", "a"]


def test_an_object_can_be_replaced_emptied_or_cut_to_some_fields() -> None:
    old = {"data": {"a": 1, "b": 2}}
    assert strategic_merge(old, {"data": {"$patch": "replace", "c": 3}}) == {"data": {"c": 3}}
    assert strategic_merge(old, {"data": {"$patch": "delete"}}) == {"data": {}}
    kept = {"data": {"$retainKeys": ["b", "c"], "c": 3}}
    assert strategic_merge(old, kept) == {"data": {"b": 2, "c": 3}}


@pytest.mark.parametrize("key", ["containerPort", "port"])
def test_ports_are_told_apart_as_their_owners_do(key: str) -> None:
    old = {"ports": [{key: 1, "name": "a"}]}
    after = strategic_merge(old, {"ports": [{key: 2, "name": "a"}]})
    assert [each[key] for each in after["ports"]] == [1, 2]


@pytest.mark.parametrize(
    "patch",
    [
        [],
        "x",
        None,
        {"$patch": "nonsense"},
        {"ownerReferences": [{"name": "who"}]},
        {"ownerReferences": [{"uid": {"a": 1}}]},
        {"ownerReferences": [{"uid": ["a"]}]},
        {"$retainKeys": 5},
        {"$retainKeys": None},
        {"$retainKeys": [{}]},
        {"$deleteFromPrimitiveList/finalizers": 5},
        {"$deleteFromPrimitiveList/finalizers": "ab"},
        {"$deleteFromPrimitiveList/finalizers": [[]]},
        {"$deleteFromPrimitiveList/data": ["a"]},
        {"$setElementOrder/ownerReferences": 184},
        {"$setElementOrder/nowhere": {}},
        {"finalizers": [{}]},
    ],
    ids=str,
)
def test_what_is_no_patch_is_refused(patch: Any) -> None:
    with pytest.raises(Refused):
        strategic_merge({"ownerReferences": OWNERS, "finalizers": ["a"], "data": {"a": "b"}}, patch)


@pytest.mark.parametrize("key", ["containerPort", "port"])
def test_ports_that_are_no_objects_are_replaced(key: str) -> None:
    assert strategic_merge({"ports": [1, {key: 2}]}, {"ports": [{key: 3}]}) == {"ports": [{key: 3}]}


def test_an_order_passes_over_what_cannot_be_told_apart() -> None:
    old = {"a": [1, {"b": 2}, [3], 4]}
    after = strategic_merge(old, {"$setElementOrder/a": [{"b": 2}, [3], 4, 1]})
    assert after == {"a": [4, 1, {"b": 2}, [3]]}
