"""Child processes of a cluster."""

import asyncio
from pathlib import Path

import pytest

from warren.daemons import supervisor
from warren.daemons.supervisor import Child


def test_a_child_runs_nothing_from_where_the_cluster_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may have started it where others can write."""
    (tmp_path / "evil.py").write_text("print('done as root')")
    monkeypatch.chdir(tmp_path)
    said = tmp_path / "log"
    child = Child(name="evil", module="evil", arguments=(), log_file=said, environment={})

    assert asyncio.run(supervisor._run_once(child)) == 1
    assert "No module named evil" in said.read_text()
