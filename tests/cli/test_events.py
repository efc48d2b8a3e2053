"""Events as they are printed, and as they are waited for."""

import time
from collections.abc import Iterator

import pytest

from warren.cli.events import EventWriter, matches
from warren.rfc import eventlog
from warren.rfc.eventlog import Event

EVENTS = [
    Event(1_790_000_000.25, "submit", {"userid": 5, "note": "a b"}),
    Event(1_790_000_000.75, "validate"),
    Event(1_790_000_050.0, "alloc", {"annotations": {"sched": None}}),
]


@pytest.fixture(params=["UTC", "UTC-2"], ids=["UTC", "two hours east"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def moments(times: str) -> list[str]:
    writer = EventWriter("text", times)
    return [writer.line(event).partition(f" {event.name}")[0] for event in EVENTS]


def test_contexts_are_pairs_of_keys_and_json() -> None:
    writer = EventWriter()

    assert [writer.line(event) for event in EVENTS] == [
        '1790000000.250000 submit userid=5 note="a b"',
        "1790000000.750000 validate",
        '1790000050.000000 alloc annotations={"sched":null}',
    ]


def test_what_users_write_into_a_log_does_nothing_to_a_terminal() -> None:
    context = {"key\x1b[2J": "value\x1b[2J\x9b2J", "great": 2**200}
    line = EventWriter().line(Event(1.0, "memo", context))

    assert line.isprintable()
    assert line.startswith(r'1.000000 memo key\x1b[2J="value\u001b[2J\x9b2J" great=16069380442')


def test_as_json_events_are_as_they_are_stored() -> None:
    writer = EventWriter("json", "human")

    assert [writer.line(event) + "\n" for event in EVENTS] == list(map(eventlog.encode, EVENTS))


def test_times_are_told_in_four_ways(zone: str) -> None:
    hour, offset = ("14", "Z") if zone == "UTC" else ("16", "+02:00")

    assert moments("offset") == ["0.000000", "0.500000", "49.750000"]
    assert moments("iso") == [
        f"2026-09-21T{hour}:13:20.250000{offset}",
        f"2026-09-21T{hour}:13:20.750000{offset}",
        f"2026-09-21T{hour}:14:10.000000{offset}",
    ]
    assert moments("human") == moments("reltime") == [
        f"[Sep21 {hour}:13]", "[  +0.500000]", f"[Sep21 {hour}:14]",
    ]  # fmt: skip


def test_an_event_that_is_not_written_counts_for_those_after_it() -> None:
    writer = EventWriter("text", "offset")
    writer.skip(EVENTS[0])

    assert writer.line(EVENTS[1]) == "0.500000 validate"


@pytest.mark.parametrize(
    ("pairs", "matched"),
    [
        ({}, True),
        ({"userid": "5"}, True),
        ({"note": "a b"}, True),
        ({"note": '"a b"'}, True),
        ({"userid": "5", "note": "a"}, False),
        ({"other": "null"}, False),
    ],
)
def test_a_context_matches_by_json_or_by_plain_text(pairs: dict[str, str], matched: bool) -> None:
    assert matches(EVENTS[0], pairs) is matched
