"""How Kubernetes objects write moments and lengths of time."""

import re
from datetime import UTC, datetime
from typing import Final


def rfc3339(moment: float) -> str:
    """Write a moment to the second: `2026-01-31T12:00:00Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: float) -> str:
    """Write a moment to the microsecond: `2026-01-31T12:00:00.250000Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_rfc3339(text: str) -> float:
    """Read a moment, as seconds since the epoch. Raises ValueError for anything else."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} is not a time: it lacks its offset from UTC")
    return moment.timestamp()


def go_duration(seconds: float) -> str:
    """Write a length of time as Go prints it, to the microsecond: `1m2.5s`, `731.5ms`."""
    micros = round(seconds * 1_000_000)
    if micros < 1_000:
        return f"{micros}µs" if micros else "0s"
    if micros < 1_000_000:
        return f"{micros / 1_000:.3f}".rstrip("0").rstrip(".") + "ms"
    whole_seconds, fraction = divmod(micros, 1_000_000)
    hours, seconds_of_hour = divmod(whole_seconds, 3600)
    minutes, seconds_of_minute = divmod(seconds_of_hour, 60)
    text = f"{seconds_of_minute}.{fraction:06d}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


_GO_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
_GO_PART: Final = re.compile(r"([0-9.]+)(h|ms|m|µs|s)")


def from_go_duration(text: str) -> float:
    """Return the seconds of a length of time as `go_duration` writes it."""
    parts = _GO_PART.findall(text)
    return sum((float(number) * _GO_UNITS[unit] for number, unit in parts), 0.0)


def age(seconds: float) -> str:
    """Write an age as kubectl does: `42s`, `7m12s`, `3h5m`, `2d4h`."""
    whole_seconds = max(0, int(seconds))
    if whole_seconds < 120:
        return f"{whole_seconds}s"
    minutes, seconds_of_minute = divmod(whole_seconds, 60)
    if minutes < 10:
        return f"{minutes}m{seconds_of_minute}s" if seconds_of_minute else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes}m" if hours < 8 and minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    if days >= 730:
        years, days = divmod(days, 365)
        return f"{years}y{days}d" if years < 8 and days else f"{years}y"
    return f"{days}d{hours}h" if days < 8 and hours else f"{days}d"
