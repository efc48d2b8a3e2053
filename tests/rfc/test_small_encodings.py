"""Signed requests, standard output, task maps and tree objects."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import eventlog, signed_request, stdio, taskmap, treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.stdio import Output


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def token(header: bytes, signature: str = "none") -> str:
    return f"{b64(header)}.{b64(b'{}')}.{signature}"


GOOD = b"version\0i1\0userid\0i5588\0mechanism\0snone\0"


# Signed requests (RFC 15, 38, 39)


def test_a_request_is_wrapped_with_the_header_that_flux_writes() -> None:
    assert signed_request.wrap(b"{}", 5588) == token(GOOD)


@pytest.mark.parametrize(
    ("signed", "problem"),
    [
        ("", "HEADER.PAYLOAD.SIGNATURE"),
        ("a.b", "HEADER.PAYLOAD.SIGNATURE"),
        (token(GOOD) + ".none", "HEADER.PAYLOAD.SIGNATURE"),
        ("?.e30=.none", "header is not base64"),
        (f"{b64(GOOD)}.?.none", "payload is not base64"),
        (f"{b64(GOOD)}.é.none", "payload is not base64"),
        (token(GOOD[:-1]), "cut off"),
        (token(GOOD + b"more\0"), "cut off"),
        (token(b""), "version 1, userid, mechanism"),
        (token(GOOD + b"more\0i1\0"), "version 1, userid, mechanism"),
        (token(b"version\0i2" + GOOD[10:]), "version 1, userid, mechanism"),
        (token(GOOD.replace(b"i5588", b"s5588")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i-1")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i 1")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i")), "userid is not a number"),
        (token(GOOD.replace(b"i5588", "i٣".encode())), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i" + b"9" * 5000)), "userid is not a number"),
        (token(GOOD.replace(b"i5588", b"i\xff")), "userid is not a number"),
        (token(GOOD.replace(b"snone", b"smunge")), "mechanism other than 'none'"),
        (token(GOOD, "forged"), "mechanism other than 'none'"),
    ],
)
def test_a_request_that_was_tampered_with_is_refused(signed: str, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        signed_request.unwrap(signed)


@given(st.binary(max_size=60), st.integers(0, 2**32 - 1))
def test_a_request_reads_back(payload: bytes, userid: int) -> None:
    unwrapped = signed_request.unwrap(signed_request.wrap(payload, userid))
    assert (unwrapped.payload, unwrapped.userid, unwrapped.mechanism) == (payload, userid, "none")


# Standard output (RFC 24)


def test_bytes_that_are_not_utf_8_travel_as_base64() -> None:
    event = stdio.data(1.0, "stdout", 3, b"\xff\x00")
    assert event.context == {
        "stream": "stdout",
        "rank": "3",
        "data": b64(b"\xff\x00"),
        "encoding": "base64",
    }


writings = st.lists(
    st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 3), st.binary(max_size=20)),
    max_size=5,
)


@given(writings | st.lists(st.tuples(st.just("stdout"), st.just(0), st.text().map(str.encode))))
def test_output_survives_its_log(writings: list[tuple[str, int, bytes]]) -> None:
    log = [stdio.header(1.0, 4), *(stdio.data(2.0, *each) for each in writings)]

    read = eventlog.decode("".join(map(eventlog.encode, log)))

    assert list(stdio.read(read)) == [
        Output(stream, str(rank), chunk) for stream, rank, chunk in writings
    ]


def test_a_log_opens_with_how_many_streams_there_are() -> None:
    opened = stdio.header(1.0, 2)
    assert (opened.name, opened.context) == (
        "header",
        {
            "version": 1,
            "encoding": {"stdout": "UTF-8", "stderr": "UTF-8"},
            "count": {"stdout": 2, "stderr": 2},
            "options": {},
        },
    )


def test_a_log_knows_how_many_streams_are_still_open() -> None:
    log = [stdio.header(1.0, 2), stdio.data(2.0, "stdout", 0, b"a"), stdio.eof(3.0, "stdout", 0)]
    assert stdio.streams([]) == (0, 0)
    assert stdio.streams(log) == (4, 1)


def test_an_end_of_file_is_no_output() -> None:
    assert list(stdio.read([stdio.eof(1.0, "stdout", 0)])) == []


@pytest.mark.parametrize(
    "context",
    [
        {"data": "x", "rank": "0"},
        {"data": "x", "stream": "stdout"},
        {"data": 7, "stream": "stdout", "rank": "0"},
        {"data": "?", "stream": "stdout", "rank": "0", "encoding": "base64"},
        {"data": 7, "stream": "stdout", "rank": "0", "encoding": "base64"},
    ],
)
def test_malformed_output_is_refused(context: dict[str, object]) -> None:
    with pytest.raises(BadFormat, match="malformed"):
        list(stdio.read([eventlog.Event(1.0, "data", context)]))


# Task maps (RFC 34) and tree objects (RFC 11)


@pytest.mark.parametrize(
    ("tasks", "blocks"),
    [
        ([], []),
        ([1], [[0, 1, 1, 1]]),
        ([4, 4], [[0, 2, 4, 1]]),
        ([2, 2, 1], [[0, 2, 2, 1], [2, 1, 1, 1]]),
        ([1, 2, 1], [[0, 1, 1, 1], [1, 1, 2, 1], [2, 1, 1, 1]]),
    ],
)
def test_a_task_map_joins_neighbours_with_equally_many_tasks(
    tasks: list[int], blocks: list[list[int]]
) -> None:
    assert taskmap.encode(tasks) == blocks


@given(st.binary(max_size=60))
def test_a_value_reads_back(data: bytes) -> None:
    assert treeobj.read_val(treeobj.val(data)) == data


@pytest.mark.parametrize(
    "obj",
    [
        None,
        [],
        {"ver": 2, "type": "val", "data": ""},
        {"ver": 1, "type": "dir", "data": {}},
        {"ver": 1, "type": "val"},
        {"ver": 1, "type": "val", "data": 7},
        {"ver": 1, "type": "val", "data": "?"},
        {"ver": 1, "type": "val", "data": "é"},
    ],
)
def test_what_is_no_value_is_refused(obj: object) -> None:
    with pytest.raises(BadFormat, match="tree object"):
        treeobj.read_val(obj)
