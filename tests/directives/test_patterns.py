"""Patterns of a site's rules: they mean what they mean to Go, and none takes for ever."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.directives.parse import MAX_WORD_LENGTH
from warren.directives.patterns import BadPattern, occurs

TEXTS = ("", "a", "ab", "ba", "aab", "b1", "aaaa", "a,b", "A", "-", "a b")

letters = st.sampled_from(
    ["a", "b", "1", ",", "\\w", "\\d", ".", "[ab]", "[^a]", "[a-z0-9-]", "^", "$", "\\b"]
)  # not \\B, which Python's library does not find in an empty text, and Go does
patterns = st.recursive(
    letters,
    lambda inner: st.one_of(
        st.builds("({}|{})".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
        st.builds(
            "({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])
        ),
    ),
    max_leaves=6,
)


@given(patterns)
def test_a_pattern_finds_what_the_library_finds(pattern: str) -> None:
    try:
        expected = re.compile(pattern, re.ASCII)
    except re.error:
        return  # Python repeats no places
    assert [occurs(pattern, text) for text in TEXTS] == [
        expected.search(text) is not None for text in TEXTS
    ]


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("a", "bab", True),  # anywhere: nothing is anchored that does not say so (section 2)
        ("(?i)^(true|false)$", "TrUe", True),
        ("^(?:a|b)+$", "abba", True),
        ("^(?P<x>a)(?<y>b)$", "ab", True),
        ("^[[:alpha:]]+[[:digit:]]$", "ab1", True),
        (r"^\d$", "１", False),
        (r"^a\z", "a", True),
        ("^x{2,3}$", "xxxx", False),
        (r"^\+\.$", "+.", True),
        ("^]{}$", "]{}", True),
    ],
)
def test_a_pattern_is_read_as_go_reads_it(pattern: str, text: str, is_found: bool) -> None:
    assert occurs(pattern, text) is is_found


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "[", "*", "a**", "a++", "(?=a)", "(?<!a)b", r"(a)\1", "\\", "(?x)a", "[b-a]",
        "x{3000}", "((x{50}){50}){50}", "(" * 60 + ")" * 60,
    ],
)  # fmt: skip
def test_what_go_does_not_know_is_no_pattern(pattern: str) -> None:
    with pytest.raises(BadPattern, match="the pattern "):
        occurs(pattern, "a")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(\w+-?)+$", "a" * (MAX_WORD_LENGTH - 1) + ","),
        (r"^(a|a)*$", "a" * (MAX_WORD_LENGTH - 1) + ","),
        (r"^(a*)*(a*)*$", "a" * (MAX_WORD_LENGTH - 1) + ","),
        (r"\d+\d+\d+\d+\d+$", "1" * (MAX_WORD_LENGTH - 1) + ","),
        ("^" + "a?" * 60 + "a" * 60 + "$", "a" * 59),
    ],
)
def test_no_pattern_takes_for_ever_over_the_longest_word(pattern: str, text: str) -> None:
    # Matched by backtracking, each would outlive the machine.
    assert not occurs(pattern, text)
