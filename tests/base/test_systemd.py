"""What systemd is told."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.base import systemd


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind(str(tmp_path / "notify"))
        found.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield found


def test_systemd_is_told_where_it_listens(listening: socket.socket) -> None:
    systemd.notify("READY=1")
    assert listening.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    systemd.notify("READY=1")


async def turning(seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await systemd.watchdog()


def test_a_loop_that_turns_says_so_until_the_end(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with pytest.raises(TimeoutError):
        asyncio.run(turning(0.5))
    assert [listening.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "2000", "WATCHDOG_PID": "1"},
    ],
)
def test_nothing_is_said_where_it_is_not_wanted(
    environment: dict[str, str], listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asyncio.run(turning(30))
    with pytest.raises(BlockingIOError):
        listening.recv(100)
