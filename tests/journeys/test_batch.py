"""Batch jobs: a script in an instance of its own, on the job's nodes."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from tests.journeys.conftest import Cluster, wait_for

WARREN = f"{sys.executable} -m warren"
XFS = "#DW jobdw type=xfs capacity=64MiB name=scratch"


def output(cluster: Cluster, job: str) -> str:
    """Wait for a batch job's end, and return what its script has printed."""
    cluster("job", "wait-event", "-t", "60s", job, "clean")
    return (cluster.shared / "out").read_text()


def submitted(cluster: Cluster, script: str, *options: str) -> str:
    done = cluster("batch", f"--output={cluster.shared}/out", *options, script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def running(cluster: Cluster, seconds: str) -> int:
    """Count the cluster's processes that are `sleep` for so long."""
    wanted = f"sleep\0{seconds}\0".encode()
    found = 0
    for process in cluster.processes():
        with suppress(OSError):  # it may just have ended
            found += Path(f"/proc/{process}/cmdline").read_bytes() == wanted
    return found


def test_a_script_runs_once_and_what_it_runs_has_the_jobs_nodes(cluster: Cluster) -> None:
    script = cluster.script(
        "batch.sh",
        f"{WARREN} resource info\n"
        f"{WARREN} run -N3 sh -c 'echo task $FLUX_TASK_RANK of $FLUX_JOB_SIZE'\n"
        f"{WARREN} submit -n1 true > /dev/null\n"
        f"{WARREN} jobs -a --json",
        "#FLUX: -N3",
    )
    lines = output(cluster, submitted(cluster, script)).splitlines()

    assert lines[0].startswith("3 Nodes, ")
    assert sorted(lines[1:4]) == [f"task {rank} of 3" for rank in range(3)]
    assert len(json.loads(lines[4])["jobs"]) == 2
    # The jobs inside are not told of outside.
    assert len(json.loads(cluster("jobs", "-a", "--json").stdout)["jobs"]) == 1


def test_jobs_inside_have_their_share_of_the_batch_jobs_cpus(cluster: Cluster) -> None:
    allowed = "grep Cpus_allowed_list /proc/self/status"
    script = cluster.script(
        "share.sh",
        f"nproc; {WARREN} run -n1 nproc\n"
        f"{WARREN} run -n2 -o cpu-affinity=per-task {allowed} | sort -u | wc -l",
    )
    # The first core is another's: what is inside must not begin to count there.
    other = cluster("submit", "-n1", "sleep", "1000").stdout.strip()
    machine = min(2, len(os.sched_getaffinity(0)))

    lines = output(cluster, submitted(cluster, script, "-n1", "-c2")).splitlines()

    assert lines == [str(machine), "1", str(machine)]
    cluster("cancel", other)


def test_jobs_inside_find_the_storage_that_the_batch_job_asked_for(cluster: Cluster) -> None:
    script = cluster.script(
        "storage.sh",
        f'{WARREN} run -N2 sh -c \'hostname > "$DW_JOB_scratch/here"; ls "$DW_JOB_scratch"\'',
        "#FLUX: -N2",
        XFS,
    )

    assert output(cluster, submitted(cluster, script)).split() == ["here", "here"]
    cluster.wait_clean()


def test_a_batch_job_ends_as_its_script_does(cluster: Cluster) -> None:
    job = submitted(cluster, cluster.script("ends.sh", "exit 7"), "-n1")

    assert cluster("job", "attach", job).returncode == 7


def test_a_batch_job_that_is_cancelled_takes_its_jobs_with_it(cluster: Cluster) -> None:
    script = cluster.script("long.sh", f"{WARREN} submit -N2 sleep 987654; echo so far; sleep 1000")
    job = submitted(cluster, script, "-N2")
    wait_for(lambda: running(cluster, "987654") == 2)
    cluster("cancel", job)

    assert "so far" in output(cluster, job)
    wait_for(lambda: running(cluster, "987654") == 0)


def test_jobs_that_the_script_leaves_behind_are_ended(cluster: Cluster) -> None:
    script = cluster.script("left.sh", f"{WARREN} submit -n1 sleep 876543")

    output(cluster, submitted(cluster, script, "-N1"))

    assert running(cluster, "876543") == 0


def test_a_batch_job_goes_on_while_the_cluster_restarts(cluster: Cluster) -> None:
    script = cluster.script(
        "goes-on.sh",
        f"touch {cluster.shared}/begun; while [ ! -e {cluster.shared}/go ]; do sleep 0.1; done\n"
        f"{WARREN} run -N2 echo inside",
    )
    job = submitted(cluster, script, "-N2")
    wait_for(lambda: (cluster.shared / "begun").exists())
    cluster.kill()
    cluster.up()
    (cluster.shared / "go").touch()

    assert output(cluster, job).split() == ["inside", "inside"]


def test_nodes_whose_storage_has_failed_get_no_jobs_of_the_script(cluster: Cluster) -> None:
    script = cluster.script("lost.sh", f"{WARREN} resource drain --json", "#FLUX: -N2")
    job = submitted(cluster, script, "--urgency=hold")
    told = cluster("job", "raise", "-t", "dws-node-failure", "-s1", "-m", "compute-[01,07]", job)
    assert told.returncode == 0, told.stderr
    assert cluster("job", "urgency", job, "16").returncode == 0
    drained = json.loads(output(cluster, job))

    assert "compute-01" in str(drained)
    assert "rabbit storage is not there" in str(drained)
    assert "compute-00" not in str(drained)
