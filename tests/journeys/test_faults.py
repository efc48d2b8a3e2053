"""Faults of the machine: the job says in the failed command's own words why it ends, or heals."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from warren.lifecycle.states import Result
from warren.node import loops

XFS = "#DW jobdw type=xfs capacity=16MiB name=scratch"

needs_images = pytest.mark.skipif(
    loops.why_unavailable() is not None, reason=f"flash is directories: {loops.why_unavailable()}"
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory whose programs the cluster takes before the machine's own."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return directory


def put(programs: Path, name: str, body: str) -> None:
    """Put a program into the place of the machine's own, with `$REAL` for that."""
    found = next(
        path
        for directory in os.environ["PATH"].split(os.pathsep)[1:]
        if (path := shutil.which(name, path=directory))
    )
    unfinished = programs / f".{name}"
    unfinished.write_text(f"#!/bin/sh\nREAL={found}\n{body}\n")
    unfinished.chmod(0o755)
    unfinished.rename(programs / name)


@pytest.fixture
def faulty(tmp_path: Path, programs: Path) -> Iterator[Cluster]:
    """A cluster whose programs a test may replace."""
    yield from running(Cluster(tmp_path, "--rabbit-capacity", "1GiB"))


def shown(cluster: Cluster) -> str:
    """Return status and message of the only Workflow; nothing if it is gone."""
    return "".join(
        f"{each['status'].get('status')}: {each['status'].get('message')}"
        for each in cluster.workflows()
    )


def state(cluster: Cluster) -> str:
    """Return the state of the only Workflow; nothing if it is gone."""
    return "".join(each["status"].get("state", "") for each in cluster.workflows())


@needs_images
def test_a_mkfs_that_fails_is_told_in_its_own_words_with_node_and_device(
    faulty: Cluster, programs: Path
) -> None:
    put(programs, "mkfs.xfs", "echo 'mkfs.xfs: the flash is worn out' >&2; exit 1")
    words = r"rabbit-0: /dev/loop\d+: mkfs.xfs: the flash is worn out"
    job = faulty.submit("-N2", faulty.script("job.sh", "true", XFS))

    wait_for(lambda: re.search(f"TransientCondition: .*{words}", shown(faulty)))
    done = faulty("job", "attach", job)
    faulty.wait_clean()
    assert done.returncode == 1
    assert re.search(words, done.stderr)
    assert re.search(words, str(faulty.job(job)["exception_note"]))
    assert "start" not in faulty.events(job)


@needs_images
def test_a_mkfs_that_fails_once_is_tried_again_and_the_job_completes(
    faulty: Cluster, programs: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "failed"
    put(programs, "mkfs.xfs", f'mkdir {flag} 2>&- && exit 1; exec "$REAL" "$@"')

    assert faulty("run", "-N2", faulty.script("job.sh", "true", XFS)).returncode == 0
    assert flag.exists()
    faulty.wait_clean()


@needs_images
def test_a_job_whose_mkfs_hangs_can_be_cancelled_and_leaves_nothing(
    faulty: Cluster, programs: Path, tmp_path: Path
) -> None:
    put(programs, "mkfs.xfs", f"touch {tmp_path}/hangs; sleep 1000")
    job = faulty.submit("-N1", faulty.script("job.sh", "true", XFS))
    wait_for((tmp_path / "hangs").exists)
    faulty("cancel", job)
    wait_for(lambda: "clean" in faulty.events(job))

    faulty.wait_clean()
    assert faulty.job(job)["result"] == Result.CANCELED.bit


@needs_images
def test_more_input_than_fits_ends_the_job_with_the_systems_own_words(faulty: Cluster) -> None:
    with (faulty.shared / "large").open("wb") as large:
        for _ in range(512):
            large.write(os.urandom(2**20))
    script = faulty.script(
        "job.sh",
        "true",
        XFS,
        "#DW copy_in source=$GLOBAL/large destination=$DW_JOB_scratch/",
    )
    job = faulty.submit("-N1", script, GLOBAL=str(faulty.shared))
    done = faulty("job", "attach", job)

    faulty.wait_clean()
    assert "No space left on device" in done.stderr
    assert "No space left on device" in str(faulty.job(job)["exception_note"])
    assert "start" not in faulty.events(job)


def test_a_mount_that_is_in_use_is_told_with_the_process_and_goes_with_it(
    faulty: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    body = f'echo > "$DW_JOB_scratch/here"; while [ ! -e {go} ]; do sleep 0.1; done'
    job = faulty.submit("-N1", faulty.script("job.sh", body, XFS))
    wait_for(lambda: faulty.written("here"))
    (place,) = (path.parent for path in faulty.written("here"))
    with subprocess.Popen(["sleep", "1000"], cwd=place) as user:
        try:
            go.touch()
            words = f"DriverWait: .*compute-00: .*{place.name} is in use by process {user.pid} "
            wait_for(lambda: state(faulty) == "PostRun" and re.search(words, shown(faulty)))
            faulty("cancel", job)
            # By then the node may have let go of it, and its rabbit be the one that waits.
            words = f"in use by process {user.pid} "
            wait_for(lambda: state(faulty) == "Teardown" and re.search(words, shown(faulty)))
        finally:
            user.kill()
    faulty.wait_clean()
    assert faulty.job(job)["exception_type"] == "cancel"


@needs_images
def test_a_loop_device_that_vanishes_before_the_mount_is_attached_again(
    faulty: Cluster, programs: Path, tmp_path: Path
) -> None:
    vanished = tmp_path / "vanished"
    device = 'for device; do :; done; for last; do [ "$last" = "$device" ] || before=$last; done'
    put(
        programs,
        "nsenter",
        f'{device}\nmkdir {vanished} 2>&- && losetup --detach "$before"\nexec "$REAL" "$@"',
    )

    done = faulty("run", "-N1", faulty.script("job.sh", "true", XFS))
    faulty.wait_clean()
    assert done.returncode == 0, done.stderr
    assert vanished.exists()


MOUNTS = 'case " $* " in *" mount "*xfs*) fails=yes;; *) fails=no;; esac'


@needs_images
def test_a_mount_that_fails_is_told_in_its_own_words_with_node_and_device(
    faulty: Cluster, programs: Path
) -> None:
    put(
        programs,
        "nsenter",
        f'{MOUNTS}\n[ $fails = yes ] && {{ echo "mount: the superblock is lost" >&2; exit 32; }}\n'
        'exec "$REAL" "$@"',
    )
    words = r"compute-00: /dev/loop\d+: mount: the superblock is lost"
    job = faulty.submit("-N1", faulty.script("job.sh", "true", XFS))

    wait_for(lambda: re.search(f"TransientCondition: .*{words}", shown(faulty)))
    assert state(faulty) == "PreRun"
    done = faulty("job", "attach", job)
    faulty.wait_clean()
    assert done.returncode == 1
    assert re.search(words, done.stderr)
    assert re.search(words, str(faulty.job(job)["exception_note"]))
    assert "start" not in faulty.events(job)


@needs_images
def test_a_mount_that_fails_once_is_tried_again_and_the_job_completes(
    faulty: Cluster, programs: Path, tmp_path: Path
) -> None:
    flag = tmp_path / "failed"
    put(
        programs,
        "nsenter",
        f'{MOUNTS}\n[ $fails = yes ] && mkdir {flag} 2>&- && exit 32\nexec "$REAL" "$@"',
    )

    done = faulty("run", "-N1", faulty.script("job.sh", "true", XFS))
    faulty.wait_clean()
    assert done.returncode == 0, done.stderr
    assert flag.exists()
