"""Event logs (RFC 18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
contexts = st.dictionaries(st.text(max_size=5), scalars | st.lists(scalars, max_size=2), max_size=3)
events = st.builds(Event, st.floats(1e-3, 1e10), st.text(max_size=12), contexts)


def test_an_event_is_one_compact_line() -> None:
    event = Event(1552593348.073045, "submit", {"userid": 5588, "flags": 0})

    assert eventlog.encode(event) == (
        '{"timestamp":1552593348.073045,"name":"submit","context":{"userid":5588,"flags":0}}\n'
    )


def test_an_empty_context_is_left_out() -> None:
    assert eventlog.encode(Event(1.5, "clean")) == '{"timestamp":1.5,"name":"clean"}\n'


@pytest.mark.parametrize(
    "line",
    [
        "",
        "clean",
        "[]",
        '{"name":"clean"}',
        '{"timestamp":1.5}',
        '{"timestamp":"1.5","name":"clean"}',
        '{"timestamp":true,"name":"clean"}',
        '{"timestamp":1.5,"name":7}',
        '{"timestamp":1.5,"name":"clean","context":null}',
        '{"timestamp":1.5,"name":"clean","context":[]}',
        '{"timestamp":1.5,"name":"clean","more":1}',
        '{"timestamp":1.5,"name":"clean"}{"timestamp":1.5,"name":"clean"}',
        '{"timestamp":0,"name":"clean"}',
        '{"timestamp":-1,"name":"clean"}',
    ],
)
def test_a_line_that_is_no_event_by_the_letter_is_refused(line: str) -> None:
    with pytest.raises(BadFormat, match="eventlog entry"):
        eventlog.decode_line(line)


def test_a_log_that_is_cut_off_is_refused() -> None:
    whole = eventlog.encode(Event(1, "submit")) + eventlog.encode(Event(2, "validate"))
    with pytest.raises(BadFormat, match="cut off"):
        eventlog.decode(whole[:-1])


def test_an_empty_line_is_no_event() -> None:
    with pytest.raises(BadFormat, match="not an eventlog entry"):
        eventlog.decode(eventlog.encode(Event(1, "submit")) + "\n")


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x7f", "\n", "\r"])
def test_a_line_ends_at_its_newline_and_at_no_other_mark(mark: str) -> None:
    event = Event(1.0, "exception", {"note": f"one{mark}two"})
    assert eventlog.decode(eventlog.encode(event) * 2) == [event, event]


@given(st.lists(events, max_size=4))
def test_a_log_reads_back(log: list[Event]) -> None:
    assert eventlog.decode("".join(map(eventlog.encode, log))) == log
