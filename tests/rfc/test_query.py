"""Constraints as people write them (RFC 35)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import constraint, query
from warren.rfc.errors import BadFormat
from warren.rfc.query import PLAIN, REQUIRES, BadQuery, Dialect

NAMES = Dialect(default_operator="name", aliases={})


def name(text: str) -> dict[str, Any]:
    return {"name": [text]}


A, B, C = name("a"), name("b"), name("c")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        # The examples of RFC 35
        ("foo", name("foo")),
        ("foo bar", {"and": [name("foo"), name("bar")]}),
        ("foo bar state:started", {"and": [name("foo"), name("bar"), {"state": ["started"]}]}),
        ("a|b|c", {"or": [A, B, C]}),
        ("a|b&c", {"or": [A, {"and": [B, C]}]}),
        ("(a|b)&c", {"and": [{"or": [A, B]}, C]}),
        ("(a|-b)&c", {"and": [{"or": [A, {"not": [B]}]}, C]}),
        # Every spelling of an operator
        *((text, {"and": [A, B]}) for text in ("a b", "a&b", "a && b", "a and b", "a\tand\nb")),
        *((text, {"or": [A, B]}) for text in ("a|b", "a || b", "a or b", "(a)or(b)")),
        *((text, {"not": [A]}) for text in ("-a", "not a", "- a", "not(a)", "not\ta")),
        # Precedence and nesting
        ("a b c", {"and": [A, B, C]}),
        ("a & b and c", {"and": [A, B, C]}),
        ("a b | c", {"or": [{"and": [A, B]}, C]}),
        ("a | b c", {"or": [A, {"and": [B, C]}]}),
        ("not a b", {"and": [{"not": [A]}, B]}),
        ("not (a b)", {"not": [{"and": [A, B]}]}),
        ("not not a", {"not": [{"not": [A]}]}),
        ("not -a", {"not": [{"not": [A]}]}),
        ("((a) (b))", {"and": [A, B]}),
        ("a (b c)", {"and": [A, {"and": [B, C]}]}),
        # Words and quotes
        ("'a'", A),
        ('( "a" )', A),
        ("a:b:c", {"a": ["b:c"]}),
        ("x:'y z'", {"x": ["y z"]}),
        ("x: 'y z'", {"x": ["y z"]}),
        ("x: y", {"x": ["y"]}),
        ("x:''", {"x": [""]}),
        ("x:'it is \"it\"'", {"x": ['it is "it"']}),
        ("re:'/a|(b).*/' c", {"and": [{"re": ["/a|(b).*/"]}, C]}),
        ("-x:y", {"not": [{"x": ["y"]}]}),
        ("'and'", name("and")),
        ("android", name("android")),
        ("nothing", name("nothing")),
        ("oreo", name("oreo")),
        ("a-b", name("a-b")),
        ("x:-b", {"x": ["-b"]}),
        ("@x.y+z-w:v", {"@x.y+z-w": ["v"]}),
    ],
)
def test_a_query_becomes_a_constraint(text: str, made: dict[str, Any]) -> None:
    assert query.parse(text, NAMES) == made


@pytest.mark.parametrize(
    ("text", "offset", "problem"),
    [
        ("", 0, "a term is missing"),
        ("  ", 2, "a term is missing"),
        ("a |", 3, "a term is missing"),
        ("a and", 5, "a term is missing"),
        ("a & | b", 4, "a term is missing"),
        ("| a", 0, "a term is missing"),
        ("()", 1, "a term is missing"),
        ("not", 3, "a term is missing"),
        ("(a b", 0, "this '(' is not closed"),
        ("c (a (b)", 2, "this '(' is not closed"),
        ("(a))", 3, "this ')' closes nothing"),
        ("x -(a|b)", 3, "'-' stands before one term only: write not"),
        ("--a", 1, "'-' stands before one term only: write not"),
        ("a x:' ", 4, "this quote is not closed"),
        ('a "b', 2, "this quote is not closed"),
        ("a'b'", 1, "a quote starts or ends inside a word"),
        ("'a'b", 3, "a quote starts or ends inside a word"),
        ("x:y'b'", 3, "a quote starts or ends inside a word"),
        ("x:'a''b'", 5, "a quote starts or ends inside a word"),
        ("fast and rank:", 14, "the operand of 'rank' is missing"),
        ("x: (a)", 3, "the operand of 'x' is missing"),
        ("a large,rank:2", 2, "'large,rank' is not an operator"),
        (":a", 0, "'' is not an operator"),
        ("a 'or:b'", 2, "'or' is not an operator"),
        ("(" * 99, 99, "a term is missing"),
        ("(" * 200, 100, "the query is nested more than 100 deep"),
        ("not " * 5000, 400, "the query is nested more than 100 deep"),
    ],
)
def test_a_bad_query_is_refused_with_its_place(text: str, offset: int, problem: str) -> None:
    with pytest.raises(BadQuery) as refused:
        query.parse(text, NAMES)
    assert refused.value.offset == offset
    assert str(refused.value).endswith(f": {problem} at {offset}")


def test_without_a_default_every_operand_has_an_operator() -> None:
    assert query.parse("x:y") == {"x": ["y"]}
    with pytest.raises(BadQuery, match="'b' has no operator at 4"):
        query.parse("x:y b")


def test_a_mistake_can_be_shown_with_a_caret() -> None:
    with pytest.raises(BadQuery) as refused:
        query.parse("a (b", NAMES)
    assert refused.value.text_with_carets == "a (b\n  ^\nquery 'a (b': this '(' is not closed at 2"


# The dialect of --requires


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("ssd", {"properties": ["ssd"]}),
        ("ssd,^slow", {"properties": ["ssd", "^slow"]}),
        ("ssd big", {"properties": ["ssd", "big"]}),
        ("a,b c properties:d", {"properties": ["a", "b", "c", "d"]}),
        ("not (a and b)", {"not": [{"properties": ["a", "b"]}]}),
        ("a|b", {"or": [{"properties": ["a"]}, {"properties": ["b"]}]}),
        ("a -b", {"and": [{"properties": ["a"]}, {"not": [{"properties": ["b"]}]}]}),
        ("host:n[1-2],m", {"hostlist": ["n[1-2],m"]}),
        ("hosts:n1 hostlist:n2", {"and": [{"hostlist": ["n1"]}, {"hostlist": ["n2"]}]}),
        ("a rank:0-3 b", {"and": [{"properties": ["a"]}, {"ranks": ["0-3"]},
                                  {"properties": ["b"]}]}),
        ("+batch fast@gpu", {"properties": ["+batch", "fast@gpu"]}),
    ],
)  # fmt: skip
def test_requirements_are_constraints_on_nodes(text: str, made: dict[str, Any]) -> None:
    assert query.parse(text, REQUIRES) == made
    constraint.check(made)


@pytest.mark.parametrize(
    ("text", "offset", "problem"),
    [
        ("a state:x", 2, "'state' is not one of host, hostlist, hosts, properties, rank, ranks"),
        ("a,,b", 2, "this is empty, and so no property"),
        ("a,b,'x'", 4, "a quote starts or ends inside a word"),
        ("a,b!c", 2, "this is no property 'b!c': it holds '!'"),
        ("'a b|c'", 1, "this is no property 'a b|c': it holds '|'"),
        ("x host:'n[1'", 8, "this is no hostlist 'n[1': the bracket at 1 is not closed"),
        ("rank: 2-1", 6, "this is no idset '2-1': the range '2-1' at 0 does not ascend"),
    ],
)
def test_requirements_that_no_node_could_meet_are_refused_with_their_place(
    text: str, offset: int, problem: str
) -> None:
    with pytest.raises(BadQuery) as refused:
        query.parse(text, REQUIRES)
    assert (refused.value.offset, str(refused.value)) == (
        offset, f"query {text!r}: {problem} at {offset}",
    )  # fmt: skip


# Back to text


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (A, "a"),
        ({"x": ["a"]}, "x:a"),
        ({"and": [A, {"or": [B, C]}]}, "a (b|c)"),
        ({"or": [A, {"and": [B, C]}]}, "a|b c"),
        ({"not": [{"or": [A, B]}]}, "not (a|b)"),
        (name("a b"), "name:'a b'"),
        (name("it's"), 'name:"it\'s"'),
        (name("not"), "name:not"),
        (name("-a"), "name:-a"),
        (name("a:b"), "name:a:b"),
        (name(""), "name:''"),
        ({"-x": ["y"]}, "'-x:y'"),
        ({"or-z": ["y"]}, "'or-z:y'"),
    ],
)
def test_a_constraint_is_written_as_a_person_would(made: dict[str, Any], text: str) -> None:
    assert query.encode(made, NAMES) == text
    assert query.parse(text, NAMES) == made


@pytest.mark.parametrize(
    ("made", "dialect"),
    [
        ({}, NAMES),
        ({"and": []}, NAMES),
        ({"and": [A]}, NAMES),
        ({"not": []}, NAMES),
        ({"not": [A, B]}, NAMES),
        ({"name": []}, NAMES),
        ({"name": ["a", "b"]}, NAMES),
        ({"a b": ["c"]}, NAMES),
        ({"x": ["a"], "y": ["b"]}, NAMES),
        (name("'\""), NAMES),
        ({"properties": ["a,b"]}, REQUIRES),
        ({"host": ["a"]}, REQUIRES),
        ({"state": ["a"]}, REQUIRES),
    ],
)
def test_what_no_query_makes_is_not_written(made: dict[str, Any], dialect: Dialect) -> None:
    with pytest.raises(BadFormat, match=r"^constraint "):
        query.encode(made, dialect)


operands = st.text("abn-:,'|&() \t^é", max_size=6)
terms = st.builds(
    lambda operator, operand: {operator: [operand]},
    st.sampled_from(["name", "x", "a.b-c", "-x", "not-y"]), operands,
)  # fmt: skip


def several(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    chains = st.builds(
        lambda operator, parts: {operator: parts},
        st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3),
    )  # fmt: skip
    return chains | inner.map(lambda part: {"not": [part]})


@given(st.recursive(terms, several, max_leaves=8), st.sampled_from([NAMES, PLAIN]))
def test_a_constraint_reads_back(made: dict[str, Any], dialect: Dialect) -> None:
    assert query.parse(query.encode(made, dialect), dialect) == made


required = st.one_of(
    st.lists(st.sampled_from(["a", "^b", "not", "or-c", "+q"]), min_size=1, max_size=3).map(
        lambda names: {"properties": names}
    ),
    st.sampled_from([{"hostlist": ["n[0-2]"]}, {"ranks": ["0,2-3"]}]),
)
nodes = st.builds(
    constraint.Node, st.integers(0, 4), st.sampled_from(["n0", "n2", "m"]),
    st.frozensets(st.sampled_from(["a", "b", "not", "or-c", "+q"])),
)  # fmt: skip


@given(st.recursive(required, several, max_leaves=6), nodes)
def test_requirements_read_back_and_mean_the_same(
    made: dict[str, Any], node: constraint.Node
) -> None:
    again = query.parse(query.encode(made, REQUIRES), REQUIRES)
    assert constraint.matches(again, node) is constraint.matches(made, node)


@given(st.text("ab:-|&()'\" not", max_size=12) | st.text(max_size=6))
def test_every_text_is_read_or_refused_at_a_place_in_it(text: str) -> None:
    try:
        made = query.parse(text, NAMES)
    except BadQuery as refused:
        offset = refused.offset
    else:
        assert query.parse(query.encode(made, NAMES), NAMES) == made
        return
    assert 0 <= offset <= len(text)
