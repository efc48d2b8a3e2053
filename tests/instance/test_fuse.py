"""FUSE servers that do not answer, and processes that wait for them."""

import ctypes
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from warren.instance.shell import fuse

_libc = ctypes.CDLL(None, use_errno=True)
_FORCE, _DETACH = 1, 2
_INIT = 26


@dataclass
class Silent:
    """A file system, and whether anything was asked of it."""

    place: Path
    asked: threading.Event


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    """A file system of root's whose server answers nothing after the start."""
    place = tmp_path / "silent"
    place.mkdir()
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE server can be here: {error}")
    options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
    if _libc.mount(b"silent", os.fsencode(place), b"fuse", 0, options) != 0:
        os.close(server)
        pytest.skip(f"no FUSE file system can be mounted: {os.strerror(ctypes.get_errno())}")

    asked = threading.Event()

    def serve() -> None:
        try:
            while request := os.read(server, 2**17):
                _, opcode, unique = struct.unpack_from("<IIQ", request)
                if opcode == _INIT:
                    body = struct.pack("<IIIIHHIIHH8I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
                    os.write(server, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
                else:
                    asked.set()
        except OSError:
            pass  # it was aborted, or unmounted

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield Silent(place, asked)
    finally:
        _libc.umount2(os.fsencode(place), _FORCE)  # whatever waits for it still goes on
        _libc.umount2(os.fsencode(place), _DETACH)
        serving.join(10)
        os.close(server)


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(happened: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_process_that_waits_for_a_silent_server_dies_when_the_server_is_given_up(
    silent: Silent,
) -> None:
    look = [sys.executable, "-c", f"import os; os.listdir({str(silent.place)!r})"]
    with subprocess.Popen(look, stderr=subprocess.DEVNULL) as process:
        assert silent.asked.wait(60)
        process.kill()
        wait_until(lambda: state(process.pid) == "D")

        # Another user's job sees it, too, but neither is it that user's, nor the job's alone.
        assert fuse.give_up([process.pid], 1001) == []
        assert state(process.pid) == "D"
        assert fuse.give_up([os.getpid()], 0) == []
        assert len(fuse.give_up([process.pid], 0)) == 1
        assert process.wait(60) == -9
