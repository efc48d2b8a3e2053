"""The log of a process: events, with values by name, from all of its modules to one sink.

`daemons/logs.py` has the sink of processes that run for long. Of what a user's command does errors
alone are told, and these on standard error: its output is its own.
"""

import sys
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from warren.base.printable import printable

Sink = Callable[[str, Mapping[str, object]], None]
"""Takes an event: its level, and its values, of which one is called `event`."""

_LEVELS: Final = ("debug", "info", "warning", "error")
_bound: Final = ContextVar[Mapping[str, object]]("bound", default=MappingProxyType({}))


def debug(event: str, **values: object) -> None:
    _tell("debug", event, values)


def info(event: str, **values: object) -> None:
    _tell("info", event, values)


def warning(event: str, **values: object) -> None:
    _tell("warning", event, values)


def error(event: str, *, raised: BaseException | None = None, **values: object) -> None:
    """Log what is broken, with the traceback of what was raised."""
    if raised is not None:
        values["exception"] = "".join(traceback.format_exception(raised)).rstrip("\n")
    _tell("error", event, values)


def exception(event: str, **values: object) -> None:
    """Log what is broken, with the traceback of the exception that is handled."""
    error(event, raised=sys.exception(), **values)


def bind(**values: object) -> None:
    """Add values to all events of this task, or thread, from now on."""
    _bound.set({**_bound.get(), **values})


def bound() -> Mapping[str, object]:
    """Return the values that all events of this task have."""
    return _bound.get()


def configure(sink: Sink, min_level: str = "info") -> None:
    """Have a sink take events from now on that are of this level at least."""
    global _sink, _min_level_index
    _sink, _min_level_index = sink, _LEVELS.index(min_level)


def configuration() -> tuple[Sink, str]:
    """Return what `configure` takes to have things as they are now."""
    return _sink, _LEVELS[_min_level_index]


def logfmt_line(level: str, values: Mapping[str, object]) -> str:
    """Write an event in logfmt, as a terminal may show it: names of users' files are in it."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    leading = {"timestamp": now, "level": level, "event": values["event"]}
    return printable(" ".join(_pair(*each) for each in (leading | dict(values) | leading).items()))


def _pair(name: str, value: object) -> str:
    if value is True:
        return name
    if value is None or value is False:
        return f"{name}={'' if value is None else 'false'}"
    text = str(value)
    needs_quotes = any(each in text for each in ' ="')
    if needs_quotes:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = text.replace("\n", "\\n")
    return f'{name}="{text}"' if needs_quotes else f"{name}={text}"


def _tell(level: str, event: str, values: Mapping[str, object]) -> None:
    if _LEVELS.index(level) >= _min_level_index:
        _sink(level, {**_bound.get(), **values, "event": event})


def _to_standard_error(level: str, values: Mapping[str, object]) -> None:
    sys.stderr.write(logfmt_line(level, values) + "\n")


_sink: Sink = _to_standard_error
_min_level_index = _LEVELS.index("error")
