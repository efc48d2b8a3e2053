"""The real `flux` at our socket, and our commands at the socket of a real broker."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.journal.running import really
from tests.rpc.services import GUEST, OWNER, eventually
from warren.rpc import server, sockets
from warren.rpc.bus import Bus

FLUX: Final = shutil.which("flux")

pytestmark = pytest.mark.skipif(FLUX is None, reason="flux-core is not installed: no flux in PATH")

LIMIT: Final = 100.0


@asynccontextmanager
async def instance(path: Path, owner: int = OWNER) -> AsyncIterator[None]:
    """Serve a bus without services at a path for the length of a block."""
    running = asyncio.ensure_future(server.serve(Bus(owner), path))
    try:
        await eventually(lambda: running.done() or (path.exists() and sockets.is_served(path)))
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


async def told(*command: str, **environment: str) -> str:
    """Run a command that must fail; return what it says."""
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize(
    "command",
    ["ping -c1 broker", "jobs", "submit true", "kvs get a", "proxy URI true", "uptime"],
)
@really
async def test_flux_says_that_the_protocol_is_not_spoken(tmp_path: Path, command: str) -> None:
    assert FLUX is not None
    uri = f"local://{tmp_path}/local"
    words = [uri if each == "URI" else each for each in command.split()]
    async with instance(tmp_path / "local"):
        assert "Protocol not supported" in await told(FLUX, *words, FLUX_URI=uri)


@really
async def test_flux_says_that_a_user_may_not_come_in(tmp_path: Path) -> None:
    assert FLUX is not None
    uri = f"local://{tmp_path}/local"
    async with instance(tmp_path / "local", owner=GUEST):
        found = await told(FLUX, "ping", "-c1", "broker", FLUX_URI=uri)
    assert "Permission denied" in found


@pytest.mark.parametrize("command", ["jobs", "submit true", "kvs get a"])
@really
async def test_our_commands_say_that_the_socket_is_a_brokers(tmp_path: Path, command: str) -> None:
    assert FLUX is not None
    ours = [sys.executable, "-m", "warren", *command.split()]
    found = await told(FLUX, "start", "--test-size=1", *ours, WARREN_STATEDIR=str(tmp_path))
    assert "is a Flux broker's, and no Warren instance listens there" in found
