"""When a job may begin, in words."""

import time
from collections.abc import Iterator

import pytest

from warren.base.errors import UserMistake
from warren.cli.futuretime import parse_future_time

NOW = 1_800_000_123.5
"""In Berlin: a Friday, 2027-01-15, 09:02:03."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("14:30", "2027-01-15T14:30:00"),
        ("at 8:05:09 pm", "2027-01-15T20:05:09"),
        ("8am", "2027-01-15T08:00:00"),
        ("12AM", "2027-01-15T00:00:00"),
        ("noon", "2027-01-15T12:00:00"),
        ("today 23:00", "2027-01-15T23:00:00"),
        ("tomorrow", "2027-01-16T09:00:00"),
        ("Tomorrow  8am", "2027-01-16T08:00:00"),
        ("tomorrow at 12pm", "2027-01-16T12:00:00"),
        ("tomorrow midnight", "2027-01-16T00:00:00"),
        ("2027-06-21 8am", "2027-06-21T08:00:00"),
        ("2027-06-21", "2027-06-21T00:00:00"),
        ("2027-06-21T14:30", "2027-06-21T14:30:00"),
        ("2027-06-21 14:30:05", "2027-06-21T14:30:05"),
        ("2027-06-21T12:30Z", "2027-06-21T14:30:00"),
    ],
)
def test_days_and_times_are_local(text: str, local: str) -> None:
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(parse_future_time(text, NOW))) == local


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("+1h", NOW + 3600),
        ("+90", NOW + 90),
        ("in an hour", NOW + 3600),
        ("in 2 days", NOW + 2 * 86400),
        ("1800000200", 1_800_000_200.0),
        ("@1800000200.25", 1_800_000_200.25),
    ],
)
def test_spans_and_seconds_are_what_they_are(text: str, moment: float) -> None:
    assert parse_future_time(text, NOW) == moment


@pytest.mark.parametrize(
    "text",
    ["", "soon", "+", "+soon", "13pm", "0am", "25:00", "tomorrow soon", "2027-02-30", "in x",
     "in 9 days ago", "yesterday", "+infd", "+inf", "2027-13-01 8am", "@"],
)  # fmt: skip
def test_what_names_no_moment_is_refused_with_what_does(text: str) -> None:
    with pytest.raises(UserMistake, match=r"^--begin-time .*: say \+10m, now, 14:30"):
        parse_future_time(text, NOW)
