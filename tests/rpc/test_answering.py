"""A client does not wait for ever for an instance that is silent."""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journal.running import really, virtually
from warren.rpc import sockets
from warren.rpc.client import ANSWER_TIMEOUT, connect, fail_unless_alive
from warren.rpc.message import Payload, RpcError

DAY = 86_400.0
SOCKET = Path("/run/warren/local")


class Answers:
    """An instance that answers each request after so many seconds."""

    def __init__(self, seconds: float, error: int = errno.ENOSYS) -> None:
        self._seconds = seconds
        self._error = error
        self.asked: list[str] = []

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        self.asked.append(topic)
        await asyncio.sleep(self._seconds)
        raise RpcError(self._error)

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        raise RpcError(self._error)
        yield {}


@virtually
async def test_an_instance_that_answers_nothing_is_waited_for_half_a_minute() -> None:
    began = asyncio.get_running_loop().time()
    with pytest.raises(RpcError, match=rf"^the instance at {SOCKET} has not answered") as silent:
        async with fail_unless_alive(Answers(DAY), SOCKET):
            await asyncio.sleep(DAY)
    assert silent.value.errnum == errno.ETIMEDOUT
    assert asyncio.get_running_loop().time() - began == 2 * ANSWER_TIMEOUT


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
@virtually
async def test_one_that_answers_anything_is_waited_for_as_long_as_the_work_takes(
    error: int,
) -> None:
    began = asyncio.get_running_loop().time()
    async with fail_unless_alive(Answers(ANSWER_TIMEOUT - 1, error), SOCKET):
        await asyncio.sleep(DAY)
    assert asyncio.get_running_loop().time() - began == DAY


@virtually
async def test_what_the_work_raises_comes_out_as_it_is() -> None:
    with pytest.raises(TimeoutError, match=r"^its own$"):
        async with fail_unless_alive(Answers(DAY), SOCKET):
            raise TimeoutError("its own")


@virtually
async def test_work_that_is_over_at_once_does_not_wait_for_the_answer() -> None:
    """And asks nothing: a broker of Flux hangs up after the first request, and says why."""
    began = asyncio.get_running_loop().time()
    silent = Answers(DAY)
    async with fail_unless_alive(silent, SOCKET):
        await asyncio.sleep(ANSWER_TIMEOUT - 1)
    assert asyncio.get_running_loop().time() - began == ANSWER_TIMEOUT - 1
    assert silent.asked == []


@really
async def test_a_request_to_a_process_that_is_stopped_ends(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with sockets.listen(path), pytest.raises(RpcError, match="is stopped"):
        async with connect(path) as handle, fail_unless_alive(handle, path, answer_timeout=0.1):
            await handle.rpc("job-info.lookup")


def test_a_connection_that_a_stopped_process_does_not_take_ends(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with sockets.listen(path) as listener:
        listener.listen(0)
        with sockets.connect(path, timeout=0.1), pytest.raises(BlockingIOError):
            sockets.connect(path, timeout=0.1)


def test_a_connection_waits_no_shorter_for_what_comes_later(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with sockets.listen(path), sockets.connect(path) as connection:
        wait = connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)
        assert wait == bytes(16)
