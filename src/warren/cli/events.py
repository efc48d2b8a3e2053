"""Events as `flux job eventlog` prints them: one line each, the time in one of four ways."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from warren.base.printable import printable
from warren.rfc import eventlog
from warren.rfc.eventlog import Event

FORMATS: Final = ("text", "json")
TIME_FORMATS: Final = ("raw", "iso", "offset", "human", "reltime")


class EventWriter:
    """Writes the events of one log, in order: times may be counted from earlier events."""

    def __init__(self, form: str = "text", time_format: str = "raw") -> None:
        self._form = form
        self._time_format = time_format
        self._first_timestamp: float | None = None
        self._minute = ""
        self._minute_began = 0.0

    def line(self, event: Event) -> str:
        """Write an event, without a newline."""
        time_text = self._time_text(event.timestamp)
        if self._form == "json":
            return eventlog.encode(event).removesuffix("\n")
        pairs = [f"{name}={_compact(value)}" for name, value in event.context.items()]
        return printable(" ".join([time_text, event.name, *pairs]))

    def skip(self, event: Event) -> None:
        """Skip an event, from whose time those of later ones may be counted."""
        self._time_text(event.timestamp)

    def _time_text(self, timestamp: float) -> str:
        self._first_timestamp = (
            timestamp if self._first_timestamp is None else self._first_timestamp
        )
        match self._time_format:
            case "raw":
                return f"{timestamp:.6f}"
            case "iso":
                local = datetime.fromtimestamp(timestamp).astimezone()
                text = local.isoformat(timespec="microseconds")
                return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
            case "offset":
                return f"{timestamp - self._first_timestamp:.6f}"
        return self._human_time(timestamp)

    def _human_time(self, timestamp: float) -> str:
        """Return the time at each new minute, and the seconds since then otherwise."""
        minute = datetime.fromtimestamp(timestamp).astimezone().strftime("%b%d %H:%M")
        if minute != self._minute:
            self._minute, self._minute_began = minute, timestamp
            return f"[{minute}]"
        return f"[{f'+{timestamp - self._minute_began:.6f}':>11}]"


def matches(event: Event, pairs: Mapping[str, str]) -> bool:
    """Return whether the context has these values, each written as JSON or as a plain string."""
    return all(
        key in event.context and value in (_compact(event.context[key]), event.context[key])
        for key, value in pairs.items()
    )


def _compact(value: Any) -> str:
    # Not orjson, which knows no integers of over 64 bits.
    return msgspec.json.encode(value).decode()
