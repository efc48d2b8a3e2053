"""Simulated flash by the command line: a rehearsal, in which jobs and their data are real."""

import json
import re
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from warren.dws import kinds

XFS = "#DW jobdw type=xfs capacity=1MiB name=scratch"
COPIES = (
    "#DW copy_in source=$GLOBAL/in destination=$DW_JOB_scratch/",
    "#DW copy_out source=$DW_JOB_scratch/out destination=$GLOBAL/out",
)
BEHAVIOUR = """
seed = 10 # with which the first try of rabbit-0 fails, and two more do not
make = { seconds = 0.05, sigma = 0.5, fails = 0.5 }
mount = { seconds = 0.02 }
copy = { seconds = 0.02 }
"""


def simulated(tmp_path: Path, faults: str, *options: str) -> Cluster:
    """A cluster to be started, of a rabbit with a node."""
    file = tmp_path / "faults.toml"
    file.write_text(faults)
    return Cluster(
        tmp_path, "--rabbits", "1", "--computes-per-rabbit", "1", "--rabbit-capacity", "8TiB",
        "--flash", "simulated", "--faults", str(file), *options,
    )  # fmt: skip


def test_a_job_lives_through_faults_of_simulated_flash_and_its_data_is_real(
    tmp_path: Path,
) -> None:
    cluster = simulated(tmp_path, BEHAVIOUR)
    said = cluster.state.logs / "up.out"
    for _ in running(cluster):
        wait_for(lambda: "stops it" in said.read_text())
        assert "flash: simulated, in plain directories" in said.read_text()
        assert "make: 0.05 s, 0.5 of 1 fail" in said.read_text()
        (cluster.shared / "in").write_text("input")
        script = cluster.script(
            "job.sh", 'tr a-z A-Z <"$DW_JOB_scratch/in" >"$DW_JOB_scratch/out"', XFS, *COPIES
        )
        done = cluster("run", "-N1", script, GLOBAL=str(cluster.shared))
        assert (done.returncode, done.stderr) == (0, "")
        cluster.wait_clean()

        there = {path.read_text() for path in cluster.shared.rglob("*") if path.is_file()}
        assert there == {"input", "INPUT"}
        told = [each["message"] for each in cluster.stored(kinds.EVENT)]
        assert any("make has failed, as simulated" in each for each in told), told


def test_a_fault_for_good_ends_the_job_in_its_words(tmp_path: Path) -> None:
    cluster = simulated(tmp_path, "make = { fails = 1, fatal = 1 }")
    for _ in running(cluster):
        job = cluster.submit("-N1", cluster.script("job.sh", "true", XFS))
        done = cluster("job", "attach", job)
        cluster.wait_clean()

        assert done.returncode == 1
        assert "rabbit-0: make has failed, as simulated" in done.stderr


def test_faults_are_remembered_and_replaced_by_a_later_start(tmp_path: Path) -> None:
    cluster = simulated(tmp_path, "make = { fails = 1, fatal = 1 }")
    cluster.up()
    cluster.down()
    for options in ((), ("--faults", "/dev/null")):
        cluster.launch_with(*options)
        wait_for(cluster.is_ready)
        shape = cluster.shape()
        status = json.loads((cluster.state.shape_file).read_text())["flash"]
        done = cluster("run", "-N1", cluster.script("job.sh", "true", XFS))
        cluster.wait_clean()
        cluster.down()

        assert status == shape.flash == "simulated"
        assert (done.returncode, bool(shape.faults)) == (int(not options), not options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "mount = { fails = 2 }",
            "mount.fails: 2 is not a number that is 0 at least and 1 at most.",
        ),
        ("[mnt]", "mnt is no action of a node: take make, release, mount, unmount, copy."),
        ("mount = ", "is not TOML: Invalid value (at end of document)."),
        (None, "cannot be read: No such file or directory."),
    ],
)
def test_a_file_of_faults_that_is_wrong_is_told_in_one_sentence_with_its_path(
    tmp_path: Path, text: str | None, words: str
) -> None:
    cluster, file = Cluster(tmp_path), tmp_path / "faults.toml"
    if text is not None:
        file.write_text(text)
    done = cluster("up", "--flash", "simulated", "--faults", str(file))

    assert done.returncode == 1
    assert re.fullmatch(f"warren: {re.escape(str(file))}:? {re.escape(words)}\n", done.stderr)
    assert not cluster.state.shape_file.exists()


@pytest.mark.parametrize("flash", ["auto", "directory"])
def test_real_flash_has_no_faults_by_wish(tmp_path: Path, flash: str) -> None:
    (tmp_path / "faults.toml").touch()
    done = Cluster(tmp_path)("up", "--flash", flash, "--faults", str(tmp_path / "faults.toml"))

    assert done.returncode == 1
    assert done.stderr == (
        "warren: --faults: only flash that is simulated has them. Add --flash simulated.\n"
    )


def test_an_agent_of_its_own_is_checked_with_its_simulated_flash(tmp_path: Path) -> None:
    cluster, file = Cluster(tmp_path), tmp_path / "agent.toml"
    flash = f'[flash]\nkind = "simulated"\ncapacity = "8TiB"\ndirectory = "{tmp_path}/flash"\n'
    own = f'namespace = "{tmp_path}/namespace"\nmounts = "{tmp_path}/mounts"\n'
    options = ("agent", "rabbit", "--check", "--json", "--config", str(file))
    file.write_text(f"{own}{flash}[flash.faults]\nmake = {{ seconds = 1 }}\n")
    told = cluster(*options)
    file.write_text(f"{own}{flash}[flash.faults]\nmake = {{ seconds = -1 }}\n")
    wrong = cluster(*options)

    assert (told.returncode, told.stderr) == (0, "")
    assert json.loads(told.stdout)["flash"] == "simulated"
    assert wrong.returncode != 0
    assert wrong.stderr == (
        f"warren: {file}: flash: faults: make.seconds: -1 is not a number that is 0 at least.\n"
    )
