"""Standard output of a job as an event log (RFC 24)."""

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event


@dataclass(frozen=True)
class Output:
    """Bytes that a task wrote to one of its streams."""

    stream: str
    rank: str
    data: bytes


def header(now: float, tasks: int) -> Event:
    """Open a log for `tasks` tasks. Exactly one, first."""
    return Event(
        now,
        "header",
        {
            "version": 1,
            "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
            "count": {"stdout": tasks, "stderr": tasks},
            "options": {},
        },
    )


def data(now: float, stream: str, rank: int, chunk: bytes) -> Event:
    """Record what a task wrote. Bytes that are not UTF-8 travel as base64."""
    context: dict[str, object] = {"stream": stream, "rank": str(rank)}
    try:
        context["data"] = chunk.decode()
    except UnicodeDecodeError:
        context["data"] = base64.b64encode(chunk).decode()
        context["encoding"] = "base64"
    return Event(now, "data", context)


def eof(now: float, stream: str, rank: int) -> Event:
    """Record that a task closed a stream."""
    return Event(now, "data", {"stream": stream, "rank": str(rank), "eof": True})


def read(events: Iterable[Event]) -> Iterator[Output]:
    """Give what was written, in order."""
    for event in events:
        if event.name == "data" and "data" in event.context:
            text = event.context["data"]
            try:
                chunk = (
                    base64.b64decode(text, validate=True)
                    if event.context.get("encoding") == "base64"
                    else text.encode()
                )
                yield Output(event.context["stream"], event.context["rank"], chunk)
            except (KeyError, TypeError, ValueError, AttributeError):
                raise BadFormat("a data event of the job's output is malformed") from None


def streams(events: Iterable[Event]) -> tuple[int, int]:
    """Give how many streams were opened and how many are closed so far."""
    opened = closed = 0
    for event in events:
        if event.name == "header":
            opened = sum(event.context["count"].values())
        elif event.context.get("eof"):
            closed += 1
    return opened, closed
