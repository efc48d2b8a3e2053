"""Moments and lengths of time as Kubernetes objects write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.times import from_go_duration, go_duration, parse_rfc3339, rfc3339, rfc3339_micro

NOON = 1_769_860_800.0  # 2026-01-31T12:00:00Z


def test_a_moment_is_written_in_utc_to_the_second_or_the_microsecond() -> None:
    assert rfc3339(NOON + 0.75) == "2026-01-31T12:00:00Z"
    assert rfc3339_micro(NOON + 0.25) == "2026-01-31T12:00:00.250000Z"


@given(st.integers(0, 4_000_000_000_000_000))
def test_a_moment_read_back_is_the_same_to_the_microsecond(micros: int) -> None:
    assert round(parse_rfc3339(rfc3339_micro(micros / 1e6)) * 1e6) == pytest.approx(micros, abs=1)


def test_an_offset_is_understood() -> None:
    assert parse_rfc3339("2026-01-31T13:00:00+01:00") == NOON


@pytest.mark.parametrize(
    "text", ["", "noon", "2026-13-01T00:00:00Z", "2026-01-31", "2026-01-31T12:00:00"]
)
def test_a_moment_without_its_zone_or_its_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_rfc3339(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.000_000_4, "0s"),
        (0.000_5, "500µs"),
        (0.001, "1ms"),
        (0.0015, "1.5ms"),
        (0.1, "100ms"),
        (0.7315, "731.5ms"),
        (1, "1s"),
        (2.5, "2.5s"),
        (10, "10s"),
        (59.999_999_9, "1m0s"),
        (62.5, "1m2.5s"),
        (3600, "1h0m0s"),
        (90_061.000_001, "25h1m1.000001s"),
    ],
)
def test_a_length_of_time_is_written_as_go_prints_it(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@given(st.integers(0, 10**13))
def test_a_length_of_time_read_back_is_the_same_to_the_microsecond(micros: int) -> None:
    assert round(from_go_duration(go_duration(micros / 1e6)) * 1e6) == micros
