"""What one connection of a guest keeps in memory: nothing that is not counted, and not for long."""

import asyncio
import errno
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from itertools import pairwise
from typing import Any, TypeVar, cast

import orjson
import pytest

from tests.journal.running import virtually
from tests.rpc.services import GUEST
from warren.base.fairqueue import FairQueue
from warren.rpc import message
from warren.rpc.guests import GuestLimits, Usage
from warren.rpc.message import Cred, Message, Payload, Request, RpcError
from warren.rpc.peer import CANCEL, Peer, RequestHandler

T = TypeVar("T")

LIMITS = GuestLimits(connections=1, all_connections=1, requests=4, waiting_bytes=100_000)
MANY = GuestLimits(connections=1, all_connections=1)
LARGE = 2**23


class Written:
    """What the guest is sent; it reads while `reading` is set."""

    def __init__(self) -> None:
        self.sent = b""
        self.reading = asyncio.Event()
        self.reading.set()

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        await self.reading.wait()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    @property
    def messages(self) -> list[Any]:
        return [orjson.loads(line) for line in self.sent.splitlines()]


class Answering(RequestHandler):
    """Answers at once, with an error where there is one."""

    def __init__(self, error: RpcError | None = None) -> None:
        self.answered = 0
        self.at_answer: Callable[[], None] = lambda: None
        self._error = error

    def read_request(self, received: Message) -> Request:
        assert received.topic is not None
        return Request(topic=received.topic, payload={}, cred=Cred(GUEST, False))

    async def rpc(self, request: Request) -> Payload:
        self.answered += 1
        self.at_answer()
        if self._error is not None:
            raise self._error
        return {}

    async def stream(self, request: Request) -> AsyncIterator[Payload]:
        yield await self.rpc(request)


class Stuck(FairQueue):
    """A queue in which all others come first."""

    async def run(self, userid: int, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await asyncio.Event().wait()
        return await work()


class Guest:
    """The guest's end of a connection."""

    def __init__(self, usage: Usage, handler: RequestHandler) -> None:
        self.written = Written()
        self._reader = asyncio.StreamReader()
        writer = cast(asyncio.StreamWriter, self.written)
        self.peer = Peer(self._reader, writer, handler, usage=usage)
        self.running = asyncio.ensure_future(self.peer.run())

    def stop_reading(self) -> None:
        self.written.reading.clear()

    async def say(self, data: bytes) -> None:
        self._reader.feed_data(data)
        await asyncio.sleep(1)

    def say_and_leave(self, data: bytes) -> None:
        self._reader.feed_data(data)
        self._reader.feed_eof()


def requests(count: int) -> bytes:
    return b"".join(b'{"tag":%d,"topic":"test.any"}\n' % tag for tag in range(1, count + 1))


@virtually
async def test_an_error_repeats_no_more_than_a_part_of_what_was_asked() -> None:
    guest = Guest(Usage(GUEST, LIMITS), Answering(RpcError(errno.ENOENT, "x" * 50_000)))
    await guest.say(requests(1))
    assert guest.written.messages == [{"tag": 1, "errnum": errno.ENOENT, "error": "x" * 2000}]


@virtually
async def test_an_error_counts_until_its_guest_reads_it() -> None:
    usage = Usage(GUEST, LIMITS)
    guest = Guest(usage, Answering(RpcError(errno.ENOENT, "no such thing")))
    guest.written.reading.clear()
    asked = requests(1)
    await guest.say(asked)
    assert usage.requests == 1
    assert usage.waiting_bytes == message.quota_size(asked[:-1]) + len(guest.written.sent)

    guest.written.reading.set()
    await asyncio.sleep(1)
    assert (usage.requests, usage.waiting_bytes) == (0, 0)


@virtually
async def test_an_error_that_finds_no_room_is_told_in_a_few_words() -> None:
    usage = Usage(GUEST, LIMITS)
    usage.add_waiting(99_000)
    guest = Guest(usage, Answering(RpcError(errno.ENOENT, "x" * 2000)))
    await guest.say(requests(1))
    [answer] = guest.written.messages
    assert answer["errnum"] == errno.EAGAIN
    assert (usage.requests, usage.waiting_bytes) == (0, 99_000)


@pytest.mark.parametrize(
    "said",
    [
        {"tag": 1, "topic": "test.any", "payload": {"text": "x" * LARGE}},
        {"tag": 1, "topic": CANCEL, "payload": {"text": "x" * LARGE}},
        {"tag": 1, "errnum": 0, "payload": {"text": "x" * LARGE}},
        {"tag": 0, "errnum": errno.EIO, "error": "x" * LARGE},
        {"tag": 0, "errnum": errno.EIO, "payload": {"text": "x" * LARGE}},
    ],
    ids=["request", "cancellation", "answer to nothing", "last words", "last payload"],
)
@virtually
async def test_a_message_is_not_kept_until_the_next_one_comes(said: dict[str, Any]) -> None:
    usage = Usage(GUEST, MANY)
    guest = Guest(usage, Answering())
    line = orjson.dumps(said) + b"\n"
    tracemalloc.start()
    try:
        await guest.say(line)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not guest.running.done()
    assert most > LARGE  # it was read
    assert kept < LARGE / 8
    assert usage.waiting_bytes == 0


@virtually
async def test_a_message_is_counted_once_while_it_is_read() -> None:
    """Not both as one that is not whole and as one that is not answered."""
    guest = Guest(Usage(GUEST, LIMITS), Answering())
    line = orjson.dumps({"tag": 1, "topic": "test.any", "payload": {"text": "x" * 90_000}})
    await guest.say(line)
    await guest.say(b"\n")
    assert guest.written.messages == [{"tag": 1, "errnum": 0, "payload": {}}]


@virtually
async def test_requests_count_before_they_have_their_turn() -> None:
    """Else a guest that has used its time would have any number of them wait for more."""
    usage = Usage(GUEST, LIMITS, Stuck())
    guest = Guest(usage, Answering())
    await guest.say(requests(100))
    assert usage.requests == 4
    assert usage.waiting_bytes > 0
    assert [each["errnum"] for each in guest.written.messages] == [errno.EAGAIN] * 96

    guest.running.cancel()
    await asyncio.wait({guest.running})
    assert (usage.requests, usage.waiting_bytes) == (0, 0)


@virtually
async def test_requests_of_a_guest_that_leaves_before_they_begin_count_no_more() -> None:
    usage = Usage(GUEST, LIMITS)
    handler = Answering()
    guest = Guest(usage, handler)
    guest.say_and_leave(requests(4))
    await guest.running
    assert handler.answered == 0
    assert (usage.requests, usage.waiting_bytes) == (0, 0)


@virtually
async def test_others_have_a_turn_between_the_requests_that_come_at_once() -> None:
    handler = Answering()
    guest = Guest(Usage(GUEST, MANY), handler)
    seen = [0]

    async def look() -> None:
        while seen[-1] < 1000:
            await asyncio.sleep(0)
            seen.append(handler.answered)

    looking = asyncio.ensure_future(look())
    await guest.say(requests(1000))
    await looking
    assert handler.answered == 1000
    assert max(after - before for before, after in pairwise(seen)) <= 50


@virtually
async def test_an_answer_that_is_cancelled_counts_until_its_guest_reads_it() -> None:
    usage = Usage(GUEST, LIMITS)
    handler = Answering()
    guest = Guest(usage, handler)
    handler.at_answer = guest.stop_reading
    await guest.say(requests(1))
    await guest.say(orjson.dumps({"tag": 1, "topic": CANCEL}) + b"\n")
    assert usage.requests == 0
    assert usage.waiting_bytes == len(guest.written.sent) > 0

    guest.written.reading.set()
    await asyncio.sleep(1)
    assert usage.waiting_bytes == 0


@pytest.mark.parametrize("leaves", [False, True])
@virtually
async def test_a_request_that_is_given_up_counts_until_its_service_reads_it(leaves: bool) -> None:
    """Else a guest that asks its own service has the instance keep any number of them."""
    usage = Usage(GUEST, LIMITS)
    guest = Guest(usage, Answering())
    guest.stop_reading()
    asked = Request(topic="tool.any", payload={"text": "x" * 9000}, cred=Cred(GUEST, False))
    refused = 0
    for _ in range(20):
        asking = asyncio.ensure_future(guest.peer.rpc(asked))
        await asyncio.sleep(1)
        asking.cancel()
        await asyncio.wait({asking})
        refused += not asking.cancelled()
    assert refused == 9
    assert usage.waiting_bytes == len(guest.written.sent) > 0

    if leaves:
        guest.running.cancel()
    else:
        guest.written.reading.set()
    await asyncio.sleep(1)
    assert usage.waiting_bytes == 0


@virtually
async def test_a_stream_that_finds_no_room_is_not_cancelled_either() -> None:
    usage = Usage(GUEST, LIMITS)
    guest = Guest(usage, Answering())
    await asyncio.sleep(1)
    usage.add_waiting(100_000)
    asked = Request(topic="tool.any", payload={}, cred=Cred(GUEST, False), streaming=True)
    with pytest.raises(RpcError, match="try again later"):
        await anext(guest.peer.stream(asked))
    assert guest.written.sent == b""
