"""Options of `warren up` over starts of one state directory."""

import json
from pathlib import Path

from tests.journeys.conftest import Cluster, wait_for
from warren.base.bytesize import GIB


def again(cluster: Cluster, *options: str) -> None:
    """Start a cluster anew, with these options alone."""
    cluster.down()
    cluster.launch_with(*options)
    wait_for(cluster.is_ready)


def test_a_later_start_without_options_has_those_of_the_first(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[policy]\njobspec.defaults.system.duration = "1h"\n')
    cluster = Cluster(
        tmp_path, "--rabbits", "1", "--computes-per-rabbit", "2", "--rabbit-capacity", "20GiB",
        "--flash", "directory", "--no-namespaces", "--separate", "--config", str(config),
    )  # fmt: skip
    cluster.up()
    try:
        shape, server = cluster.shape(), cluster.status()["server"]
        assert shape.separate
        assert shape.isolated is False
        again(cluster)

        assert cluster.shape() == shape
        assert cluster.status()["server"] == server
        assert not cluster.status()["isolated"]
        parts = {"apiserver", "controllers", "instance", "conductor", "copy-offload"}
        assert cluster.parts() == parts
        assert "1h" in cluster("config", "get", "policy").stdout
        (cluster.shared / "in").write_text("input\n")
        script = cluster.script(
            "reads.sh",
            'cat "$DW_JOB_fast/in"',
            "#DW jobdw type=xfs capacity=1MiB name=fast",
            "#DW copy_in source=$GLOBAL/in destination=$DW_JOB_fast/",
        )
        done = cluster("run", "-N1", script, GLOBAL=str(cluster.shared))
        assert (done.stdout, done.stderr) == ("input\n", "")
        cluster.wait_clean()
    finally:
        cluster.down()


def test_a_cluster_grows_while_jobs_have_some_of_it(own_cluster: Cluster) -> None:
    script = own_cluster.script(
        "holds.sh",
        'until [ -e "$GLOBAL/end" ]; do sleep 0.1; done',
        "#DW jobdw type=xfs capacity=20GiB name=fast",
    )
    first = own_cluster.submit("-N2", script, GLOBAL=str(own_cluster.shared))
    own_cluster.wait_event(first, "start")
    own_cluster.kill()
    own_cluster.launch_with("--rabbits", "3", "--rabbit-capacity", "288GiB")
    wait_for(own_cluster.is_ready)

    listed = json.loads(own_cluster("rabbits", "--json").stdout)["rabbits"]
    assert [each["capacity"] for each in listed] == [288 * GIB] * 3
    done = own_cluster("run", "-N", "4", "--requires", "host:compute-[08-11]", own_cluster.script(
        "more.sh", "true", "#DW jobdw type=xfs capacity=20GiB name=more"
    ))  # fmt: skip
    assert done.returncode == 0, done.stderr
    (own_cluster.shared / "end").touch()
    assert own_cluster("job", "attach", first).returncode == 0
    own_cluster.wait_clean()


def test_flash_is_not_taken_from_under_a_job(own_cluster: Cluster) -> None:
    script = own_cluster.script(
        "holds.sh", "sleep 600", "#DW jobdw type=xfs capacity=1GiB name=fast"
    )
    job = own_cluster.submit("-N1", script)
    own_cluster.wait_event(job, "start")
    own_cluster.kill()
    done = own_cluster("up", "--rabbit-capacity", "10GiB")

    assert done.returncode == 1
    assert "--rabbit-capacity 10GiB: rabbit-0 still has 1 volume of jobs in 144 GiB." in done.stderr
    own_cluster.up()
    assert own_cluster.shape().capacity == 144 * GIB
    own_cluster("cancel", job)
    own_cluster.wait_clean()


def test_a_global_file_system_that_is_gone_is_named(own_cluster: Cluster) -> None:
    own_cluster.down()
    own_cluster.shared.rmdir()
    done = own_cluster("up")
    own_cluster.shared.mkdir()

    assert done.returncode == 1
    assert done.stderr == (
        f"warren: The global file system {own_cluster.shared} is not there: make it, give others "
        "with --global, or none with --no-global.\n"
    )


def test_a_port_that_cannot_be_had_is_not_remembered(own_cluster: Cluster, tmp_path: Path) -> None:
    port = own_cluster.status()["server"].rpartition(":")[2]
    other = Cluster(tmp_path / "other")
    done = other("up", "--port", port)
    assert done.returncode == 1
    assert "any with --port 0" in done.stderr

    other.launch_with()
    try:
        wait_for(other.is_ready)
    finally:
        other.down()
