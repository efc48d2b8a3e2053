"""Future times, as people write them: `+10m`, `14:30`, `tomorrow 8am`, `2027-01-31T14:30`."""

import re
from datetime import date, datetime, time, timedelta
from math import isfinite
from typing import Final

from warren.base.errors import UserMistake
from warren.rfc import duration
from warren.rfc.errors import BadFormat

_DEFAULT_TIME: Final = time(9)
"""The time of `today` and `tomorrow` where none is said, as Flux's parser of words has it."""
_NAMED_TIMES: Final = {"noon": time(12), "midnight": time(0)}
_DAYS_AHEAD: Final = {"today": 0, "tomorrow": 1}
_SECONDS_BY_UNIT: Final = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 7 * 86400}

_SECONDS_PATTERN: Final = re.compile(r"@?([0-9]+(?:\.[0-9]+)?)")
_SPAN_PATTERN: Final = re.compile(r"in (an?|[0-9]+(?:\.[0-9]+)?) ?(second|minute|hour|day|week)s?")
_CLOCK_PATTERN: Final = re.compile(r"(\d{1,2})(?::(\d\d)(?::(\d\d))?)? ?(am|pm)?")


def parse_future_time(text: str, now: float, option: str = "--begin-time") -> float:
    """Read a time, as seconds since the epoch; without a zone it is local time.

    Raises UserMistake, which names the `option`, for what is not a time.
    """
    try:
        timestamp = _parse(" ".join(text.split()).lower().removeprefix("at "), now)
        if timestamp is None:
            timestamp = datetime.fromisoformat(text.strip()).timestamp()
        if not isfinite(timestamp):
            raise ValueError(timestamp)
        return timestamp
    except (BadFormat, ValueError, OverflowError, OSError):
        raise UserMistake(
            f"{option} {text}: say +10m, now, 14:30, tomorrow 8am, in 2 hours, 2027-01-31, "
            "2027-01-31T14:30, or seconds since 1970."
        ) from None


def _parse(text: str, now: float) -> float | None:
    if text == "now":
        return now
    if text.startswith("+"):
        return now + duration.parse(text[1:])
    if text.startswith("in ") and (span_match := _SPAN_PATTERN.fullmatch(text)) is not None:
        count = 1.0 if span_match[1].startswith("a") else float(span_match[1])
        return now + count * _SECONDS_BY_UNIT[span_match[2]]
    if (seconds_match := _SECONDS_PATTERN.fullmatch(text)) is not None:
        return float(seconds_match[1])
    today = datetime.fromtimestamp(now).date()  # noqa: DTZ006 - local time is meant
    day, _, rest = text.partition(" ")
    if day in _DAYS_AHEAD:
        time_of_day = _time_of_day(rest.removeprefix("at ")) if rest else _DEFAULT_TIME
        return (
            None
            if time_of_day is None
            else _timestamp(today + timedelta(days=_DAYS_AHEAD[day]), time_of_day)
        )
    if rest and (time_of_day := _time_of_day(rest.removeprefix("at "))) is not None:
        return _timestamp(date.fromisoformat(day), time_of_day)
    time_of_day = _time_of_day(text)
    return None if time_of_day is None else _timestamp(today, time_of_day)


def _timestamp(day: date, time_of_day: time) -> float:
    return datetime.combine(day, time_of_day).timestamp()


def _time_of_day(text: str) -> time | None:
    """Read a time of day; None for what is none. Raises ValueError for one that no day has."""
    if text in _NAMED_TIMES:
        return _NAMED_TIMES[text]
    match = _CLOCK_PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    hour, am_or_pm = int(match[1]), match[4]
    if am_or_pm is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if am_or_pm == "pm" else 0)
    return time(hour, int(match[2] or 0), int(match[3] or 0))
