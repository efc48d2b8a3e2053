"""Storage that a process keeps when its job is over, and devices that show no volume."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from tests.node import rings
from warren.node import loops

pytestmark = pytest.mark.skipif(
    loops.why_unavailable() is not None, reason=f"no disk images: {loops.why_unavailable()}"
)


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one rabbit that waits for busy storage no longer than a second."""
    config = tmp_path / "config.toml"
    config.write_text('[storage]\nbusy-timeout = "1s"\n')
    yield from running(Cluster(tmp_path, "--rabbits", "1", "--config", str(config)))


def writing_job(cluster: Cluster) -> tuple[str, Path]:
    """Start a job that leaves when it is told to; return it, and a directory of its storage."""
    cluster.shared.joinpath("go").unlink(missing_ok=True)
    waits = f'touch "$DW_JOB_fast/data"; until [ -e {cluster.shared}/go ]; do sleep 0.05; done'
    directive = "#DW jobdw type=xfs capacity=8MiB name=fast"
    job = cluster.submit("-N2", cluster.script("writing.sh", waits, directive))
    wait_for(lambda: len(cluster.written("data")) == 2)
    return job, cluster.written("data")[0].parent


def test_a_process_that_keeps_flash_keeps_no_node_and_is_named(impatient: Cluster) -> None:
    job, directory = writing_job(impatient)
    with subprocess.Popen(["sleep", "600"], cwd=directory) as keeper:
        try:
            impatient.shared.joinpath("go").touch()
            wait_for(lambda: "partial-free" in impatient.events(job))

            told = impatient("doctor")
            assert told.returncode == 1
            assert f"rabbit-0: process {keeper.pid}: sleep of root keeps " in told.stdout
            message = impatient.workflows()[0]["status"]["message"]
            assert f"is kept by process {keeper.pid} (sleep of root)" in message
            # All nodes are free, and a job with little flash beside the other's runs as well.
            script = impatient.script(
                "plain.sh", "true", "#DW jobdw type=xfs capacity=8MiB name=other"
            )
            assert impatient("run", "-N4", script).returncode == 0
            assert "clean" not in impatient.events(job)
        finally:
            keeper.kill()
    impatient.wait_event(job, "clean")

    assert impatient.job(job)["result"] == 1, "the job had succeeded"
    impatient.wait_clean()
    assert impatient("doctor").returncode == 0


def test_doctor_ends_the_process_that_keeps_flash(impatient: Cluster) -> None:
    job, directory = writing_job(impatient)
    with subprocess.Popen(["sleep", "600"], cwd=directory) as keeper:
        try:
            impatient.shared.joinpath("go").touch()
            wait_for(lambda: "partial-free" in impatient.events(job))
            assert impatient("doctor", "--repair").returncode == 0
            assert keeper.wait(60) == -9
        finally:
            keeper.kill()
    impatient.wait_event(job, "clean")
    impatient.wait_clean()


def test_doctor_ends_no_process_of_another_user_to_which_a_descriptor_was_sent(
    impatient: Cluster,
) -> None:
    job, directory = writing_job(impatient)
    with (
        (directory / "data").open() as opened,
        subprocess.Popen(["sleep", "600"], stdin=opened, user=65534, group=65534) as other,
    ):
        opened.close()
        try:
            impatient.shared.joinpath("go").touch()
            wait_for(lambda: "partial-free" in impatient.events(job))
            repaired = impatient("doctor", "--repair")
            assert repaired.returncode == 1
            assert "which is to go: it is another user's, end it by hand" in repaired.stdout
            assert f"process {other.pid} (sleep of nobody) is not of the user" in repaired.stderr
            assert other.poll() is None
        finally:
            other.kill()
    impatient.wait_event(job, "clean")
    impatient.wait_clean()


def test_doctor_tells_of_flash_that_is_kept_by_what_proc_does_not_show(
    impatient: Cluster,
) -> None:
    missing = rings.why_not(impatient.shared)
    if missing is not None:
        pytest.skip(missing)
    job, directory = writing_job(impatient)
    # Longer than the page that it keeps open.
    (directory / "data").write_bytes(bytes(8192))
    hold = (
        f"Ring({str(directory / 'data')!r}); print('in', flush=True); import time; time.sleep(600)"
    )
    program = f"{inspect.getsource(rings)}\n{hold}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline() == b"in\n"
            impatient.shared.joinpath("go").touch()
            wait_for(lambda: "partial-free" in impatient.events(job))

            wait_for(lambda: impatient("doctor").returncode == 1)
            found = json.loads(impatient("doctor", "--json").stdout)["found"]
            assert {(each["kind"], each["where"]) for each in found} == {("volume", "rabbit-0")}
            names = [each["name"] for each in found]
            assert [f"rabbit-0/{name}" for name in names] == impatient.nodes().volumes()
            for told in (
                f" of root (user 0, job {job.replace('ƒ', 'f')}) are to go, and no process is seen",
                f"rabbit-0/{names[0]} is kept by something that /proc does not show",
                "End the processes of root on compute-[0",
            ):
                assert told in found[0]["why"]
            repaired = impatient("doctor", "--repair")
            assert repaired.returncode == 1
            assert f"{names[0]} is in use by something that /proc" in repaired.stderr
        finally:
            keeper.kill()
    impatient.wait_event(job, "clean")
    impatient.wait_clean()
    assert impatient("doctor").returncode == 0


def test_a_device_over_a_whole_rabbit_is_found_and_detached_beside_a_job(
    impatient: Cluster,
) -> None:
    job, _ = writing_job(impatient)
    image = impatient.state.flash / "rabbit-0" / "disk.img"
    words = ["losetup", "--find", "--show", str(image)]
    device = subprocess.check_output(words, text=True).strip()

    found = json.loads(impatient("doctor", "--json").stdout)["found"]
    assert [(each["kind"], each["where"], each["name"]) for each in found] == [
        ("device", "rabbit-0", device)
    ]
    assert impatient("doctor", "--repair").returncode == 0
    assert device not in [loop.device for loop in impatient.nodes().loops()]

    assert len(impatient.nodes().loops()) == 2, "the job's own were touched"
    impatient.shared.joinpath("go").touch()
    impatient.wait_event(job, "clean")
    assert impatient.job(job)["result"] == 1
    impatient.wait_clean()
