"""What a cluster that has ended leaves on the machine."""

import asyncio
from pathlib import Path

import pytest
from warren.daemons.sweep import sweep

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
    memory.remove("pod")
    assert made.parent.exists(), "that of its user stays as long as the cluster does"

    asyncio.run(sweep(state_dir))
    assert not made.parent.parent.exists()
