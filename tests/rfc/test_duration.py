"""Lengths of time in Flux Standard Duration (RFC 23)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import duration
from warren.rfc.errors import BadFormat


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("2", 2),
        ("2s", 2),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("1.5m", 90),
        ("1.", 1),
        (".5h", 1800),
        ("1e2s", 100),
        ("2.5e-1", 0.25),
        (".5e1", 5),
        ("1d", 86400),
        ("inf", math.inf),
        ("INF", math.inf),
        ("Infinity", math.inf),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "-1", "-1s", "1.0sec", "1 s", "1S", "1H", "1w", "nan", "infd", "-inf"),
        *("1e", "1..5", "1,5", " 1", "1\n", "٣"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="is not a duration"):
        duration.parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.05, "50ms"),
        (0.1, "0.1s"),
        (0.42, "0.42s"),
        (59.5, "59.5s"),
        (60, "1m"),
        (90, "1.5m"),
        (3600, "1h"),
        (5400, "1.5h"),
        (86400, "1d"),
        (129600, "1.5d"),
        (math.inf, "infinity"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit(seconds: float, text: str) -> None:
    assert duration.format_fsd(seconds) == text


@given(st.floats(0, 1e9))
def test_a_duration_reads_back_to_six_digits(seconds: float) -> None:
    assert duration.parse(duration.format_fsd(seconds)) == pytest.approx(seconds, rel=1e-5)
