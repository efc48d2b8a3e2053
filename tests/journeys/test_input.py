"""What a person who runs a job gives it: standard input of each kind, and Ctrl-C."""

import fcntl
import os
import signal
import subprocess
import sys
import termios

import pytest

from tests.journeys.conftest import SECONDS, Cluster, wait_for

WARREN = f"{sys.executable} -m warren"


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("echo x | {run}", b"x\n"),
        ("(sleep 1; echo late) | {run}", b"late\n"),
        (": | {run}", b""),
        ("{run} < /dev/null", b""),
        ("{run} 0<&-", b""),
        ("head -c 3000000 /dev/zero | {run}", b"\0" * 3_000_000),
    ],
    ids=["a line", "a late line", "nothing", "/dev/null", "closed", "much"],
)
def test_tasks_read_what_the_command_has_on_its_standard_input(
    cluster: Cluster, line: str, read: bytes
) -> None:
    done = subprocess.run(
        ["sh", "-c", line.format(run=f"{WARREN} run -n2 --label-io sh -c 'wc -c'")],
        capture_output=True,
        timeout=SECONDS,
        env=cluster.environment(),
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(done.stdout.split(b"\n")[:-1]) == [
        f"{rank}: {len(read)}".encode() for rank in range(2)
    ]


def on_terminal(
    cluster: Cluster, *arguments: str, size: tuple[int, int] = (24, 80)
) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a `warren` command on a terminal of its own, and return the terminal's other end."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, size)

    def own() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "warren", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=own,
        env=cluster.environment(),
    )
    os.close(theirs)
    return process, ours


def told(terminal: int, wanted: bytes) -> bytes:
    """Read from a terminal until something is there, or until its end."""
    read = b""
    while wanted not in read:
        try:
            read += os.read(terminal, 2**16)
        except OSError:  # its other end is closed
            break
    assert wanted in read, read
    return read


def test_a_terminal_is_read_to_the_end_that_is_typed(cluster: Cluster) -> None:
    process, terminal = on_terminal(cluster, "run", "wc", "-l")
    try:
        told(terminal, b": starting")
        os.write(terminal, b"one\ntwo\n\x04")
        told(terminal, b"2\r\n")
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        os.close(terminal)


def test_an_interrupt_is_the_tasks_also_where_it_comes_before_the_job_runs(
    cluster: Cluster,
) -> None:
    script = cluster.script(
        "interrupted.sh", "exec sleep 600", "#DW jobdw type=xfs capacity=8MiB name=fast"
    )
    process, terminal = on_terminal(cluster, "run", "-N1", "--urgency", "hold", script)
    try:
        said = told(terminal, b": waiting for priority")
        job = said.split(b":")[0].split()[-1].decode()
        os.write(terminal, b"\x03")
        told(terminal, b"The job is interrupted when it starts")
        assert cluster("job", "urgency", job, "16").returncode == 0
        assert process.wait(SECONDS) == 128 + signal.SIGINT
    finally:
        process.kill()
        os.close(terminal)
    cluster.wait_event(job, "clean")
    cluster.wait_clean()


INTERACTIVE = ("run", "-n1", "-o", "pty.interactive", "sh", "-c")


def test_a_user_sits_before_the_terminal_of_a_job(cluster: Cluster) -> None:
    script = (
        "stty size; until test \"$(stty size)\" = '22 55'; do sleep 0.1; done; "
        "trap 'echo caught; exit 3' INT; echo on; read typed; echo read $typed; read more"
    )
    process, terminal = on_terminal(cluster, *INTERACTIVE, script, size=(33, 44))
    before = termios.tcgetattr(terminal)
    try:
        told(terminal, b"33 44\r\n")
        assert termios.tcgetattr(terminal) != before, "the terminal is not raw"
        termios.tcsetwinsize(terminal, (22, 55))
        told(terminal, b"on\r\n")
        os.write(terminal, b"word\r")
        told(terminal, b"word\r\nread word\r\n")
        os.write(terminal, b"\x03")
        told(terminal, b"caught\r\n")
        assert process.wait(SECONDS) == 3
        assert termios.tcgetattr(terminal) == before
    finally:
        process.kill()
        os.close(terminal)


def test_a_terminal_is_as_it_was_when_the_command_is_ended(cluster: Cluster) -> None:
    process, terminal = on_terminal(cluster, *INTERACTIVE, "echo on; exec sleep 1000")
    before = termios.tcgetattr(terminal)
    try:
        told(terminal, b"on\r\n")
        process.terminate()
        assert process.wait(SECONDS) == -signal.SIGTERM
        assert termios.tcgetattr(terminal) == before
    finally:
        process.kill()
        os.close(terminal)
    cluster("cancel", "--all")
    wait_for(lambda: cluster("jobs", "-n").stdout == "")
    cluster.wait_clean()
