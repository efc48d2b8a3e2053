"""What a job waits for (RFC 26)."""

import reprlib
from typing import Any

import jsonschema_rs
import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rfc.vectors import vector
from warren.rfc import dependency
from warren.rfc.dependency import Dependency
from warren.rfc.errors import BadFormat

OUT = {"type": "out", "scope": "user"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("afterany:ƒ2oLkTLb", Dependency("afterany", "ƒ2oLkTLb")),
        ("afterok:0x17e9fb8df16c2e", Dependency("afterok", "0x17e9fb8df16c2e")),
        ("begin-time:1700000000.5", Dependency("begin-time", "1700000000.5")),
        ("singleton", Dependency("singleton", "")),
        ("singleton:", Dependency("singleton", "")),
        ("string:foo?type=out&scope=user", Dependency("string", "foo", OUT)),
        ("string:foo?type=out;scope=user", Dependency("string", "foo", OUT)),
        ("fluid:hungry-hippos-white-elephant?scope=user&type=out",
         Dependency("fluid", "hungry-hippos-white-elephant", OUT)),
        ("site:a:b?k=v=w&l=", Dependency("site", "a:b", {"k": "v=w", "l": ""})),
        ("site:", Dependency("site", "")),
    ],
)  # fmt: skip
def test_a_dependency_is_read_from_a_command_line(text: str, found: Dependency) -> None:
    assert dependency.parse(text) == found
    assert dependency.decode(dependency.encode(found)) == found
    assert dependency.parse(dependency.to_text(found)) == found


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' at 0 is not a scheme"),
        (":ƒA", "'' at 0 is not a scheme"),
        ("after ok:ƒA", "'after ok' at 0 is not a scheme"),
        ("afterok", "a ':' is missing at 7"),
        ("site", "a ':' is missing at 4"),
        ("afterok:", "'' is not a job id"),
        ("afterok:fl", "'fl' is not a job id"),
        ("afterexcept:x", "'x' is not a job id"),
        ("begin-time:soon", "'soon' is not a time in seconds since the epoch"),
        ("begin-time:-1", "'-1' is not a time in seconds since the epoch"),
        ("begin-time:nan", "'nan' is not a time in seconds since the epoch"),
        ("singleton:x", "singleton takes no value, not 'x'"),
        ("site:a?", "'' at 7 is not key=value"),
        ("site:a?k=v&l", "'l' at 11 is not key=value"),
        ("site:a?k=v&=l", "'=l' at 11 is not key=value"),
        ("site:a?k=v&k=w", "'k' at 11 is given twice"),
        ("site:a?value=w", "'value' at 7 is given twice"),
        ("string:foo?type=out", "string takes a scope of user, global"),
        ("string:foo?type=up&scope=user", "string takes a type of in, out, inout"),
        ("fluid:x?type=in&scope=user&k=v", "fluid has no k"),
    ],
)
def test_a_bad_text_is_refused_with_the_place_of_the_mistake(text: str, problem: str) -> None:
    with pytest.raises(BadFormat) as refused:
        dependency.parse(text)
    assert str(refused.value).startswith(f"dependency {reprlib.repr(text)}: {problem}")


VECTORS = ["1", "2", "3_A", "3_B", "3_C"]


@pytest.mark.parametrize("name", VECTORS)
def test_the_examples_of_rfc_26_are_accepted_and_read_back(name: str) -> None:
    found = yaml.safe_load(vector(f"rfc/spec_26/example_{name}.yaml").read_text())
    assert [dependency.encode(each) for each in dependency.decode_list(found)] == found


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (None, "dependencies is not a list of at least one dependency"),
        ([], "dependencies is not a list of at least one dependency"),
        (["afterok:ƒA"], "dependencies[0] is not an object"),
        ([{"value": "ƒA"}], "dependencies[0].scheme is missing"),
        ([{"scheme": "", "value": "ƒA"}], "dependencies[0].scheme: it is empty"),
        ([{"scheme": 1, "value": "ƒA"}], "dependencies[0].scheme is not a string"),
        ([{"scheme": "afterok"}], "dependencies[0].value is missing"),
        ([{"scheme": "afterok", "value": 1}], "dependencies[0].value is not a string"),
        ([{"scheme": "afterok", "value": "?"}], "dependencies[0].value: '?' is not a job id"),
        ([{"scheme": "string", "value": "a", "type": "in"}], "dependencies[0].scope: string takes"),
        ([{"scheme": "string", "value": "a", **OUT, "type": []}], "dependencies[0].type: string"),
        ([{"scheme": "string", "value": "a", **OUT, "k": 1}], "dependencies[0].k: string has no k"),
        ([{"scheme": "singleton", "value": ""}] * 2, "dependencies[1] is there before"),
        ([{"scheme": "singleton", "value": ""}] * 1001, "dependencies holds more than 1000 depend"),
        ([{"scheme": "site", "value": "", "k": [1]}] * 2, "dependencies[1] is there before"),
    ],
)
def test_a_bad_list_is_refused_with_the_place_of_the_mistake(bad: Any, problem: str) -> None:
    with pytest.raises(BadFormat) as refused:
        dependency.decode_list(bad)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("after:ƒA", "after-start=ƒA"),
        ("afterstart:ƒA", "after-start=ƒA"),
        ("afterany:0xff", "after-finish=0xff"),
        ("afterok:255", "after-success=255"),
        ("afternotok:ƒA", "after-failure=ƒA"),
        ("afterexcept:ƒA", "after-except=ƒA"),
        ("begin-time:1700000000.12345", "begin-time=1700000000.123"),
        ("singleton", "singleton"),
    ],
)
def test_the_eventlog_knows_a_dependency_by_its_description(text: str, description: str) -> None:
    assert dependency.description(dependency.parse(text)) == description


@pytest.mark.parametrize("text", ["site:x", "string:x?type=in&scope=user"])
def test_schemes_that_are_not_served_have_no_description(text: str) -> None:
    with pytest.raises(BadFormat, match=r'^dependency scheme "(site|string)" not supported$'):
        dependency.description(dependency.parse(text))


@pytest.mark.parametrize(
    "given_",
    [
        Dependency("site", "a?b"),
        Dependency("site", "a", {"k": "v&w"}),
        Dependency("site", "a", {"k": 1}),
        Dependency("site", "a", {"": "x"}),
        Dependency("two words", "a"),
        Dependency("", "a"),
    ],
)
def test_what_has_no_text_is_not_written(given_: Dependency) -> None:
    with pytest.raises(BadFormat):
        dependency.to_text(given_)


openmp = st.lists(st.fixed_dictionaries(
    {"scheme": st.sampled_from(["string", "fluid"]), "value": st.sampled_from(["a", ""])},
    optional={
        "type": st.sampled_from(["in", "out", "inout", "up", None]),
        "scope": st.sampled_from(["user", "global", "all", 1]), "more": st.just("x"),
    },
), max_size=3)  # fmt: skip


@given(openmp | st.sampled_from([None, {}, [1], [{}]]))
def test_dependencies_of_the_openmp_kind_are_accepted_as_the_schema_says(value: Any) -> None:
    found = orjson.loads(vector("rfc/spec_26/schema.json").read_bytes())
    try:
        dependency.decode_list(value)
    except BadFormat:
        assert not jsonschema_rs.Draft4Validator(found).is_valid(value)
    else:
        assert jsonschema_rs.Draft4Validator(found).is_valid(value)


words = st.text("ab:/ =ƒ", max_size=5)
keys = st.text("abk", min_size=1, max_size=3)


@given(words, st.dictionaries(keys, words, max_size=3))
def test_a_dependency_reads_back(value: str, options: dict[str, str]) -> None:
    given_ = Dependency("site.x", value, options)
    assert dependency.parse(dependency.to_text(given_)) == given_
    assert dependency.decode(dependency.encode(given_)) == given_


@given(st.text("afteroksingleton:?=&;", max_size=14) | st.text(max_size=8))
def test_every_text_is_read_or_refused(text: str) -> None:
    try:
        found = dependency.parse(text)
    except BadFormat:
        return
    assert dependency.parse(dependency.to_text(found)) == found
