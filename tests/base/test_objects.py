"""Merge patches (RFC 7386), and the names of objects and kinds."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Create, Key, Kind, key_of, merge_patch

WIDGET = Kind("shop.example", "v1", "Widget", "widgets")
POD = Kind("", "v1", "Pod", "pods")

APPENDIX = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(("target", "patch", "result"), APPENDIX)
def test_the_examples_of_the_rfc_come_out_as_it_says(target: Any, patch: Any, result: Any) -> None:
    assert merge_patch(target, patch) == result


@given(values, values)
def test_merging_modifies_neither_argument(target: Any, patch: Any) -> None:
    before = copy.deepcopy((target, patch))
    merge_patch(target, patch)
    assert (target, patch) == before


@given(values, values)
def test_merging_twice_is_merging_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(values, st.dictionaries(st.sampled_from("abc"), values, max_size=3))
def test_what_a_patch_says_is_so_afterwards_and_what_it_omits_is_kept(
    target: Any, patch: dict[str, Any]
) -> None:
    result = merge_patch(target, patch)
    kept = target if isinstance(target, dict) else {}
    for name in "abc":
        if name not in patch:
            assert result.get(name) == kept.get(name)
        elif patch[name] is None:
            assert name not in result
        elif not isinstance(patch[name], dict):
            assert result[name] == patch[name]


def test_unchanged_parts_are_shared() -> None:
    target = {"spec": {"a": 1}, "status": {"b": 2}}
    assert merge_patch(target, {"status": {"b": 3}})["spec"] is target["spec"]


def test_a_key_shows_its_namespace_when_there_is_one() -> None:
    assert str(Key("default", "one")) == "default/one"
    assert str(Key("", "one")) == "one"
    assert Key.parse("default/one") == Key("default", "one")
    assert Key.parse("one") == Key("", "one")
    assert key_of({"metadata": {"name": "one"}}) == Key("", "one")


def test_a_creation_knows_its_key() -> None:
    obj = {"metadata": {"name": "one", "namespace": "default"}}
    assert Create(kind=WIDGET, object=obj).key == Key("default", "one")


def test_a_kind_of_the_core_group_has_no_group_in_its_names() -> None:
    assert (str(WIDGET), WIDGET.api_version) == ("widgets.shop.example", "shop.example/v1")
    assert (str(POD), POD.api_version) == ("pods", "v1")
