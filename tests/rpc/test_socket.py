"""The bus on a unix socket: who is at the other end, and what becomes of it all when it is gone."""

import asyncio
import errno
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, ExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.harness.logs import capture_logs
from tests.journal.running import read, really
from tests.rpc.services import (
    GUEST,
    OWNER,
    Services,
    bus_with,
    connected,
    eventually,
    serving,
)
from warren.rpc import server, sockets
from warren.rpc.bus import Bus, Method
from warren.rpc.message import LONGEST_MESSAGE, NOT_FLUX_BYTE, Handle, Payload, Request, RpcError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


async def errnum_of(asked: Awaitable[Any]) -> int:
    """Return the errnum of a request that must fail."""
    with pytest.raises(RpcError) as failed:
        await asked
    return failed.value.errnum


class Wire:
    """A client that writes what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, message: dict[str, Any] | bytes) -> None:
        line = message if isinstance(message, bytes) else orjson.dumps(message) + b"\n"
        self.writer.write(line)
        await self.writer.drain()

    async def hear(self) -> Any:
        """Return the next message; None when the other end has hung up."""
        try:
            line = await self.reader.readline()
        except ConnectionError:
            return None
        line = line.removeprefix(NOT_FLUX_BYTE)  # said to clients that are silent for a while
        return orjson.loads(line) if line else None


@asynccontextmanager
async def wired(path: Path) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_unix_connection(sock=sockets.connect(path), limit=2**20)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


# Who is who


@really
async def test_the_kernel_says_who_asks_and_no_message_does(path: Path) -> None:
    async with serving(bus_with(Services(), owner=GUEST), path), wired(path) as wire:
        claims = {"tag": 1, "topic": "test.whoami", "userid": GUEST, "owner": True}
        await wire.say(claims)
        assert (await wire.hear())["payload"] == {"userid": OWNER, "owner": False}
        await wire.say({**claims, "topic": "test.secret"})
        assert (await wire.hear())["errnum"] == errno.EPERM


@really
async def test_an_answer_longer_than_clients_read_is_refused_and_the_connection_goes_on(
    path: Path,
) -> None:
    async def large(request: Request) -> Payload:
        return {"text": "x" * LONGEST_MESSAGE}

    bus = bus_with(Services())
    bus.register("large", {"get": Method(large, guest=True)})
    async with serving(bus, path), connected(path) as handle:
        assert await errnum_of(handle.rpc("large.get")) == errno.EFBIG
        assert (await handle.rpc("test.whoami"))["userid"] == OWNER


@pytest.mark.parametrize("name", ["x", f"{GUEST}-x", f"{OWNER}", f"0{OWNER}-x", f"-{OWNER}-x"])
@really
async def test_a_guest_offers_no_services_but_its_own(path: Path, name: str) -> None:
    async with serving(Bus(GUEST), path), connected(path) as guest:
        assert await errnum_of(guest.rpc("service.add", {"service": name})) == errno.EPERM


@really
async def test_a_guests_service_is_reached_by_the_guest_and_the_owner_alone(path: Path) -> None:
    bus, name = Bus(GUEST), f"{OWNER}-x"
    inner = Bus(OWNER)
    inner.register(name, Services().methods())
    async with serving(bus, path), connected(path, inner) as guest:
        await guest.rpc("service.add", {"service": name})

        async def who(userid: int) -> Payload:
            return await bus.handle(userid).rpc(f"{name}.whoami")

        assert await who(OWNER) == {"userid": OWNER, "owner": False}
        assert await who(GUEST) == {"userid": GUEST, "owner": True}
        assert await errnum_of(who(GUEST + 1)) == errno.EPERM


@really
async def test_a_guest_offers_so_many_services_and_no_more(path: Path) -> None:
    async with serving(Bus(GUEST), path), connected(path) as guest:
        for number in range(16):
            await guest.rpc("service.add", {"service": f"{OWNER}-{number}"})
        one_more = guest.rpc("service.add", {"service": f"{OWNER}-more"})
        assert await errnum_of(one_more) == errno.ENOSPC


# Connections and their ends


@pytest.mark.parametrize("who_ends", ["the server", "the client"])
@really
async def test_a_client_that_does_not_read_keeps_no_connection_open(
    path: Path, who_ends: str
) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    with ExitStack() as ours:
        async with serving(bus_with(Services()), path):
            client = ours.enter_context(sockets.connect(path))
            asked = {"tag": 1, "topic": "test.echo", "payload": {"text": "x" * 2**20}}
            # In a thread: it takes more than fits in between.
            await asyncio.to_thread(client.sendall, orjson.dumps(asked) + b"\n")
            await asyncio.to_thread(select.select, [client], [], [], 60)
            if who_ends == "the client":
                serves = opened()
                client.shutdown(socket.SHUT_WR)
                await eventually(lambda: opened() == serves - 1)
        await eventually(lambda: opened() == before + 1)


@really
async def test_a_server_takes_the_place_of_a_dead_one(path: Path) -> None:
    sockets.listen(path).close()
    async with serving(bus_with(Services()), path), connected(path) as handle:
        assert await handle.rpc("test.echo") == {}


@really
async def test_where_no_server_listens_the_connection_is_lost(path: Path) -> None:
    for there in (path, path / "deeper"):
        with pytest.raises(RpcError, match="no instance answers") as failed:
            async with connected(there):
                raise AssertionError
        assert failed.value.errnum == errno.ECONNRESET


@really
async def test_a_server_that_cannot_listen_says_so_and_leaves_nothing_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="No such file"):
        await server.serve(Bus(OWNER), path / "deeper")
    assert len(os.listdir("/proc/self/fd")) == before


@really
async def test_a_lost_connection_fails_what_is_pending(path: Path) -> None:
    services = Services()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(bus_with(services), path))
        async with connected(path) as handle:
            answers = handle.stream("test.for-ever")
            await anext(answers)
            pending = [
                asyncio.ensure_future(handle.rpc("test.wait")),
                asyncio.ensure_future(_last_of(answers)),
            ]
            await eventually(lambda: services.running == {"wait", "for-ever"})
            await stack.aclose()

            for each in pending:
                assert await errnum_of(each) == errno.ECONNRESET
            # And what comes later fails at once.
            assert await errnum_of(handle.rpc("test.echo")) == errno.ECONNRESET
            late = handle.stream("test.count")
            assert await errnum_of(anext(late)) == errno.ECONNRESET
    assert services.running == set()


async def _last_of(answers: AsyncIterator[Any]) -> None:
    async for _ in answers:
        pass


@really
async def test_a_client_that_is_gone_wants_nothing_any_more(path: Path) -> None:
    services = Services()
    async with serving(bus_with(services), path):
        async with wired(path) as wire:
            await wire.say({"tag": 1, "topic": "test.wait"})
            silent = {"silent": True}
            topic = "test.for-ever"
            await wire.say({"tag": 2, "topic": topic, "streaming": True, "payload": silent})
            await eventually(lambda: services.running == {"wait", "for-ever"})
        await eventually(lambda: services.running == set())


@really
async def test_what_the_block_raises_ends_the_connection(path: Path) -> None:
    services = Services()
    async with serving(bus_with(services), path):
        waiting: list[asyncio.Future[Any]] = []

        async def fail() -> None:
            async with connected(path) as handle:
                waiting.append(asyncio.ensure_future(handle.rpc("test.wait")))
                await eventually(lambda: services.running == {"wait"})
                raise KeyError

        with pytest.raises(KeyError):
            await fail()
        assert await errnum_of(waiting[0]) == errno.ECONNRESET
        await eventually(lambda: services.running == set())


@really
async def test_a_server_stops_though_its_clients_do_not(path: Path) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(bus_with(Services()), path))
        async with wired(path) as wire:
            await wire.say({"tag": 1, "topic": "test.wait"})
            async with asyncio.timeout(60):
                await stack.aclose()
                assert await wire.hear() is None


@pytest.mark.parametrize("steps", range(6))
@really
async def test_a_client_that_comes_while_the_server_stops_is_hung_up_on(
    path: Path, steps: int
) -> None:
    running = asyncio.ensure_future(server.serve(Bus(OWNER), path))
    await eventually(path.is_socket)
    await asyncio.sleep(0.01)
    with ExitStack() as opened:
        late = [opened.enter_context(sockets.connect(path)) for _ in range(5)]
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait({running})
        await asyncio.sleep(0.01)
        for each in late:
            each.settimeout(60)
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""


@really
async def test_a_bug_costs_one_request(path: Path) -> None:
    async with serving(bus_with(Services()), path), connected(path) as handle:
        with capture_logs() as logged:
            assert await errnum_of(handle.rpc("test.bug")) == errno.EIO
        assert [each["event"] for each in logged] == ["request failed"]
        assert await handle.rpc("test.echo") == {}


# What should not be on the wire


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"\n",
        b"\xff\xfe\n",
        b"{}\n",
        b'{"tag": "x"}\n',
        b'{"tag":1,"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    ],
    ids=lambda line: repr(line[:20]),
)
@really
async def test_a_malformed_line_ends_its_connection_and_no_other(path: Path, line: bytes) -> None:
    services = Services()
    async with (
        serving(bus_with(services), path),
        connected(path) as other,
        wired(path) as wire,
    ):
        await wire.say({"tag": 1, "topic": "test.wait"})
        await eventually(lambda: services.running == {"wait"})
        await wire.say(line)
        assert await wire.hear() is None
        assert services.running == set()
        assert await other.rpc("test.echo") == {}


@really
async def test_an_oversized_line_ends_its_connection_and_no_other(path: Path) -> None:
    async with (
        serving(bus_with(Services()), path, longest=10_000),
        connected(path) as other,
        connected(path) as handle,
    ):
        assert await handle.rpc("test.echo", {"a": "x" * 9_000})
        large = {"a": "x" * 100_000}
        assert await errnum_of(handle.rpc("test.echo", large)) == errno.ECONNRESET
        assert await other.rpc("test.echo") == {}


@really
async def test_a_line_without_an_end_is_not_waited_for_with_more_and_more_memory(
    path: Path,
) -> None:
    async with serving(bus_with(Services()), path, longest=10_000), wired(path) as wire:
        said = b"x" * 10_000_000
        with pytest.raises(ConnectionError):
            await wire.say(said)


@pytest.mark.parametrize("payload", [b"[]", b"null", b'{"a":"\xff"}'], ids=repr)
@really
async def test_a_malformed_payload_costs_one_request(path: Path, payload: bytes) -> None:
    async with serving(bus_with(Services()), path), wired(path) as wire:
        await wire.say(b'{"tag":1,"topic":"test.echo","payload":' + payload + b"}\n")
        assert (await wire.hear())["errnum"] == errno.EPROTO
        await wire.say({"tag": 2, "topic": "test.echo"})
        assert (await wire.hear())["errnum"] == 0


@really
async def test_answers_that_were_not_asked_for_are_dropped(path: Path) -> None:
    async with serving(bus_with(Services()), path), wired(path) as wire:
        await wire.say({"tag": 9, "errnum": 0})
        await wire.say({"tag": 9, "topic": "rpc.cancel"})
        await wire.say({"tag": 1, "topic": "test.echo"})
        assert (await wire.hear())["tag"] == 1


@really
async def test_a_tag_that_is_in_use_ends_the_connection_and_all_that_it_asked(path: Path) -> None:
    """Two requests of one tag could never be told apart, nor both be cancelled."""
    services = Services()
    async with serving(bus_with(services), path), wired(path) as wire:
        for name in ("one", "two"):
            await wire.say({"tag": 1, "topic": "test.wait", "payload": {"name": name}})
        assert await wire.hear() is None
        await eventually(lambda: services.running == set())


@really
async def test_a_large_tag_is_a_tag(path: Path) -> None:
    async with serving(bus_with(Services()), path), wired(path) as wire:
        await wire.say(b'{"tag":123456789012345678901234567890,"topic":"test.echo"}\n')
        await wire.say({"tag": 2, "topic": "test.echo"})
        assert {(await wire.hear())["errnum"] for _ in range(2)} == {0}


# Backpressure


@really
async def test_a_reader_that_falls_behind_is_told_and_what_it_read_has_no_gap(
    path: Path,
) -> None:
    services = Services()
    async with serving(bus_with(services), path), connected(path, waiting=20) as handle:
        async with aclosing(handle.stream("test.for-ever")) as answers:  # type: ignore[type-var]
            found = [await anext(answers)]
            [waiting] = handle._peer._pending.values()
            await eventually(lambda: services.sent > 200)
            assert waiting._queue.qsize() <= 21
            with pytest.raises(RpcError) as failed:
                await read(answers, found)
        assert failed.value.errnum == errno.EOVERFLOW
        assert [answer["number"] for answer in found] == list(range(len(found)))
        assert len(found) >= 20
        # It has hung up, and may ask again.
        await eventually(lambda: services.running == set())
        assert await handle.rpc("test.echo") == {}


@really
async def test_a_process_that_does_not_read_at_all_holds_up_its_service(path: Path) -> None:
    services = Services()
    async with serving(bus_with(services), path), wired(path) as wire:
        payload = {"bytes": 10_000}
        request = {"tag": 1, "topic": "test.for-ever", "streaming": True, "payload": payload}
        await wire.say(request)
        await eventually(lambda: services.sent > 0)
        sent = -1
        while sent != services.sent:
            sent = services.sent
            await asyncio.sleep(0.05)
        assert 0 < sent < 500
    await eventually(lambda: services.running == set())


# Services over a connection


@asynccontextmanager
async def offering(path: Path, services: Services, name: str = "test") -> AsyncIterator[Handle]:
    async with connected(path, bus_with(services)) as connection:
        await connection.rpc("service.add", {"service": name})
        yield connection


@really
async def test_an_offered_service_is_reached_by_all(path: Path) -> None:
    bus = Bus(OWNER)
    async with (
        serving(bus, path),
        offering(path, Services()) as offerer,
        connected(path) as other,
    ):
        for handle in (bus.handle(), offerer, other):
            assert await handle.rpc("test.whoami") == {"userid": OWNER, "owner": True}
        assert await errnum_of(bus.handle(GUEST).rpc("test.whoami")) == errno.EPERM


@really
async def test_an_offered_service_vanishes_with_its_connection(path: Path) -> None:
    bus, services = Bus(OWNER), Services()
    async with serving(bus, path), connected(path) as other:
        async with offering(path, services):
            pending = [
                asyncio.ensure_future(other.rpc("test.wait", {"name": "theirs"})),
                asyncio.ensure_future(bus.handle().rpc("test.wait", {"name": "ours"})),
                asyncio.ensure_future(anext(other.stream("test.for-ever", {"silent": True}))),
            ]
            await eventually(lambda: len(services.running) == 3)
        for each in pending:
            assert await errnum_of(each) == errno.ECONNRESET
        assert services.running == set()

        await eventually(lambda: "test" not in bus._services)
        assert await errnum_of(other.rpc("test.echo")) == errno.ENOSYS
        async with offering(path, Services()):
            assert await other.rpc("test.echo") == {}


@really
async def test_a_service_cannot_be_offered_twice_nor_in_the_place_of_our_own(path: Path) -> None:
    bus = Bus(OWNER)
    bus.register("kvs", {})
    async with (
        serving(bus, path),
        offering(path, Services()) as first,
        connected(path, bus_with(Services())) as second,
    ):
        for handle in (first, second):
            for name in ("test", "kvs"):
                asked = handle.rpc("service.add", {"service": name})
                assert await errnum_of(asked) == errno.EEXIST
        assert await first.rpc("test.echo") == {}


@really
async def test_a_service_may_be_offered_for_as_long_as_a_stream_is_open(path: Path) -> None:
    bus = Bus(OWNER)
    async with serving(bus, path), connected(path, bus_with(Services())) as connection:
        offer = connection.stream("service.add", {"service": "test"})
        async with aclosing(offer):  # type: ignore[type-var]
            assert await anext(offer) == {}
            assert await bus.handle().rpc("test.echo") == {}
            assert await errnum_of(connection.rpc("service.add", {"service": "test"})) == (
                errno.EEXIST
            )
        await eventually(lambda: "test" not in bus._services)


@pytest.mark.parametrize(
    "payload", [{}, {"service": ""}, {"service": 7}, {"service": "a.b"}], ids=str
)
@really
async def test_an_offer_must_name_a_service(path: Path, payload: dict[str, Any]) -> None:
    async with serving(Bus(OWNER), path), connected(path) as handle:
        assert await errnum_of(handle.rpc("service.add", payload)) == errno.EPROTO


@really
async def test_who_serves_nothing_says_so(path: Path) -> None:
    async with serving(Bus(OWNER), path), connected(path) as empty, connected(path) as handle:
        await empty.rpc("service.add", {"service": "test"})
        assert await errnum_of(handle.rpc("test.echo")) == errno.ENOSYS


@really
async def test_services_may_ask_each_other_over_the_same_connection(path: Path) -> None:
    """Both ends ask and serve at a time; none waits for the other's turn."""
    bus, inner = bus_with(Services()), Bus(OWNER)
    async with serving(bus, path), connected(path, inner) as connection:

        async def echo(request: Request) -> Payload:
            return await connection.rpc("test.echo", request.payload)

        inner.register("far", {"echo": Method(echo)})
        await connection.rpc("service.add", {"service": "far"})
        assert await bus.handle().rpc("far.echo", {"a": 1}) == {"a": 1}
