"""JSON patches: what RFC 6902 says of each operation, and what is refused."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.kube.client import Refused
from warren.kube.server.schemas import patches
from warren.kube.server.schemas.patches import json_patch


def op(name: str, path: str, *value: Any, **more: Any) -> dict[str, Any]:
    given = {"value": value[0]} if value else {}
    return {"op": name, "path": path, **given, **more}


# The situations of RFC 6902, appendix A; A.13 (a member twice) cannot be told after parsing.
DONE: dict[str, tuple[Any, list[Any], Any]] = {
    "A.1 a member is added": ({"foo": "bar"}, [op("add", "/baz", 1)], {"foo": "bar", "baz": 1}),
    "A.2 an element is added": ({"l": ["a", "c"]}, [op("add", "/l/1", "b")], {"l": list("abc")}),
    "A.3 a member is removed": ({"a": 1, "b": 2}, [op("remove", "/b")], {"a": 1}),
    "A.4 an element is removed": ({"l": list("abc")}, [op("remove", "/l/1")], {"l": ["a", "c"]}),
    "A.5 a value is replaced": ({"a": 1, "b": 2}, [op("replace", "/a", "x")], {"a": "x", "b": 2}),
    "A.6 a value is moved": (
        {"a": {"x": 1, "y": 2}, "b": {}},
        [op("move", "/b/z", **{"from": "/a/y"})],
        {"a": {"x": 1}, "b": {"z": 2}},
    ),
    "A.7 an element is moved": (
        {"l": list("abcd")},
        [op("move", "/l/3", **{"from": "/l/1"})],
        {"l": list("acdb")},
    ),
    "A.8 tests hold": (
        {"a": "x", "l": ["b", 2]},
        [op("test", "/a", "x"), op("test", "/l/1", 2)],
        {"a": "x", "l": ["b", 2]},
    ),
    "A.10 an object is added": (
        {"a": 1},
        [op("add", "/child", {"grand": {}})],
        {"a": 1, "child": {"grand": {}}},
    ),
    "A.11 unknown members are ignored": ({}, [op("add", "/a", 1, xyz=2)], {"a": 1}),
    "A.14 tildes and slashes are escaped": (
        {"/": 9, "~1": 10},
        [op("test", "/~01", 10), op("replace", "/~1", 8)],
        {"/": 8, "~1": 10},
    ),
    "A.16 a list is added at the end": (
        {"l": ["a"]},
        [op("add", "/l/-", ["b", "c"])],
        {"l": ["a", ["b", "c"]]},
    ),
    "add replaces a member": ({"a": 1}, [op("add", "/a", 2)], {"a": 2}),
    "copy keeps the source": (
        {"a": {"x": 1}},
        [op("copy", "/b", **{"from": "/a"}), op("add", "/b/y", 2)],
        {"a": {"x": 1}, "b": {"x": 1, "y": 2}},
    ),
    "the whole object is replaced": ({"a": 1}, [op("replace", "", {"b": 2})], {"b": 2}),
    "the empty name is a name": ({"": 1}, [op("remove", "/")], {}),
    "null is a value": ({"a": None}, [op("test", "/a", None), op("add", "/b", None)],
                        {"a": None, "b": None}),
    "numbers are tested as numbers": ({"a": 1}, [op("test", "/a", 1.0)], {"a": 1}),
    "no operations do nothing": ({"a": 1}, [], {"a": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", DONE)
def test_an_operation_does_what_the_rfc_says(name: str) -> None:
    before, operations, after = DONE[name]
    assert json_patch(before, operations) == after


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


FAILS = {
    "depth is bounded": op("add", "/deep", deep(5000)),
    "A.9 a test fails": op("test", "/a", "y"),
    "A.12 the parent is not there": op("add", "/b/c", 1),
    "A.15 text is no number": op("test", "/one", "1"),
    "true is not one": op("test", "/one", True),
    "nothing is not null": op("test", "/nothing", None),
    "a member is not there to be removed": op("remove", "/b"),
    "a member is not there to be replaced": op("replace", "/b", 1),
    "an element is not there": op("remove", "/l/2"),
    "a list has no gaps": op("add", "/l/3", 1),
    "an index has no leading zero": op("add", "/l/01", 1),
    "an index has no sign": op("add", "/l/-1", 1),
    "an index is a number": op("add", "/l/x", 1),
    "an index is not a long number": op("add", "/l/" + "9" * 5000, 1),
    "behind the end is nothing": op("remove", "/l/-"),
    "text has no members": op("add", "/a/0", 1),
    "an object does not go into itself": op("move", "/o/p/q", **{"from": "/o"}),
    "the source of a copy is not there": op("copy", "/b", **{"from": "/x"}),
    "the source of a move is not there": op("move", "/b", **{"from": "/x"}),
    "a copy has a source": op("copy", "/b"),
    "a pointer starts with a slash": op("add", "a", 1),
    "a tilde escapes something": op("add", "/~2", 1),
    "an operation is known": op("sort", "/l"),
    "an addition has a value": op("add", "/b"),
    "an operation has a path": {"op": "add", "value": 1},
    "a path is text": {"op": "add", "path": 7, "value": 1},
    "an operation has a name": {"path": "/a"},
    "a name is text": {"op": ["add"], "path": "/a", "value": 1},
    "an operation is an object": "add",
    "the whole object cannot be removed": op("remove", ""),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_cannot_be_done_is_refused_with_its_number(name: str) -> None:
    obj = {"a": "x", "one": 1, "l": [1, 2], "o": {"p": {}}}
    before = copy.deepcopy(obj)
    with pytest.raises(Refused, match=r"^operation 2: .") as refusal:
        json_patch(obj, [op("add", "/new", 1), FAILS[name]])
    assert len(str(refusal.value)) < 300
    assert obj == before


@pytest.mark.parametrize("operations", [None, {}, "[]", 5, op("add", "/a", 1)])
def test_a_patch_is_a_list(operations: Any) -> None:
    with pytest.raises(Refused, match="list of operations"):
        json_patch({}, operations)


def test_an_object_remains() -> None:
    with pytest.raises(Refused, match="leaves no object"):
        json_patch({}, [op("replace", "", [1])])


def test_copies_do_not_grow_beyond_bounds() -> None:
    doubling = [op("copy", f"/{number}", **{"from": ""}) for number in range(13)]
    with pytest.raises(Refused, match=r"^operation \d+: the patch copies more than \d+ bytes"):
        json_patch({"a": "x" * 1000}, doubling)


def test_a_patch_is_not_endless() -> None:
    most = [op("add", "/a", 1)] * patches._MAX_OPERATIONS
    assert json_patch({}, most) == {"a": 1}
    with pytest.raises(Refused, match="at most 10000 operations"):
        json_patch({}, [*most, op("add", "/a", 1)])


def test_a_long_value_is_not_quoted_in_full() -> None:
    with pytest.raises(Refused) as refusal:
        json_patch({"a": "x" * 10_000}, [op("test", "", 1)])
    assert len(str(refusal.value)) < 300


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab~/", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab~/", max_size=2), inner),
    max_leaves=8,
)
pointers = st.lists(st.sampled_from(["a", "b", "~0", "~1", "0", "1", "-", ""]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
operations = st.lists(
    st.fixed_dictionaries(
        {
            "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]),
            "path": pointers,
            "from": pointers,
            "value": values,
        }
    ),
    max_size=5,
)


@given(obj=st.dictionaries(st.sampled_from(["a", "b", "~", "/"]), values), operations=operations)
def test_arguments_are_never_modified(
    obj: dict[str, Any], operations: list[dict[str, Any]]
) -> None:
    """Neither by the patch, nor by what is done to its result."""
    before = copy.deepcopy((obj, operations))
    try:
        result = json_patch(obj, operations)
    except Refused:
        pass
    else:
        _spoil(result)
    assert (obj, operations) == before


def _spoil(value: Any) -> None:
    match value:
        case dict():
            for inner in value.values():
                _spoil(inner)
            value["spoiled"] = True
        case list():
            for inner in value:
                _spoil(inner)
            value.append("spoiled")
        case _:
            pass


@given(obj=st.dictionaries(st.sampled_from(["a", "b", "~", "/"]), values), value=values)
def test_what_is_added_can_be_tested_and_removed(obj: dict[str, Any], value: Any) -> None:
    there = [op("add", "/new", value), op("test", "/new", value)]
    assert json_patch(obj, there) == {**obj, "new": value}
    assert json_patch(obj, [*there, op("remove", "/new")]) == obj
