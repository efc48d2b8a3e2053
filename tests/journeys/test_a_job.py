"""Whole jobs, from the command line to the files that they leave."""

import json
import os
import sys

from tests.journeys.conftest import Cluster

XFS = "#DW jobdw type=xfs capacity=64MiB name=scratch"


def test_a_plain_job_shows_its_output_and_exits_as_it_does(cluster: Cluster) -> None:
    done = cluster("run", "-n2", "sh", "-c", "echo task $FLUX_TASK_RANK; exit 3")

    assert sorted(done.stdout.splitlines()) == ["task 0", "task 1"]
    assert done.returncode == 3


def test_a_task_may_use_as_many_cpus_as_its_job_has_cores(cluster: Cluster) -> None:
    machine = len(os.sched_getaffinity(0))

    assert cluster("run", "-n1", "-c1", "nproc").stdout == "1\n"
    assert cluster("run", "-n1", "-c3", "nproc").stdout == f"{min(3, machine)}\n"
    unbound = cluster("run", "-n1", "-c1", "-o", "cpu-affinity=off", "nproc")
    assert unbound.stdout == f"{machine}\n"
    refused = cluster("run", "-n1", "-o", "cpu-affinity=some", "nproc")
    assert "shell option cpu-affinity is 'some', not one of on, off" in refused.stderr
    assert refused.returncode == 1


def test_a_task_writes_to_its_own_jobs_records_and_to_no_others(cluster: Cluster) -> None:
    """Statement 003.3: user tasks read and write the guest namespace."""
    warren = f"{sys.executable} -m warren"
    put = cluster("run", "sh", "-c", f"{warren} kvs put job=1 && {warren} kvs get job")

    assert (put.returncode, put.stdout) == (0, "1\n"), put.stderr
    listed = cluster("kvs", "ls", "job")
    assert (listed.returncode, listed.stdout.strip()) == (0, "0000")
    assert cluster("kvs", "get", "job").stderr.startswith("warren: job: Is a directory")


def test_a_rabbit_job_works_on_copies_and_its_results_come_back(cluster: Cluster) -> None:
    (cluster.shared / "input.txt").write_text("one two three\n")
    script = cluster.script(
        "count.sh",
        'wc -w < "$DW_JOB_scratch/input.txt" > "$DW_JOB_scratch/words"',
        XFS,
        "#DW copy_in source=$GLOBAL/input.txt destination=$DW_JOB_scratch/",
        "#DW copy_out source=$DW_JOB_scratch/words destination=$GLOBAL/results/",
    )

    done = cluster("run", "-N3", script, GLOBAL=str(cluster.shared))

    assert done.returncode == 0, done.stderr
    results = sorted(cluster.shared.glob("results/*/words"))
    assert len(results) == 3
    assert {result.read_text().strip() for result in results} == {"3"}
    cluster.wait_clean()


def test_every_node_has_storage_of_its_own_under_one_path(cluster: Cluster) -> None:
    script = cluster.script(
        "own.sh",
        'echo "$FLUX_TASK_RANK" >> "$DW_JOB_scratch/seen"; sleep 0.3; '
        'echo "$DW_JOB_scratch" $(cat "$DW_JOB_scratch/seen")',
        XFS,
    )

    done = cluster("run", "-N4", script)
    paths, ranks = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)

    assert len(set(paths)) == 1
    assert sorted(ranks) == ["0", "1", "2", "3"]


def test_tasks_keep_their_user(cluster: Cluster) -> None:
    import os

    done = cluster("run", "-N1", cluster.script("who.sh", "id -u; id -g", XFS))

    assert done.stdout.split() == [str(os.getuid()), str(os.getgid())]


def test_whatever_a_task_leaves_running_is_ended_with_the_job(cluster: Cluster) -> None:
    done = cluster("run", "-N1", cluster.script("leave.sh", "setsid sleep 300 & echo $!", XFS))

    assert done.returncode == 0
    cluster.wait_clean()


def test_jobs_are_listed_with_how_they_ended(cluster: Cluster) -> None:
    job = cluster.submit("-N2", "--job-name", "listed", "true")
    cluster("job", "attach", job)
    line = next(line for line in cluster("jobs", "-a").stdout.splitlines() if job in line)

    assert line.split()[2:6] == ["listed", "CD", "2", "2"]
    assert cluster.job(job)["success"] is True


def test_an_inactive_job_is_listed_only_when_all_are_asked_for(cluster: Cluster) -> None:
    job = cluster.submit("true")
    cluster("job", "attach", job)

    assert job not in cluster("jobs").stdout
    assert job in cluster("jobs", "-a").stdout


def test_a_jobs_eventlog_is_printed_as_flux_prints_it(cluster: Cluster) -> None:
    job = cluster.submit("-n1", "true")
    cluster("job", "attach", job)
    lines = cluster("job", "eventlog", "-T", "offset", job).stdout.splitlines()

    assert lines[0].startswith("0.000000 submit userid=")
    assert lines[-1].split()[1] == "clean"
    assert cluster.events(job)[:2] == ["submit", "validate"]


def test_rabbits_and_workflows_tell_of_a_job_while_it_runs(cluster: Cluster) -> None:
    job = cluster.submit("-N2", cluster.script("wait.sh", "sleep 60", XFS))
    cluster.wait_event(job, "start")
    rabbits = json.loads(cluster("rabbits", "--json").stdout)["rabbits"]
    workflows = json.loads(cluster("workflows", "--json").stdout)["items"]

    assert rabbits[0]["allocated"] == 2 * (64 + 300) * 2**20
    assert rabbits[0]["workflows"] == [workflows[0]["metadata"]["name"]]
    assert workflows[0]["status"]["state"] == "PreRun"
    assert "PreRun" in cluster("workflows").stdout

    cluster("cancel", job)
    cluster.wait_clean()
    assert cluster.job(job)["exception_type"] == "cancel"


def test_a_job_of_another_spelling_of_its_id_is_the_same_job(cluster: Cluster) -> None:
    job = cluster.submit("true")
    dothex = cluster("job", "id", "--to", "dothex", job).stdout.strip()

    assert cluster("job", "attach", dothex).returncode == 0
    assert json.loads(cluster("job", "info", dothex, "jobspec").stdout)["version"] == 1


def test_a_dry_run_prints_the_jobspec_and_submits_nothing(cluster: Cluster) -> None:
    before = json.loads(cluster("jobs", "-a", "--json").stdout)
    done = cluster("submit", "--dry-run", "-N2", "-t", "5", "hostname")

    spec = json.loads(done.stdout)
    assert spec["resources"][0]["count"] == 2
    assert spec["attributes"]["system"]["duration"] == 300
    assert json.loads(cluster("jobs", "-a", "--json").stdout) == before
