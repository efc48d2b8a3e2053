"""`warren demo`, as people meet it first."""

import contextlib
import fcntl
import io
import os
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console

from tests.harness import users
from tests.journeys.conftest import Cluster
from warren.cli.cluster.tour import CASES, Case, Tour


def test_the_demo_shows_a_whole_life_and_leaves_nothing(tmp_path: Path) -> None:
    done = Cluster(tmp_path)("demo", TMPDIR=str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown",
                 "DEPEND", "SCHED", "RUN", "CLEANUP", "INACTIVE"):  # fmt: skip
        assert word in done.stdout
    assert "✓ the output is right" in done.stdout
    assert "✓ no mount, no allocation and no process is left" in done.stdout
    assert list(tmp_path.glob("warren-demo-*")) == []


def test_the_demo_runs_a_script_of_ones_own(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    script = cluster.script(
        "mine.sh",
        'echo mine > "$DW_JOB_fast/out"',
        "#DW jobdw type=xfs capacity=10MiB name=fast",
        "#DW copy_out source=$DW_JOB_fast/out destination=$GLOBAL/",
    )
    done = cluster(
        "demo", "--script", script, "-N", "2", "--global", str(cluster.shared),
        TMPDIR=str(tmp_path),
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(cluster.shared.glob("*/out"))) == 2


def test_the_demo_of_a_failing_job_fails_and_still_leaves_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    script = cluster.script("bad.sh", "exit 5", "#DW jobdw type=xfs capacity=1MiB name=fast")
    done = cluster("demo", "--script", script, TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "the job has failed" in done.stdout
    assert "no process is left" in done.stdout


def test_the_demo_refuses_a_wrong_directive_in_words(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    script = cluster.script("bad.sh", "true", "#DW jobdw type=zfs capacity=1MiB name=fast")
    done = cluster("demo", "--script", script, TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "Unknown type 'zfs'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_demo_with_flux_needs_one(tmp_path: Path) -> None:
    done = Cluster(tmp_path)("demo", "--flux", PATH="/nowhere", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert done.stderr == (
        "warren: --flux needs a Flux to start: flux is not on the PATH: install it.\n"
    )
    assert list(tmp_path.glob("warren-demo-*")) == []


CONTAINERS = ("bwrap", "umoci", "busybox", "ip")
"""What an application beside a job takes."""


def outcomes(shown: str) -> dict[str, str]:
    """Return the first word of the last line that the tour shows of each job, by its title."""
    found = {}
    for block in shown.split("\n\n"):
        title, *lines = block.strip().splitlines()
        if lines and lines[0].startswith("  #DW"):
            found[title] = lines[-1].split()[0]
    return found


def test_the_tour_shows_what_the_machine_makes_and_why_it_makes_nothing_else(
    tmp_path: Path,
) -> None:
    # Where root runs it, a guest has the container: all users can reach the cluster.
    with users.common_ground() as ground:
        done = Cluster(tmp_path)("demo", "--tour", "-N2", TMPDIR=str(ground))
        assert list(ground.glob("warren-demo-*")) == []

    assert done.returncode == 0, done.stdout + done.stderr
    found = outcomes(done.stdout)
    assert list(found) == [case.title for case in CASES]
    assert set(found.values()) == {"done", "refused:"}
    images = "disk images with loop devices" in done.stdout
    wanted = {f"a job's own storage, {kind}": "done" for kind in ("xfs", "ext4")}
    wanted["a job's own storage, raw"] = "done" if images and os.geteuid() == 0 else "refused:"
    wanted["copies in and out"] = "done"
    assert found.items() >= wanted.items()
    for state in ("Proposal", "SCHED", "Setup", "DataIn", "PreRun", "tasks", "PostRun", "DataOut",
                  "Teardown"):  # fmt: skip
        assert done.stdout.count(f" {state} 0.") + done.stdout.count(f" {state} 1.") >= 3
    found_container = found["a container beside the job"]
    missing = [each for each in CONTAINERS if shutil.which(each) is None]
    alone = os.geteuid() == 0 and users.without_munge() is not None
    assert found_container == ("refused:" if missing or alone else "done")
    assert ("Containers cannot run here" in done.stdout) is bool(missing)
    assert "refused: No rabbit makes file systems of type lustre: " in done.stdout
    assert "✓ no mount, no allocation and no process is left" in done.stdout


def test_a_job_of_the_tour_that_was_accepted_and_fails_is_told_and_the_others_go_on(
    own_cluster: Cluster,
) -> None:
    xfs = "#DW jobdw type=xfs capacity=1MiB name=fast"
    cases = [
        Case(title="fails", directives=(xfs,), script="exit 3"),
        Case(title="is wrong", directives=(xfs,), check=lambda shared, nodes: f"{nodes} [nodes]"),
        Case(title="is too large", directives=(xfs.replace("1MiB", "1000TiB"),)),
        Case(title="is nonsense", directives=(xfs.replace("xfs", "zfs"),)),
        Case(title="is right", directives=(xfs,), script='[ -d "$DW_JOB_fast" ]'),
    ]
    shown = io.StringIO()
    console = Console(file=shown, highlight=False, soft_wrap=True)
    faults = Tour(console, own_cluster.state, 2, own_cluster.shared, cases).run()

    assert [each.partition(": ")[0] for each in faults] == ["fails", "is wrong", "is too large"]
    assert faults[:2] == ["fails: its tasks have ended with status 768", "is wrong: 2 [nodes]"]
    assert "cannot be" in faults[2] or "GiB" in faults[2]
    found = list(outcomes(shown.getvalue()).values())
    assert found == ["failed:", "failed:", "failed:", "refused:", "done"]
    assert "5 jobs: 1 done, 1 refused with a reason, 3 failed" in shown.getvalue()
    assert list(own_cluster.shared.iterdir()) == []
    own_cluster.wait_clean()


def test_the_tour_takes_no_script(tmp_path: Path) -> None:
    done = Cluster(tmp_path)("demo", "--tour", "--script", "a.sh", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "--tour has jobs of its own: leave out --script." in done.stderr


def test_the_demo_of_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = Cluster(tmp_path)("demo", "--script", "nowhere.sh", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "there is no such file" in done.stderr


def test_where_nodes_have_no_namespaces_jobs_find_paths_of_their_own(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "--no-namespaces")
    cluster.up()
    try:
        (cluster.shared / "input").write_text("words\n")
        script = cluster.script(
            "own.sh",
            'cat "$DW_JOB_scratch/input"; echo "$DW_JOB_scratch"; echo > "$DW_JOB_scratch/out"',
            "#DW jobdw type=xfs capacity=10MiB name=scratch",
            "#DW copy_in source=$GLOBAL/input destination=$DW_JOB_scratch/",
            "#DW copy_out source=$DW_JOB_scratch/out destination=$GLOBAL/results/",
        )
        done = cluster("run", "-N2", script, GLOBAL=str(cluster.shared))

        assert done.returncode == 0, done.stderr
        paths = {line for line in done.stdout.splitlines() if line.startswith("/")}
        assert len(paths) == 2
        assert len(list(cluster.shared.glob("results/*/out"))) == 2
        cluster.wait_clean()
    finally:
        cluster.down()


def test_on_a_terminal_the_demo_shows_how_far_copies_are(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    # Many small files: they take their time on any machine, however fast its disk.
    (cluster.shared / "many").mkdir()
    for number in range(8000):
        (cluster.shared / "many" / str(number)).write_bytes(bytes([number % 256]) * 4096)
    script = cluster.script(
        "many.sh",
        "true",
        "#DW jobdw type=xfs capacity=1GiB name=fast",
        "#DW copy_in source=$GLOBAL/many/ destination=$DW_JOB_fast/",
    )
    command = [sys.executable, "-m", "warren", "demo", "--script", script, "-N", "4",
               "--global", str(cluster.shared)]  # fmt: skip
    shown = on_a_terminal(command, {**os.environ, "TMPDIR": str(tmp_path), "TERM": "xterm"})

    assert "DataIn: " in shown
    assert "of 125 MiB, " in shown
    assert "no process is left" in shown


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """Run a command on a pseudo-terminal, and return all that it shows. It must succeed."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 40, 140, 0, 0))
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the kernel's word for: the other side is closed
            while chunk := os.read(ours, 65536):
                shown += chunk
        os.close(ours)
        assert process.wait() == 0, shown.decode()
    return shown.decode()
