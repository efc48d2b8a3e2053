"""What benchmarks wait for, before they measure and while they do."""

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest
from benchmarks import replay
from benchmarks.jobs import run_jobs_of, shells_parent

from tests.instance.lives import alive
from tests.instance.parts import OWNER, virtually
from warren.daemons.statedir import StateDir, hold_lock
from warren.lifecycle.states import State
from warren.rpc.bus import Loopback
from warren.rpc.message import Cred, Payload


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir(tmp_path / "state")
    made.prepare()
    return made


def test_a_cluster_is_measured_when_its_shells_have_their_parent(state: StateDir) -> None:
    """Which may be later than the cluster says that it is ready."""
    with (
        ExitStack() as locks,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as cluster,
    ):
        locks.enter_context(hold_lock(state.lock))
        waited = 0

        def sleep(seconds: float) -> None:
            nonlocal waited
            waited += 1
            if waited == 1:
                state.status_file.write_bytes(orjson.dumps({"pid": os.getpid()}))
            if waited == 2:
                state.shells_lock.touch()
            if waited == 3:
                locks.enter_context(hold_lock(state.shells_lock))

        parent = shells_parent(cluster, state, sleep)
        cluster.kill()
    assert (parent, waited) == (os.getpid(), 3)


def test_a_cluster_that_has_ended_is_not_waited_for(state: StateDir) -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as cluster:
        cluster.wait()
        with pytest.raises(RuntimeError, match="the cluster has ended with status 3"):
            shells_parent(cluster, state)


@virtually
async def test_no_end_is_missed_of_jobs_that_end_while_others_are_submitted() -> None:
    async with alive(seconds=0) as life, asyncio.timeout(3600):
        before = await life.submit()
        await life.until(before)
        await run_jobs_of(OneByOne(life.bus, Cred(OWNER, True)), 20, OWNER)

        assert [each.job.state for each in life.manager.jobs()] == [State.INACTIVE] * 21


class OneByOne(Loopback):
    """A connection over which requests come a second after the other."""

    sent = 0

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        self.sent += 1
        await asyncio.sleep(self.sent)
        return await super().rpc(topic, payload)


def test_a_month_that_is_replayed_is_the_same_each_time() -> None:
    month = replay.month()
    assert month == replay.month()
    assert month != replay.month(seed=21)
    assert len({each.waiting.job for each in month}) == len(month) == replay.JOBS
    assert all(each.takes <= each.waiting.duration for each in month)
