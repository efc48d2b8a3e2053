"""`warren demo`, as people meet it first."""

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

from tests.journeys.conftest import Cluster


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
