"""`warren doctor`: strays are found and given back, and what is owned is left alone."""

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.journeys.conftest import SECONDS, Cluster, wait_for
from warren.daemons import clustershape
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import lock_holder
from warren.dws import kinds, labels
from warren.dws.node import Volume
from warren.instance.shell import cgroups
from warren.kube import kubeconfig
from warren.kube.http import connect


def waiting_job(cluster: Cluster) -> str:
    """Start a job that runs until it is cancelled."""
    script = cluster.script(
        "waiting.sh", "exec sleep 600", "#DW jobdw type=xfs capacity=8MiB name=fast"
    )
    job = cluster.submit("-N2", script)
    cluster.wait_event(job, "start")
    return job


def cgroups_of(cluster: Cluster) -> cgroups.Cgroups:
    """Return where the parent of the shells makes the cgroups of this cluster's jobs."""
    made = cgroups.cluster_cgroups(str(cluster.state.path))
    if made is None:
        pytest.skip("this user makes no cgroups here, and strays are known by those")
    return made


def like_a_task(cluster: Cluster) -> dict[str, str]:
    """Return an environment with all that a user can know of a cluster and its tasks."""
    return {
        **os.environ,
        "FLUX_URI": cluster.state.uri,
        "FLUX_JOB_ID": "ƒ7",
        "FLUX_JOB_SIZE": "1",
        "FLUX_JOB_NNODES": "1",
        "FLUX_TASK_RANK": "0",
        "FLUX_TASK_LOCAL_ID": "0",
        "FLUX_KVS_NAMESPACE": "job-7",
        "FLUX_JOB_TMPDIR": str(cluster.state.tmp / "jobtmp-0-7"),
        "WARREN_CLUSTER": str(cluster.state.path),
        "WARREN_PERILOG": str(cluster.state.path),
    }


def nodes_of(cluster: Cluster) -> Nodes:
    shape, status = clustershape.load(cluster.state.shape_file), cluster.state.status()
    assert shape is not None
    assert status is not None
    return Nodes(cluster.state, shape, isolated=status["isolated"])


async def make_strays(cluster: Cluster) -> None:
    """Make a volume and its mount, and an object of a Workflow that never was."""
    machine = nodes_of(cluster).local_node("rabbit-1")
    volume = Volume(
        rabbit="rabbit-1",
        name="stray-0",
        size=2**29,
        file_system="xfs",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )
    await machine.make(volume)
    await machine.mount("rabbit-1", "stray-0", "xfs", str(cluster.state.mounts / "stray"))
    stray = {
        "metadata": {
            "name": "stray",
            "namespace": "default",
            "labels": {labels.WORKFLOW_UID: "gone", labels.WORKFLOW_NAME: "gone"},
        },
        "spec": {},
    }
    async with connect(kubeconfig.load(cluster.state.kubeconfig)) as client:
        await client.create(kinds.SERVERS, stray)


def test_strays_are_found_and_given_back_beside_a_job_that_runs(own_cluster: Cluster) -> None:
    of_jobs = cgroups_of(own_cluster)
    job = waiting_job(own_cluster)
    clean = own_cluster("doctor")
    assert (clean.returncode, clean.stdout) == (0, "no orphaned resources found\n")

    # Not before a job runs: until then the parent of the shells removes what others have left.
    cgroup = of_jobs.make("6-0")  # ƒ7
    # They end by themselves should the test fail before they are found.
    with (
        subprocess.Popen(["sleep", "30"], preexec_fn=cgroup.enter) as stray,
        subprocess.Popen(["sleep", "30"], env=like_a_task(own_cluster)) as bystander,
    ):
        asyncio.run(make_strays(own_cluster))
        told = own_cluster("doctor")
        assert told.returncode == 1
        assert told.stdout == (
            f"process {stray.pid}: its job ƒ7 is over\n"
            "Servers: object default/stray: the Workflow gone does not exist\n"
            f"rabbit-1: mount {own_cluster.state.mounts}/stray: no ClientMount asks for it\n"
            "rabbit-1: volume stray-0: no NnfNodeStorage asks for it\n"
            "4 orphaned resources found: 'warren doctor --repair' removes them\n"
        )
        found = json.loads(own_cluster("doctor", "--json").stdout)["found"]
        assert [each["kind"] for each in found] == ["process", "object", "mount", "volume"]

        repaired = own_cluster("doctor", "--repair")
        assert repaired.returncode == 0, repaired.stderr
        assert "4 orphaned resources removed" in repaired.stdout
        assert stray.wait(SECONDS) != 0
        assert bystander.poll() is None
        bystander.kill()
    assert cgroup.remove()
    assert own_cluster("doctor").returncode == 0

    assert "finish" not in own_cluster.events(job), "the job that ran was disturbed"
    assert own_cluster("cancel", job).returncode == 0
    wait_for(lambda: "clean" in own_cluster.events(job))
    own_cluster.wait_clean()


def test_a_process_that_only_names_the_cluster_outlives_all_that_the_cluster_does(
    own_cluster: Cluster,
) -> None:
    state = own_cluster.state
    with subprocess.Popen(["sleep", "1000"], env=like_a_task(own_cluster)) as bystander:
        try:
            wait_for(lambda: lock_holder(state.shells_lock))  # the cluster's own comes up beside it
            helper = lock_holder(state.shells_lock)
            assert helper is not None
            os.kill(helper, signal.SIGKILL)
            wait_for(lambda: lock_holder(state.shells_lock) not in (None, helper))
            own_cluster.kill()
            assert own_cluster("doctor", "--repair").returncode == 0
            own_cluster.up()
            own_cluster.down()
            assert bystander.poll() is None
        finally:
            bystander.kill()
    own_cluster.up()


def test_what_a_killed_cluster_has_left_is_listed_and_ended_only_when_asked(
    own_cluster: Cluster,
) -> None:
    waiting_job(own_cluster)
    own_cluster.kill()
    told = own_cluster("doctor")

    assert told.returncode == 1
    assert "mount compute-00:" in told.stdout
    assert "'warren up' would take it over" in told.stdout
    time.sleep(0.2)
    assert own_cluster("doctor").returncode == 1, "looking has changed something"

    assert own_cluster("doctor", "--repair").returncode == 0
    assert own_cluster("doctor").stdout == "no orphaned resources found\n"
    assert own_cluster.processes() == []
    own_cluster.up()
    own_cluster.wait_clean()


def test_a_directory_that_holds_no_cluster_is_refused(tmp_path: Path) -> None:
    done = Cluster(tmp_path)("doctor")

    assert done.returncode == 1
    assert "is not the state directory of a cluster" in done.stderr
