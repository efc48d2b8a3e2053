"""Event logs (RFC 18)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
contexts = st.dictionaries(st.text(max_size=5), scalars | st.lists(scalars, max_size=2), max_size=3)
events = st.builds(Event, st.floats(1e-3, 1e10), names, contexts)


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
        '{"timestamp":1e999,"name":"clean"}',
        '{"timestamp":1,"name":"\ud800"}',
        '{"timestamp":1,"name":"\\ud800"}',
        '{"timestamp":1,"name":"clean","context":{"a":' + "[" * 100_000,
        '{"timestamp":1.5,\n"name":"clean"}\n',
        '{"timestamp":1.5,"name":"cle\\u0007an"}',
        '{"timestamp":1.5,"name":"clean\\n"}',
        '{"timestamp":1.5,"name":"\\u0085clean"}',
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


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("", "not an eventlog entry: ''"),
        ("{}", "not an eventlog entry"),
        ('{"timestamp":0,"name":"free"}', "not an eventlog entry.*timestamp"),
        ('{"timestamp":1,"name":"\\u0001"}', "a control character in the name at 0"),
        ('{"timestamp":1,"name":"free","context":[]}', "Expected `object`"),
    ],
)
def test_a_bad_line_is_told_by_its_number(number: int, bad: str, problem: str) -> None:
    lines = [eventlog.encode(Event(1, "submit"))] * 3
    lines[number - 1] = bad + "\n"
    with pytest.raises(BadFormat, match=f"eventlog, line {number}: .*{problem}"):
        eventlog.decode("".join(lines))


def test_the_line_that_is_cut_off_is_told_by_its_number() -> None:
    with pytest.raises(BadFormat, match="eventlog, line 2: the entry is cut off"):
        eventlog.decode(eventlog.encode(Event(1, "submit")) + '{"timestamp":1,"name":"free"}')


def test_an_empty_log_has_no_events() -> None:
    assert eventlog.decode("") == []


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (Event(0.0, "clean"), "the timestamp is 0.0"),
        (Event(-1.0, "clean"), "the timestamp is -1.0"),
        (Event(float("inf"), "clean"), "the timestamp is inf"),
        (Event(float("nan"), "clean"), "the timestamp is nan"),
        (Event(1.0, "cle\x00an"), "a control character in the name at 3"),
        (Event(1.0, "clean\x7f"), "a control character in the name at 5"),
        (Event(1.0, "clean", {"note": "\ud800"}), "cannot be written"),
        (Event(1.0, "clean", {"note": object()}), "cannot be written"),
    ],
)
def test_an_event_that_could_not_be_read_back_is_not_written(event: Event, problem: str) -> None:
    with pytest.raises(BadFormat, match=f"event .* cannot be written: .*{problem}|{problem}: "):
        eventlog.encode(event)


@pytest.mark.parametrize("name", ["", "\u2028", "\u00a0", "prolog-start", "ƒ", "\U0010fffd"])
def test_a_name_is_any_text_without_control_characters(name: str) -> None:
    event = Event(1.0, name)
    assert eventlog.decode_line(eventlog.encode(event)) == event


def test_the_lines_of_the_rfc_s_example_are_read() -> None:
    # But for its third line, whose context has no quotes.
    lines = [
        '{"timestamp":1552593348.073045,"name":"submit",'
        '"context":{"urgency":16,"userid":5588,"flags":0}}\n',
        '{"timestamp":1552593348.093541,"name":"free"}\n',
        '{"timestamp":1552593348.092830,"name":"release","context":{"ranks":"all","final":true}}\n',
    ]
    log = eventlog.decode("".join(lines))
    assert [event.name for event in log] == ["submit", "free", "release"]
    assert eventlog.encode(log[0]) == lines[0]
    with pytest.raises(BadFormat, match="not an eventlog entry"):
        eventlog.decode_line(
            '{"timestamp":1552593348.088391,"name":"alloc",context:{"note":"rank0/core[0-1]"}}'
        )


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x7f", "\n", "\r"])
def test_a_line_ends_at_its_newline_and_at_no_other_mark(mark: str) -> None:
    event = Event(1.0, "exception", {"note": f"one{mark}two"})
    assert eventlog.decode(eventlog.encode(event) * 2) == [event, event]


@given(st.lists(events, max_size=4))
def test_a_log_reads_back(log: list[Event]) -> None:
    assert eventlog.decode("".join(map(eventlog.encode, log))) == log
