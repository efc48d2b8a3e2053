"""Capacities: numbers with a unit."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.directives.rulebook import CAPACITY
from warren.base.errors import UserMistake
from warren.directives import capacity


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1KiB", 1024),
        ("1KB", 1000),
        ("1kB", 1000),
        ("300MiB", 314572800),
        ("100MB", 10**8),
        ("1GiB", 2**30),
        ("10GB", 10**10),
        ("2TiB", 2**41),
        ("1TB", 10**12),
        ("1PiB", 2**50),
        ("1P", 10**15),
        ("5Gi", 5 * 2**30),
        ("1.5KiB", 1536),
        (".5KiB", 512),
        ("2.KB", 2000),
        ("512", 512),
        ("512B", 512),
        ("0GiB", 0),
    ],
)
def test_units_are_decimal_or_binary(text: str, size: int) -> None:
    assert capacity.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "1 GiB", "-1GiB", "1gib", "1KIB", "1E", "1.2.3G", "1GiBs"]
)
def test_what_is_no_capacity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserMistake) as refused:
        capacity.parse(text)
    assert str(refused.value) == (
        f"{text!r} is not a capacity: write a number and a unit, such as 100GiB."
    )


@pytest.mark.parametrize("text", ["9000PiB", "9223372036854775808", "9" * 400 + "KiB"])
def test_a_capacity_that_cannot_be_counted_is_refused(text: str) -> None:
    with pytest.raises(UserMistake, match=r"is too large: a capacity is less than 8 EiB\.$"):
        capacity.parse(text)


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("1.5TiB", "Try 1536GiB."),
        ("1.5TB", "Try 1500GB."),
        ("100gib", "Try 100GiB."),
        ("100G", "Try 100GB."),
        ("100Gi", "Try 100GiB."),
        ("1PiB", "Try 1024TiB."),
        ("0.5KiB", "Try 1KiB."),
        ("100", "Try 100GiB."),
        ("lots", None),
        ("9" * 400 + "K", None),
    ],
)
def test_a_capacity_in_whole_units_is_suggested(text: str, suggested: str | None) -> None:
    assert capacity.suggestion(text) == suggested


numbers = st.from_regex(r"[0-9]{0,3}(\.[0-9]{1,3})?", fullmatch=True)


@given(numbers, st.sampled_from(["", "K", "k", "MiB", "gb", "G", "TiB", "Pi", "p", "B"]))
def test_what_is_suggested_is_accepted_and_nearly_the_same(number: str, unit: str) -> None:
    suggested = capacity.suggestion(number + unit)
    if suggested is None:
        return
    text = suggested.removeprefix("Try ").removesuffix(".")
    assert re.search(CAPACITY, text)
    if unit and float(number):
        prefix = unit[0].upper() + ("i" if unit[1:2] == "i" else "")
        asked = capacity.parse(number + prefix)
        assert capacity.parse(text) == pytest.approx(asked, abs=1024)
