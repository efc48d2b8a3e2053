"""`warren demo --flux`."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.flux.conftest import missing
from tests.journeys.conftest import SECONDS, Cluster, wait_for


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for the demo: names of sockets may not be as long as pytest's paths."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    found = Path(tempfile.mkdtemp(prefix="flux-", dir="/tmp"))
    yield found
    shutil.rmtree(found)


def test_the_demos_job_runs_in_a_real_flux(place: Path) -> None:
    done = Cluster(place)("demo", "--flux", TMPDIR=str(place))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "a broker on each compute node" in done.stdout
    assert "✓ the output is right" in done.stdout
    assert "✓ no mount, no allocation and no process is left" in done.stdout
    assert list(place.glob("warren-demo-*")) == []
    assert _processes(place) == set()


def test_a_demo_that_is_killed_leaves_no_broker(place: Path) -> None:
    with (place / "said").open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "warren", "demo", "--flux"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**Cluster(place).environment(), "TMPDIR": str(place)},
        )
    wait_for(lambda: b"submitted" in (place / "said").read_bytes())
    demo.send_signal(signal.SIGKILL)
    demo.wait(SECONDS)

    wait_for(lambda: _processes(place) == set())
    wait_for(lambda: list(place.glob("warren-demo-*")) == [])


def test_a_tour_is_not_for_flux(place: Path) -> None:
    done = Cluster(place)("demo", "--flux", "--tour", TMPDIR=str(place))

    assert done.returncode == 1
    assert (
        done.stderr.strip() == "warren: The jobs of --tour are the cluster's own: leave out --flux."
    )


def _processes(place: Path) -> set[int]:
    """Return the processes that name the directory, or stand in it."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if str(place).encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
    return found
