"""Sockets by path, and who is at the other end."""

import os
import stat
from pathlib import Path

import pytest

from tests.journal.running import really
from tests.rpc.services import Services, bus_with, connected, serving
from warren.rpc import sockets


@really
async def test_a_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["d" * 100] * 5)
    directory.mkdir(parents=True)
    path = directory / "local.sock"
    assert len(os.fsencode(path)) > 500
    async with serving(bus_with(Services()), path), connected(path) as handle:
        assert await handle.rpc("test.echo", {"a": 1}) == {"a": 1}
    assert list(directory.iterdir()) == []


def test_a_path_may_be_of_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"s\xffcket \xc3\xbc")
    with sockets.listen(path), sockets.connect(path):
        assert path.is_socket()


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_mode_is_as_asked_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    previous = os.umask(0o077)
    try:
        with sockets.listen(tmp_path / "socket", mode):
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == mode
            assert os.umask(0o077) == 0o077
    finally:
        os.umask(previous)


def test_the_peer_is_who_the_kernel_says(tmp_path: Path) -> None:
    with sockets.listen(tmp_path / "s") as listener, sockets.connect(tmp_path / "s") as near:
        listener.setblocking(True)
        far, _ = listener.accept()
        with far:
            assert sockets.peer_userid(far) == sockets.peer_userid(near) == os.getuid()


@pytest.mark.parametrize("there", ["nothing", "deeper/nothing", "dead", "file"])
def test_where_no_server_listens_nothing_connects_and_nothing_stays_open(
    tmp_path: Path, there: str
) -> None:
    (tmp_path / "file").touch()
    sockets.listen(tmp_path / "dead").close()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match=r"."):
        sockets.connect(tmp_path / there)
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_nothing_can_listen_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for there in (tmp_path / "deeper" / "socket", tmp_path / ("s" * 200)):
        with pytest.raises(OSError, match=r"."):
            sockets.listen(there)
    assert len(os.listdir("/proc/self/fd")) == before
