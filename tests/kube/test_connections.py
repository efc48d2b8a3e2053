"""Connections to a server on loopback, which every user of the machine can reach."""

import asyncio
import gc
import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from tests.harness import users
from tests.journal.running import really
from tests.kube.clusters import alongside
from warren.base.subordinateids import SubordinateIds
from warren.base.tcpusers import CLOSED
from warren.kube import connections, serving
from warren.kube.connections import ConnectionLimits, user_of
from warren.kube.server.access import tls

HOST = "127.0.0.1"
ASKED = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        yield listener


@contextmanager
def connected(listener: socket.socket, userid: int | None = None) -> Iterator[socket.socket]:
    """Connect, as another user if one is named; return the accepted end."""
    with socket.socket() as own:
        if userid is not None:
            os.fchown(own.fileno(), userid, userid)
        own.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            yield accepted


needs_users = pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))


def test_it_is_known_who_has_connected(listener: socket.socket) -> None:
    with connected(listener) as accepted:
        assert user_of(accepted) == os.geteuid()


@needs_users
def test_it_is_known_which_other_user_has_connected(listener: socket.socket) -> None:
    for userid in users.userids():
        with connected(listener, userid) as accepted:
            assert user_of(accepted) == userid


def test_what_its_client_has_closed_is_nobodys_and_not_let_in(listener: socket.socket) -> None:
    """It would have a place of all users', however many of them one user makes."""
    with socket.socket() as own:
        own.connect(listener.getsockname())
        accepted, _ = listener.accept()
    with accepted:
        assert user_of(accepted) == CLOSED
        assert not ConnectionLimits().admit(accepted)


def test_what_is_no_connection_of_tcp_is_no_users() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert user_of(one) is None


def test_the_servers_own_user_has_as_many_as_there_are(listener: socket.socket) -> None:
    shares = ConnectionLimits(per_user=1, total=1)
    with ExitStack() as stack:
        for _ in range(3):
            assert shares.admit(stack.enter_context(connected(listener)))


@needs_users
def test_another_user_has_a_few_and_leaves_a_few_to_the_next(listener: socket.socket) -> None:
    one, other = users.userids()
    shares = ConnectionLimits(per_user=2, total=3)
    with ExitStack() as stack:
        first = stack.enter_context(connected(listener, one))
        assert shares.admit(first)
        assert shares.admit(stack.enter_context(connected(listener, one)))
        assert not shares.admit(stack.enter_context(connected(listener, one)))
        assert shares.admit(stack.enter_context(connected(listener, other)))
        assert not shares.admit(stack.enter_context(connected(listener, other)))
        first.close()
        assert shares.admit(stack.enter_context(connected(listener, other)))


@needs_users
def test_all_subordinate_ids_of_a_user_have_as_many_as_four_users(
    listener: socket.socket, tmp_path: Path
) -> None:
    first = users.userids()[0]
    table = tmp_path / "subuid"
    table.write_text(f"somebody:{first}:9\n")
    limits = ConnectionLimits(per_user=1, total=9, subordinates=SubordinateIds(table))
    with ExitStack() as stack:
        for userid in range(first, first + 4):
            assert limits.admit(accepted := stack.enter_context(connected(listener, userid)))
            assert limits.client_id(accepted.fileno()) == first + userid % 4
        assert not limits.admit(stack.enter_context(connected(listener, first + 8)))
        assert limits.admit(stack.enter_context(connected(listener, first + 9)))


def test_machines_whose_users_are_not_known_have_a_few_each(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "user_of", lambda _: None)

    def unknown(address: str) -> socket.socket:
        with socket.socket() as own:
            own.bind((address, 0))
            own.connect(listener.getsockname())
            return stack.enter_context(listener.accept()[0])

    with ExitStack() as stack:
        shares = ConnectionLimits(per_user=1, total=2, by_address=True)
        first = unknown("127.0.0.2")
        assert shares.admit(first)
        assert not shares.admit(unknown("127.0.0.2"))
        assert shares.admit(unknown("127.0.0.3"))
        assert not shares.admit(unknown("127.0.0.4"))
        first.close()
        assert shares.admit(unknown("127.0.0.2"))


def test_machines_whose_users_are_not_known_are_clients_of_their_own(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits in a queue behind the requests of another one."""
    monkeypatch.setattr(connections, "user_of", lambda _: None)

    def client_id(address: str) -> int:
        with socket.socket() as own:
            own.bind((address, 0))
            own.connect(listener.getsockname())
            accepted = stack.enter_context(listener.accept()[0])
        assert limits.admit(accepted)
        found = limits.client_id(accepted.fileno())
        assert found is not None
        return found

    limits = ConnectionLimits(by_address=True)
    with ExitStack() as stack:
        first, again = client_id("127.0.0.2"), client_id("127.0.0.2")
        # Of many addresses two may have one number.
        others = {client_id(f"127.0.0.{number}") for number in range(3, 9)}

    assert first == again
    assert len(others) > 1
    assert max(first, *others) < CLOSED


@really
async def test_who_says_nothing_is_hung_up_on(listener: socket.socket, tmp_path: Path) -> None:
    context = tls.server_context(tmp_path / "pki")
    async with alongside(serving.serve(web.Application(), listener, context, client_timeout=0.05)):
        silent, writer = await asyncio.open_connection(*listener.getsockname())
        assert await silent.read() == b""
        writer.close()


@really
@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost:"])
async def test_an_impatient_server_hangs_up_on_who_asks_nothing(
    listener: socket.socket, begun: bytes
) -> None:
    served = serving.serve(web.Application(), listener, idle_timeout=0.05)
    async with alongside(served):
        silent, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(begun)
        assert await silent.read() == b""
        writer.close()


@really
async def test_who_has_asked_something_may_wait_for_the_answer(listener: socket.socket) -> None:
    async def late(request: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(text="at last")

    app = web.Application()
    app.router.add_get("/", late)
    async with alongside(serving.serve(app, listener, idle_timeout=0.05)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(ASKED)
        assert (await reader.readuntil(b"at last")).startswith(b"HTTP/1.1 200 ")
        writer.close()


@really
async def test_an_impatient_server_hangs_up_on_who_asks_nothing_more(
    listener: socket.socket,
) -> None:
    served = serving.serve(web.Application(), listener, idle_timeout=0.5)
    async with alongside(served):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(ASKED)
        assert (await reader.read()).startswith(b"HTTP/1.1 404 ")  # and its end
        writer.close()


def connections_in_memory() -> int:
    return sum(isinstance(each, web.RequestHandler) for each in gc.get_objects())


@really
async def test_nothing_is_kept_of_a_connection_that_its_client_has_closed(
    listener: socket.socket,
) -> None:
    """However long it might have been silent."""
    gc.collect()
    before = connections_in_memory()
    async with alongside(serving.serve(web.Application(), listener, idle_timeout=3600.0)):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        while connections_in_memory() == before:  # noqa: ASYNC110 - no news of it
            await asyncio.sleep(0.01)
        writer.close()
        while connections_in_memory() > before:
            gc.collect()
            await asyncio.sleep(0.01)


@needs_users
@really
async def test_one_too_many_is_hung_up_on_and_the_others_are_served(
    listener: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    served = serving.serve(web.Application(), listener, limits=ConnectionLimits(per_user=1))
    async with alongside(served):
        with socket.socket() as one, socket.socket() as other:
            for each in (one, other):
                each.setblocking(False)
                os.fchown(each.fileno(), users.userids()[0], users.userids()[0])
                await loop.sock_connect(each, listener.getsockname())
            assert await loop.sock_recv(other, 1) == b""
            one.sendall(ASKED)
            assert (await loop.sock_recv(one, 100)).startswith(b"HTTP/1.1 404")


@really
async def test_a_server_without_descriptors_serves_again_when_there_are_some(
    listener: socket.socket,
) -> None:
    loop = asyncio.get_running_loop()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with alongside(serving.serve(web.Application(), listener, retry_delay=0.01)):
        with socket.socket() as one:
            one.setblocking(False)
            await asyncio.sleep(0)
            # Nothing is opened from here on that has a greater number.
            resource.setrlimit(resource.RLIMIT_NOFILE, (one.fileno(), hard))
            try:
                await loop.sock_connect(one, listener.getsockname())
                await asyncio.sleep(0.1)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            one.sendall(ASKED)
            assert (await loop.sock_recv(one, 100)).startswith(b"HTTP/1.1 404")


@really
async def test_what_is_no_http_is_answered_and_fills_no_log(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    """Its client has not said who it is, and a traceback would repeat what it has sent."""
    async with alongside(serving.serve(web.Application(), listener)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n\x01" + b"\x02" * 60_000 + b"\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()

    assert caplog.records == []


def test_connections_of_one_stranger_are_let_in_one_after_the_other() -> None:
    shares = ConnectionLimits(interval=0.5)

    assert [shares.next_delay(1, 10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert shares.next_delay(2, 10.0) == 0.0
    assert shares.next_delay(1, 11.0) == 0.5
    assert shares.next_delay(1, 20.0) == 0.0


@pytest.mark.parametrize("strange", [pytest.param(True, marks=needs_users), False])
@really
async def test_requests_of_strangers_leave_the_event_loop_to_others(
    listener: socket.socket, strange: bool
) -> None:
    loop = asyncio.get_running_loop()
    ticks = 0
    between: list[int] = []

    async def heavy(request: web.Request) -> web.Response:
        for _ in range(30):
            end = loop.time() + 0.003
            while loop.time() < end:
                pass
            before = ticks
            await asyncio.sleep(0)
            between.append(ticks - before)
        return web.Response()

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    app = web.Application()
    app.router.add_get("/", heavy)
    async with alongside(serving.serve(app, listener)):
        with socket.socket() as one:
            one.setblocking(False)
            if strange:
                os.fchown(one.fileno(), users.userids()[0], users.userids()[0])
            await loop.sock_connect(one, listener.getsockname())
            ticking = asyncio.ensure_future(tick())
            one.sendall(ASKED)
            assert (await loop.sock_recv(one, 100)).startswith(b"HTTP/1.1 200")
            ticking.cancel()
            await asyncio.wait({ticking})
    # What a client may take at once is taken by the first of the steps.
    assert (sum(between[10:]) > 100) is strange


def test_a_descriptor_is_no_strangers_once_another_connection_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares, here = ConnectionLimits(), socket.socketpair()
    with here[0] as connection, here[1]:
        for user, known in ((4711, 4711), (None, connections.UNKNOWN_USER), (os.geteuid(), None)):
            monkeypatch.setattr(connections, "user_of", lambda _, user=user: user)
            assert shares.admit(connection)
            assert shares.client_id(connection.fileno()) == known


def refusing(asked: asyncio.Event) -> web.Application:
    """Refuse requests whatever their bodies are."""

    async def refused(_: web.Request) -> web.Response:
        asked.set()
        return web.Response(status=403)

    app = web.Application()
    app.router.add_post("/", refused)
    return app


def posted(length: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % length


async def send(writer: asyncio.StreamWriter, length: int) -> None:
    for _ in range(0, length, 2**17):
        writer.write(bytes(2**17))
        await writer.drain()


@really
async def test_the_endless_body_of_a_refused_request_is_not_read(listener: socket.socket) -> None:
    async with alongside(serving.serve(refusing(asyncio.Event()), listener)):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(posted(2**40))
        with pytest.raises(ConnectionError):
            await send(writer, 2**28)  # less than this fits into the sockets' buffers
        writer.transport.abort()


@really
async def test_a_refused_request_with_a_body_does_not_cost_the_connection(
    listener: socket.socket,
) -> None:
    asked = asyncio.Event()
    async with alongside(serving.serve(refusing(asked), listener)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        for _ in range(2):
            writer.write(posted(2**17))
            await asyncio.wait_for(asked.wait(), 60)
            asked.clear()
            await send(writer, 2**17)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 403 ")
            length = int(answer.lower().partition(b"content-length: ")[2].split()[0])
            await reader.readexactly(length)
        writer.close()


def waiting_requests() -> int:
    """Return how many requests have been read and are not answered, of all connections."""
    handlers = (each for each in gc.get_objects() if isinstance(each, web.RequestHandler))
    return sum(len(each._messages) for each in handlers)


@really
async def test_of_a_client_that_reads_no_answer_one_request_waits_until_it_is_lost(
    listener: socket.socket,
) -> None:
    """Each may have half a megabyte of headers."""
    loop = asyncio.get_running_loop()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=bytes(2**24))

    app = web.Application()
    app.router.add_get("/", answer)
    gc.collect()
    gc.disable()
    try:
        async with alongside(serving.serve(app, listener)):
            with socket.socket() as one:
                one.setblocking(False)
                await loop.sock_connect(one, listener.getsockname())
                one.sendall(ASKED * 20)
                while not waiting_requests():  # noqa: ASYNC110 - no news of it
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                assert waiting_requests() == 1
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            while waiting_requests():  # noqa: ASYNC110 - no news of it
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


@really
async def test_requests_that_come_before_the_last_was_answered_are_answered(
    listener: socket.socket,
) -> None:
    async with alongside(serving.serve(web.Application(), listener)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(ASKED * 20)
        for _ in range(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 404")
            await reader.readuntil(b"404: Not Found")
        writer.close()


@really
async def test_a_client_that_goes_within_a_body_is_no_error(
    listener: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def read(request: web.Request) -> web.Response:
        begun.set()
        try:
            await request.read()
        finally:
            over.set()
        return web.Response()

    app = web.Application()
    app.router.add_post("/", read)
    async with alongside(serving.serve(app, listener)):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(posted(100) + b"half of it")
        await begun.wait()
        writer.transport.abort()
        await over.wait()
        await asyncio.sleep(0.1)
    assert caplog.records == []


@pytest.mark.parametrize(("count", "status"), [(62, b"404"), (70, b"400")])
@really
async def test_a_request_has_so_many_headers_and_no_more(
    listener: socket.socket, count: int, status: bytes
) -> None:
    headers = b"".join(b"X-%d: y\r\n" % number for number in range(count))
    async with alongside(serving.serve(web.Application(), listener)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n" + headers + b"\r\n")
        assert (await reader.readline()).split()[1] == status
        writer.close()
