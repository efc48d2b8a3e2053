"""Users, states and moments, as options of commands name them."""

import os
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from warren.base import accounts
from warren.base.errors import UserMistake
from warren.cli.job import selecting

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the wall show UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW),
        ("1789000000.5", 1789000000.5),
        ("-2h", NOW - 7200),
        ("- 2h", NOW - 7200),
        ("30m ago", NOW - 1800),
        ("today", 1789948800.0),
        ("yesterday", 1789948800.0 - 86400),
        ("2026-09-21", 1789948800.0),
        ("2026-09-21T14:00", NOW - 800),
        ("2026-09-21 14:00:00", NOW - 800),
        ("2026-09-21T16:00:00+02:00", NOW - 800),
    ],
)
def test_a_moment_has_many_names(text: str, moment: float) -> None:
    assert selecting.past_time(text, NOW) == moment


@pytest.mark.parametrize(
    ("now", "text", "moment"),
    [
        ("2026-03-29T12:00", "today", "2026-03-29T00:00:00+01:00"),
        ("2026-03-29T12:00", "yesterday", "2026-03-28T00:00:00+01:00"),
        ("2026-03-30T12:00", "yesterday", "2026-03-29T00:00:00+01:00"),
        ("2026-10-25T12:00", "today", "2026-10-25T00:00:00+02:00"),
        ("2026-10-26T12:00", "yesterday", "2026-10-25T00:00:00+02:00"),
    ],
)
def test_a_day_begins_at_midnight_also_where_clocks_have_changed_since(
    monkeypatch: pytest.MonkeyPatch, now: str, text: str, moment: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    now_seconds = datetime.fromisoformat(now).timestamp()

    assert selecting.past_time(text, now_seconds) == datetime.fromisoformat(moment).timestamp()


@pytest.mark.parametrize(
    "text", ["", "soon", "2h", "2026-13-01", "-", "-x", "x ago", "5e3", "nan", "inf ago"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UserMistake, match="is not a time: write seconds since the epoch"):
        selecting.past_time(text, NOW)


def test_a_moment_that_is_still_to_come_is_refused() -> None:
    with pytest.raises(UserMistake, match="is in the future"):
        selecting.past_time("2026-09-22", NOW)


def test_a_user_has_a_name_or_a_number() -> None:
    assert selecting.userid(None) == os.getuid()
    assert selecting.userid("all") is None
    assert selecting.userid("12345") == 12345
    assert selecting.userid(accounts.user_name(0)) == 0
    assert accounts.user_name(2**31 - 7) == str(2**31 - 7)
    assert selecting.by_user(None) == []


def test_states_and_results_may_be_named_together() -> None:
    assert selecting.by_status("pending, FAILED,ca") == {"or": [{"states": [14]}, {"results": [6]}]}
    with pytest.raises(UserMistake, match=r"'x' is no state of a job: .*, or a result: completed"):
        selecting.by_status("pending,x")


def test_one_state_is_one() -> None:
    assert selecting.state_bit("run") == 16
    for several in ("active", "pending"):
        with pytest.raises(UserMistake, match="is several states: name one"):
            selecting.state_bit(several)


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("0-3,5", {"ranks": ["0-3,5"]}),
        ("5", {"ranks": ["5"]}),
        ("n[0-3]", {"hostlist": ["n[0-3]"]}),
        ("login", {"hostlist": ["login"]}),
    ],
)
def test_places_are_ranks_or_hosts(text: str, constraint: object) -> None:
    assert selecting.by_nodes(text) == constraint
