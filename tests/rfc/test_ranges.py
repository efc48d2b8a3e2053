"""Ranges of counts (RFC 45, with the meaning that RFC 14 gives them)."""

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import ranges
from warren.rfc.errors import BadFormat
from warren.rfc.ranges import Operator, Range


@pytest.mark.parametrize(
    ("text", "expected", "shortest"),
    [
        ("5", Range(min=5, max=5), "5"),
        ("5-5", Range(min=5, max=5), "5"),
        ("3-30", Range(min=3, max=30), "3-30"),
        ("[3-30]", Range(min=3, max=30), "3-30"),
        ("3+", Range(min=3), "3+"),
        ("[100+]", Range(min=100), "100+"),
        ("1-5:2", Range(min=1, max=5, operand=2), "1-5:2"),
        ("1-5:2:+", Range(min=1, max=5, operand=2), "1-5:2"),
        ("1-4:1:+", Range(min=1, max=4), "1-4"),
        ("1+:1", Range(min=1), "1+"),
        ("[1-4:2:*]", Range(min=1, max=4, operand=2, operator="*"), "1-4:2:*"),
        ("2+:2:^", Range(min=2, operand=2, operator="^"), "2+:2:^"),
        ("5:2", Range(min=5, max=5, operand=2), "5:2"),
        (f"1-{2**63 - 1}", Range(min=1, max=2**63 - 1), f"1-{2**63 - 1}"),
    ],
)
def test_a_range_is_read_and_written_in_its_shortest_form(
    text: str, expected: Range, shortest: str
) -> None:
    assert ranges.parse(text) == expected
    assert ranges.encode(expected) == shortest
    assert ranges.encode(expected, brackets=True) == f"[{shortest}]"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "range '': it ends too early, at 0"),
        ("0", "range '0': unexpected '0' at 0"),
        ("01-2", "range '01-2': unexpected '0' at 0"),
        ("1-02", "range '1-02': unexpected '0' at 2"),
        ("3-", "range '3-': it ends too early, at 2"),
        ("3++", "range '3++': unexpected '+' at 2"),
        ("3-+", "range '3-+': unexpected '+' at 2"),
        ("3-:2", "range '3-:2': unexpected ':' at 2"),
        ("3+5", "range '3+5': unexpected '5' at 2"),
        ("+", "range '+': unexpected '+' at 0"),
        ("1-5:", "range '1-5:': it ends too early, at 4"),
        ("1-5:0", "range '1-5:0': unexpected '0' at 4"),
        ("1-5:2:", "range '1-5:2:': it ends too early, at 6"),
        ("1-5:2:-", "range '1-5:2:-': unexpected '-' at 6"),
        ("1-5:+", "range '1-5:+': unexpected '+' at 4"),
        ("1-5:2:*:", "range '1-5:2:*:': unexpected ':' at 7"),
        ("[3", "range '[3': it ends too early, at 2"),
        ("3]", "range '3]': unexpected ']' at 1"),
        ("[]", "range '[]': unexpected ']' at 1"),
        ("[3]]", "range '[3]]': unexpected ']' at 3"),
        ("[3-]", "range '[3-]': unexpected ']' at 3"),
        ("[[3]]", "range '[[3]]': unexpected '[' at 1"),
        (" 3", "range ' 3': unexpected ' ' at 0"),
        ("3\n", r"range '3\n': unexpected '\n' at 1"),
        ("4,9,16", "range '4,9,16': unexpected ',' at 1"),
        ("1-٣", "range '1-٣': unexpected '٣' at 2"),
        ("5-3", "range: max 3 is less than min 5, in '5-3'"),
        ("1-4:1:*", "range: the operand of * is not at least 2, in '1-4:1:*'"),
        ("2+:1:^", "range: the operand of ^ is not at least 2, in '2+:1:^'"),
        ("1+:2:^", "range: the min of ^ is not at least 2, in '1+:2:^'"),
        (f"{2**63}", f"range: min is not from 1 to {2**63 - 1}, in '{2**63}'"),
    ],
)
def test_a_refusal_names_the_place_of_the_mistake(text: str, mistake: str) -> None:
    with pytest.raises(BadFormat) as refused:
        ranges.parse(text)
    assert str(refused.value) == mistake


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"min": 0}, "min"),
        ({"min": 1, "max": 0}, "max"),
        ({"min": 1, "operand": 0}, "operand"),
        ({"min": 2**63}, "min"),
        ({"min": 1, "operator": "-"}, "operator '-'"),
    ],
)
def test_what_is_no_range_cannot_be_made(fields: dict[str, int], problem: str) -> None:
    with pytest.raises(BadFormat, match=f"range: .*{problem}"):
        Range(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("5", [5]),
        ("5:2", [5]),
        ("3-6", [3, 4, 5, 6]),
        ("1-6:2", [1, 3, 5]),
        ("97+", [97, 98, 99, 100]),
        ("95+:3", [95, 98]),
        ("1-16:2:*", [1, 2, 4, 8, 16]),
        ("3+:3:*", [3, 9, 27, 81]),
        ("2-100:2:^", [2, 4, 16]),
        ("2+:3:^", [2, 8]),
        ("2-8:3:^", [2, 8]),
        ("100+", [100]),
        ("101+", []),
    ],
)
def test_each_acceptable_count_follows_from_the_one_before(text: str, counts: list[int]) -> None:
    assert list(ranges.parse(text).counts(100)) == counts


@pytest.mark.parametrize(
    ("text", "limit", "most"),
    [("3-30", 100, 30), ("3-30", 7, 7), ("3-30", 2, None), ("4+:4", 11, 8), ("2+:2:^", 255, 16)],
)
def test_the_most_that_is_there_is_taken(text: str, limit: int, most: int | None) -> None:
    assert ranges.parse(text).greatest(limit) == most


@pytest.mark.parametrize("operator", ["+", "*", "^"])
def test_ranges_of_astronomical_size_are_answered_at_once(operator: Operator) -> None:
    huge = 2**63 - 1
    assert huge in Range(min=1, max=huge)
    assert Range(min=2, operand=huge, operator=operator).greatest(huge - 1) == 2
    assert Range(min=huge, operand=huge, operator=operator).greatest(huge) == huge


numbers = st.integers(1, 40) | st.integers(1, 2**63 - 1)


@st.composite
def any_range(draw: st.DrawFn) -> Range:
    operator: Operator = draw(st.sampled_from(["+", "*", "^"]))
    least = 1 if operator == "+" else 2
    start = draw(numbers) + (operator == "^")
    return Range(
        min=min(start, 2**63 - 1),
        max=draw(
            st.none() | st.integers(start, max(start, 2**63 - 1)).map(lambda n: min(n, 2**63 - 1))
        ),
        operand=max(least, draw(numbers)),
        operator=operator,
    )


@given(any_range(), st.booleans())
def test_a_range_reads_back(made: Range, brackets: bool) -> None:
    assert ranges.parse(ranges.encode(made, brackets=brackets)) == made


@given(any_range(), st.integers(0, 200))
def test_counts_are_those_that_repeated_application_finds(made: Range, limit: int) -> None:
    found, count = [], made.min
    while count <= min(limit, made.max or limit):
        found.append(count)
        step = {"+": count + made.operand, "*": count * made.operand}
        count = step[made.operator] if made.operator in step else count ** min(made.operand, 9)
    assert list(made.counts(limit)) == found
    assert made.greatest(limit) == (found[-1] if found else None)
    assert (limit in made) == (limit in found)


# The pattern that RFC 14's schema has for range strings
PATTERN = re.compile(
    r"(?=\[.*]$|[^][]*$)\[?[1-9][0-9]*(\+|-[1-9][0-9]*)?(:[1-9][0-9]*(:[+*^])?)?]?"
)


@given(st.text("123456789012[]-+:*^", max_size=12) | st.text())
def test_every_text_is_read_or_refused_as_the_schema_does(text: str) -> None:
    try:
        ranges.parse(text)
    except BadFormat as refused:
        said = str(refused)
    else:
        said = ""
    # The schema does not see that a max is below its min, or an operand too small.
    meaningless = said.startswith("range: ")
    assert bool(PATTERN.fullmatch(text)) == (not said or meaningless)
    assert len(said) < 200


def test_an_unlimited_range_goes_on_for_as_long_as_it_is_asked() -> None:
    assert list(islice(ranges.parse("7+").counts(2**62), 3)) == [7, 8, 9]
