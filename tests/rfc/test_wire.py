"""Messages of Flux as bytes (RFC 3)."""

import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import wire
from warren.rfc.errors import BadFormat
from warren.rfc.wire import Frames, Message, Role, Type

TOPICS = st.text("abcdefgh-_.0123456789", min_size=1, max_size=300)
PAYLOADS = st.none() | st.binary(max_size=600).filter(lambda each: not each.endswith(b"\0"))
NUMBERS = st.integers(0, 2**32 - 1)
ROUTES = st.none() | st.lists(st.binary(min_size=1, max_size=300), max_size=4)

REQUESTS = st.builds(
    Message,
    type=st.just(Type.REQUEST),
    topic=TOPICS,
    payload=PAYLOADS,
    matchtag=NUMBERS,
    nodeid=NUMBERS,
    streaming=st.booleans(),
    answered=st.booleans(),
    userid=NUMBERS,
    roles=st.builds(Role, st.integers(0, 7)),
    routes=ROUTES,
)
RESPONSES = st.builds(
    Message,
    type=st.just(Type.RESPONSE),
    topic=TOPICS,
    payload=PAYLOADS,
    matchtag=NUMBERS,
    errnum=NUMBERS,
    routes=ROUTES,
)


@given(st.lists(REQUESTS | RESPONSES, max_size=5), st.integers(1, 700))
def test_messages_come_back_as_they_were_however_their_bytes_are_cut(
    messages: list[Message], size: int
) -> None:
    data = b"".join(wire.encode(each) for each in messages)
    frames = Frames()
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
    request = Message(type=Type.REQUEST, topic="broker.ping", payload=b"{}", matchtag=7, routes=[])
    assert wire.encode(request) == (
        b"\x12\x00\xee\xff\x00\x00\x00\x26"
        b"\x00"
        b"\x0bbroker.ping"
        b"\x03{}\0"
        b"\x14\x8e\x01\x01\x0b\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x07"
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "begins with"),
        (b"\x12\x00\xee\xff\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (b"\x12\x00\xee\xff\x00\x00\x00\x08", "a frame of 8 bytes"),
        (b"\x12\x00\xee\xff\x00\x00\x00\x15\x30" + bytes(20), "cut off"),
        (b"\x12\x00\xee\xff\x00\x00\x00\x15\x14\x8d\x01" + bytes(18), "magic number 0x8d"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(BadFormat, match=words):
        list(Frames().feed(data))


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_to_be_refused(body: bytes) -> None:
    with suppress(BadFormat):
        wire.decode(body)
