"""Child processes of a cluster."""

import asyncio
import subprocess
import sys
import time
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


SHORT_LIVED = """
import asyncio, os, sys, time
from pathlib import Path
from warren.daemons.supervisor import Child, supervise

async def main(place, log):
    child = Child(
        name="late", module="late", arguments=(str(os.getpid()),), log_file=log,
        environment={"PYTHONPATH": str(place)},
    )
    keeping = asyncio.create_task(supervise(child))
    while not (log.exists() and log.read_text()):
        await asyncio.sleep(0.01)
    os._exit(0)

asyncio.run(main(*map(Path, sys.argv[1:])))
"""
"""It dies while its child is loading."""

LATE = """
import atexit, os, sys, time
from warren.daemons.child import run_child

async def life():
    print("it lives", flush=True)

print("it is loading", flush=True)
atexit.register(print, "it has ended", flush=True)
while os.getppid() == int(sys.argv[1]):
    time.sleep(0.01)
run_child(life())
"""


def test_a_child_does_not_outlive_a_parent_that_dies_while_the_child_is_still_loading(
    tmp_path: Path,
) -> None:
    (tmp_path / "late.py").write_text(LATE)
    said = tmp_path / "log"
    subprocess.run([sys.executable, "-c", SHORT_LIVED, tmp_path, said], check=True, timeout=60)
    while "it has ended" not in said.read_text():
        time.sleep(0.01)

    assert said.read_text() == "it is loading\nit has ended\n"


TALKATIVE = """
import os, sys
from warren.base import log
from warren.daemons.child import run_child

async def life():
    for number in range(2):
        log.info("in vain", number=number)
        os.write(2, bytes(2**24))
    log.info("it has said all", environment=[each for each in os.environ if "LOG" in each])

run_child(life())
"""


def test_a_childs_log_is_bounded_while_it_runs(tmp_path: Path) -> None:
    """What users ask agents for in vain is told there, as often as they ask."""
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    said = tmp_path / "talkative.log"
    path = f"{tmp_path}:{Path(supervisor.__file__).parents[2]}"
    child = Child(
        name="talkative",
        module="talkative",
        arguments=(),
        log_file=said,
        environment={"PYTHONPATH": path},
    )

    asyncio.run(supervisor._run_once(child))

    assert sorted(each.name for each in tmp_path.glob("*.log*")) == [
        "talkative.log",
        "talkative.log.1",
    ]
    assert "number=1" in said.with_suffix(".log.1").read_text()
    assert "it has said all" in said.read_text()
    assert "WARREN_LOG_FILE" not in said.read_text()
