"""Daemons that directives name, as processes: they live as long as the job, and no longer."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from warren.daemons.statedir import StateDir

JOBDW = "#DW jobdw type=xfs capacity=64MiB name=scratch requires=copy-offload"
START = """
[ -e {root}/hold ] && sleep 1000
ls -d {mounts}/* > {root}/seen-$WARREN_NODE
sh -c 'while :; do sleep 0.1; done' > /dev/null 2>&1 &
echo $! > {root}/daemon-$WARREN_NODE
"""
STOP = "kill $(cat {root}/daemon-$WARREN_NODE); echo $FLUX_JOB_USERID > {root}/stopped-$WARREN_NODE"
IDLE = "exit 0"


def site(root: Path, stop: str) -> Cluster:
    """A cluster whose nodes can have a daemon, which is stopped by a script."""
    mounts = StateDir(root / "state").mounts
    for name, body in (("start", START), ("stop", stop)):
        path = root / name
        path.write_text("#!/bin/sh\n" + body.format(root=root, mounts=mounts))
        path.chmod(0o755)
    settings = root / "site.toml"
    settings.write_text(
        f'[daemons.copy-offload]\nprolog = ["{root}/start"]\nepilog = ["{root}/stop"]\n'
    )
    return Cluster(root, "--config", str(settings))


@pytest.fixture(params=[STOP, IDLE], ids=["stopped", "forgotten"])
def daemons(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Such a cluster: the site stops its daemon, or forgets to."""
    yield from running(site(tmp_path, request.param))


@pytest.fixture
def stopping(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(site(tmp_path, STOP))


def is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_daemons_live_as_long_as_their_job_also_when_the_control_process_is_killed(
    daemons: Cluster,
) -> None:
    root, gone = daemons.shared.parent, daemons.shared / "gone"
    body = f'[ -d "$DW_JOB_scratch" ] && while ! [ -e {gone} ]; do sleep 0.1; done'
    job = daemons.submit("-N2", daemons.script("job.sh", body, JOBDW))
    daemons.wait_event(job, "start")
    pids = [(root / f"daemon-compute-0{number}").read_text().strip() for number in (0, 1)]
    assert all(map(is_alive, pids))
    # The storage was mounted where the daemon is, on its own node.
    assert all((root / f"seen-compute-0{number}").read_text() for number in (0, 1))
    assert not (root / "daemon-compute-02").exists()

    daemons.kill()
    daemons.up()
    time.sleep(1)
    assert all(map(is_alive, pids))
    gone.touch()

    assert daemons("job", "attach", job).returncode == 0
    daemons.wait_clean()
    assert not any(map(is_alive, pids))


def test_a_prolog_that_was_cut_short_by_a_kill_leaves_nothing_and_is_run_again(
    stopping: Cluster,
) -> None:
    root = stopping.shared.parent
    (root / "hold").touch()
    job = stopping.submit("-N1", stopping.script("job.sh", "true", JOBDW))
    wait_for(lambda: "dws_environment" in stopping.events(job))
    wait_for(lambda: any(b"sleep\x001000" in Path(f"/proc/{each}/cmdline").read_bytes()
                         for each in stopping.processes()))  # fmt: skip
    stopping.kill()
    (root / "hold").unlink()
    stopping.up()

    assert stopping("job", "attach", job).returncode == 0
    stopping.wait_clean()
    assert (root / "stopped-compute-00").exists()
    assert not any(b"sleep\x001000" in Path(f"/proc/{each}/cmdline").read_bytes()
                   for each in stopping.processes())  # fmt: skip


def test_an_unknown_daemon_is_refused_with_the_place_of_the_word(stopping: Cluster) -> None:
    line = JOBDW.replace("copy-offload", "copy-ofload")
    done = stopping("submit", "-N1", stopping.script("job.sh", "true", line))

    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == [
        line,
        " " * line.index("copy-ofload") + "^" * len("copy-ofload"),
        "Unknown word 'copy-ofload' in requires: it takes copy-offload or user-container-auth. "
        "Did you mean 'copy-offload'?",
    ]
    assert stopping("check", stopping.script("job.sh", "true", line)).returncode == 1
