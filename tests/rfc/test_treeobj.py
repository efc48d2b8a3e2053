"""Tree objects (RFC 11) and the blobrefs in them (RFC 10)."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import treeobj
from warren.rfc.errors import BadFormat

FOO = "sha1-f1d2d2f924e986ac86fdf7b36c94bcdf32beec15"
"""RFC 10's example: the digest of "foo" and a newline."""
FOO256 = "sha256-b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"

DIRECTORY = {
    "ver": 1,
    "type": "dir",
    "data": {
        "a": {"ver": 1, "type": "dirref", "data": [FOO]},
        "b": {"ver": 1, "type": "val", "data": "NDIyCg=="},
        "c": {"ver": 1, "type": "valref", "data": [FOO, FOO256]},
        "d": {"ver": 1, "type": "dir", "data": {}},
        "e": {"ver": 1, "type": "symlink", "data": {"target": "a.a"}},
        "f": {"ver": 1, "type": "symlink", "data": {"namespace": "a", "target": "b.b"}},
        "g": {
            "ver": 1,
            "type": "hdir",
            "data": {
                "size": 8,
                "func": "city32",
                "bucket": [{"ver": 1, "type": "dirref", "data": [FOO]}, None],
            },
        },
    },
}
"""All six types, with the examples of RFC 11."""


def test_the_examples_of_the_rfc_are_made() -> None:
    entries = dict(DIRECTORY["data"])  # type: ignore[call-overload]
    hashed = entries["g"]
    made = treeobj.directory(
        {
            "a": treeobj.dirref(FOO),
            "b": treeobj.val(b"422\n"),
            "c": treeobj.valref([FOO, FOO256]),
            "d": treeobj.directory({}),
            "e": treeobj.symlink("a.a"),
            "f": treeobj.symlink("b.b", "a"),
            "g": hashed,
        }
    )
    assert made == DIRECTORY


def test_all_types_are_read() -> None:
    assert treeobj.decode(orjson.dumps(DIRECTORY, option=orjson.OPT_INDENT_2)) == DIRECTORY


def test_the_text_is_the_same_in_whatever_order_the_keys_come() -> None:
    one = {"b": treeobj.symlink("x", "y"), "a": treeobj.val(b"")}
    other = {"a": {"data": "", "type": "val", "ver": 1}, "b": one["b"]}
    assert treeobj.encode(treeobj.directory(one)) == treeobj.encode(treeobj.directory(other))
    assert treeobj.encode(one["b"]) == (
        b'{"data":{"namespace":"y","target":"x"},"type":"symlink","ver":1}'
    )


@pytest.mark.parametrize(
    ("algorithm", "blob", "ref"),
    [
        ("sha1", b"foo\n", FOO),
        ("sha256", b"foo\n", FOO256),
        ("sha1", b"", "sha1-da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ],
)
def test_a_blob_is_named_by_its_digest(algorithm: treeobj.Algorithm, blob: bytes, ref: str) -> None:
    assert treeobj.blobref(blob, algorithm) == ref
    assert treeobj.check_blob(ref, blob) == blob
    with pytest.raises(BadFormat, match=f"the blob of {ref} is that of {algorithm}-"):
        treeobj.check_blob(ref, blob + b"!")


@pytest.mark.parametrize(
    ("ref", "problem"),
    [
        (7, "7, not a blobref"),
        ("", "begins with neither"),
        ("md5-d41d8cd98f00b204e9800998ecf8427e", "begins with neither"),
        ("sha1", "sha1 has 40 digits, not 0"),
        (FOO[:-1], "sha1 has 40 digits, not 39"),
        (FOO + "0", "sha1 has 40 digits, not 41"),
        (FOO.replace("sha1", "sha256"), "sha256 has 64 digits, not 40"),
        (FOO.replace("f1", "F1"), "holds 'F' at 5"),
        (FOO + "\n", r"holds '\\n' at 45"),
        ("sha1-" + "٣" * 40, "holds '٣' at 5"),
    ],
)
def test_what_is_no_blobref_is_refused(ref: Any, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        treeobj.check_blobref(ref)


def within(obj: Any) -> dict[str, Any]:
    return {"ver": 1, "type": "dir", "data": {"x": obj}}


def of(type: str, data: Any) -> dict[str, Any]:
    return {"ver": 1, "type": type, "data": data}


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (None, "tree object: is None, not an object"),
        ([], "not an object"),
        ({}, "not ver, type, data"),
        ({**of("val", ""), "more": 1}, "has the keys ver, type, data, more"),
        ({**of("val", ""), "ver": 2}, "at ver: is 2, not 1"),
        ({**of("val", ""), "ver": True}, "at ver: is True, not 1"),
        (of("file", ""), "at type: is 'file', not one of"),
        (of("val", 7), "at data: is 7, not base64"),
        (of("val", "?"), "at data: is not base64"),
        (of("val", "YQ==\n"), "at data: is not base64"),
        (of("valref", FOO), "at data: is .*, not an array"),
        (of("valref", [FOO, "x"]), r"at data\[1\]: 'x' begins with neither"),
        (of("dirref", []), "at data: holds 0 blobrefs, not one"),
        (of("dirref", [FOO, FOO]), "at data: holds 2 blobrefs, not one"),
        (of("dir", []), r"at data: is \[\], not an object"),
        (of("symlink", {}), "at data: does not hold a target"),
        (of("symlink", "a"), "at data: does not hold a target"),
        (of("symlink", {"target": "a", "more": "b"}), "at data: does not hold a target"),
        (of("symlink", {"target": ""}), "at data.target: is '', not a name"),
        (of("symlink", {"target": "a", "namespace": 1}), "at data.namespace: is 1"),
        (of("hdir", {"size": 1}), "at data: does not hold size, func and bucket"),
        (of("hdir", {"size": 0, "func": "f", "bucket": []}), "at data.size: is 0"),
        (of("hdir", {"size": 1, "func": "", "bucket": []}), "at data.func: is ''"),
        (of("hdir", {"size": 1, "func": "f", "bucket": [None] * 2}), "an array of at most 1"),
        (of("hdir", {"size": 1, "func": "f", "bucket": [of("val", "")]}), "'val', not dirref"),
        (of("hdir", {"size": 1, "func": "f", "bucket": [of("dirref", [])]}), "0 blobrefs"),
        (of("dir", {"": of("val", "")}), "at data: holds the name ''"),
        (of("dir", {"a.b": of("val", "")}), "at data: holds the name 'a.b'"),
        (within(of("val", "?")), "at data.x.data: is not base64"),
        (within(within(None)), "at data.x.data.x: is None, not an object"),
    ],
)
def test_what_is_no_tree_object_is_refused_with_its_path(obj: Any, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        treeobj.check(obj)


@pytest.mark.parametrize("text", ["", "{", "[1", b"\xff", "NaN"])
def test_a_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(BadFormat, match="not JSON"):
        treeobj.decode(text)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(BadFormat, match="cannot be written"):
        treeobj.encode(treeobj.symlink("\ud800"))


def test_a_directory_may_be_as_deep_as_a_sender_likes() -> None:
    deep: dict[str, Any] = of("val", "?")
    for _ in range(5000):
        deep = within(deep)
    with pytest.raises(BadFormat, match="is not base64"):
        treeobj.check(deep)


names = st.sampled_from(["a", "b", "ƒ", "é-1", "\ue000", "\U0001f600", " "])
refs = st.sampled_from([FOO, FOO256, treeobj.blobref(b"")])
leaves = (
    st.binary(max_size=20).map(treeobj.val)
    | st.lists(refs, max_size=3).map(treeobj.valref)
    | refs.map(treeobj.dirref)
    | st.builds(treeobj.symlink, names, st.none() | names)
)
objects = st.recursive(
    leaves,
    lambda each: st.dictionaries(names, each, max_size=3).map(treeobj.directory),
    max_leaves=6,
)


@given(objects)
def test_a_tree_reads_back(obj: dict[str, Any]) -> None:
    text = treeobj.encode(obj)
    assert treeobj.decode(text) == obj
    assert treeobj.encode(treeobj.decode(text)) == text


# Values, which travel most


@given(st.binary(max_size=60))
def test_a_value_reads_back(data: bytes) -> None:
    assert treeobj.read_val(treeobj.val(data)) == data


@pytest.mark.parametrize(
    "obj",
    [
        None,
        [],
        {"ver": 2, "type": "val", "data": ""},
        {"ver": 1, "type": "dir", "data": {}},
        {"ver": 1, "type": "val"},
        {"ver": 1, "type": "val", "data": 7},
        {"ver": 1, "type": "val", "data": "?"},
        {"ver": 1, "type": "val", "data": "é"},
        {"ver": 1, "type": "val", "data": "YQ==YQ=="},
    ],
)
def test_what_is_no_value_is_refused(obj: object) -> None:
    with pytest.raises(BadFormat, match="tree object"):
        treeobj.read_val(obj)
