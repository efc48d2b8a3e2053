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
        ("+inf", math.inf),
        ("+1.5", 1.5),
        ("0x1d", 29),
        ("0x.8p1m", 60),
        ("0X1P-1ms", 0.0005),
        ("0x1dd", 477),
        ("1e-400", 0),
        # The RFC's own
        ("2ms", 0.002),
        ("0.1s", 0.1),
        ("30", 30),
        ("1.2h", 4320),
        ("5m", 300),
        ("0s", 0),
        ("5d", 432000),
        ("infinity", math.inf),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration.parse(text) == pytest.approx(seconds)


def test_milliseconds_are_exact() -> None:
    assert [duration.parse(f"{n}ms") for n in range(1000)] == [n / 1000 for n in range(1000)]


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "-1", "-1s", "1.0sec", "1 s", "1S", "1H", "1w", "nan", "infd", "-inf"),
        *("1e", "1..5", "1,5", " 1", "1\n", "٣", ".", "+", "++1", "-0", "NaN", "0x", "0x.", "0xg"),
        *("0x1p", "1e400", "1e308d", "9" * 5000, "0x1p1024", "0x1p99999999999999999999", "infs"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="is not a duration"):
        duration.parse(text)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("soon", "'soon' is not a duration: a number of at least 0 is missing at 0, as in 1.5h"),
        ("1.5e+", "'1.5e+' is not a duration: a digit of the exponent is missing at 5"),
        (
            "1.5sec",
            "'1.5sec' is not a duration: the number ends at 3,"
            " and the unit after it is none of ms, s, m, h and d",
        ),
        ("1e400", "'1e400' is not a duration: the number is too large"),
    ],
)
def test_a_refusal_names_the_place_of_the_mistake(text: str, mistake: str) -> None:
    with pytest.raises(BadFormat) as refused:
        duration.parse(text)
    assert str(refused.value) == mistake


@pytest.mark.parametrize("seconds", [math.nan, -1, -math.inf, -1e-9])
def test_what_is_no_duration_is_not_written(seconds: float) -> None:
    with pytest.raises(BadFormat, match="are not a duration"):
        duration.format_fsd(seconds)


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


@given(st.floats(0, 1e9) | st.floats(0, 1e300))
def test_a_duration_reads_back_to_six_digits(seconds: float) -> None:
    assert duration.parse(duration.format_fsd(seconds)) == pytest.approx(seconds, rel=1e-5)


@given(st.text("0123456789.eE+-xXpPinfatymshd ", max_size=30) | st.text())
def test_every_text_is_a_duration_or_refused(text: str) -> None:
    try:
        seconds = duration.parse(text)
    except BadFormat as refused:
        said = str(refused)
    else:
        assert seconds >= 0
        assert math.isfinite(seconds) or "inf" in text.lower()
        said = ""
    assert len(said) < 200
