"""Selectors: which objects they mean, and how a mistake in one is told."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.kube.client import Refused
from warren.kube.server.selectors import (
    FieldSelector,
    FieldTerm,
    LabelSelector,
    Operator,
    Requirement,
    parse_fields,
    parse_labels,
)

# Each selector, and whether it selects {}, {a: x}, {a: y} and {a: ""}.
MEANINGS = {
    "": "yes yes yes yes",
    "a=x": "no yes no no",
    "a==x": "no yes no no",
    "a = x": "no yes no no",
    "a!=x": "yes no yes yes",
    "a": "no yes yes yes",
    "!a": "yes no no no",
    "! a": "yes no no no",
    "a in (x)": "no yes no no",
    "a in (x,y)": "no yes yes no",
    "a in(x, y)": "no yes yes no",
    "a in (x,)": "no yes no yes",
    "a in (,)": "no no no yes",
    "a notin (x)": "yes no yes yes",
    "a notin (x,y)": "yes no no yes",
    "a=": "no no no yes",
    "a!=": "yes yes yes no",
    "a,a!=x": "no no yes yes",
    "a notin (x),a": "no no yes yes",
    "a=x,a=y": "no no no no",
    "b": "no no no no",
}


@pytest.mark.parametrize("text", MEANINGS)
def test_a_label_selector_means_what_the_api_means(text: str) -> None:
    selector = parse_labels(text)
    labels: list[Mapping[str, str]] = [{}, {"a": "x"}, {"a": "y"}, {"a": ""}]
    answers = ["yes" if selector.matches(each) else "no" for each in labels]
    assert " ".join(answers) == MEANINGS[text]


def test_an_object_without_labels_is_one_whose_labels_are_not_there() -> None:
    for text in MEANINGS:
        selector = parse_labels(text)
        assert selector.matches(None) is selector.matches({})


def test_names_may_be_domains_and_words_of_the_grammar() -> None:
    selector = parse_labels("dataworkflowservices.github.io/workflow.name=w,in in (in,notin)")
    labels = {"dataworkflowservices.github.io/workflow.name": "w", "in": "notin"}
    assert selector.matches(labels)
    assert not selector.matches({**labels, "in": "out"})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b , a==x", "a=x,b"),
        ("a in (z,y,z)", "a in (y,z)"),
        ("a in ( , )", "a in (,)"),
        ("a notin(x)", "a notin (x)"),
        ("! a,!a", "!a"),
        ("  ", ""),
    ],
)
def test_labels_have_one_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_labels(text)) == canonical


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("a=x,", 5, "the end"),
        (",a", 1, "','"),
        ("a,,b", 3, "','"),
        ("=x", 1, "'='"),
        ("!", 2, "the end"),
        ("a x", 3, "'x'"),
        ("a in x", 6, "'x'"),
        ("a in", 5, "the end"),
        ("a in ()", 7, "')'"),
        ("a in (x", 8, "the end"),
        ("a in (x y)", 9, "'y'"),
        ("a in (x))", 9, "')'"),
        ("a=x y", 5, "'y'"),
        ("a=x=y", 4, "'='"),
        ("a===x", 4, "'='"),
        ("!a=x", 3, "'='"),
        ("a>1", 2, "'>'"),
        ("-a=x", 1, "'-a'"),
        ("a/b/c=x", 1, "'a/b/c'"),
        ("/a", 1, "'/a'"),
        ("A.b/a", 1, "'A.b/a'"),
        ("a=ä", 3, "'ä'"),
        ("a=x-", 3, "'x-'"),
        ("a=" + "x" * 64, 3, "'xxx"),
        ("a" * 64, 1, "'aaa"),
        ("d" * 254 + "/a", 1, "'ddd"),
    ],
)
def test_a_mistake_in_labels_is_told_with_its_place(text: str, place: int, found: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_labels(text)
    assert str(refusal.value).startswith(f"label selector, character {place}: found {found}")
    assert len(str(refusal.value)) < 250


words = st.text("abz09", min_size=1, max_size=4) | st.sampled_from(["in", "notin", "a-b", "A_.c"])
keys = words | st.builds("{}.io/{}".format, st.text("abz", min_size=1, max_size=3), words)
values = words | st.just("")


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(Operator))
    match operator:
        case Operator.EQUALS | Operator.NOT_EQUALS:
            chosen: tuple[str, ...] = (draw(values),)
        case Operator.IN | Operator.NOT_IN:
            chosen = tuple(sorted(draw(st.sets(values, min_size=1, max_size=3))))
        case _:
            chosen = ()
    return Requirement(draw(keys), operator, chosen)


@given(wanted=st.sets(requirements(), max_size=4))
def test_the_canonical_form_of_labels_says_the_same(wanted: set[Requirement]) -> None:
    selector = LabelSelector(tuple(sorted(wanted)))
    assert parse_labels(str(selector)) == selector


@given(text=st.text("ab=!(), <>/.-in\\\n", max_size=12))
def test_any_text_is_labels_or_a_mistake(text: str) -> None:
    try:
        selector = parse_labels(text)
    except Refused:
        return
    assert str(parse_labels(str(selector))) == str(selector)


@given(key=st.sampled_from("ab"), chosen=st.sets(st.sampled_from(["", "x", "y"]), min_size=1),
       labels=st.dictionaries(st.sampled_from("ab"), st.sampled_from(["", "x", "y"])))  # fmt: skip
def test_every_operator_has_its_opposite(
    key: str, chosen: set[str], labels: dict[str, str]
) -> None:
    inside = ",".join([*sorted(chosen), ""]) if chosen == {""} else ",".join(sorted(chosen))
    one = min(chosen)
    for this, other in (
        (key, f"!{key}"),
        (f"{key}={one}", f"{key}!={one}"),
        (f"{key} in ({inside})", f"{key} notin ({inside})"),
    ):
        assert parse_labels(this).matches(labels) is not parse_labels(other).matches(labels)


# Fields

OBJECT: dict[str, Any] = {
    "metadata": {"name": "w", "namespace": "default"},
    "spec": {"color": "a,b=c\\d", "count": 3, "ready": True, "list": ["x"]},
}
PATHS = (".spec.color", ".spec.count", "spec.ready", ".spec.list", ".spec.color.deeper")


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        (",", True),
        ("metadata.name=w", True),
        ("metadata.name==w", True),
        ("metadata.name!=w", False),
        ("metadata.name=", False),
        ("metadata.name=w,metadata.namespace=other", False),
        ("metadata.name=w,metadata.namespace!=other", True),
        ("spec.count=3", True),
        ("spec.ready=true", True),
        ("spec.ready!=false", True),
        (r"spec.color=a\,b\=c\\d", True),
        ("spec.list=", True),
        ("spec.color.deeper=", True),
        ("spec.color.deeper!=x", True),
    ],
)
def test_a_field_selector_means_what_the_api_means(text: str, selected: bool) -> None:
    assert parse_fields(text, PATHS).matches(OBJECT) is selected


def test_a_cluster_wide_object_is_in_no_namespace() -> None:
    assert parse_fields("metadata.namespace=").matches({"metadata": {"name": "n"}})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("metadata.name", "character 1: 'metadata.name' is not of the form field=value"),
        ("metadata.name=w,x", "character 17: 'x' is not of the form field=value"),
        ("metadata.uid=w", "character 1: 'metadata.uid' is no field to select by"),
        (" metadata.name=w", "character 1: ' metadata.name' is no field to select by"),
        ("=w", "character 1: '' is no field to select by"),
        ("metadata.name=a=b", "character 15: 'a=b' needs a \\ before each"),
        ("metadata.name=a\\b", "character 15: 'a\\\\b' needs a \\ before each"),
        ("metadata.name=a\\", "character 15: 'a\\\\' needs a \\ before each"),
    ],
)
def test_a_mistake_in_fields_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_fields(text)
    assert str(refusal.value).startswith(f"field selector, {told}")


terms = st.builds(
    FieldTerm,
    st.sampled_from(["metadata.name", "spec.color"]),
    st.text("ab,=\\! \n"),
    st.booleans(),
)


@given(wanted=st.sets(terms, max_size=4))
def test_the_canonical_form_of_fields_says_the_same(wanted: set[FieldTerm]) -> None:
    selector = FieldSelector(tuple(sorted(wanted)))
    assert parse_fields(str(selector), [".spec.color"]) == selector


@given(value=st.text("ab,=\\! \n"))
def test_a_field_is_found_by_its_value(value: str) -> None:
    obj = {"metadata": {"name": "w"}, "spec": {"color": value}}
    assert FieldSelector((FieldTerm("spec.color", value),)).matches(obj)
    assert not FieldSelector((FieldTerm("spec.color", value, equal=False),)).matches(obj)
