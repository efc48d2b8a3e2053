"""Clients of Flux at our socket, and ours at a Flux broker's: each is told, and none waits."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.journal.running import really
from tests.rpc.flux import MAGIC, broker, open_as_flux
from tests.rpc.services import GUEST, Services, bus_with, connected, eventually, serving
from tests.rpc.test_socket import wired
from warren.base.accepting import accept_next
from warren.rpc import message, server, sockets
from warren.rpc.bus import Bus
from warren.rpc.fluxdetection import REFUSED_BYTE, open_accepted
from warren.rpc.message import NOT_FLUX_BYTE, Message, RpcError

NEVER: Final = 1e6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


# Clients of Flux


@really
async def test_a_client_of_flux_is_told_that_its_protocol_is_not_spoken(path: Path) -> None:
    async with serving(bus_with(Services()), path):
        with pytest.raises(OSError, match="Protocol not supported") as failed:
            await asyncio.to_thread(open_as_flux, path)
    assert failed.value.errno == errno.EPROTONOSUPPORT


@really
async def test_a_client_of_flux_that_may_not_come_in_reads_permission_denied(path: Path) -> None:
    running = asyncio.ensure_future(server.serve(Bus(GUEST), path))
    await eventually(path.is_socket)
    with pytest.raises(PermissionError):
        await asyncio.to_thread(open_as_flux, path)
    # One of ours reads why.
    async with connected(path) as handle:
        with pytest.raises(RpcError, match=r"access\.allow-guest-user") as refused:
            await handle.rpc("test.echo")
    assert refused.value.errnum == errno.EPERM
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    "said",
    [
        MAGIC + b"\0\0\0\x2a",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0",
        b" ",
        b"[" * 1000,
        bytes(range(128, 256)) * 1000,
    ],
    ids=lambda said: repr(said[:10]),
)
@really
async def test_what_begins_no_message_is_answered_at_once_and_not_kept(
    path: Path, said: bytes
) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with serving(bus_with(Services()), path, silence=NEVER), connected(path) as other:
        assert await other.rpc("test.echo") == {}
        before = opened()
        async with wired(path) as wire:
            await wire.say(said)
            assert await wire.reader.readexactly(1) == NOT_FLUX_BYTE
            # Also of a client that stays: what is left is our end of the test.
            await eventually(lambda: opened() == before + 1)
        assert await other.rpc("test.echo") == {}


@really
async def test_clients_of_flux_that_come_and_go_leave_nothing_behind(path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with serving(bus_with(Services()), path, silence=0.0), connected(path) as other:
        assert await other.rpc("test.echo") == {}
        before = opened()
        for _ in range(20):
            with pytest.raises(OSError, match="Protocol not supported"):
                await asyncio.to_thread(open_as_flux, path)
            sockets.connect(path).close()
        await eventually(lambda: opened() == before)
        assert await other.rpc("test.echo") == {}


@really
async def test_a_client_of_ours_that_is_told_goes_on(path: Path) -> None:
    services = Services()
    async with serving(bus_with(services), path, silence=0.0):
        async with wired(path) as wire:
            assert await wire.reader.readexactly(1) == NOT_FLUX_BYTE
            await wire.say({"tag": 1, "topic": "test.echo"})
            assert (await wire.hear())["errnum"] == 0
        async with connected(path) as handle:
            assert await handle.rpc("test.echo", {"a": 1}) == {"a": 1}


@really
async def test_a_client_that_speaks_is_told_nothing_so_that_older_ones_understand_all(
    path: Path,
) -> None:
    async with serving(bus_with(Services()), path, silence=NEVER), wired(path) as wire:
        await wire.say({"tag": 1, "topic": "test.echo"})
        line = await wire.reader.readline()
        assert line.startswith(b"{")


@really
async def test_a_client_that_speaks_in_time_is_heard_however_late_the_server_is(
    path: Path,
) -> None:
    silence = 0.1
    with sockets.listen(path) as listener, sockets.connect(path) as client:
        reader, writer = await open_accepted(await accept_next(listener), silence)
        client.sendall(b"{}\n")
        asyncio.get_running_loop().call_soon(time.sleep, 2 * silence)
        assert await reader.readline() == b"{}\n"
        writer.close()
        client.settimeout(100)
        assert await asyncio.to_thread(client.recv, 1) == b""


def test_all_who_read_messages_skip_what_is_said_to_clients_of_flux() -> None:
    line = message.encode(Message(tag=7, errnum=0))
    for before in (b"", NOT_FLUX_BYTE, REFUSED_BYTE):
        assert message.decode(before + line).tag == 7
    # As those of older versions do, which know of nothing to skip, with what JSON allows.
    assert REFUSED_BYTE in (b"\r", b" ", b"\t")


# Flux brokers


@pytest.mark.parametrize("says", [b"\0", bytes([errno.EPERM])], ids=["welcome", "no entry"])
@really
async def test_a_client_of_ours_is_told_that_the_socket_is_a_brokers(
    path: Path, says: bytes
) -> None:
    async with broker(path, says), connected(path) as handle:
        asked = asyncio.ensure_future(handle.rpc("test.echo"))
        with pytest.raises(RpcError) as failed:
            await asked
        assert failed.value.errnum == errno.EPROTONOSUPPORT
        assert not failed.value.unserved  # so that none asks again and again
        assert str(failed.value) == (
            f"the socket {path} is a Flux broker's, and no Warren instance listens there: name a "
            "cluster with --statedir, or ask the broker with flux"
        )
        with pytest.raises(RpcError, match="a Flux broker's"):
            await anext(handle.stream("test.count"))


@really
async def test_a_broker_that_does_not_hang_up_is_not_waited_for(path: Path) -> None:
    async with saying(path, b"\0"), connected(path) as handle:
        with pytest.raises(RpcError, match="a Flux broker's"):
            await handle.rpc("test.echo")


@really
async def test_another_program_is_told_from_a_broker(path: Path) -> None:
    async with saying(path, b"HTTP/1.1 400 Bad Request\r\n"), connected(path) as handle:
        with pytest.raises(RpcError, match="is another program's, and no Warren instance") as told:
            await handle.rpc("test.echo")
    assert "flux" not in str(told.value).removeprefix(f"the socket {path}")


@pytest.mark.parametrize("before", [b"", NOT_FLUX_BYTE, REFUSED_BYTE], ids=repr)
@really
async def test_a_server_of_ours_is_known_by_its_first_byte_of_whatever_version(
    path: Path, before: bytes
) -> None:
    answer = message.encode(Message(tag=1, errnum=errno.ENOSYS))
    async with saying(path, before, answer), connected(path) as handle:
        with pytest.raises(RpcError) as failed:
            await handle.rpc("test.echo")
    assert failed.value.errnum == errno.ENOSYS


@asynccontextmanager
async def saying(path: Path, first: bytes, answer: bytes = b"") -> AsyncIterator[None]:
    """Be a server that says something, reads a line, answers, and keeps the connection."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        await reader.readline()
        writer.write(answer)
        await reader.read()
        writer.close()

    listening = await asyncio.start_unix_server(attend, sock=sockets.listen(path))
    try:
        yield
    finally:
        listening.close()
