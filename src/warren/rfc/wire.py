"""Messages between processes of Flux, as bytes (RFC 3).

A message is a list of parts: the routes that lead back to its sender and the empty part that ends
them, the topic, the payload, and last a header of 20 bytes. On a local socket each message is a
frame, which begins with a magic number and its length (flux-rfc-spec section 1).
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum, IntFlag
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from warren.rfc.errors import BadFormat

ANY_NODE: Final = 0xFFFFFFFF
"""The node of a request that any broker may answer."""

UNKNOWN_USER: Final = 0xFFFFFFFF
"""The userid of a message that we send: the broker's socket puts in the sender's."""

LONGEST_FRAME: Final = 64 * 2**20
"""Bytes of the longest frame that is read; of a longer one, only what tells how to answer it."""

_MAGIC: Final = 0x8E
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">BBBBIIII")
_FLAGS_OFFSET: Final = 3
"""Where the flags are in the header."""

_FRAME: Final = struct.Struct(">4sI")
_FRAME_MAGIC: Final = struct.pack("=I", 0xFFEE0012)
"""In the machine's own order: the other end is on the same one. The length is not."""
_LONG_LENGTH: Final = struct.Struct(">BI")
_LONG_PART_MARK: Final = 0xFF
"""In place of a part's length: its length follows, in four bytes."""

_HEAD_BYTES: Final = 2**12
"""Bytes that are kept of the beginning of a frame that is too long: its routes and its topic."""
_TAIL_BYTES: Final = 1 + _HEADER.size
"""Bytes that are kept of its end: the header, with its length."""


class MessageType(IntEnum):
    """What a message is."""

    REQUEST = 1
    RESPONSE = 2
    EVENT = 4
    CONTROL = 8


class MessageFlag(IntFlag):
    """Which parts a message has, and how it is meant."""

    TOPIC = 0x01
    PAYLOAD = 0x02
    NO_RESPONSE = 0x04
    ROUTE = 0x08
    UPSTREAM = 0x10
    PRIVATE = 0x20
    STREAMING = 0x40
    USER1 = 0x80


class Role(IntFlag):
    """What the sender of a message may do (RFC 12)."""

    OWNER = 1
    USER = 2
    LOCAL = 4


NO_ROLE: Final = Role(0)
"""The roles of a message that we send: the broker puts in the sender's."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message. Payloads are JSON texts, and those of errors are words."""

    type: MessageType
    topic: str = ""
    payload: bytes | None = None
    matchtag: int = 0
    errnum: int = 0
    """Of a response."""
    nodeid: int = ANY_NODE
    """Of a request."""
    streaming: bool = False
    wants_response: bool = True
    """Whether a request wants a response."""
    userid: int = UNKNOWN_USER
    roles: Role = NO_ROLE
    routes: Sequence[bytes] | None = None
    """The way back, for a message that has any."""
    truncated: bool = False
    """Whether it was too long, and came without its payload."""


def encode(message: Message) -> bytes:
    """Return the frame of a message."""
    flags = MessageFlag(0)
    parts: list[bytes] = []
    if message.routes is not None:
        flags |= MessageFlag.ROUTE
        parts += [*message.routes, b""]
    if message.topic:
        flags |= MessageFlag.TOPIC
        parts.append(message.topic.encode())
    if message.payload is not None:
        flags |= MessageFlag.PAYLOAD
        parts.append(message.payload + b"\0")
    if message.streaming:
        flags |= MessageFlag.STREAMING
    if not message.wants_response:
        flags |= MessageFlag.NO_RESPONSE
    first = message.errnum if message.type is MessageType.RESPONSE else message.nodeid
    header = _HEADER.pack(
        *(_MAGIC, _VERSION, message.type, flags),
        *(message.userid, message.roles, first, message.matchtag),
    )
    body = b"".join(_with_length(part) for part in (*parts, header))
    return _FRAME.pack(_FRAME_MAGIC, len(body)) + body


def _with_length(part: bytes) -> bytes:
    if len(part) < _LONG_PART_MARK:
        return bytes((len(part),)) + part
    return _LONG_LENGTH.pack(_LONG_PART_MARK, len(part)) + part


class FrameReader:
    """Takes bytes as they come, and returns the messages that they complete."""

    def __init__(
        self, on_bad_frame: Callable[[BadFormat], None], longest: int = LONGEST_FRAME
    ) -> None:
        """`on_bad_frame` is told of each frame that holds no message: the next one may.

        Of a frame of more than `longest` bytes only both ends are kept.
        """
        self._on_bad_frame = on_bad_frame
        self._longest = longest
        self._buffer = bytearray()
        self._oversized: _OversizedFrame | None = None

    def feed(self, data: bytes) -> Iterator[Message]:
        """Return what is complete with these bytes. Raises BadFormat for what is no frame."""
        self._buffer += data
        position = 0
        try:
            while True:
                if self._oversized is not None:
                    position += self._oversized.take(self._buffer, position)
                    if self._oversized.bytes_left:
                        return
                    make_message, self._oversized = self._oversized.message, None
                elif len(self._buffer) - position < _FRAME.size:
                    return
                else:
                    magic, size = _FRAME.unpack_from(self._buffer, position)
                    if magic != _FRAME_MAGIC:
                        raise BadFormat(f"a frame begins with {bytes(magic).hex()}")
                    begin = position + _FRAME.size
                    if size > self._longest:
                        self._oversized, position = _OversizedFrame(size), begin
                        continue
                    if len(self._buffer) - begin < size:
                        return
                    position = begin + size
                    make_message = partial(decode, bytes(self._buffer[begin:position]))
                try:
                    message = make_message()
                except BadFormat as error:
                    self._on_bad_frame(error)
                    continue
                yield message
        finally:
            del self._buffer[:position]


class _OversizedFrame:
    """A frame that is too long, of which only both ends are kept."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = bytearray()
        self._tail = bytearray()
        self.bytes_left = size
        """Bytes that are still to come."""

    def take(self, data: bytearray, position: int) -> int:
        """Take what is the frame's of some bytes; return how many."""
        chunk = data[position : position + self.bytes_left]
        self.bytes_left -= len(chunk)
        self._head += chunk[: _HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + chunk)[-_TAIL_BYTES:]
        return len(chunk)

    def message(self) -> Message:
        """Return the message without its payload. Raises BadFormat."""
        parts: list[bytes] = []
        with suppress(BadFormat):  # the payload is cut off
            parts.extend(_parts(bytes(self._head)))
        header = bytes(self._tail[1:])
        if self._tail[0] != _HEADER.size or not MessageFlag.PAYLOAD & header[_FLAGS_OFFSET]:
            raise BadFormat(f"a frame of {self._size} bytes")
        return replace(_message([*parts, b"", header]), payload=None, truncated=True)


def decode(body: bytes) -> Message:
    """Read a message from what is in its frame. Raises BadFormat."""
    return _message(list(_parts(body)))


def _message(parts: list[bytes]) -> Message:
    if not parts or len(parts[-1]) != _HEADER.size:
        raise BadFormat("a message without header")
    magic, version, kind, bits, userid, roles, first, second = _HEADER.unpack(parts.pop())
    if (magic, version) != (_MAGIC, _VERSION):
        raise BadFormat(f"a message of version {version}, with the magic number {magic:#x}")
    try:
        type_ = MessageType(kind)
    except ValueError:
        raise BadFormat(f"a message of type {kind}") from None
    flags = MessageFlag(bits)
    routes: list[bytes] | None = None
    if MessageFlag.ROUTE in flags:
        routes = []
        while route := _pop_part(parts, "route"):
            routes.append(route)
    topic = _pop_part(parts, "topic").decode(errors="replace") if MessageFlag.TOPIC in flags else ""
    payload = _pop_part(parts, "payload") if MessageFlag.PAYLOAD in flags else None
    if parts:
        raise BadFormat(f"a message with {len(parts)} parts that its flags do not tell of")
    is_request = type_ is MessageType.REQUEST
    return Message(
        type=type_,
        topic=topic,
        # A payload that is text ends with a NUL, and a topic does not.
        payload=None if payload is None else payload.removesuffix(b"\0"),
        matchtag=second,
        errnum=first if type_ is MessageType.RESPONSE else 0,
        nodeid=first if is_request else ANY_NODE,
        streaming=MessageFlag.STREAMING in flags,
        wants_response=MessageFlag.NO_RESPONSE not in flags,
        userid=userid,
        roles=Role(roles),
        routes=routes,
    )


def _parts(body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        size = body[position]
        position += 1
        if size == _LONG_PART_MARK:
            if len(body) < position + 4:
                raise BadFormat("a part's length is cut off")
            size = int.from_bytes(body[position : position + 4])
            position += 4
        if len(body) < position + size:
            raise BadFormat(f"a part of {size} bytes is cut off")
        yield body[position : position + size]
        position += size


def _pop_part(parts: list[bytes], name: str) -> bytes:
    if not parts:
        raise BadFormat(f"a message without the {name} that its flags tell of")
    return parts.pop(0)
