"""Guests to test in. What is checked in them stands in `inside/`, and is run there by pytest."""

import compileall
import os
import shlex
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.guests import cache
from tools.guests.cache import Cache
from tools.guests.machine import Disk, Guest, Network, network

from tests.harness.extent import EVERYTHING

ROOT = Path(__file__).parents[2]

SCRIPT = """\
ip link set lo up
[ -z '{address}' ] || {{ ip address add {address}/24 dev eth0; ip link set eth0 up; }}
ulimit -n 4096
modprobe -a {modules} || exit 90
[ -z '{configfs}' ] || mount -t configfs configfs /sys/kernel/config || exit 91
export PYTHONDONTWRITEBYTECODE=1 WARREN_GUEST={name} WARREN_MEETING={meeting}
cd {root} && exec {python} -m pytest -x {options} --durations 5 {checks}
"""

OPTIONS = "-p no:cacheprovider -p no:hypothesispytest -p no:xdist --noconftest"
"""What is not needed there takes seconds to be loaded in a guest."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one guest is to do."""

    files: Sequence[str]
    """Of tests, relative to their directory."""
    modules: Sequence[str]
    disks: Sequence[Disk] = ()
    name: str = "guest"
    configfs: bool = False
    """Whether it has the kernel's tree of targets, or of clusters."""


@dataclass(frozen=True)
class Guests:
    """Runs checks in guests, and leaves what they said in the directory of the test."""

    cache: Cache
    directory: Path

    def disk(self, name: str, mib: int, *, shared: bool = False) -> Disk:
        """Return a disk, empty."""
        file = self.directory / name
        with file.open("wb") as opened:
            opened.truncate(mib << 20)
        return Disk(file=file, shared=shared)

    def check(self, *checks: Check) -> None:
        """Run all at the same time, on a network of their own; fail with what they said."""
        together = network() if len(checks) > 1 else None
        with ExitStack() as stack:
            guests = [
                stack.enter_context(self.guest(number, each, together))
                for number, each in enumerate(checks, 1)
            ]
            failed = [guest for guest in guests if guest.wait()]
        assert not failed, "\n".join(guest.said() for guest in guests)

    def tell(self, name: str) -> None:
        (self.directory / "meeting" / name).touch()

    def wait(self, name: str, *guests: Guest) -> None:
        """Return when a guest has told it; fail with what they said when one of them is over."""
        while not (self.directory / "meeting" / name).exists():
            assert all(each.runs() for each in guests), "\n".join(each.said() for each in guests)
            time.sleep(0.1)

    def guest(self, number: int, check: Check, together: Network | None) -> Guest:
        files = [shlex.quote(str(ROOT / "tests" / file)) for file in check.files]
        meeting = self.directory / "meeting"
        meeting.mkdir(exist_ok=True)
        script = SCRIPT.format(
            address=f"10.0.0.{number}" if together else "",
            modules=" ".join(check.modules),
            configfs="yes" if check.configfs else "",
            name=check.name,
            meeting="/run/meeting",
            root=shlex.quote(str(ROOT)),
            python=shlex.quote(sys.executable),
            options=OPTIONS,
            checks=" ".join(files),
        )
        return Guest(
            cache=self.cache,
            directory=self.directory / check.name,
            script=script,
            meeting=meeting,
            disks=check.disks,
            network=together,
            number=number,
        )


@pytest.fixture
def guests(tmp_path: Path) -> Guests:
    if not (EVERYTHING or os.environ.get("WARREN_TEST_VM")):
        pytest.skip("guests take minutes: make test-vm")
    own = cache.default()
    why = own.why_unavailable()
    if why is not None:
        pytest.skip(f"no guests: {why}")
    # Guests keep no bytecode: each process there would compile for itself, ten times as slowly.
    compileall.compile_dir(ROOT / "src", quiet=2)
    return Guests(own, tmp_path)
