"""What `warren jobs` says of jobs that do not go on."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for

DIRECTIVE = "#DW jobdw type=xfs capacity=1MiB name=fast"


@pytest.fixture
def separate(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of parts that can be stopped each, with a queue."""
    config = tmp_path / "config.toml"
    config.write_text('[queues.batch]\n[policy]\njobspec.defaults.system.queue = "batch"\n')
    yield from running(Cluster(tmp_path, "--separate", "--config", str(config)))


def told(cluster: Cluster, job: str) -> str:
    """Return what is said of a job, as people see it."""
    return cluster("jobs", "-a", "-n", "-o", "{contextual_info}", job).stdout.strip()


def stopped(cluster: Cluster, *words: str) -> list[int]:
    """Stop the processes whose command line has all of these words."""
    found = []
    for process in cluster.processes():
        line = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if all(word.encode() in line for word in words):
            os.kill(process, signal.SIGSTOP)
            found.append(process)
    assert found
    return found


def go_on(processes: list[int]) -> None:
    for process in processes:
        os.kill(process, signal.SIGCONT)


def test_what_a_job_waits_for_is_said_with_who_keeps_it(separate: Cluster) -> None:
    script = separate.script("job.sh", "true", DIRECTIVE)
    separate("queue", "stop", "-m", "maintenance at noon", "batch")
    job = separate.submit("-N1", script)
    wait_for(lambda: told(separate, job) == "queue batch is stopped: maintenance at noon")

    agents = stopped(separate, "warren.daemons.emulatedagents", "rabbit-0")
    agents += stopped(separate, "warren.daemons.emulatedagents", "rabbit-1")
    separate("queue", "start", "batch")
    wait_for(lambda: "waits for Setup on rabbit-" in told(separate, job))
    assert "allocation set not ready" in told(separate, job)
    go_on(agents)
    assert separate("job", "attach", job).returncode == 0

    conductor = stopped(separate, "warren.daemons.part", "conductor")
    job = separate.submit("-N1", script)
    wait_for(
        lambda: (
            told(separate, job)
            == "depends:dws-create; waits for its storage, whose conductor does not answer"
        )
    )
    controllers = stopped(separate, "warren.daemons.part", "controllers")
    go_on(conductor)
    wait_for(
        lambda: (
            told(separate, job)
            == "depends:dws-create; waits for Proposal, which no controller has taken up"
        )
    )
    go_on(controllers)
    assert separate("job", "attach", job).returncode == 0
    separate.wait_clean()


def test_every_job_that_waits_for_a_drained_node_says_so(cluster: Cluster) -> None:
    cluster("resource", "drain", "compute-00", "broken")
    jobs = [cluster.submit("-N8", "true") for _ in range(3)]

    def waits_for_the_drained(job: str) -> bool:
        return told(cluster, job) == "waits for 1 more of 8 nodes; drained: compute-00"

    for job in jobs:
        wait_for(partial(waits_for_the_drained, job))
    cluster("resource", "undrain", "compute-00")
    for job in jobs:
        assert cluster("job", "attach", job).returncode == 0
