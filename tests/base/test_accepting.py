"""Connections that come to a socket of ours."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journal.running import really
from warren.base.accepting import ConnectionPace, accept_next
from warren.rpc import sockets


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with sockets.listen(tmp_path / "socket") as listener:
        yield listener


def test_connections_of_one_client_are_let_in_after_each_other_and_anothers_at_once() -> None:
    pace = ConnectionPace(0.5)
    assert [pace.next_delay(1, 10.0) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert pace.next_delay(2, 10.0) == 0.0
    assert pace.next_delay(1, 11.0) == 0.5


def test_a_client_that_has_rested_opens_some_at_once() -> None:
    pace = ConnectionPace(0.5, burst=3)
    assert [pace.next_delay(1, 10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    # Half a rest, half as many.
    assert [pace.next_delay(1, 12.0) for _ in range(3)] == [0.0, 0.0, 0.5]
    assert [pace.next_delay(1, 99.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_one_that_would_wait_too_long_is_not_let_in_and_delays_no_other() -> None:
    pace = ConnectionPace(0.5, max_delay=1.0)
    assert [pace.next_delay(1, 10.0) for _ in range(5)] == [0.0, 0.5, 1.0, None, None]
    assert pace.next_delay(1, 10.5) == 1.0


def test_who_has_rested_is_forgotten() -> None:
    pace = ConnectionPace(0.5, burst=2)
    for client in range(100):
        pace.next_delay(client, float(client))
    assert len(pace._due) == 1


@pytest.mark.parametrize("steps", range(4))
@really
async def test_a_connection_is_not_lost_where_accepting_is_cancelled(
    listener: socket.socket, tmp_path: Path, steps: int
) -> None:
    accepting = asyncio.ensure_future(accept_next(listener))
    await asyncio.sleep(0.01)
    with sockets.connect(tmp_path / "socket"):
        for _ in range(steps):
            await asyncio.sleep(0)
        if not accepting.done():
            accepting.cancel()
            await asyncio.wait({accepting})
        if accepting.cancelled():
            accepting = asyncio.ensure_future(accept_next(listener))
        (await accepting).close()
