"""A node is drained under a running job, by the command line; and undrained."""

import json
from pathlib import Path

from tests.journeys.conftest import Cluster, wait_for

XFS = "#DW jobdw type=xfs capacity=64MiB name=scratch"


def start(cluster: Cluster) -> tuple[str, Path]:
    """Start a job with storage on all eight nodes; it ends when the file is made."""
    end = cluster.shared / "end"
    body = f'while ! [ -e {end} ]; do sleep 0.05; done; echo done > "$DW_JOB_scratch/done"'
    out = f"#DW copy_out source=$DW_JOB_scratch/done destination={cluster.shared}/results/"
    job = cluster.submit("-N8", cluster.script("wait.sh", body, XFS, out))
    cluster.wait_event(job, "start")
    return job, end


def states(cluster: Cluster) -> dict[str, str]:
    nodes = json.loads(cluster("resource", "status", "--json").stdout)["nodes"]
    return {node["name"]: node["state"] for node in nodes}


def reason(cluster: Cluster, job: str) -> str:
    """Return why a job waits, as `warren jobs` says it."""
    lines = [line for line in cluster("jobs").stdout.splitlines() if job in line]
    return lines[0].partition("waits for ")[2] if lines else ""


def drain(cluster: Cluster, *arguments: str) -> None:
    done = cluster("resource", "drain", *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_job_on_a_drained_node_ends_well_and_the_next_one_waits_for_the_undrain(
    own_cluster: Cluster,
) -> None:
    job, end = start(own_cluster)
    drain(own_cluster, "compute-01", "bad", "disk")
    assert states(own_cluster)["compute-01"] == "draining"

    end.touch()
    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()
    assert len(list(own_cluster.shared.glob("results/*/done"))) == 8
    wait_for(lambda: states(own_cluster)["compute-01"] == "drained")

    small = own_cluster.submit("-N7", "true")
    assert own_cluster("job", "attach", small).returncode == 0
    assert own_cluster.job(small)["nodelist"] == "compute-[00,02-07]"

    large = own_cluster.submit("-N8", own_cluster.script("large.sh", "true", XFS))
    wait_for(lambda: "drained" in reason(own_cluster, large))
    assert reason(own_cluster, large) == "1 more of 8 nodes; drained: compute-01"
    assert "alloc" not in own_cluster.events(large)

    assert own_cluster("resource", "undrain", "compute-01").returncode == 0
    assert own_cluster("job", "attach", large).returncode == 0
    own_cluster.wait_clean()


def test_a_drain_survives_the_control_process_and_so_does_the_job(own_cluster: Cluster) -> None:
    job, end = start(own_cluster)
    drain(own_cluster, "1-2", "bad disk")
    before = own_cluster("resource", "drain", "--json").stdout
    own_cluster.kill()
    own_cluster.up()

    assert own_cluster("resource", "drain", "--json").stdout == before
    assert states(own_cluster)["compute-01"] == "draining"
    end.touch()
    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()

    other = own_cluster.submit("-N6", "true")
    assert own_cluster("job", "attach", other).returncode == 0
    assert own_cluster.job(other)["nodelist"] == "compute-[00,03-07]"


def test_nodes_are_listed_as_flux_lists_them(cluster: Cluster) -> None:
    drain(cluster, "compute-[01-02]", "bad disk")
    listed = cluster("resource", "list").stdout.splitlines()
    status = cluster("resource", "status").stdout.splitlines()
    drained = cluster("resource", "drain").stdout.splitlines()

    assert [line.split() for line in listed] == [
        ["STATE", "NNODES", "NCORES", "NODELIST"],
        ["free", "6", "24", "compute-[00,03-07]"],
        ["allocated", "0", "0"],
        ["down", "2", "8", "compute-[01-02]"],
    ]
    assert [line.split() for line in status] == [
        ["STATE", "UP", "NNODES", "NODELIST"],
        ["avail", "✔", "6", "compute-[00,03-07]"],
        ["drained", "✔", "2", "compute-[01-02]"],
    ]
    assert drained[0].split() == ["TIME", "STATE", "RANK", "REASON", "NODE"]
    assert drained[1].split()[2:] == ["drained", "1-2", "bad", "disk", "compute-[01-02]"]
    assert len(drained) == 2

    assert cluster("resource", "info").stdout == "8 Nodes, 32 Cores, 0 GPUs\n"
    names = [line.split()[1] for line in cluster("resource", "eventlog").stdout.splitlines()]
    assert names[-1] == "drain"

    undrained = cluster("resource", "undrain", "--json", "1-2")
    assert json.loads(undrained.stdout) == {"idset": "1-2", "nodelist": "compute-[01-02]"}
    assert json.loads(cluster("resource", "list", "--json").stdout)["states"][2]["nnodes"] == 0


def test_what_cannot_be_drained_is_said_in_a_sentence(cluster: Cluster) -> None:
    unknown = cluster("resource", "drain", "compute-99")
    assert unknown.returncode == 1
    assert unknown.stderr == (
        "warren: There is no node compute-99 here: name some of compute-[00-07], "
        "or of the ranks 0-7.\n"
    )

    drain(cluster, "compute-07", "first")
    again = cluster("resource", "drain", "compute-07", "second")
    assert again.returncode == 1
    assert again.stderr == (
        "warren: compute-07 is drained already: --update leaves that as it is, "
        "--force gives the new reason.\n"
    )
    drain(cluster, "--update", "compute-07", "second")
    assert "first" in cluster("resource", "drain").stdout
    drain(cluster, "-f", "compute-07", "third")
    assert "third" in cluster("resource", "drain").stdout
    assert cluster("resource", "undrain", "-f", "0-7").returncode == 0
