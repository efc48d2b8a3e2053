"""kill -9, and what the next `warren up` makes of it."""

import json
import os
import signal

import pytest

from tests.harness.extent import chosen
from tests.journeys.conftest import Cluster, wait_for

DIRECTIVES = (
    "#DW jobdw type=xfs capacity=64MiB name=scratch",
    "#DW copy_in source=$GLOBAL/input.txt destination=$DW_JOB_scratch/",
    "#DW copy_out source=$DW_JOB_scratch/done destination=$GLOBAL/results/",
)


def start(cluster: Cluster, seconds: float) -> str:
    """Start a job on two nodes whose tasks take their time."""
    return started(cluster, f"sleep {seconds}")


def started(cluster: Cluster, wait: str) -> str:
    """Start a job on two nodes whose tasks wait by a command before they are done."""
    (cluster.shared / "input.txt").write_text("input\n")
    body = f'cat "$DW_JOB_scratch/input.txt"; {wait}; echo > "$DW_JOB_scratch/done"'
    script = cluster.script("slow.sh", body, *DIRECTIVES)
    done = cluster("submit", "-N2", script, GLOBAL=str(cluster.shared))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def results(cluster: Cluster) -> int:
    return len(list(cluster.shared.glob("results/*/done")))


def test_a_running_job_survives_the_control_process(own_cluster: Cluster) -> None:
    job = start(own_cluster, seconds=3)
    own_cluster.wait_event(job, "start")
    own_cluster.kill()
    own_cluster.up()
    done = own_cluster("job", "attach", job)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "input\ninput\n"
    wait_for(lambda: results(own_cluster) == 2)
    own_cluster.wait_clean()


def test_tasks_that_ended_while_the_control_process_was_away_are_not_run_again(
    own_cluster: Cluster,
) -> None:
    gone = own_cluster.shared / "gone"
    job = started(own_cluster, f"while ! [ -e {gone} ]; do sleep 0.1; done")
    # Not before: shells that have not met yet need the instance for that.
    own_cluster("job", "wait-event", "-p", "guest.exec.eventlog", job, "shell.start")
    own_cluster.kill()
    gone.touch()  # however slow the machine is, no task has ended before
    wait_for(lambda: len(own_cluster.written("done")) == 2)
    own_cluster.up()

    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()
    assert own_cluster.events(job).count("start") == 1
    assert results(own_cluster) == 2


def test_agents_that_are_killed_disturb_no_running_job(own_cluster: Cluster) -> None:
    job = start(own_cluster, seconds=3)
    own_cluster.wait_event(job, "start")
    before = own_cluster.agents()
    for process in before.values():
        os.kill(process, signal.SIGKILL)
    wait_for(lambda: len(own_cluster.agents()) == len(before))

    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()
    assert results(own_cluster) == 2
    assert not set(before.values()) & set(own_cluster.agents().values())


def test_nodes_whose_holders_are_killed_are_made_again_at_once_with_what_was_mounted_there(
    own_cluster: Cluster,
) -> None:
    if not own_cluster.status()["isolated"]:
        pytest.skip("no mount namespaces here")
    gone = own_cluster.shared / "gone"
    job = started(own_cluster, f"touch $DW_JOB_scratch/x; until [ -e {gone} ]; do sleep 0.1; done")
    wait_for(lambda: len(own_cluster.written("x")) == 2)
    nodes = own_cluster.nodes()
    hosts = [host for chassis in own_cluster.shape().chassis() for host in chassis.hosts]
    spaces = [space for host in hosts if (space := nodes.namespace(host)).was_made]
    without: set[int | None] = {None}

    def made_again() -> bool:
        return not without & {space.holder for space in spaces}

    for _ in range(2):
        without |= {space.holder for space in spaces}
        for space in spaces:
            space.end()
        # Nothing else is mounted meanwhile: it is the end of the holders that is noticed.
        wait_for(made_again)
        wait_for(lambda: len(own_cluster.written("x")) == 2)
    assert own_cluster("run", "-N2", "true").returncode == 0

    gone.touch()
    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()
    assert results(own_cluster) == 2


@pytest.mark.parametrize("event", chosen(["alloc", "prolog-finish", "start", "finish"], usual=2))
def test_after_a_power_cut_the_job_ends_and_its_storage_is_given_back(
    own_cluster: Cluster, event: str
) -> None:
    job = start(own_cluster, seconds=1)
    own_cluster.wait_event(job, event)
    own_cluster.kill_everything()
    own_cluster.up()
    own_cluster("job", "attach", job)
    own_cluster.wait_clean()

    ended = own_cluster.job(job)
    if not ended["success"]:
        assert "shells were lost" in str(ended["exception_note"])


def test_stopping_the_cluster_ends_its_jobs_and_the_next_start_says_so(
    own_cluster: Cluster,
) -> None:
    job = start(own_cluster, seconds=60)
    own_cluster.wait_event(job, "start")
    own_cluster.down()
    assert own_cluster.processes() == []
    own_cluster.up()
    done = own_cluster("job", "attach", job)

    assert done.returncode == 1
    assert "the job's shells were lost while the cluster was down" in done.stderr
    own_cluster.wait_clean()


def test_a_cluster_that_was_killed_can_be_swept_by_down_which_says_what_it_removed(
    own_cluster: Cluster,
) -> None:
    job = start(own_cluster, seconds=60)
    own_cluster.wait_event(job, "start")
    own_cluster.kill()
    wait_for(lambda: own_cluster.agents() == {})
    processes = len(own_cluster.processes())
    done = own_cluster("down")

    # A child in which `down` has looked at processes may take a moment to die.
    wait_for(lambda: own_cluster.processes() == [])
    loops = " and 2 loop devices" if own_cluster.shape().flash == "image" else ""
    separator = "," if loops else " and"
    assert done.stdout == (
        f"no cluster was running in {own_cluster.state.path}\n  ended what one that was killed "
        f"had left: {processes} processes{separator} 2 mounts{loops}\n"
    )
    assert own_cluster("down").stdout == f"no cluster was running in {own_cluster.state.path}\n"
    nothing = {"processes": 0, "mounts": 0, "loops": 0}
    assert json.loads(own_cluster("down", "--json").stdout) == {
        "stopped": False,
        "statedir": str(own_cluster.state.path),
        "removed": nothing,
        "left": nothing,
    }

    own_cluster.up()
    own_cluster.wait_clean()
    assert own_cluster("down").stdout == f"stopped the cluster in {own_cluster.state.path}\n"
