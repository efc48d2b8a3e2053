"""Storage that outlives the jobs which create, use and destroy it: with real file systems."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from warren.dws import kinds
from warren.node import loops

SIZE = "8MiB"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(Cluster(tmp_path, "--rabbits", "1"))


def create(cluster: Cluster) -> str:
    directive = f"#DW create_persistent type=xfs capacity={SIZE} name=keep"
    # One task on each of two nodes, which other jobs may share.
    return cluster.submit("-N2", "-n2", cluster.script("create.sh", "true", directive))


def instances(cluster: Cluster) -> list[str]:
    return [str(each["status"]["state"]) for each in cluster.objects(kinds.PERSISTENT_INSTANCE)]


def test_what_one_job_has_written_another_reads_and_a_third_gives_it_all_back(
    cluster: Cluster,
) -> None:
    """Issue 15: create and destroy by jobs; use by several, one after the other."""
    maker = create(cluster)
    use = "#DW persistentdw name=keep"
    write = cluster.script("write.sh", 'hostname > "$DW_PERSISTENT_keep/mine"', use)
    read = cluster.script("read.sh", 'cat "$DW_PERSISTENT_keep/mine"', use)
    destroy = cluster.script("destroy.sh", "true", "#DW destroy_persistent name=keep")
    assert cluster("run", "-N2", f"--dependency=afterok:{maker}", write).returncode == 0
    assert instances(cluster) == ["Active"]

    found = cluster("run", "-N2", read)
    assert found.returncode == 0, found.stderr
    assert len(found.stdout.splitlines()) == 2

    cluster.kill()
    cluster.up()
    # A job of one task takes no node from others.
    job = cluster.submit(destroy)
    cluster.wait_event(job, "clean")
    assert cluster.job(job)["result"] == 1
    assert instances(cluster) == []
    refused = cluster("run", "-N1", read)
    assert refused.returncode == 1
    assert "There is no persistent storage named 'keep'" in refused.stderr
    cluster.wait_clean()


def test_the_command_line_creates_lists_shares_and_destroys(cluster: Cluster) -> None:
    """Issue 15: `warren persistent`, with and without root."""

    def told(*words: str) -> str:
        found = cluster("persistent", *words)
        assert found.returncode == 0, found.stderr
        return found.stdout

    def refused(*words: str) -> str:
        found = cluster("persistent", *words)
        assert found.returncode == 1
        return found.stderr

    made = told("create", "keep", "--type=xfs", f"--capacity={SIZE}", "-N2", "--for=1h")
    assert made.startswith("keep: ")
    assert made.endswith("of xfs on rabbit-0\n")
    assert "named 'keep' already" in refused("create", "keep", "--type=xfs", "--capacity=1MiB")
    other = ("create", "other", "--type=xfs")
    assert "'1.5MiB' is not a capacity" in refused(*other, "--capacity=1.5MiB")
    assert "a rabbit has" in refused(*other, "--capacity=900TiB")

    expires = json.loads(told("show", "keep", "--json"))["expires"]
    assert told("expire", "keep", "--never") == "keep: never expires\n"
    assert told("expire", "keep", "--until=+2h").startswith("keep: 2")
    assert "one of --until" in refused("expire", "keep")
    assert "in the future" in refused("expire", "keep", "--until=5")
    told("share", "keep", "--user=0,4321", "--group=4322")
    (found,) = json.loads(told("list", "--json"))["persistent"]
    assert found == json.loads(told("show", "keep", "--json"))
    assert found["shared"] == {"everyone": False, "users": [0, 4321], "groups": [4322]}
    assert found["expires"] > expires
    assert found["userid"] == os.getuid()
    row = told("list").splitlines()[1].split()
    assert row[0] == "keep"
    assert "root,4321,group:4322" in row
    assert row[-1] == "rabbit-0"

    cluster.kill()
    cluster.up()
    use = cluster.script("use.sh", "sleep 600", "#DW persistentdw name=keep")
    job = cluster.submit("-N1", use)
    cluster.wait_event(job, "start")
    assert f"in use by {job}" in refused("destroy", "keep")
    assert job in told("list").splitlines()[1].split()
    assert told("unshare", "keep") == "keep: its owner alone\n"
    cluster("cancel", job)
    cluster.wait_event(job, "clean")
    told("destroy", "keep")
    assert instances(cluster) == []
    assert "There is no persistent storage named 'keep'" in refused("destroy", "keep")
    cluster.wait_clean()


def test_a_job_waits_for_the_node_that_has_its_part_of_a_gfs2(cluster: Cluster) -> None:
    made = cluster("persistent", "create", "keep", "--type=gfs2", f"--capacity={SIZE}", "-N1")
    assert made.returncode == 0, made.stderr
    first_node = ("--exclusive", "-N1", "--requires=host:compute-00")
    other = cluster.submit(*first_node, "sleep", "600")
    cluster.wait_event(other, "start")

    use = cluster.script("use.sh", "hostname", "#DW persistentdw name=keep")
    refused = cluster("run", "-N2", use)
    assert "asks for 2 nodes, and its persistent storage has allocations for 1" in refused.stderr
    job = cluster.submit("-N1", use)
    cluster.wait_event(job, "depend")
    cluster("cancel", other)
    cluster.wait_event(job, "clean")
    assert cluster.job(job)["result"] == 1
    assert cluster.job(job)["nodelist"] == "compute-00"
    destroyed = cluster("persistent", "destroy", "keep")
    assert destroyed.returncode == 0, destroyed.stderr
    cluster.wait_clean()


@pytest.mark.skipif(
    loops.why_unavailable() is not None, reason=f"no disk images: {loops.why_unavailable()}"
)
def test_a_power_cut_while_it_is_made_leaves_it_whole_or_not_at_all(cluster: Cluster) -> None:
    job = create(cluster)
    wait_for(lambda: cluster.nodes().volumes() or "start" in cluster.events(job))
    cluster.kill_everything()
    cluster.up()
    cluster.wait_event(job, "clean")
    # Tasks may have been lost with the power: what they waited for was whole by then.
    whole = "start" in cluster.events(job)
    assert instances(cluster) == ["Active"] * whole
    if whole:
        destroy = cluster.script("destroy.sh", "true", "#DW destroy_persistent name=keep")
        cluster.wait_event(cluster.submit(destroy), "clean")
    assert instances(cluster) == []
    cluster.wait_clean()
