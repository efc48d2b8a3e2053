"""The services of a broker of Flux, reached over its local socket (RFC 3, RFC 6).

Without libflux, whose Python package would have to be built for each version of Flux and each
Python: a broker's messages are few and fixed (ADR 082).
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from warren.base import log
from warren.rfc import wire
from warren.rfc.errors import BadFormat
from warren.rfc.wire import MessageType, Role
from warren.rpc import message, sockets
from warren.rpc.bus import Bus
from warren.rpc.message import MOST_VALUES, Cred, Payload, Request, RpcError

MAX_WAITING_RESPONSES: Final = 2**16
"""Responses to one request that may wait for their reader."""

_GREETING_TIMEOUT: Final = 5.0
"""Seconds in which a broker says whether it takes a connection: it does so at once."""

_CHUNK_BYTES: Final = 2**16
_LARGEST_TAG: Final = 2**32 - 1
_MAX_ANSWERED_AT_ONCE: Final = 1000
"""Requests from the broker that are answered at a time."""

_LONGEST_ERROR: Final = 500
"""Characters of an error."""


class _Responses:
    """Responses to one request, which wait for their reader."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[wire.Message | None] = asyncio.Queue()
        self._full = False

    def put(self, received: wire.Message | None) -> None:
        self._full = self._full or self._queue.qsize() >= MAX_WAITING_RESPONSES
        if not self._full:
            self._queue.put_nowait(received)

    async def get(self) -> wire.Message | None:
        """Return the next one. Raises RpcError(EOVERFLOW) where some have been lost."""
        if self._full:
            raise RpcError(errno.EOVERFLOW)
        return await self._queue.get()


class BrokerConnection:
    """A `Handle` over one connection to a broker, and the way to serve over it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, bus: Bus | None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._bus = bus
        self._tags = count(1)
        self._pending: dict[int, _Responses] = {}
        self._answer_tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def wait_lost(self) -> None:
        """Wait until the broker is gone, and raise RpcError(ECONNRESET) then."""
        await self._closed.wait()
        raise _connection_lost_error()

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        tag, responses = self._begin_request()
        try:
            await self._send(_request(topic, payload, tag))
            return _payload_or_raise(await responses.get())
        finally:
            del self._pending[tag]

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        tag, responses = self._begin_request()
        ended = False
        try:
            await self._send(replace(_request(topic, payload, tag), streaming=True))
            while True:
                received = await responses.get()
                ended = received is None or received.errnum != 0
                if received is not None and received.errnum == errno.ENODATA:
                    return
                try:
                    payload = _payload_or_raise(received)
                except RpcError as error:
                    if ended:
                        raise
                    # What one guest has written may be in it: it ends no other user's stream.
                    log.warning("an answer is passed over", topic=topic, reason=str(error))
                    continue
                yield payload
        finally:
            del self._pending[tag]
            if not ended and not self._closed.is_set():
                cancel_request = _request(f"{topic}-cancel", {"matchtag": tag}, 0)
                self._writer.write(wire.encode(replace(cancel_request, wants_response=False)))

    async def run(self) -> None:
        """Read until the broker is gone, and fail then what waits for it."""
        frames = wire.FrameReader(_log_bad_frame, wire.LONGEST_FRAME)
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                for received in frames.feed(data):
                    self._receive(received)
        except (ConnectionError, BadFormat) as error:
            log.warning("the connection to the broker ends", reason=str(error))
        finally:
            self._closed.set()
            for responses in self._pending.values():
                responses.put(None)
            for task in self._answer_tasks:
                task.cancel()
            self._writer.close()

    def _begin_request(self) -> tuple[int, _Responses]:
        if self._closed.is_set():
            raise _connection_lost_error()
        tag = next(each for each in self._tags if each not in self._pending)
        if tag >= _LARGEST_TAG:
            self._tags = count(1)
        responses = self._pending[tag] = _Responses()
        return tag, responses

    def _receive(self, received: wire.Message) -> None:
        match received.type:
            case MessageType.RESPONSE:
                responses = self._pending.get(received.matchtag)
                if responses is not None:  # else the request was given up
                    responses.put(received)
            case MessageType.REQUEST:
                task = asyncio.create_task(self._answer(received))
                self._answer_tasks.add(task)
                task.add_done_callback(self._answer_tasks.discard)
            case _:
                pass  # events, to which nothing here subscribes, and keepalives

    async def _answer(self, received: wire.Message) -> None:
        try:
            if self._bus is None:
                raise RpcError(errno.ENOSYS)
            if len(self._answer_tasks) > _MAX_ANSWERED_AT_ONCE:
                raise RpcError(errno.EAGAIN, "too many requests wait for an answer")
            cred = Cred(received.userid, Role.OWNER in received.roles)
            if received.truncated:
                raise _too_long_error()
            if not cred.is_owner and message.too_many_values(received.payload or b""):
                text = f"the message has over {MOST_VALUES} values: send less in one"
                raise RpcError(errno.EMSGSIZE, text)
            payload = message.unpack(msgspec.Raw(received.payload or b"{}"))
            request = Request(topic=received.topic, payload=payload, cred=cred)
            answer = bytes(message.pack(await self._bus.rpc(request)))
            errnum = 0
        except RpcError as error:
            errnum, answer = error.errnum, _error_text(str(error))
        except Exception:  # a bug costs one request, not the connection
            log.exception("request failed", topic=received.topic)
            errnum, answer = errno.EIO, _error_text("internal error; see the log")
        if received.wants_response:
            response = wire.Message(
                type=MessageType.RESPONSE,
                topic=received.topic,
                payload=answer,
                errnum=errnum,
                matchtag=received.matchtag,
                routes=received.routes,
            )
            with suppress(RpcError):  # the broker is gone
                await self._send(response)

    async def _send(self, outgoing: wire.Message) -> None:
        if self._closed.is_set():
            raise _connection_lost_error()
        self._writer.write(wire.encode(outgoing))
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise _connection_lost_error() from error


@asynccontextmanager
async def connect(path: Path, bus: Bus | None = None) -> AsyncIterator[BrokerConnection]:
    """Connect for the length of a block. Raises RpcError where no broker takes the connection.

    Requests for services that the block adds with `service.add` go to `bus`.
    """
    try:
        connection = sockets.connect(path)
    except OSError as error:
        raise RpcError(errno.ECONNRESET, f"no broker answers at {path}") from error
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    try:
        await _wait_greeting(reader, path)
        connection_to_broker = BrokerConnection(reader, writer, bus)
        run_task = asyncio.create_task(connection_to_broker.run())
        try:
            yield connection_to_broker
        finally:
            run_task.cancel()
            await asyncio.wait({run_task})
    finally:
        writer.close()


async def _wait_greeting(reader: asyncio.StreamReader, path: Path) -> None:
    """Wait for the byte by which a broker takes a connection, or says why it does not."""
    try:
        async with asyncio.timeout(_GREETING_TIMEOUT):
            greeting = await reader.read(1)
    except TimeoutError:
        raise RpcError(errno.EPROTO, f"what listens at {path} is no broker of Flux") from None
    if not greeting:
        raise RpcError(errno.ECONNRESET, f"the broker at {path} has hung up")
    if greeting[0] != 0:
        why = os.strerror(greeting[0])
        raise RpcError(greeting[0], f"the broker at {path} takes no connection: {why}")


def _request(topic: str, payload: Payload | None, tag: int) -> wire.Message:
    return wire.Message(
        type=MessageType.REQUEST,
        topic=topic,
        payload=bytes(message.pack(payload or {})),
        matchtag=tag,
        routes=(),  # the broker adds the way to us
    )


def _payload_or_raise(received: wire.Message | None) -> Payload:
    if received is None:
        raise _connection_lost_error()
    if received.errnum:
        text = (received.payload or b"").decode(errors="replace")
        raise RpcError(received.errnum, text or None)
    if received.truncated:
        raise _too_long_error()
    return message.unpack(msgspec.Raw(received.payload or b"{}"))


def _too_long_error() -> RpcError:
    text = f"the message has over {wire.LONGEST_FRAME} bytes: send less in one"
    return RpcError(errno.EMSGSIZE, text)


def _log_bad_frame(error: BadFormat) -> None:
    # Guests may send it, and all others' requests come over the same connection.
    log.warning("what the broker passes on is no message", reason=str(error))


def _error_text(text: str) -> bytes:
    return text[:_LONGEST_ERROR].encode(errors="replace").replace(b"\0", b" ")


def _connection_lost_error() -> RpcError:
    return RpcError(errno.ECONNRESET, "the connection was lost")
