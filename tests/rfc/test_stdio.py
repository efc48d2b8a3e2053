"""Standard input and output (RFC 24)."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import eventlog, stdio
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.stdio import Output


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


HEADER = {
    "version": 1,
    "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
    "count": {"stdout": 2, "stderr": 2},
    "options": {},
}


def test_a_log_opens_with_how_many_streams_there_are() -> None:
    opened = stdio.header_event(1.0, 2)
    assert (opened.name, opened.context) == ("header", HEADER)
    assert stdio.header_event(1.0, 2, ["stdin"]).context["count"] == {"stdin": 2}


def test_bytes_that_are_not_utf_8_travel_as_base64() -> None:
    event = stdio.data_event(1.0, "stdout", 3, b"\xff\x00")
    assert event.context == {
        "stream": "stdout",
        "rank": "3",
        "data": b64(b"\xff\x00"),
        "encoding": "base64",
    }


def test_a_last_word_may_close_its_stream() -> None:
    event = stdio.data_event(1.0, "stdout", 3, b"bye", eof=True)
    assert event.context == {"stream": "stdout", "rank": "3", "data": "bye", "eof": True}
    assert list(stdio.decode_outputs([event])) == [Output("stdout", "3", b"bye")]
    assert stdio.count_streams([event]) == (0, 1)


@pytest.mark.parametrize(
    ("rank", "text"), [(0, "0"), ([0, 1, 2, 5], "0-2,5"), (stdio.ALL, "all"), ("3-4", "3-4")]
)
def test_ranks_are_an_idset_or_all(rank: stdio.Ranks, text: str) -> None:
    for event in (
        stdio.data_event(1.0, "stdout", rank, b"x"),
        stdio.eof_event(1.0, "stdout", rank),
        stdio.redirect_event(1.0, "stdout", rank),
    ):
        assert event.context["rank"] == text
        stdio.check(event)


writings = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 3), st.binary(max_size=20)),
    max_size=5,
)


@given(writings | st.lists(st.tuples(st.just("stdout"), st.just(0), st.text().map(str.encode))))
def test_output_survives_its_log(writings: list[tuple[str, int, bytes]]) -> None:
    log = [stdio.header_event(1.0, 4), *(stdio.data_event(2.0, *each) for each in writings)]

    read = eventlog.decode("".join(map(eventlog.encode, log)))

    stdio.check_all(read)
    assert list(stdio.decode_outputs(read)) == [
        Output(stream, str(rank), chunk) for stream, rank, chunk in writings
    ]


def test_the_header_tells_the_encoding_and_an_event_may_tell_another() -> None:
    context = {"stream": "stdout", "rank": "0"}
    log = [
        Event(1.0, "header", {**HEADER, "encoding": {"stdout": "base64"}}),
        Event(2.0, "data", {**context, "data": b64(b"meep\n")}),
        Event(3.0, "data", {**context, "data": "meep", "encoding": "UTF-8"}),
    ]
    assert [each.data for each in stdio.decode_outputs(log)] == [b"meep\n", b"meep"]


def test_what_was_written_several_times_is_given_as_often() -> None:
    event = Event(1.0, "data", {"stream": "stdout", "rank": "0-9", "data": "tick", "repeat": 3})
    assert list(stdio.decode_outputs([event])) == [Output("stdout", "0-9", b"tick")] * 3


def test_a_log_knows_how_many_streams_are_still_open() -> None:
    log = [
        stdio.header_event(1.0, 2),
        stdio.data_event(2.0, "stdout", 0, b"a"),
        stdio.eof_event(3.0, "stdout", 0),
    ]
    assert stdio.count_streams([]) == (0, 0)
    assert stdio.count_streams(log) == (4, 1)
    assert stdio.count_streams([*log, stdio.eof_event(4.0, "stderr", stdio.ALL)]) == (4, 3)
    assert stdio.count_streams([*log, stdio.eof_event(4.0, "stderr", [0, 1])]) == (4, 3)
    assert stdio.count_streams([*log, stdio.redirect_event(4.0, "stdout", 1, "out")]) == (4, 2)


def test_an_end_of_file_is_no_output() -> None:
    assert list(stdio.decode_outputs([stdio.eof_event(1.0, "stdout", 0)])) == []


def test_a_redirection_tells_where_to() -> None:
    event = stdio.redirect_event(1.0, "stdout", 0, "job.output")
    assert (event.name, event.context) == (
        "redirect",
        {"stream": "stdout", "rank": "0", "path": "job.output"},
    )


def test_a_shell_s_word_is_written_with_what_is_known_of_it() -> None:
    event = stdio.log_event(1.0, 3, "no such file", rank=2, component="dws", line=7)
    assert (event.name, event.context) == (
        "log",
        {"level": 3, "message": "no such file", "rank": 2, "component": "dws", "line": 7},
    )
    with pytest.raises(BadFormat, match="level is 8, not a number from 0 to 7"):
        stdio.log_event(1.0, 8, "louder")
    with pytest.raises(BadFormat, match="colour is unknown"):
        stdio.log_event(1.0, 3, "redder", colour="red")
    with pytest.raises(BadFormat, match="line is '7', not a number"):
        stdio.log_event(1.0, 3, "later", line="7")


GOOD = {"stream": "stdout", "rank": "0"}


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ({"data": "x", "rank": "0"}, "stream is None"),
        ({"data": "x", "stream": 1, "rank": "0"}, "stream is 1"),
        ({"data": "x", "stream": "stdout"}, "rank is None"),
        ({"data": "x", "stream": "stdout", "rank": 0}, "rank is 0"),
        ({"data": "x", "stream": "stdout", "rank": ""}, "rank names no rank"),
        ({"data": "x", "stream": "stdout", "rank": "00"}, "rank is neither"),
        ({"data": "x", "stream": "stdout", "rank": "٣"}, "rank is neither"),
        ({"data": "x", "stream": "stdout", "rank": "any"}, "rank is neither"),
        ({**GOOD, "data": 7}, "data is 7, not a text"),
        ({**GOOD, "data": "?", "encoding": "base64"}, "data is not base64"),
        ({**GOOD, "data": 7, "encoding": "base64"}, "data is 7, not a text"),
        ({**GOOD, "data": "x", "encoding": "rot13"}, "encoding is 'rot13'"),
        ({**GOOD, "data": "x", "eof": "true"}, "eof is 'true', not true or false"),
        ({**GOOD, "data": "x", "repeat": 0}, "repeat is 0"),
        ({**GOOD, "data": "x", "repeat": True}, "repeat is True, not a number"),
        ({**GOOD, "data": "\ud800"}, "data is not UTF-8"),
    ],
)
def test_malformed_output_is_refused(context: dict[str, object], problem: str) -> None:
    with pytest.raises(BadFormat, match=f"data event .* malformed: {problem}"):
        list(stdio.decode_outputs([Event(1.0, "data", context)]))


@pytest.mark.parametrize(
    ("name", "context", "problem"),
    [
        ("header", {**HEADER, "version": 2}, "version is 2, not 1"),
        ("header", {"version": 1}, "encoding is not an object"),
        ("header", {**HEADER, "count": None}, "count is not an object"),
        ("header", {**HEADER, "encoding": {"stdout": "hex"}}, "encoding.stdout is 'hex'"),
        ("header", {**HEADER, "count": {"stdout": -1}}, "count.stdout is -1"),
        ("redirect", {"stream": "stdout"}, "rank is None"),
        ("redirect", {**GOOD, "path": 7}, "path is 7, not a text"),
        ("data", {**GOOD, "eof": "true"}, "eof is 'true'"),
    ],
)
def test_a_malformed_event_is_refused_where_streams_are_counted(
    name: str, context: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadFormat, match=f"a {name} event .* malformed: {problem}"):
        stdio.count_streams([Event(1.0, name, context)])


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        ([stdio.eof_event(1.0, "stdout", 0)], "exactly one header"),
        ([stdio.header_event(1.0, 1)] * 2, "exactly one header"),
        (
            [stdio.header_event(1.0, 1), stdio.eof_event(1.0, "stdin", 0)],
            "'stdin', of which the header",
        ),
        ([stdio.header_event(1.0, 1), Event(1.0, "log", {"level": 3})], "message is not a text"),
    ],
)
def test_a_log_begins_with_its_header_and_has_its_streams(log: list[Event], problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        stdio.check_all(log)


def test_events_of_other_names_are_passed_over() -> None:
    stdio.check_all([stdio.header_event(1.0, 1), Event(2.0, "applause")])
