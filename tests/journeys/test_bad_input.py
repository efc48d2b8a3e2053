"""What is refused: one sentence that says what, where and what to do; exit 1; nothing changed."""

import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"


def refused(cluster: Cluster, *arguments: str) -> str:
    """Run a command that must be refused, and return what it says."""
    before = cluster.jobs()
    done = cluster(*arguments)
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert cluster.jobs() == before
    assert cluster.workflows() == []
    return done.stderr


@pytest.mark.parametrize(
    ("directives", "under_carets", "sentence"),
    [
        ("#DW jobwd name=a1", "jobwd", "Did you mean 'jobdw'?"),
        (JOBDW.replace("capacity", "capactiy"), "capactiy", "Did you mean 'capacity'?"),
        (JOBDW.replace("xfs", "zfs"), "zfs", "Unknown type 'zfs': it is one of "),
        (JOBDW.replace("1GiB", "1.5TiB"), "1.5TiB", "Try 1536GiB."),
        (JOBDW.replace("scratch", "Scratch"), "Scratch", "Try scratch."),
        (f"{JOBDW}\n{JOBDW}", "name=scratch", "taken by an earlier jobdw"),
        (f"{JOBDW} name=other", "name=other", "is repeated"),
        ("#DW jobdw type=xfs name=scratch", "jobdw", "jobdw needs capacity="),
        (
            f"{JOBDW}\n#DW copy_in source=$G/x destination=$DW_JOB_scrtch/",
            "$DW_JOB_scrtch",
            "Did you mean '$DW_JOB_scratch'?",
        ),
        (
            f"{JOBDW}\n#DW copy_out source=$DW_JOB_scratch/ destination=/nowhere/x",
            "/nowhere/x",
            "No global file system of this cluster contains '/nowhere/x'.",
        ),
        (
            f"{JOBDW}\n#DW copy_in source=$G/../etc/passwd destination=$DW_JOB_scratch/",
            "$G/../etc/passwd",
            "No global file system of this cluster contains",
        ),
    ],
)
def test_a_wrong_directive_is_shown_with_a_caret_under_the_mistake(
    cluster: Cluster, directives: str, under_carets: str, sentence: str
) -> None:
    directives = directives.replace("$G", str(cluster.shared))
    under_carets = under_carets.replace("$G", str(cluster.shared))

    said = refused(cluster, "submit", "-N1", "-S", f"dw={directives}", "true")
    shown, carets, words = said.partition("the job is refused.\n")[2].splitlines()[:3]

    assert shown[carets.index("^") : carets.rindex("^") + 1] == under_carets
    assert sentence in words


@pytest.mark.parametrize(
    ("lines", "mistakes"),
    [
        (["#DW jobdw type=zfs capacity=1.5TiB \\", "#  nam=A"], 3),
        (["#DW", "#DW jobdv x=1 #DW jobdw"], 5),
        ([JOBDW, "#DW copy_in source=/nowhere destination=$DW_JOB_scrtch profile=fast"], 3),
        ([f"{JOBDW.replace('xfs', 'lustre')} requires=copy-ofload profile=nosuch"], 2),
        ([f"{JOBDW} requires=copy-offload"], 1),
        ([f"{JOBDW} profile=nosuch"], 1),
        (["#DW create_persistent type=xfs name=keep", "#DW persistentdw name=ab"], 3),
        ([JOBDW.replace("1GiB", "0GiB"), JOBDW], 2),
        ([JOBDW] * 65, 1),
    ],
)
def test_submit_dry_run_and_check_say_the_same(
    cluster: Cluster, tmp_path: Path, lines: list[str], mistakes: int
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("\n".join(["#!/bin/sh", *lines, "true\n"]))
    script.chmod(0o755)

    submitted = refused(cluster, "submit", "-N1", str(script))
    tried = cluster("submit", "-N1", "--dry-run", str(script))
    checked = cluster("check", "--json", str(script))

    assert (tried.returncode, checked.returncode) == (1, 1)
    assert tried.stderr == submitted
    told = [
        " ".join(filter(None, (each["message"], each["suggestion"])))
        for each in json.loads(checked.stdout)
    ]
    first, *blocks = submitted.removeprefix("warren: the job is refused").splitlines()
    assert sorted(told) == sorted(blocks[2::3] or [first.removeprefix(": ")])
    assert len(told) == mistakes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-N100", "true"], "100 nodes are asked for, and the cluster has 8."),
        (["-n100", "true"], "100 cores are asked for, and the cluster has 32."),
        (["-N2", "-S", "dw=", "true"], "holds no #DW directive"),
        (["-n2", "-S", f"dw={JOBDW}", "true"], "say how many with -N"),
        (
            ["-N4", "-S", f"dw={JOBDW.replace('1GiB', '100GiB')}", "true"],
            "a rabbit has 144 GiB",
        ),
        (["./nowhere.sh"], "./nowhere.sh: there is no such file."),
        (["/etc"], "/etc is a directory: name a program in it."),
        (["-t", "soon", "true"], "'soon' is not a duration"),
        (["-N2", "-n1", "true"], "1 task cannot be spread over 2 nodes"),
        (["-S", "^dw=/nowhere.json", "true"], "/nowhere.json: No such file"),
    ],
)
def test_a_job_that_cannot_run_is_refused_at_once(
    cluster: Cluster, arguments: list[str], sentence: str
) -> None:
    assert sentence in refused(cluster, "submit", *arguments)


def test_a_script_that_is_not_executable_says_how_to_make_it_so(cluster: Cluster) -> None:
    script = Path(cluster.script("plain.sh", "true"))
    script.chmod(0o644)

    assert "chmod +x" in refused(cluster, "submit", str(script))


def test_a_variable_that_the_author_does_not_have_is_shown_in_the_script(
    cluster: Cluster,
) -> None:
    script = cluster.script(
        "unset.sh", "true", JOBDW, "#DW copy_in source=$NOT_SET/x destination=$DW_JOB_scratch/"
    )
    said = refused(cluster, "submit", "-N1", script)

    assert "^^^^^^^^" in said
    assert "Your environment has no variable NOT_SET." in said


def test_a_job_that_is_not_there_is_not_found(cluster: Cluster) -> None:
    assert "unknown job id" in refused(cluster, "job", "eventlog", "f1")
    assert refused(cluster, "cancel", "f123") == "warren: f123: unknown job id\n"
    assert refused(cluster, "job", "raise", "f123", "why") == "warren: f123: unknown job id\n"
    assert refused(cluster, "job", "kill", "0x1") == "warren: 0x1: unknown job id\n"
    assert "'no!' is not a job id" in refused(cluster, "cancel", "no!")


def test_a_cluster_that_does_not_run_is_said_to_be_where_it_was_looked_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    done = cluster("jobs", "--statedir", str(tmp_path))

    assert done.returncode == 1
    assert f"No cluster runs in {tmp_path}" in done.stderr


def test_a_state_directory_in_use_is_left_alone(cluster: Cluster) -> None:
    done = cluster("up")

    assert done.returncode == 1
    assert "is in use by process" in done.stderr
    assert cluster("jobs").returncode == 0


def test_a_state_directory_is_not_used_for_another_cluster(own_cluster: Cluster) -> None:
    own_cluster.down()
    done = own_cluster("up", "--rabbits", "1")

    assert done.returncode == 1
    assert done.stderr == (
        "warren: --rabbits 1: there are 2 here, and rabbits can only be added. "
        "Leave the option out, or choose another state directory.\n"
    )


def test_a_port_in_use_is_named(cluster: Cluster, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = cluster("up", "--statedir", str(tmp_path / "other"), "--port", port)

    assert done.returncode == 1
    assert f"Port {port} of 127.0.0.1 cannot be taken" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no such file."),
        ("queues = 5\n", "queues: Expected"),
        ("queues = \n", "Invalid value"),
    ],
)
def test_a_configuration_that_is_refused_leaves_no_state_directory(
    tmp_path: Path, text: str | None, words: str
) -> None:
    config, state = tmp_path / "config.toml", tmp_path / "state"
    if text is not None:
        config.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "warren", "up", "--statedir", str(state), "--config", str(config)],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr.startswith(f"warren: {config}")
    assert words in done.stderr
    assert not state.exists()


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--port TAKEN", "cannot be taken"),
        ("--separate --metrics-port FREE", "--metrics-port: the parts of this cluster"),
        ("--no-conductor", "--no-conductor: where all is one process"),
    ],
)
def test_options_that_are_refused_leave_no_state_directory(
    tmp_path: Path, options: str, words: str, is_there: bool
) -> None:
    state = tmp_path / "state"
    if is_there:
        state.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = options.replace("TAKEN", str(taken.getsockname()[1])).replace("FREE", port)
        done = subprocess.run(
            [sys.executable, "-m", "warren", "up", "--statedir", str(state), *given.split()],
            capture_output=True,
            text=True,
        )

    assert done.returncode == 1, done
    assert words in done.stderr
    assert list(tmp_path.rglob("*")) == ([state] if is_there else [])


def test_a_state_file_of_a_newer_version_is_refused(own_cluster: Cluster) -> None:
    own_cluster.down()
    with sqlite3.connect(own_cluster.state.jobs_journal) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = own_cluster("up")

    assert done.returncode == 1
    assert "was written by a newer Warren" in done.stderr


def test_a_wrong_command_line_exits_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warren", "submit", "--nonsense"], capture_output=True, text=True
    )

    assert done.returncode == 2
    assert "No such option" in done.stderr
