"""Standard input and output of a job as an event log (RFC 24).

A log begins with its `header`, which tells for each stream the usual encoding and how many
tasks have it open. `data` holds what tasks have written, or that they have closed a stream,
or both; `redirect` tells that a stream goes elsewhere from now on; `log` is a message of a shell.
Data is text if it is UTF-8, and otherwise base64, of which the event tells. Ranks are an idset
or "all".
"""

import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Final

import msgspec

from warren.rfc import idset
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event

ALL: Final = "all"
_ENCODINGS: Final = ("UTF-8", "base64")
_match_number: Final = re.compile(r"0|[1-9][0-9]{0,8}").fullmatch

Ranks = int | str | Iterable[int]
"""One rank, several, or ALL; a text is taken as it is."""


class Output(msgspec.Struct, frozen=True):
    """Bytes that a task wrote to one of its streams."""

    stream: str
    rank: str
    """The task; or an idset of them, or ALL."""
    data: bytes


# Writing


def header_event(now: float, tasks: int, streams: Iterable[str] = ("stdout", "stderr")) -> Event:
    """Return the event that opens a log of so many `tasks`: a log has exactly one, the first."""
    names = tuple(streams)
    return Event(
        now,
        "header",
        {
            "version": 1,
            "encoding": dict.fromkeys(names, "UTF-8"),
            "count": dict.fromkeys(names, tasks),
            "options": {},
        },
    )


def data_event(now: float, stream: str, rank: Ranks, chunk: bytes, *, eof: bool = False) -> Event:
    """Return the event of what a task wrote. Bytes that are not UTF-8 travel as base64."""
    context: dict[str, object] = {
        "stream": stream,
        "rank": str(rank) if type(rank) is int else _ranks_text(rank),
    }
    try:
        context["data"] = chunk.decode()
    except UnicodeDecodeError:
        context["data"] = binascii.b2a_base64(chunk, newline=False).decode()
        context["encoding"] = "base64"
    if eof:
        context["eof"] = True
    return Event(now, "data", context)


def eof_event(now: float, stream: str, rank: Ranks) -> Event:
    """Return the event of a task that closed a stream."""
    return Event(
        now,
        "data",
        {
            "stream": stream,
            "rank": str(rank) if type(rank) is int else _ranks_text(rank),
            "eof": True,
        },
    )


def redirect_event(now: float, stream: str, rank: Ranks, path: str | None = None) -> Event:
    """Return the event after which what tasks write is not in the log, but in a file, if in any."""
    context = {"stream": stream, "rank": _ranks_text(rank)}
    if path is not None:
        context["path"] = path
    return Event(now, "redirect", context)


def log_event(now: float, level: int, message: str, **about: str | int) -> Event:
    """Return the event of a message of a shell, at a level from 0 (emergency) to 7 (debug).

    `about` is any of rank, program, file, line and component. Raises BadFormat otherwise.
    """
    event = Event(now, "log", {"level": level, "message": message, **about})
    check(event)
    return event


def _ranks_text(rank: Ranks) -> str:
    if isinstance(rank, str):
        return rank
    return str(rank) if isinstance(rank, int) else idset.encode(rank)


# Reading


def decode_outputs(events: Iterable[Event]) -> Iterator[Output]:
    """Return what tasks wrote, in order; what one event says was written n times, n times.

    Where the header does not say, a stream is UTF-8. Raises BadFormat where an event is malformed.
    """
    usual_encodings: Mapping[str, Any] = {}
    seen: set[tuple[str, str]] = set()
    for event in events:
        context = event.context
        if event.name == "header":
            check(event)
            usual_encodings = context["encoding"]
        elif event.name == "data" and "data" in context:
            text = context["data"]
            stream: Any = context.get("stream")
            rank: Any = context.get("rank")
            # Most events are text and no more, of a stream that had some before.
            is_plain = len(context) == 3 and type(text) is type(rank) is type(stream) is str
            if not is_plain or (stream, rank) not in seen:
                _check_data(context)
                seen.add((stream, rank))
            encoding = context.get("encoding") or usual_encodings.get(stream, "UTF-8")
            output = Output(stream, rank, _decode(text, encoding))
            yield output
            if not is_plain:
                yield from repeat(output, context.get("repeat", 1) - 1)


def count_streams(events: Iterable[Event]) -> tuple[int, int]:
    """Return how many streams were opened and how many are closed so far.

    A stream that was redirected has no more events, and counts as closed. Each closing is
    counted, as each task has it once in a log; "all" closes as many as the header has opened.
    """
    opened = closed = 0
    counts: Mapping[str, int] = {}
    for event in events:
        if event.name == "header":
            check(event)
            counts = event.context["count"]
            opened = sum(counts.values())
        elif event.context.get("eof") or event.name == "redirect":
            rank = event.context.get("rank")
            if type(rank) is str and _match_number(rank) and event.context.get("eof") is True:
                closed += 1
                continue
            check(event)
            if rank == ALL:
                closed += counts.get(event.context["stream"], 1)
            else:
                closed += len(idset.decode(event.context["rank"]))
    return opened, closed


def _decode(text: str, encoding: str) -> bytes:
    try:
        if encoding == "UTF-8":
            return text.encode()
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise _bad("data", "data", f"is not {encoding}") from None


# Checking


def check(event: Event) -> None:
    """Raise BadFormat, with the key, unless the event is one of RFC 24.

    Events of other names are no mistake: they are passed over.
    """
    match event.name:
        case "header":
            _check_header(event.context)
        case "data":
            _check_data(event.context)
        case "redirect":
            _check_stream_and_rank("redirect", event.context)
            _check_optional("redirect", event.context, {"path": str})
        case "log":
            _check_log(event.context)


def check_all(events: Iterable[Event]) -> None:
    """Raise BadFormat unless the events are a whole log: one header, first, and its streams."""
    encodings: Mapping[str, Any] | None = None
    for event in events:
        check(event)
        if (event.name == "header") != (encodings is None):
            raise BadFormat(
                "a log of standard I/O has exactly one header, and it is the first event"
            )
        if encodings is None:
            encodings = event.context["encoding"]
        elif event.name in ("data", "redirect") and event.context["stream"] not in encodings:
            stream = event.context["stream"]
            raise _bad(event.name, "stream", f"is {stream!r}, of which the header does not tell")


def _check_header(context: Mapping[str, Any]) -> None:
    version = context.get("version")
    if type(version) is not int or version != 1:
        raise _bad("header", "version", f"is {version!r}, not 1")
    for key in ("encoding", "count", "options"):
        if not isinstance(context.get(key), Mapping):
            raise _bad("header", key, "is not an object")
    for stream, encoding in context["encoding"].items():
        if encoding not in _ENCODINGS:
            raise _bad("header", f"encoding.{stream}", f"is {encoding!r}, not UTF-8 or base64")
    for stream, count in context["count"].items():
        if type(count) is not int or count < 0:
            raise _bad("header", f"count.{stream}", f"is {count!r}, not a number")


def _check_data(context: Mapping[str, Any]) -> None:
    _check_stream_and_rank("data", context)
    _check_optional("data", context, {"data": str, "eof": bool, "encoding": str, "repeat": int})
    if "encoding" in context and context["encoding"] not in _ENCODINGS:
        raise _bad("data", "encoding", f"is {context['encoding']!r}, not UTF-8 or base64")
    if context.get("repeat", 1) < 1:
        raise _bad("data", "repeat", f"is {context['repeat']}, not a number from 1 on")


def _check_stream_and_rank(name: str, context: Mapping[str, Any]) -> None:
    stream, rank = context.get("stream"), context.get("rank")
    if not isinstance(stream, str):
        raise _bad(name, "stream", f"is {stream!r}, not a name")
    if not isinstance(rank, str):
        raise _bad(name, "rank", f"is {rank!r}, not an idset")
    # Of nearly all events it is one number.
    if rank != ALL and not _match_number(rank):
        try:
            ids = idset.decode(rank)
        except BadFormat as error:
            raise _bad(name, "rank", f"is neither 'all' nor an idset: {error}") from None
        if not ids:
            raise _bad(name, "rank", "names no rank")


def _check_log(context: Mapping[str, Any]) -> None:
    level, message = context.get("level"), context.get("message")
    if type(level) is not int or not 0 <= level <= 7:
        raise _bad("log", "level", f"is {level!r}, not a number from 0 to 7")
    if not isinstance(message, str):
        raise _bad("log", "message", "is not a text")
    optional_types = {"rank": int, "program": str, "file": str, "line": int, "component": str}
    _check_optional("log", context, optional_types)
    for key in context:
        if key not in optional_types and key not in ("level", "message"):
            raise _bad("log", key, "is unknown")


def _check_optional(name: str, context: Mapping[str, Any], types: Mapping[str, type]) -> None:
    for key, expected_type in types.items():
        if key in context and type(context[key]) is not expected_type:
            type_text = {str: "a text", int: "a number", bool: "true or false"}[expected_type]
            raise _bad(name, key, f"is {context[key]!r}"[:80] + f", not {type_text}")


def _bad(name: str, key: str, problem: str) -> BadFormat:
    return BadFormat(f"a {name} event of the job's output is malformed: {key} {problem}")
