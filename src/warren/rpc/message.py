"""Messages, and the errors that travel in them (RFC 3, RFC 6)."""

import errno
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

import msgspec

from warren.base.errors import WarrenError

Payload = Mapping[str, Any]

LONGEST_MESSAGE: Final = 16 * 2**20
"""Bytes of the longest message that is read; a longer one ends the connection."""

NOT_FLUX_BYTE: Final = bytes([errno.EPROTONOSUPPORT])
"""What a server says to clients that may be those of Flux, which read it as an errno.

All others skip it before the first message, which it cannot begin (`fluxdetection`)."""

MOST_VALUES: Final = 2**15
"""Values in what a guest sends: while more are read, all others would wait."""

_BYTES_PER_VALUE: Final = 80
"""Bytes that are counted for each value of a JSON text: in memory even `{}` takes as many."""


class Cred(msgspec.Struct, frozen=True):
    """The sender: its user id, and whether it is the owner of the instance."""

    userid: int
    is_owner: bool


class RpcError(WarrenError):
    """An answer that is an error: an errno, and words if there are any."""

    def __init__(self, errnum: int, text: str | None = None) -> None:
        super().__init__(text or os.strerror(errnum))
        self.errnum = errnum

    @property
    def unserved(self) -> bool:
        """Whether no service is known to have acted on the request: a retry may help."""
        return self.errnum in (errno.ENOSYS, errno.EHOSTUNREACH, errno.ECONNRESET)

    @property
    def busy(self) -> bool:
        """Whether the instance has no room for the request now."""
        return self.errnum in (errno.EAGAIN, errno.EMFILE)


class Message(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line on the wire. A request has a topic; a response has an errnum."""

    tag: int
    """Matches responses with their request on one connection."""
    topic: str | None = None
    errnum: int | None = None
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    error: str | None = None
    streaming: bool = False
    userid: int | None = None
    owner: bool = False
    """Whether the sender is the instance's owner.

    `userid` and this are filled in by the bus for requests that it passes on; from others they are
    ignored."""


_NOT_JSON: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the decoder raises: the last two for bytes that are no text, and for nests without end."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """Write a message as its line."""
    return _encoder.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """Read a line. Raises RpcError(EPROTO) where it is no message."""
    try:
        return _decoder.decode(line.removeprefix(NOT_FLUX_BYTE))
    except _NOT_JSON as error:
        raise RpcError(errno.EPROTO, f"a malformed message: {error}") from None


def pack(payload: Payload) -> msgspec.Raw:
    """Write a payload, once, for however many messages carry it."""
    return msgspec.Raw(_encoder.encode(payload))


def unpack(payload: msgspec.Raw) -> Payload:
    """Read a payload, which must be an object. Raises RpcError(EPROTO) otherwise."""
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except _NOT_JSON as error:
        raise RpcError(errno.EPROTO, f"a malformed payload: {error}") from None


def too_many_values(data: bytes) -> bool:
    """Return whether a JSON text holds more values than guests may send, without reading it."""
    if _count_separators(data) <= MOST_VALUES:
        return False
    # Those within strings are none; that many strings are too many by themselves.
    if data.count(b'"') - data.count(b'\\"') > 4 * MOST_VALUES:
        return True
    return count_values(data) > MOST_VALUES


def count_values(data: bytes) -> int:
    """Return how many values a JSON text holds, without reading it."""
    # Without what is escaped in strings, each second piece between quotes is one of them. An
    # expression that takes strings out would take ten times as long, in which all others wait.
    pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    return _count_separators(b"".join(pieces[::2]))


def quota_size(data: bytes) -> int:
    """Return how many bytes to count for a JSON text whose values stay in memory."""
    upper_bound = _count_separators(data) * _BYTES_PER_VALUE
    return len(data) + (
        upper_bound if upper_bound <= len(data) else count_values(data) * _BYTES_PER_VALUE
    )


def _count_separators(data: bytes) -> int:
    """Count what comes before a value; each but the first of all has something."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a service, with the credentials of its sender."""

    topic: str
    payload: Payload
    cred: Cred
    streaming: bool = False


class Handle(Protocol):
    """A connection to the services of an instance, as its user sees it."""

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        """Ask, and return the answer. Raises RpcError."""
        ...

    def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        """Ask, and return the answers until there are no more. Raises RpcError."""
        ...
