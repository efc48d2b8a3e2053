"""What a cluster that has ended leaves on the machine."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from warren.daemons.down import sweep
from warren.daemons.statedir import StateDir
from warren.node import podmemory
from warren.node.podmemory import Limits


def test_the_cgroups_of_containers_go_with_the_cluster(tmp_path: Path) -> None:
    state_dir = StateDir(tmp_path / "state")
    state_dir.prepare()
    memory = podmemory.find(str(state_dir.path), Limits(2**26, 2**25))
    if memory is None:
        pytest.skip(podmemory.NO_CONTROLLER)
    made = memory.make("pod", 0, 1000, None)
    assert podmemory.remove([str(made)])
    assert made.parent.exists(), "that of its user stays as long as the cluster does"

    asyncio.run(sweep(state_dir))
    assert not made.parent.parent.exists()


def test_the_cgroup_of_a_container_that_ends_a_moment_later_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = StateDir(tmp_path / "state")
    state_dir.prepare()
    memory = podmemory.find(str(state_dir.path), Limits(2**26, 2**25))
    if memory is None:
        pytest.skip(podmemory.NO_CONTROLLER)
    made = memory.make("pod", 0, 1000, None)
    process = subprocess.Popen(["sleep", "60"])
    (made / "cgroup.procs").write_text(str(process.pid))
    remove_all = podmemory.remove_all

    def remove_all_before_its_end(cluster: str) -> bool:
        are_gone = remove_all(cluster)
        process.kill()
        process.wait()
        return are_gone

    monkeypatch.setattr(podmemory, "remove_all", remove_all_before_its_end)
    asyncio.run(sweep(state_dir))
    assert not made.parent.parent.exists()
