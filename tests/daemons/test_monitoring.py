"""The port of metrics bears clients that take what they can."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.journal.running import really
from tests.kube.clusters import alongside
from warren.daemons import monitoring
from warren.kube import connections

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"

STRANGER, PROMETHEUS = 4711, 4712


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def nothing() -> bytes:
    return b""


def ready() -> bool:
    return True


@really
async def test_a_user_with_all_the_connections_it_can_have_leaves_some_to_others(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    user = STRANGER
    monkeypatch.setattr(connections, "user_of", lambda _: user)

    async def answer() -> bytes:
        """Ask on a new connection, which stays; return nothing where it is closed."""
        client = opened.enter_context(socket.socket())
        client.setblocking(False)
        await loop.sock_connect(client, listener.getsockname())
        try:
            await loop.sock_sendall(client, HEALTH)
            return await loop.sock_recv(client, 1000)
        except ConnectionError:
            return b""

    with ExitStack() as opened:
        async with alongside(monitoring.serve(listener, nothing, ready)):
            while b"200 OK" in await answer():
                pass
            user = PROMETHEUS
            assert b"200 OK" in await answer()


@really
async def test_a_client_that_asks_nothing_more_is_hung_up_on(listener: socket.socket) -> None:
    async with alongside(monitoring.serve(listener, nothing, ready, idle_timeout=0.05)):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(HEALTH)
        assert (await reader.read()).endswith(b"ok")  # and its end
        writer.close()


def test_an_exposition_is_rendered_once_a_second_however_often_it_is_asked_for() -> None:
    now, rendered = 100.0, 0

    def exposition() -> bytes:
        nonlocal now, rendered
        now, rendered = now + 0.5, rendered + 1
        return b"%d" % rendered

    kept = monitoring.cached(exposition, lambda: now)

    assert [kept(), kept()] == [b"1", b"1"]
    now += 0.75
    assert kept() == b"1"
    now += 0.25
    assert [kept(), kept()] == [b"2", b"2"]


def test_an_exposition_that_fails_is_tried_again() -> None:
    answers = [b"1"]

    def exposition() -> bytes:
        if failing:
            raise RuntimeError("a collector is broken")
        return answers[0]

    failing, kept = True, monitoring.cached(exposition, lambda: 0.0)
    with pytest.raises(RuntimeError):
        kept()
    failing = False
    assert kept() == b"1"
