"""A demo that is cut short, and what is left of it: nothing, seconds later."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.extent import EVERYTHING
from tests.journeys.conftest import wait_for

_SLOW = """#!/bin/sh
#DW jobdw type=xfs capacity=64MiB name=fast
touch "$GLOBAL/running"
sleep 600
"""


@dataclass
class Demo:
    """A demo on a terminal of its own, which it controls as people's do."""

    process: int
    terminal: int
    place: Path

    @property
    def shared(self) -> Path:
        return self.place / "global"

    def processes(self) -> set[int]:
        """Return the processes that name the directory of the demo's cluster, or stand in it."""
        wanted = f"{self.place}/warren-demo-".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if wanted in told and state != "Z":
                        found.add(int(entry.name))
        return found

    def running(self, module: str) -> set[int]:
        """Return those of them that run a module, or a command of `warren`."""
        found = set()
        for process in self.processes():
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if module.encode() in words:
                    found.add(process)
        return found

    def loops(self) -> list[str]:
        """Return the files behind loop devices that are the demo's."""
        found = []
        for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):
                found.append(entry.read_text())
        return [each for each in found if str(self.place) in each]

    def left(self) -> list[object]:
        """Return what there is of the demo on the machine."""
        return [
            *self.processes(),
            *self.loops(),
            *self.place.glob("warren-demo-*"),
            *(line for line in Path("/proc/mounts").read_text().splitlines()
              if str(self.place) in line),
        ]  # fmt: skip

    def close(self) -> None:
        """Close the terminal's window."""
        os.close(self.terminal)
        self.terminal = -1

    def end(self) -> None:
        """Leave the demo no chance, if it has not ended."""
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
        if self.terminal >= 0:
            os.close(self.terminal)


@contextmanager
def demonstrated(place: Path) -> Iterator[Demo]:
    """Start a demo whose job does not end."""
    shared = place / "global"
    shared.mkdir()
    script = place / "slow.sh"
    script.write_text(_SLOW)
    script.chmod(0o755)
    command = [sys.executable, "-m", "warren", "demo", "--script", str(script),
               "--global", str(shared), "-N", "2"]  # fmt: skip
    process, terminal = pty.fork()
    if process == 0:
        os.execve(sys.executable, command, {**os.environ, "TMPDIR": str(place), "TERM": "xterm"})
    demo = Demo(process, terminal, place)
    os.set_blocking(terminal, False)
    try:
        yield demo
    finally:
        demo.end()


def reached(demo: Demo, moment: str) -> Callable[[], bool]:
    """Return what tells whether a demo has come to a moment, as its terminal's reader."""

    def look() -> bool:
        with suppress(OSError):
            os.read(demo.terminal, 65536)
        match moment:
            case "its start":
                return bool(demo.running("warren.daemons.temporarycluster"))
            case "the start of its cluster":
                return bool(demo.running("up"))
            case _:
                return (demo.shared / "running").exists()

    return look


_MOMENTS = ["its start", "the start of its cluster", "its job"]

_WAYS: dict[str, Callable[[Demo], None]] = {
    "is killed": lambda demo: os.kill(demo.process, signal.SIGKILL),
    "is told to end": lambda demo: os.kill(demo.process, signal.SIGTERM),
    "is hung up": lambda demo: os.kill(demo.process, signal.SIGHUP),
    "loses its terminal": Demo.close,
    "is interrupted twice": lambda demo: _write_twice(demo, b"\x03"),
}


def _write_twice(demo: Demo, typed: bytes) -> None:
    for _ in range(2):
        os.write(demo.terminal, typed)


# Each way at one moment at least, and each moment in one way at least.
_USUAL = [
    ("is killed", "its start"),
    ("is interrupted twice", "its start"),
    ("is told to end", "the start of its cluster"),
    ("is hung up", "its job"),
    ("loses its terminal", "its job"),
]
_ALL = [(way, moment) for way in _WAYS for moment in _MOMENTS]


@pytest.mark.parametrize(("way", "moment"), _ALL if EVERYTHING else _USUAL)
def test_nothing_is_left_of_a_demo_that(way: str, moment: str, tmp_path: Path) -> None:
    with demonstrated(tmp_path) as demo:
        wait_for(reached(demo, moment))
        _WAYS[way](demo)
        wait_for(lambda: demo.left() == [])


@pytest.mark.parametrize(
    "killed",
    [
        ("up",),
        ("demo", "up"),
        ("demo", "up", "warren.daemons.shells"),
        ("warren.daemons.temporarycluster",),
    ],
    ids=" and ".join,
)
def test_nothing_is_left_of_a_demo_when_others_die_with_it(
    killed: tuple[str, ...], tmp_path: Path
) -> None:
    with demonstrated(tmp_path) as demo:
        wait_for(reached(demo, "its job"))
        victims = [{"demo": {demo.process}}.get(name) or demo.running(name) for name in killed]
        assert all(victims)
        for victim in set().union(*victims):
            os.kill(victim, signal.SIGKILL)

        def read() -> bool:
            with suppress(OSError):
                os.read(demo.terminal, 65536)
            return demo.left() == []

        wait_for(read)


def test_a_demo_that_is_killed_with_what_started_its_cluster_leaves_but_files(
    tmp_path: Path,
) -> None:
    with demonstrated(tmp_path) as demo:
        wait_for(reached(demo, "its job"))
        for victim in {demo.process, *demo.running("warren.daemons.temporarycluster")}:
            os.kill(victim, signal.SIGKILL)
        wait_for(lambda: not (demo.processes() or demo.loops()))


def test_a_demo_that_is_told_to_end_ends_as_if_interrupted(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "warren", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list(tmp_path.glob("warren-demo-*/state/up.json")))
    process.terminate()
    _, complaints = process.communicate()

    assert process.returncode == -signal.SIGINT
    assert complaints.strip() == ""
    assert list(tmp_path.glob("warren-demo-*")) == []


def test_a_demo_in_the_background_of_a_script_can_be_told_to_end(tmp_path: Path) -> None:
    """Shells have such processes ignore SIGINT."""
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "warren", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: list(tmp_path.glob("warren-demo-*/state/up.json")))
    process.terminate()

    assert process.wait() == -signal.SIGTERM
    wait_for(lambda: list(tmp_path.glob("warren-demo-*")) == [])
