"""A state directory of which something is damaged: `warren up` says what, and touches nothing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journeys.conftest import SECONDS, Cluster

Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory of a cluster that has run, and was stopped."""
    cluster = Cluster(tmp_path_factory.mktemp("used"), "--flash", "directory")
    cluster.up()
    cluster.down()
    return cluster.state.path


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xffgarbage")


def a_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES: dict[str, tuple[Damage, str]] = {
    "jobs.db": (
        Path.unlink,
        "is missing, and it is not new here: restore it from a copy, or begin",
    ),
    "objects.db": (emptied, "is empty, and it is not new here: restore it from a copy, or begin"),
    "site.json": (Path.unlink, "is missing, and the state directory is not new: restore it from"),
    "pki/ca.key": (garbage, "is not a private key: restore it from a copy; or remove"),
    "pki/server.crt": (emptied, "is empty: restore it from a copy; or remove"),
    "kubeconfig": (a_directory, "cannot be used: Is a directory. It is the cluster's own:"),
    "up.lock": (a_directory, "cannot be used: Is a directory. It is the cluster's own:"),
    "config.toml": (garbage, "cannot be read: "),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_refused_in_a_sentence(used: Path, tmp_path: Path, name: str) -> None:
    state = tmp_path / "state"
    shutil.copytree(used, state)
    damage, words = DAMAGES[name]
    damage(state / name)

    done = subprocess.run(
        [sys.executable, "-m", "warren", "up", "--statedir", str(state), "--flash", "directory"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"warren: {state / name} {words}")
    assert done.stderr.count("\n") == 1
    assert str(state) not in Path("/proc/mounts").read_text()
