"""Messages of Flux as bytes (RFC 3)."""

import re
import struct
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from warren.rfc import wire
from warren.rfc.errors import BadFormat
from warren.rfc.wire import FrameReader, Message, MessageType, Role

TOPICS = st.text("abcdefgh-_.0123456789", min_size=1, max_size=300)
PAYLOADS = st.none() | st.binary(max_size=600).filter(lambda each: not each.endswith(b"\0"))
NUMBERS = st.integers(0, 2**32 - 1)
ROUTES = st.none() | st.lists(st.binary(min_size=1, max_size=300), max_size=4)

REQUESTS = st.builds(
    Message,
    type=st.just(MessageType.REQUEST),
    topic=TOPICS,
    payload=PAYLOADS,
    matchtag=NUMBERS,
    nodeid=NUMBERS,
    streaming=st.booleans(),
    wants_response=st.booleans(),
    userid=NUMBERS,
    roles=st.builds(Role, st.integers(0, 7)),
    routes=ROUTES,
)
RESPONSES = st.builds(
    Message,
    type=st.just(MessageType.RESPONSE),
    topic=TOPICS,
    payload=PAYLOADS,
    matchtag=NUMBERS,
    errnum=NUMBERS,
    routes=ROUTES,
)


NEXT = Message(type=MessageType.REQUEST, topic="dws.status", payload=b"{}", routes=[b"client"])


def refuse(error: BadFormat) -> None:
    raise error


def framed(body: bytes) -> bytes:
    return struct.pack("=I", 0xFFEE0012) + struct.pack(">I", len(body)) + body


@given(st.lists(REQUESTS | RESPONSES, max_size=5), st.integers(1, 700))
def test_messages_come_back_as_they_were_however_their_bytes_are_cut(
    messages: list[Message], size: int
) -> None:
    data = b"".join(wire.encode(each) for each in messages)
    frames = FrameReader(refuse)
    found = [
        message
        for start in range(0, len(data), size)
        for message in frames.feed(data[start : start + size])
    ]
    assert found == messages


def test_a_request_has_the_bytes_that_brokers_expect() -> None:
    """As libflux 0.88 sends it: the payload ends with a NUL, and the header is last."""
    if sys.byteorder != "little":
        pytest.skip("the bytes are those of a machine that is little-endian")
    request = Message(
        type=MessageType.REQUEST, topic="broker.ping", payload=b"{}", matchtag=7, routes=[]
    )
    assert wire.encode(request) == (
        b"\x12\x00\xee\xff\x00\x00\x00\x26"
        b"\x00"
        b"\x0bbroker.ping"
        b"\x03{}\0"
        b"\x14\x8e\x01\x01\x0b\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x07"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "without header"),
        (b"\x07" + bytes(7), "without header"),
        (b"\x30" + bytes(20), "cut off"),
        (b"\x14\x8d\x01" + bytes(18), "magic number 0x8d"),
        (b"\x14\x8e\x01\x03" + bytes(17), "of type 3"),
    ],
)
def test_what_is_no_message_is_passed_over(body: bytes, words: str) -> None:
    told: list[BadFormat] = []
    found = list(FrameReader(told.append).feed(framed(body) + wire.encode(NEXT)))
    assert found == [NEXT]
    assert [bool(re.search(words, str(each))) for each in told] == [True]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(BadFormat, match="begins with"):
        list(FrameReader(refuse).feed(b"GET / HTTP/1.1\r\n"))


@given(REQUESTS | RESPONSES, st.integers(1, 7000))
def test_a_message_that_is_too_long_comes_without_its_payload(message: Message, size: int) -> None:
    long = replace(message, payload=bytes(5000))
    data = wire.encode(long) + wire.encode(NEXT)
    longest = len(wire.encode(long)) - 9  # the frame begins with eight bytes
    told: list[BadFormat] = []
    frames = FrameReader(told.append, longest)
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    found = [message for part in parts for message in frames.feed(part)]
    assert found == [replace(long, payload=None, truncated=True), NEXT]
    assert told == []


@pytest.mark.parametrize(
    "body",
    [
        wire.encode(Message(type=MessageType.REQUEST, topic="a" * 5000, payload=b"{}"))[8:],
        wire.encode(Message(type=MessageType.REQUEST, topic="a" * 5000))[8:],
        bytes(5000),
    ],
)
def test_what_is_too_long_and_cannot_be_answered_is_passed_over(body: bytes) -> None:
    told: list[BadFormat] = []
    found = list(FrameReader(told.append, 1000).feed(framed(body) + wire.encode(NEXT)))
    assert found == [NEXT]
    assert len(told) == 1


@given(st.lists(st.binary(max_size=300)), st.integers(100, 300))
def test_no_frames_do_more_than_to_be_passed_over(bodies: list[bytes], longest: int) -> None:
    data = b"".join(map(framed, bodies)) + wire.encode(NEXT)
    assert list(FrameReader(lambda error: None, longest).feed(data))[-1] == NEXT


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_to_be_refused(body: bytes) -> None:
    with suppress(BadFormat):
        wire.decode(body)
