"""A broker of Flux, as its local socket shows it (flux-rfc-spec section 1)."""

import asyncio
import errno
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from warren.rfc import wire
from warren.rfc.errors import BadFormat
from warren.rfc.wire import MessageType, Role
from warren.rpc import brokerclient
from warren.rpc.brokerclient import BrokerConnection
from warren.rpc.bus import Bus, Method
from warren.rpc.message import MOST_VALUES, Payload, Request, RpcError


def refuse(error: BadFormat) -> None:
    raise error


class Fake:
    """Speaks as a broker does, to one client."""

    def __init__(self, greeting: bytes = b"\0") -> None:
        self._greeting = greeting
        self.frames = wire.FrameReader(refuse)
        self.received: asyncio.Queue[wire.Message] = asyncio.Queue()
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(self._greeting)
        with suppress(ConnectionError):
            while data := await reader.read(7):  # messages come in pieces
                for each in self.frames.feed(data):
                    self.received.put_nowait(each)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        self.ended.set()

    def answer(self, to: wire.Message, payload: Any, errnum: int = 0) -> None:
        text = payload.encode() if errnum else json.dumps(payload).encode()
        self.send(
            wire.Message(
                type=MessageType.RESPONSE,
                topic=to.topic,
                payload=text,
                errnum=errnum,
                matchtag=to.matchtag,
            )
        )

    def send(self, message: wire.Message) -> None:
        self.writer.write(wire.encode(message))


Log = list[MutableMapping[str, Any]]
Story = Callable[[Fake, BrokerConnection], Awaitable[None]]


def live(tmp_path: Path, story: Story, fake: Fake | None = None, bus: Bus | None = None) -> None:
    async def main() -> None:
        served = fake or Fake()
        path = tmp_path / "local"
        async with asyncio.timeout(60):
            server = await asyncio.start_unix_server(served.serve, path)
            async with server:
                try:
                    async with brokerclient.connect(path, bus) as connection:
                        await story(served, connection)
                finally:
                    await served.ended.wait()

    asyncio.run(main())


def test_answers_reach_those_who_asked_in_whichever_order_they_come(tmp_path: Path) -> None:
    async def story(fake: Fake, connection: BrokerConnection) -> None:
        asked = [asyncio.create_task(connection.rpc("kvs.getroot", {"n": n})) for n in range(3)]
        requests = [await fake.received.get() for _ in asked]
        assert [each.type for each in requests] == [MessageType.REQUEST] * 3
        for each in reversed(requests):
            fake.answer(each, json.loads(each.payload or b""))
        assert await asyncio.gather(*asked) == [{"n": 0}, {"n": 1}, {"n": 2}]

    live(tmp_path, story)


def test_an_error_has_the_brokers_words(tmp_path: Path) -> None:
    async def story(fake: Fake, connection: BrokerConnection) -> None:
        asked = asyncio.create_task(connection.rpc("job-manager.raise"))
        fake.answer(await fake.received.get(), "unknown job id", errno.ENOENT)
        with pytest.raises(RpcError, match="unknown job id") as caught:
            await asked
        assert caught.value.errnum == errno.ENOENT

    live(tmp_path, story)


def test_a_stream_ends_with_enodata_and_is_cancelled_when_it_is_left_before(
    tmp_path: Path,
) -> None:
    async def story(fake: Fake, connection: BrokerConnection) -> None:
        found: list[Payload] = []

        async def follow(most: int) -> None:
            stream = connection.stream("job-manager.events-journal")
            async with aclosing(stream) as entries:  # type: ignore[type-var]
                async for each in entries:
                    found.append(each)
                    if len(found) == most:
                        break

        following = asyncio.create_task(follow(0))
        request = await fake.received.get()
        assert request.streaming
        for number in (1, 2):
            fake.answer(request, {"n": number})
        fake.answer(request, "", errno.ENODATA)
        await following
        assert found == [{"n": 1}, {"n": 2}]

        found.clear()
        following = asyncio.create_task(follow(1))
        request = await fake.received.get()
        fake.answer(request, {"n": 3})
        await following
        cancel = await fake.received.get()
        assert (cancel.topic, cancel.wants_response) == ("job-manager.events-journal-cancel", False)
        assert json.loads(cancel.payload or b"") == {"matchtag": request.matchtag}

    live(tmp_path, story)


def test_an_answer_that_cannot_be_read_costs_a_stream_no_other(tmp_path: Path, heard: Log) -> None:
    """The journal would break off at the same entry each time it is opened."""

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        stream = connection.stream("job-manager.events-journal")
        async with aclosing(stream) as entries:  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(entries))
            request = await fake.received.get()
            deep = b'{"a":' * 1100 + b"1" + b"}" * 1100
            for payload in (deep, b"[]", b'{"n":1}'):
                answer = wire.Message(
                    type=MessageType.RESPONSE, payload=payload, matchtag=request.matchtag
                )
                fake.send(answer)
            assert await first == {"n": 1}
            fake.answer(request, "the journal is closed", errno.EPROTO)
            with pytest.raises(RpcError, match="the journal is closed"):
                await anext(entries)

    live(tmp_path, story)
    passed_over = [each["topic"] for each in heard if each["event"] == "an answer is passed over"]
    assert passed_over == ["job-manager.events-journal"] * 2


def test_a_reader_that_does_not_keep_up_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokerclient, "MAX_WAITING_RESPONSES", 2)

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        stream = connection.stream("resource.journal")
        async with aclosing(stream) as entries:  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(entries))
            request = await fake.received.get()
            fake.answer(request, {"n": 0})
            assert await first == {"n": 0}
            for number in (1, 2, 3):
                fake.answer(request, {"n": number})
            # What was sent before has arrived when this is answered.
            asked = asyncio.create_task(connection.rpc("broker.ping"))
            fake.answer(await fake.received.get(), {})
            await asked
            with pytest.raises(RpcError) as caught:
                await anext(entries)
            assert caught.value.errnum == errno.EOVERFLOW

    live(tmp_path, story)


def request(topic: str, **more: Any) -> wire.Message:
    return wire.Message(
        type=MessageType.REQUEST,
        topic=topic,
        payload=b'{"jobid":7}',
        matchtag=9,
        routes=[b"client", b"0"],
        userid=1000,
        **more,
    )


def test_requests_of_others_are_answered_by_the_way_they_came(tmp_path: Path) -> None:
    bus = Bus(1000)
    asked: list[Request] = []

    async def create(request: Request) -> Payload:
        asked.append(request)
        return {"success": True}

    async def fail(request: Request) -> Payload:
        raise ValueError("a bug")

    bus.register("dws", {"create": Method(create), "fail": Method(fail)})

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        async def answered(sent: wire.Message) -> wire.Message:
            fake.send(sent)
            return await fake.received.get()

        found = await answered(request("dws.create", roles=Role.OWNER | Role.LOCAL))
        assert (found.type, found.matchtag, found.routes) == (
            MessageType.RESPONSE,
            9,
            [b"client", b"0"],
        )
        assert json.loads(found.payload or b"") == {"success": True}
        assert [(each.payload, each.cred.userid) for each in asked] == [({"jobid": 7}, 1000)]

        assert (await answered(request("dws.create", roles=Role.USER))).errnum == errno.EPERM
        assert (await answered(request("dws.other", roles=Role.OWNER))).errnum == errno.ENOSYS
        found = await answered(request("dws.fail", roles=Role.OWNER))
        assert (found.errnum, b"bug" in (found.payload or b"")) == (errno.EIO, False)
        # Of one that wants no answer, there is none.
        fake.send(request("dws.disconnect", roles=Role.OWNER, wants_response=False))
        assert (await answered(request("dws.create", roles=Role.OWNER))).errnum == 0

    live(tmp_path, story, bus=bus)


def test_what_a_guest_sends_costs_no_other_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Log
) -> None:
    monkeypatch.setattr(wire, "LONGEST_FRAME", 2**20)
    bus = Bus(1000)

    async def waits(request: Request) -> Payload:
        return {"waits": []}

    bus.register("dws", {"waits": Method(waits, guest=True)})
    ordinary = request("dws.waits", roles=Role.USER)

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        async def answered(frame: bytes) -> wire.Message:
            fake.writer.write(frame)
            return await fake.received.get()

        asked = asyncio.create_task(connection.rpc("broker.ping"))
        pinged = await fake.received.get()

        no_text = wire.encode(request("dws.waitz", roles=Role.USER))
        found = await answered(no_text.replace(b"waitz", b"wait\xff"))
        assert found.errnum == errno.ENOSYS
        found = await answered(wire.encode(replace(ordinary, payload=bytes(2**21))))
        assert (found.errnum, found.matchtag, found.routes) == (
            errno.EMSGSIZE,
            9,
            [b"client", b"0"],
        )
        many = b'{"a":[' + b",".join([b"1"] * (MOST_VALUES + 1)) + b"]}"
        found = await answered(wire.encode(replace(ordinary, payload=many)))
        assert found.errnum == errno.EMSGSIZE
        # The owner may.
        own = replace(ordinary, payload=many, roles=Role.OWNER)
        assert (await answered(wire.encode(own))).errnum == 0
        # No frame of these can be answered.
        odd = wire.encode(replace(ordinary, topic="a" * 2**21))
        found = await answered(odd + odd[:4] + bytes(4) + wire.encode(ordinary))
        assert (found.errnum, found.topic) == (0, "dws.waits")

        fake.answer(pinged, {"pong": 1})
        assert await asked == {"pong": 1}

    live(tmp_path, story, bus=bus)
    passed_over = [each for each in heard if each["event"].endswith("is no message")]
    assert len(passed_over) == 2


def test_an_answer_that_is_too_long_is_an_error_of_its_request_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LONGEST_FRAME", 2**16)

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        asked = [asyncio.create_task(connection.rpc("kvs.lookup")) for _ in range(2)]
        first, second = [await fake.received.get() for _ in asked]
        fake.answer(first, {"value": "x" * 2**17})
        fake.answer(second, {"value": "x"})
        with pytest.raises(RpcError) as caught:
            await asked[0]
        assert caught.value.errnum == errno.EMSGSIZE
        assert await asked[1] == {"value": "x"}

    live(tmp_path, story)


def test_what_waits_for_a_broker_that_goes_away_is_told(tmp_path: Path) -> None:
    async def story(fake: Fake, connection: BrokerConnection) -> None:
        asked = asyncio.create_task(connection.rpc("broker.ping"))
        await fake.received.get()
        fake.writer.close()
        for waiting in (asked, connection.wait_lost(), connection.rpc("broker.ping")):
            with pytest.raises(RpcError) as caught:
                await waiting
            assert caught.value.errnum == errno.ECONNRESET

    live(tmp_path, story)


def test_a_broker_that_speaks_otherwise_is_left(tmp_path: Path) -> None:
    async def story(fake: Fake, connection: BrokerConnection) -> None:
        fake.writer.write(b"HTTP/1.1 200 OK\r\n")
        with pytest.raises(RpcError, match="lost"):
            await connection.wait_lost()

    live(tmp_path, story)


@pytest.mark.parametrize(
    ("greeting", "errnum", "words"),
    [
        (bytes((errno.EPERM,)), errno.EPERM, "takes no connection: Operation not permitted"),
        (b"", errno.EPROTO, "is no broker of Flux"),
    ],
)
def test_a_broker_that_takes_no_connection_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: bytes, errnum: int, words: str
) -> None:
    monkeypatch.setattr(brokerclient, "_GREETING_TIMEOUT", 0.1)

    async def story(fake: Fake, connection: BrokerConnection) -> None:
        raise AssertionError("it was taken")

    with pytest.raises(RpcError, match=words) as caught:
        live(tmp_path, story, Fake(greeting))
    assert caught.value.errnum == errnum


def test_where_no_broker_listens_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with brokerclient.connect(tmp_path / "none"):
            pass

    with pytest.raises(RpcError, match=f"no broker answers at {tmp_path}/none"):
        asyncio.run(main())
