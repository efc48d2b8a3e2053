"""Messages on the wire: what is written is read, and nothing but RpcError comes of the rest."""

import errno
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.rpc import message
from warren.rpc.message import Message, RpcError

payloads = st.dictionaries(
    st.text(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    ),
    max_size=5,
)
messages = st.builds(
    Message,
    tag=st.integers(0, 2**62),
    topic=st.none() | st.text(),
    errnum=st.none() | st.integers(0, 200),
    payload=payloads.filter(lambda payload: _encodes(payload)).map(message.pack),
    error=st.none() | st.text(),
    streaming=st.booleans(),
    userid=st.none() | st.integers(0, 2**32 - 1),
    owner=st.booleans(),
)
DEEP = 100_000


def _encodes(payload: Any) -> bool:
    return "inf" not in repr(payload)


def errnum_of(line: bytes) -> int:
    """Read a line and its payload; return the errnum if they are none, and 0 if they are."""
    try:
        message.unpack(message.decode(line).payload)
    except RpcError as error:
        return error.errnum
    return 0


@given(sent=messages)
def test_what_is_written_is_read(sent: Message) -> None:
    line = message.encode(sent)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    received = message.decode(line)
    assert message.unpack(received.payload) == message.unpack(sent.payload)
    sent.payload = received.payload = msgspec.Raw(b"{}")
    assert received == sent


@given(line=st.binary())
@example(line=b"")
@example(line=b"null")
@example(line=b"[" * DEEP)
@example(line=b'{"tag":1,"payload":' + b"[" * DEEP + b"]" * DEEP + b"}")
@example(line=b'{"tag":1,"unknown":' + b"[" * DEEP + b"]" * DEEP + b"}")
@example(line=b'{"tag":1,"topic":"\xff"}')
@example(line=b'{"tag":1,"topic":"\\ud800"}')
@example(line=b'{"tag":' + b"9" * 5000 + b"}")
@example(line=b'{"tag":1,"payload":{"a":"\xff"}}')
@example(line=b'{"tag":1,"payload":{"a":' + b"[" * DEEP + b"]" * DEEP + b"}}")
def test_of_any_bytes_a_message_comes_or_an_error(line: bytes) -> None:
    assert errnum_of(line) in (0, errno.EPROTO)


@given(sent=messages, cut=st.integers(0, 200), put=st.binary(max_size=3))
def test_of_a_damaged_message_comes_no_other_error(sent: Message, cut: int, put: bytes) -> None:
    line = message.encode(sent)
    assert errnum_of(line[:cut] + put + line[cut + 1 :]) in (0, errno.EPROTO)


def test_a_request_is_short_on_the_wire() -> None:
    sent = Message(tag=1, topic="kvs.get", payload=message.pack({"key": "a"}))
    assert message.encode(sent) == b'{"tag":1,"topic":"kvs.get","payload":{"key":"a"}}\n'


@pytest.mark.parametrize(
    ("errnum", "lost"),
    [
        (errno.ENOSYS, True),
        (errno.EHOSTUNREACH, True),
        (errno.ECONNRESET, True),
        (errno.EPERM, False),
        (errno.EIO, False),
    ],
)
def test_an_error_says_whether_to_ask_again(errnum: int, lost: bool) -> None:
    assert RpcError(errnum).unserved is lost


@given(sent=st.lists(st.text() | st.integers()))
@example(sent=['",[{', "\\", '\\"', '\\\\",', "a\n,\\u0041,"])
def test_values_are_counted_as_they_are_read(sent: list[Any]) -> None:
    assert message.count_values(msgspec.json.encode(sent)) == max(1, len(sent))
