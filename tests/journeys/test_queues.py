"""A site with queues: jobs wait for theirs to be started, also where the control process dies."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for

XFS = "#DW jobdw type=xfs capacity=64MiB name=scratch"

SITE = """
    [policy.jobspec.defaults.system]
    queue = "batch"
    [queues.batch]
    [queues.debug.policy]
    limits = { duration = "30m", job-size.max.nnodes = 1 }
    jobspec.defaults.system.duration = "10m"
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with two queues, started anew with what it was configured with before."""
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    cluster = Cluster(tmp_path, "--config", str(path))
    for one in running(cluster):
        path.unlink()
        one.options = ()
        yield one


def test_a_job_with_storage_waits_for_its_queue_through_the_death_of_the_control_process(
    site: Cluster,
) -> None:
    job = site.submit("-N2", site.script("job.sh", "true", XFS))
    wait_for(lambda: "priority" in site.events(job))
    assert site("queue", "status", "batch").stdout.splitlines() == [
        "batch: Job submission is enabled",
        "batch: Scheduling is stopped: it was never started",
    ]
    assert site("queue", "disable", "-m", "we move", "batch").returncode == 0

    site.kill()
    site.up()

    refused = site("submit", "-N1", "true")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "job submission to batch is disabled: we move" in refused.stderr
    assert "alloc" not in site.events(job)
    assert site("queue", "start", "batch").stdout == "batch: Scheduling is started\n"
    assert site("queue", "drain").returncode == 0
    assert site.job(job)["result"] == 1
    site.wait_clean()


def test_what_a_queue_does_not_take_is_said_in_a_sentence(site: Cluster) -> None:
    wide = site("submit", "-N2", "-S", "queue=debug", "true")
    unknown = site("submit", "-N1", "-S", "queue=fast", "true")
    all_ = site("queue", "stop")

    assert "The job asks for 2 nnodes, and queue debug allows 1." in wide.stderr
    assert "There is no queue 'fast': name one of batch, debug." in unknown.stderr
    assert all_.stderr == (
        "warren: There are named queues: name one of batch, debug, or say all of them.\n"
    )
    assert {wide.returncode, unknown.returncode, all_.returncode} == {1}
    told = json.loads(site("config", "get", "queues.debug.policy.limits").stdout)
    assert told == {"duration": "30m", "job-size": {"max": {"nnodes": 1}}}
    job = site.submit("-N1", "-S", "queue=debug", "true")
    assert site("queue", "start", "-a", "--quiet").stdout == ""
    assert site("job", "attach", job).returncode == 0
    assert site.job(job)["duration"] == 600
