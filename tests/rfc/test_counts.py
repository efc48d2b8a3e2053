"""How many of a resource a jobspec asks for (RFC 14, 45)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import counts
from warren.rfc.errors import BadFormat


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1, [1]),
        (7, [7]),
        ("7", [7]),
        ("[3-5]", [3, 4, 5]),
        ("18+", [18, 19, 20]),
        ("1-5:2", [1, 3, 5]),
        ("2-16:2:*", [2, 4, 8, 16]),
        ("2+:2:^", [2, 4, 16]),
        ("4,9,16,25", [4, 9, 16]),
        ("[1,3-4]", [1, 3, 4]),
        ({"min": 17}, [17, 18, 19, 20]),
        ({"min": 3, "max": 30, "operator": "+", "operand": 8}, [3, 11, 19]),
        ({"min": 3, "max": 12, "operator": "*", "operand": 2}, [3, 6, 12]),
        ({"min": 2, "max": 16, "operator": "^", "operand": 2}, [2, 4, 16]),
    ],
)
def test_all_spellings_name_a_set_of_numbers(value: Any, wanted: list[int]) -> None:
    count = counts.parse(value)
    assert [number for number in range(21) if number in count] == wanted
    assert count.min == wanted[0]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (0, "count is not a whole number from 1"),
        (-1, "count is not a whole number from 1"),
        (2**63, "count is not a whole number from 1"),
        (True, "count is neither a whole number of at least 1 nor a text"),
        (1.0, "count is neither"),
        (None, "count is neither"),
        ([1], "count is neither"),
        ("", "count is no range '': it ends too early, at 0"),
        ("0", "count is no range '0': unexpected '0' at 0"),
        ("3-x", "count is no range '3-x': unexpected 'x' at 2"),
        ("5-3", "count is no range: max 3 is less than min 5"),
        ("4:1:*", "count is no range: the operand of * is not at least 2"),
        ("0,2", "count is no list of counts '0,2'"),
        ("4,2", "count is no idset '4,2': 2 at 2 does not ascend"),
        ("1-99999999,100000001", "count is no idset"),
        ({}, "count.min is missing"),
        ({"max": 2}, "count.min is missing"),
        ({"min": 1, "max": 2}, "count.operator is missing: beside min stand all"),
        ({"min": 1, "max": 2, "operator": "+"}, "count.operand is missing"),
        ({"min": 1, "operator": "+", "operand": 1}, "count.max is missing"),
        ({"min": 1, "step": 2}, "count.step is not one of min, max, operator, operand"),
        ({"min": "1"}, "count.min is not a whole number"),
        ({"min": 0}, "count.min is not a whole number"),
        ({"min": True}, "count.min is not a whole number"),
        ({"min": 1, "max": 2, "operator": "-", "operand": 1}, "count.operator is none of"),
        ({"min": 1, "max": 2, "operator": [], "operand": 1}, "count.operator is none of"),
        ({"min": 3, "max": 2, "operator": "+", "operand": 1}, "count is no range: max 2 is less"),
        ({"min": 1, "max": 2, "operator": "^", "operand": 2}, "count is no range: the min of ^"),
    ],
)
def test_what_is_no_count_is_refused_with_its_key(value: Any, problem: str) -> None:
    with pytest.raises(BadFormat) as refused:
        counts.parse(value)
    assert str(refused.value).startswith(problem)


def test_a_list_of_counts_is_short() -> None:
    """A listing reads those of each job again; ranges may be as long as they like."""
    odd = [str(number) for number in range(1, 2051, 2)]
    assert counts.parse(",".join(odd[:1024])).min == 1
    with pytest.raises(BadFormat, match="it holds more than 1024 ids"):
        counts.parse(",".join(odd))
    assert counts.parse("1-9999999:2").min == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4, "4"),
        ("[4-4]", "4"),
        ({"min": 2}, "2+"),
        ("4,9,10,11", "4,9-11"),
        ({"min": 2, "max": 8, "operator": "*", "operand": 2}, "2-8:2:*"),
    ],
)
def test_a_count_is_written_in_its_shortest_text(value: Any, text: str) -> None:
    assert counts.encode(counts.parse(value)) == text


numbers = st.integers(1, 60)
objects = st.builds(
    lambda low, more, operator, operand: {
        "min": low, "max": low + more, "operator": operator, "operand": operand,
    },
    st.integers(2, 30), st.integers(0, 60), st.sampled_from("+*^"), st.integers(2, 5),
)  # fmt: skip
lists = st.sets(numbers, min_size=2).map(lambda found: ",".join(map(str, sorted(found))))


@given(numbers | objects | lists | numbers.map("{}+".format), st.integers(0, 100))
def test_a_count_reads_back_and_gives_the_most_that_it_allows(value: Any, limit: int) -> None:
    count = counts.parse(value)
    allowed = [number for number in range(1, limit + 1) if number in count]
    assert count.greatest(limit) == (allowed[-1] if allowed else None)

    again = counts.parse(counts.encode(count))
    assert [number for number in range(100) if number in again] == [
        number for number in range(100) if number in count
    ]
