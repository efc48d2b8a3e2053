"""One connection between two processes. Both ends may ask, and both may serve."""

import asyncio
import errno
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from typing import Final

from warren.base import log
from warren.rpc import fluxdetection, message
from warren.rpc.bus import Forwarder
from warren.rpc.guests import Usage
from warren.rpc.message import LONGEST_MESSAGE, MOST_VALUES, Message, Payload, Request, RpcError

CANCEL: Final = "rpc.cancel"
"""The sender of a streaming request wants no more answers to it. Not answered."""

MAX_WAITING_ANSWERS: Final = 1000
"""Answers of one stream that may wait for their reader before it is cut off."""

_CHUNK_BYTES: Final = 2**16
_ENVELOPE_BYTES: Final = 2**10
"""Bytes that a message has at most around the payload of an answer."""
_LONGEST_ERROR: Final = 2000
"""Characters of an error, whose text may repeat what was asked."""
_LINES_AT_ONCE: Final = 50
"""Lines of a guest that are received before all others have a turn."""
_CLOSING_TAG: Final = 0
"""The tag of the last error of a connection, which answers no request."""


def refuse(connection: socket.socket, error: RpcError) -> None:
    """Send why a connection is refused, and close it."""
    # It has room for that, since nothing has been sent; or its client is gone.
    with suppress(OSError):
        connection.send(fluxdetection.REFUSED_BYTE + message.encode(_closing_message(error)))
    connection.close()


def _closing_message(error: RpcError) -> Message:
    return Message(tag=_CLOSING_TAG, errnum=error.errnum, error=str(error)[:_LONGEST_ERROR])


class _Answers:
    """Answers to one request, which wait for its caller."""

    def __init__(self, usage: Usage, max_waiting_answers: int) -> None:
        self._usage = usage
        self._max_waiting_answers = max_waiting_answers
        self._held_bytes = 0
        self._full = False
        self._queue: asyncio.Queue[tuple[Message | None, int]] = asyncio.Queue()

    def put(self, received: Message, size: int) -> None:
        if self._full:
            return
        if self._queue.qsize() >= self._max_waiting_answers or not self._usage.has_room(size):
            # A reader that does not keep up is told so, after what came before without a
            # gap; it hangs up then.
            self._full = True
            received, size = Message(tag=received.tag, errnum=errno.EOVERFLOW), 0
        self._usage.add_waiting(size)
        self._held_bytes += size
        self._queue.put_nowait((received, size))

    def end(self, closing_error: Message | None) -> None:
        self._queue.put_nowait((closing_error, 0))

    async def get(self) -> Message | None:
        received, size = await self._queue.get()
        self._held_bytes -= size
        self._usage.remove_waiting(size)
        return received

    def close(self) -> None:
        self._usage.remove_waiting(self._held_bytes)


class Peer(Forwarder):
    """The other end of a connection. `run` must be running for anything to happen."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handler: "RequestHandler",
        *,
        longest_message: int = LONGEST_MESSAGE,
        max_waiting_answers: int = MAX_WAITING_ANSWERS,
        usage: Usage | None = None,
    ) -> None:
        """Messages over `longest_message` bytes end the connection.

        `usage` is what a guest has taken. A stream ends when more than `max_waiting_answers` of its
        answers are unread.
        """
        self._max_waiting_answers = max_waiting_answers
        self._longest_message = longest_message
        self._usage = Usage(0) if usage is None else usage
        self._closing_error: Message | None = None
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._last_tag = 0
        self._pending: dict[int, _Answers] = {}
        self._answer_tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = False
        self._abandoned_bytes = 0
        """Sent, and not read, for requests that are given up."""
        self._abandoned = asyncio.Event()

    async def run(self) -> None:
        """Read until the other end is gone; then fail what is pending, and end what it asked."""
        received_lines = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                counting_task = tasks.create_task(self._count_abandoned())
                try:
                    async with aclosing(self._lines()) as lines:
                        async for line in lines:
                            self._receive(line, tasks)
                            del line  # it may be large, and the next one long in coming
                            received_lines += 1
                            if self._usage.is_limited:
                                if received_lines % _LINES_AT_ONCE == 0:
                                    await asyncio.sleep(0)
                                # Of a guest that reads no answers, no more requests are read.
                                await self._writer.drain()
                except (ConnectionError, ValueError, RpcError) as error:
                    log.debug("connection ends", error=str(error))
                finally:
                    self._closed = True
                    counting_task.cancel()
                    for answer_task in self._answer_tasks.values():
                        answer_task.cancel()
        finally:
            self._closed = True
            self._usage.remove_waiting(self._abandoned_bytes)
            for answers in self._pending.values():
                answers.end(self._closing_error)
            self._writer.close()

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        """Return the lines that come. Raises RpcError for one that is too long."""
        incomplete = bytearray()
        held_bytes = 0
        accepted = False
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                if not accepted and not self._is_accepted(data):
                    return
                accepted = True
                *complete, rest = data.split(b"\n")
                if complete:
                    incomplete += complete[0]
                    complete[0] = bytes(incomplete)
                    incomplete = bytearray()
                incomplete += rest
                # No line is kept that is yielded: the next bytes may be long in coming.
                del data, rest
                # Counted first: the lines are counted by their reader, beside what is not whole.
                self._usage.add_waiting(len(incomplete) - held_bytes)
                held_bytes = len(incomplete)
                complete.reverse()
                while complete:
                    yield complete.pop()
                if len(incomplete) > self._longest_message:
                    text = f"the message has over {self._longest_message} bytes: send less in one"
                    raise RpcError(errno.EMSGSIZE, text)
        finally:
            self._usage.remove_waiting(held_bytes)

    def _is_accepted(self, first_bytes: bytes) -> bool:
        try:
            self._handler.check_peer(first_bytes)
        except RpcError as error:
            self._closing_error = _closing_message(error)  # as if it had said so itself
            return False
        return True

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def rpc(self, request: Request) -> Payload:
        tag, answers = self._begin_request()
        try:
            await self._send(message.encode(self._message(tag, request)))
            return self._payload_or_raise(await answers.get())
        finally:
            del self._pending[tag]
            answers.close()

    async def stream(self, request: Request) -> AsyncIterator[Payload]:
        tag, answers = self._begin_request()
        ended = False
        try:
            try:
                await self._send(message.encode(self._message(tag, request)))
            except RpcError:
                ended = True  # it has not begun
                raise
            while True:
                received = await answers.get()
                if received is not None and received.errnum == errno.ENODATA:
                    ended = True
                    return
                ended = received is None or received.errnum not in (0, errno.EOVERFLOW)
                yield self._payload_or_raise(received)
        finally:
            del self._pending[tag]
            answers.close()
            if not ended and not self._closed:
                self._write(message.encode(Message(tag=tag, topic=CANCEL)))

    def _begin_request(self) -> tuple[int, _Answers]:
        if self._closed:
            self._payload_or_raise(self._closing_error)
        self._last_tag += 1
        answers = self._pending[self._last_tag] = _Answers(self._usage, self._max_waiting_answers)
        return self._last_tag, answers

    @staticmethod
    def _message(tag: int, request: Request) -> Message:
        return Message(
            tag=tag,
            topic=request.topic,
            payload=message.pack(request.payload),
            streaming=request.streaming,
            userid=request.cred.userid,
            owner=request.cred.is_owner,
        )

    @staticmethod
    def _payload_or_raise(received: Message | None) -> Payload:
        if received is None:
            raise RpcError(errno.ECONNRESET, "the connection was lost")
        if received.errnum:
            raise RpcError(received.errnum, received.error)
        return message.unpack(received.payload)

    def _receive(self, line: bytes, tasks: asyncio.TaskGroup) -> None:
        received = message.decode(line)
        if self._usage.is_limited and message.too_many_values(line):
            text = f"the message has over {MOST_VALUES} values: send less in one"
            answer = Message(tag=received.tag, errnum=errno.EMSGSIZE, error=text)
            if received.topic is not None:
                self._write(message.encode(answer))
                return
            received = answer
        if received.topic is None:
            if received.tag == _CLOSING_TAG and received.errnum:
                # Without its payload, and cut: it is kept for as long as the connection.
                cut = (received.error or "")[:_LONGEST_ERROR]
                self._closing_error = Message(tag=received.tag, errnum=received.errnum, error=cut)
            answers = self._pending.get(received.tag)
            if answers is not None:  # else the request was given up
                answers.put(received, len(line))
        elif received.topic == CANCEL:
            answer_task = self._answer_tasks.get(received.tag)
            if answer_task is not None:
                answer_task.cancel()
        elif received.tag in self._answer_tasks:
            raise RpcError(errno.EPROTO, f"tag {received.tag} is in use")
        else:
            size = message.quota_size(line) if self._usage.is_limited else len(line)
            try:
                self._begin_answer(received, size, tasks)
            except RpcError as error:
                self._write(_error_line(received.tag, error))

    def _begin_answer(self, received: Message, size: int, tasks: asyncio.TaskGroup) -> None:
        """Have a request answered. Raises RpcError(EAGAIN) where its user has too much under way.

        It counts from now on: a guest's task may wait long for its first step.
        """
        with ExitStack() as taken:
            taken.enter_context(self._usage.count_request())
            taken.enter_context(self._usage.count_waiting(size))
            work = partial(self._answer, received)
            task = tasks.create_task(self._usage.run_fairly(work))
            give_back = taken.pop_all().close
        tag = received.tag
        self._answer_tasks[tag] = task

        def end_answer(_: asyncio.Task[None]) -> None:
            self._answer_tasks.pop(tag, None)
            give_back()

        # Also where it is cancelled before it has begun.
        task.add_done_callback(end_answer)

    async def _answer(self, received: Message) -> None:
        tag = received.tag
        try:
            await self._send_answers(tag, self._handler.read_request(received))
            return
        except RpcError as error:
            line = _error_line(tag, error)
        except ConnectionError:
            return  # the other end is gone
        except Exception:  # a bug costs one request, not the connection
            log.exception("request failed", topic=received.topic)
            line = _error_line(tag, RpcError(errno.EIO, "internal error; see the log"))
        try:
            await self._send(line)
        except RpcError as error:
            # That there is no room is said in a few words, which need none: a guest's next
            # request is not read before they are.
            self._write(_error_line(tag, error))

    async def _send_answers(self, tag: int, request: Request) -> None:
        if request.streaming:
            async with aclosing(self._handler.stream(request)) as answers:  # type: ignore[type-var]
                async for answer in answers:
                    line = message.encode(_answer_message(tag, answer))
                    del answer  # it may be large, and its reader slow
                    await self._send(line)
                    del line  # the next one may be long in coming
            await self._send(message.encode(Message(tag=tag, errnum=errno.ENODATA)))
        else:
            answer = await self._handler.rpc(request)
            line = message.encode(_answer_message(tag, answer))
            del answer
            await self._send(line)

    async def _send(self, line: bytes) -> None:
        size = len(line)
        self._usage.add_waiting(size)
        try:
            self._write(line)
            await self._writer.drain()
        except asyncio.CancelledError:
            if self._usage.is_limited and not self._closed:
                # Its request is given up, but not read for all that.
                self._abandoned_bytes += size
                self._abandoned.set()
                size = 0
            raise
        except ConnectionError as error:
            raise RpcError(errno.ECONNRESET, "the connection was lost") from error
        finally:
            self._usage.remove_waiting(size)

    async def _count_abandoned(self) -> None:
        """Count what was sent for requests that are given up until the other end has read it."""
        try:
            while True:
                await self._abandoned.wait()
                self._abandoned.clear()
                size = self._abandoned_bytes
                await self._writer.drain()
                self._abandoned_bytes -= size
                self._usage.remove_waiting(size)
        except ConnectionError:
            pass  # the connection ends, and gives back all

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)


def _error_line(tag: int, error: RpcError) -> bytes:
    # A file's name in it may be no text.
    text = str(error)[:_LONGEST_ERROR].encode(errors="replace").decode()
    return message.encode(Message(tag=tag, errnum=error.errnum, error=text))


def _answer_message(tag: int, answer: Payload) -> Message:
    """Return the message of an answer. Raises RpcError(EFBIG) for more than clients read."""
    payload = message.pack(answer)
    if len(payload) > LONGEST_MESSAGE - _ENVELOPE_BYTES:
        raise RpcError(
            errno.EFBIG,
            f"the answer has over {LONGEST_MESSAGE - _ENVELOPE_BYTES} bytes: ask for less",
        )
    return Message(tag=tag, errnum=0, payload=payload)


class RequestHandler(ABC):
    """Answers the requests of the other end."""

    def check_peer(self, first_bytes: bytes) -> None:  # noqa: B027 - all ends are welcome unless it says so
        """Check the first bytes of the other end. Raises RpcError where it is no peer of ours."""

    @abstractmethod
    def read_request(self, received: Message) -> Request:
        """Return the request that a message holds, with the credentials of its sender."""

    @abstractmethod
    async def rpc(self, request: Request) -> Payload:
        """Answer a request."""

    @abstractmethod
    def stream(self, request: Request) -> AsyncIterator[Payload]:
        """Answer a request as long as there are answers."""
