"""A cluster whose disk is full, from whatever cause: it says so, lives on, and recovers."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.journeys.conftest import SECONDS, Cluster, running, wait_for
from warren.daemons.down import leftovers

FULL = "is full ("

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which a cluster and little more fit on."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128m", "none", str(place)]
    subprocess.run(mount, check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def small_cluster(disk: Path) -> Iterator[Cluster]:
    """A cluster on such a file system."""
    yield from running(Cluster(disk))


class Filler:
    """Fills a file system, and makes room again."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    def empty(self) -> None:
        self._path.unlink()


def waiting(cluster: Cluster, *after: str) -> str:
    """Submit a job that runs until a file is there, and return its id when it runs."""
    go = cluster.shared.parent / "go"
    words = f"while ! test -e {go}; do sleep 0.1; done; echo done"
    job = cluster.submit("sh", "-c", words, *after)
    cluster.wait_event(job, "start")
    return job


def go(cluster: Cluster) -> None:
    # An entry in a directory of a file system in memory takes no room.
    (cluster.shared.parent / "go").touch()


def fill_to_the_brim(cluster: Cluster, filler: Filler) -> None:
    """Fill the disk, have the cluster find it full, and take also what it has given up for it."""

    def refused() -> bool:
        filler.fill()
        done = cluster("submit", "true")
        return done.returncode == 1 and FULL in done.stderr

    wait_for(refused)
    filler.fill()


def control_log(cluster: Cluster) -> str:
    return (cluster.state.logs / "control.log").read_text()


@root
def test_a_full_disk_refuses_new_work_and_what_runs_comes_to_its_end_in_what_was_set_aside(
    small_cluster: Cluster, disk: Path
) -> None:
    filler = Filler(disk)
    job = waiting(small_cluster)
    filler.fill()
    small_cluster("submit", "true")  # finds it full, and is taken
    refused = small_cluster("submit", "true")
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        "warren: the job is refused: the file system of "
        f"{small_cluster.state.jobs_journal} is full ("
    )
    assert refused.stderr.count("\n") == 1
    refused = small_cluster("kvs", "put", "a=1")
    assert refused.returncode == 1
    assert FULL in refused.stderr

    go(small_cluster)
    small_cluster.wait_event(job, "clean")
    assert small_cluster("job", "attach", job).stdout == "done\n"

    filler.empty()
    wait_for(lambda: small_cluster("run", "true").returncode == 0)


@root
def test_with_no_room_at_all_reads_are_answered_and_nothing_is_lost(
    small_cluster: Cluster, disk: Path
) -> None:
    filler = Filler(disk)
    job = waiting(small_cluster)
    fill_to_the_brim(small_cluster, filler)
    filler.fill()
    go(small_cluster)

    assert job in small_cluster("jobs", "-a").stdout
    assert small_cluster.is_ready()

    filler.empty()
    small_cluster.wait_event(job, "clean")
    assert small_cluster("job", "status", job).returncode == 0
    assert small_cluster("job", "attach", job).stdout == "done\n"
    wait_for(lambda: small_cluster("run", "true").returncode == 0)


@root
def test_a_cluster_that_is_started_on_a_full_disk_waits_for_room_and_goes_on(
    small_cluster: Cluster, disk: Path
) -> None:
    filler = Filler(disk)
    job = waiting(small_cluster)
    fill_to_the_brim(small_cluster, filler)
    small_cluster.kill()
    for _ in range(3):
        filler.fill()
    # What an earlier life has set aside is given up for the start; let that be gone as well.
    for journal in ("jobs.db", "objects.db"):
        os.truncate(small_cluster.state.path / f"{journal}.reserve", 0)
    filler.fill()

    # Where it tells this is on another disk, as terminals are.
    told = disk.parent / "told"
    with told.open("w") as output:
        small_cluster.process = subprocess.Popen(
            [sys.executable, "-m", "warren", "up", "--statedir", str(small_cluster.state.path),
             "--global", str(small_cluster.shared)],
            stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    wait_for(lambda: f"warren: the file system of {small_cluster.state.path} is full" in
             told.read_text())  # fmt: skip
    assert small_cluster.state.status() is None
    go(small_cluster)

    filler.empty()
    wait_for(small_cluster.is_ready)
    small_cluster.wait_event(job, "clean")
    assert small_cluster("job", "attach", job).stdout == "done\n"
    assert small_cluster("run", "true").returncode == 0


@root
@pytest.mark.parametrize("killed", [False, True], ids=["alive", "killed"])
def test_a_cluster_on_a_full_disk_is_stopped_and_leaves_nothing(disk: Path, killed: bool) -> None:
    cluster = Cluster(disk)
    cluster.up()
    try:
        waiting(cluster)
        fill_to_the_brim(cluster, Filler(disk))
        if killed:
            cluster.kill()
    finally:
        done = cluster("down")
    assert (done.returncode, done.stderr) == (0, "")
    assert cluster.process is not None
    cluster.process.wait(SECONDS)
    assert leftovers(cluster.state) == []
    wait_for(lambda: cluster.processes() == [])
    assert str(cluster.state.path) not in Path("/proc/mounts").read_text()


def test_files_that_may_not_grow_are_as_a_full_disk(own_cluster: Cluster, tmp_path: Path) -> None:
    job = waiting(own_cluster)
    assert own_cluster.process is not None
    process = own_cluster.process.pid
    before = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (4096, before[1]))

    # This one finds it out, or comes when another write has found it out already.
    told = tmp_path / "told"
    with told.open("w") as output:
        unanswered = subprocess.Popen(
            [sys.executable, "-m", "warren", "submit", "true"],
            stdout=output, stderr=output, env=own_cluster.environment(),
        )  # fmt: skip
    wait_for(lambda: "no new work is taken" in control_log(own_cluster))
    refused = own_cluster("submit", "true")
    assert refused.returncode == 1
    assert FULL in refused.stderr
    go(own_cluster)
    assert job in own_cluster("jobs", "-a").stdout

    resource.prlimit(process, resource.RLIMIT_FSIZE, before)
    assert unanswered.wait(SECONDS) == 0 or FULL in told.read_text()
    own_cluster.wait_event(job, "clean")
    assert own_cluster("job", "attach", job).stdout == "done\n"
    wait_for(lambda: own_cluster("run", "true").returncode == 0)


# What jobs write in their directories


@root
def test_a_job_fills_its_directory_and_neither_the_disk_nor_the_next_jobs(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    fill = "head -c 100M /dev/zero > $FLUX_JOB_TMPDIR/file; stat -c %s $FLUX_JOB_TMPDIR/file"
    filled = own_cluster("run", "sh", "-c", fill)

    assert "No space left on device" in filled.stderr
    assert filled.stdout == f"{64 * 2**20}\n"
    assert own_cluster("run", "sh", "-c", "echo > $FLUX_JOB_TMPDIR/file").returncode == 0
    assert list(own_cluster.state.tmp.iterdir()) == []


@root
def test_directories_of_jobs_are_where_the_configuration_has_them_and_go_with_the_cluster(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text(
        f'exec.rundir = "{tmp_path}/jobs"\nexec.tmpdir-limit = 2097152\n'
    )
    (tmp_path / "jobs").mkdir()
    for cluster in running(Cluster(tmp_path, "--config", str(tmp_path / "config.toml"))):
        told = cluster("run", "sh", "-c", "echo $FLUX_JOB_TMPDIR; df -B1 $FLUX_JOB_TMPDIR")
        assert told.stdout.startswith(f"{tmp_path}/jobs/warren-")
        assert " 2097152 " in told.stdout
        cluster.kill_everything()
        cluster.up()
        assert cluster("run", "sh", "-c", "echo > $FLUX_JOB_TMPDIR/file").returncode == 0

    assert list((tmp_path / "jobs").iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
