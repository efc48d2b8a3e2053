"""Event logs: one JSON object a line, only ever appended to (RFC 18)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from warren.rfc.errors import BadFormat


class Event(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One thing that happened."""

    timestamp: float
    """Seconds since the epoch."""
    name: str
    context: Mapping[str, Any] = {}


def encode(event: Event) -> str:
    """Write one event as its line, with the newline."""
    entry: dict[str, Any] = {"timestamp": event.timestamp, "name": event.name}
    if event.context:
        entry["context"] = event.context
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE).decode()


def decode_line(line: str) -> Event:
    """Read one line. Raises BadFormat when it is not an event by the letter of RFC 18."""
    try:
        event = msgspec.json.decode(line, type=Event)
    except msgspec.MsgspecError as error:
        raise BadFormat(f"not an eventlog entry: {line.strip()[:80]!r} ({error})") from None
    if event.timestamp <= 0:
        raise BadFormat(f"eventlog entry {event.name!r}: the timestamp is not positive")
    return event


def decode(text: str) -> list[Event]:
    """Read a whole log. Each event, the last one too, must end in a newline."""
    if text and not text.endswith("\n"):
        raise BadFormat("the eventlog is cut off in the middle of its last entry")
    # Not splitlines(): JSON leaves U+2028 and its like in strings as they are.
    return [decode_line(line) for line in text.split("\n")[:-1]]
