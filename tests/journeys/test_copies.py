"""Copies of a real cluster: stopped, killed, and impossible."""

import os
import signal
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, wait_for
from warren.lifecycle.states import Result

FILES = 20_000
"""So many take seconds to copy."""

XFS = "#DW jobdw type=xfs capacity=256MiB name=scratch"
COPY_IN = "#DW copy_in source=$GLOBAL/many destination=$DW_JOB_scratch/"


@pytest.fixture(scope="module")
def many(cluster: Cluster) -> Path:
    """A directory of many files below the cluster's global one."""
    place = cluster.shared / "many"
    place.mkdir()
    for number in range(FILES):  # of their own: links are made at once
        (place / str(number)).write_bytes(b"x")
    return place


def stopped(cluster: Cluster, body: str) -> tuple[str, int]:
    """Submit a job with much to copy in; return it, and its copier, which is stopped at work."""
    script = cluster.script("copies.sh", body, XFS, COPY_IN)
    job = cluster.submit("-N1", script, GLOBAL=str(cluster.shared))
    found: list[int] = []

    def at_work() -> list[int]:
        found.extend(cluster.copiers())
        return found

    wait_for(at_work)
    os.kill(found[0], signal.SIGSTOP)
    wait_for(lambda: state(found[0]) == "T")
    return job, found[0]


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_job_is_cancelled_at_once_whose_copier_is_stopped(cluster: Cluster, many: Path) -> None:
    job, copier = stopped(cluster, "true")
    cluster("cancel", job)
    cluster.wait_clean()

    assert cluster.job(job)["result"] == Result.CANCELED.bit
    assert copier not in cluster.processes()


def test_a_copy_whose_copier_is_killed_is_made_again(cluster: Cluster, many: Path) -> None:
    job, copier = stopped(cluster, 'ls "$DW_JOB_scratch/many" | wc -l')
    os.kill(copier, signal.SIGKILL)
    done = cluster("job", "attach", job)
    cluster.wait_clean()

    assert (done.returncode, done.stdout.strip()) == (0, str(FILES)), done.stderr
    assert "exception" not in cluster.events(job)


def test_a_job_whose_results_cannot_be_copied_out_has_failed_and_says_why(
    cluster: Cluster,
) -> None:
    blocked = cluster.shared / "blocked"
    os.mkfifo(blocked)
    copy_out = f"#DW copy_out source=$DW_JOB_scratch/done destination={blocked}/"
    script = cluster.script("blocked.sh", 'echo > "$DW_JOB_scratch/done"', XFS, copy_out)
    job = cluster.submit("-N1", script)
    attached = cluster("job", "attach", job)
    status = cluster("job", "status", job)
    cluster.wait_clean()
    listed = next(line for line in cluster("jobs", "-a").stdout.splitlines() if job in line)
    ended = cluster.job(job)

    words = f"{blocked}: File exists (tried 3 times)"
    assert (ended["result"], ended["waitstatus"], ended["success"]) == (Result.FAILED.bit, 0, False)
    assert words in str(ended["exception_note"])
    assert listed.split()[3] == "F"
    assert words in listed
    assert (attached.returncode, status.returncode) == (1, 1)
    assert words in attached.stderr
    assert words in cluster("job", "info", job, "rabbit_workflow").stdout
    assert words in cluster("jobs", "-a", "-o", "endreason").stdout
