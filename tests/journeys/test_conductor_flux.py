"""`warren conductor flux` where there is no Flux: the embedded instance speaks as its broker."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import SECONDS, Cluster, running, wait_for

RESULTS: dict[object, str] = {1: "COMPLETED", 2: "FAILED", 4: "CANCELED"}
JOBDW = "#DW jobdw type=xfs capacity=1GiB name=fast"


class Led:
    """A cluster whose conductor takes its instance for a broker of Flux."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster = cluster
        self.socket = home / "broker"
        self.output = home / "output"
        self.conductor: subprocess.Popen[bytes] | None = None
        self.proxy = subprocess.Popen(
            [sys.executable, "-m", "tests.flux.proxy", cluster.state.socket, self.socket],
            cwd=Path(__file__).parents[2],
        )
        wait_for(self.socket.exists)

    def lead(self, *options: str) -> None:
        begun = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self.conductor = subprocess.Popen(
                [sys.executable, "-m", "warren", "conductor", "flux", *options],
                stdout=output,
                stderr=output,
                env=self.environment(),
            )
        wait_for(lambda: b"is ready" in self.output.read_bytes()[begun:])

    def environment(self) -> dict[str, str]:
        kubeconfig = str(self.cluster.state.kubeconfig)
        return {**os.environ, "KUBECONFIG": kubeconfig, "FLUX_URI": f"local://{self.socket}"}

    def leave(self, signum: int = signal.SIGTERM) -> None:
        if self.conductor is not None:
            self.conductor.send_signal(signum)
            self.conductor.wait(SECONDS)
            self.conductor = None

    def close(self) -> None:
        self.leave()
        self.proxy.terminate()
        self.proxy.wait(SECONDS)


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Led]:
    root = tmp_path_factory.mktemp("flux")
    # The names of sockets may not be long.
    home = Path(tempfile.mkdtemp(prefix="warren-", dir="/tmp"))
    for cluster in running(Cluster(root, "--separate", "--no-conductor")):
        found = Led(cluster, home)
        try:
            found.lead("--min-allocation-size", "1")
            yield found
        finally:
            found.close()
            shutil.rmtree(home)


def ended(led: Led, job: str) -> str:
    """Return the result of a job of which nothing is left."""
    led.cluster.wait_event(job, "clean")
    led.cluster.wait_clean()
    return RESULTS[led.cluster.job(job)["result"]]


def test_jobs_of_a_broker_have_their_storage(led: Led) -> None:
    job = led.cluster.submit("-N2", "-S", f"dw={JOBDW}", "sh", "-c", 'test -d "$DW_JOB_fast"')
    assert ended(led, job) == "COMPLETED"


def test_a_job_that_is_cancelled_gives_everything_back(led: Led) -> None:
    job = led.cluster.submit("-N2", "-S", f"dw={JOBDW}", "sleep", "100")
    led.cluster.wait_event(job, "start")
    led.cluster("cancel", job)
    assert ended(led, job) == "CANCELED"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_survives_its_conductor(led: Led, signum: int) -> None:
    job = led.cluster.submit("-N2", "-S", f"dw={JOBDW}", "sleep", "1")
    led.cluster.wait_event(job, "prolog-start")
    led.leave(signum)
    led.lead()
    assert ended(led, job) == "COMPLETED"


def test_a_second_conductor_is_refused(led: Led) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warren", "conductor", "flux"],
        env=led.environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode != 0
    assert "has a conductor" in done.stderr


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "HOME")}
    return subprocess.run(
        [sys.executable, "-m", "warren", "conductor", "flux"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def test_a_broker_of_another_machine_is_refused() -> None:
    done = run(FLUX_URI="ssh://there/run/flux/local")
    assert done.returncode == 1
    assert "run the conductor on the node of the broker of rank 0" in done.stderr


def test_without_a_kubeconfig_it_exits_with_what_systemd_does_not_start_again(
    tmp_path: Path,
) -> None:
    done = run(FLUX_URI=f"local://{tmp_path}/none", HOME=str(tmp_path))
    assert done.returncode == 3, done.stderr
