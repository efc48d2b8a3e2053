"""Event logs: one JSON object a line, only ever appended to (RFC 18).

A line holds `timestamp`, seconds since the epoch and greater than 0; `name`; and, where
there is more to say, `context`, an object. It holds nothing else and ends in a newline.
"""

import re
from collections.abc import Mapping
from math import inf
from typing import Annotated, Any, Final

import msgspec

from warren.rfc.errors import BadFormat

_CONTROL_PATTERN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What the decoder raises for a line that is no event: the last two for halves of characters, and
for nests without end."""


class Event(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that happened."""

    timestamp: Annotated[float, msgspec.Meta(gt=0)]
    """Seconds since the epoch."""
    name: str
    context: Mapping[str, Any] = {}


_encode_event = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(Event).decode


def encode(event: Event) -> str:
    """Write one event as its line, with the newline, the keys in the order of the RFC.

    An empty context is left out. Raises BadFormat for an event that could not be read back:
    a timestamp that is not positive and finite, a control character in the name, a context
    that JSON cannot hold.
    """
    if not (0 < event.timestamp < inf and event.name.isprintable()):
        _check_timestamp_and_name(event, f"event {event.name!r} cannot be written")
    try:
        return _encode_event(event).decode() + "\n"
    except (TypeError, UnicodeEncodeError) as error:
        raise BadFormat(f"event {event.name!r} cannot be written: {error}") from None


def decode_line(line: str) -> Event:
    """Read one line, with or without its newline.

    Raises BadFormat when it is not an event by the letter of RFC 18.
    """
    if line.find("\n", 0, -1) >= 0:
        raise BadFormat(
            f"not an eventlog entry: {line[:80]!r} (a newline at {line.index(chr(10))})"
        )
    try:
        event = _decode_event(line)
    except _DECODE_ERRORS as error:
        raise BadFormat(_not_an_entry(line, error)) from None
    if not event.name.isprintable():
        _check_timestamp_and_name(event, f"eventlog entry {event.name!r}")
    return event


def decode(text: str) -> list[Event]:
    """Read a whole log. Each event, the last one too, must end in a newline.

    Raises BadFormat with the number of the first line that is no event, counted from 1.
    """
    events: list[Event] = []
    # Not splitlines(): JSON leaves U+2028 and its like in strings as they are.
    lines = text.split("\n")
    try:
        for line in lines[:-1]:
            event = _decode_event(line)
            if not event.name.isprintable():
                _check_timestamp_and_name(event, f"eventlog entry {event.name!r}")
            events.append(event)
    except _DECODE_ERRORS as error:
        raise BadFormat(f"eventlog, line {len(events) + 1}: {_not_an_entry(line, error)}") from None
    except BadFormat as error:
        raise BadFormat(f"eventlog, line {len(events) + 1}: {error}") from None
    if lines[-1]:
        raise BadFormat(f"eventlog, line {len(lines)}: the entry is cut off, without its newline")
    return events


def _not_an_entry(line: str, error: Exception) -> str:
    return f"not an eventlog entry: {line.strip()[:80]!r} ({error})"


def _check_timestamp_and_name(event: Event, subject: str) -> None:
    """Raise BadFormat where the timestamp is not positive, or the name has a control character."""
    if not 0 < event.timestamp < inf:
        raise BadFormat(f"{subject}: the timestamp is {event.timestamp}, and not positive")
    # Not all that cannot be printed is a control character.
    control = _CONTROL_PATTERN.search(event.name)
    if control is not None:
        raise BadFormat(f"{subject}: a control character in the name at {control.start()}")
