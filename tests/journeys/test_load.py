"""kill -9 at any moment of a load: no job is lost, no task runs twice, and nothing is left."""

import asyncio
import math
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.extent import extent
from tests.journeys.conftest import Cluster, running, wait_for
from tests.journeys.loads import SEED, answered, cancel, listed, open_files, submit
from warren.base.processes import pids_with_variable
from warren.instance.kvs import Kvs
from warren.journal.sqlite import SqliteJournal
from warren.lifecycle.states import Result
from warren.rfc import fluid, jobspec
from warren.rpc.message import Handle

KILLS: Final = extent("WARREN_KILLS", usual=3, everything=200)
JOBS: Final = max(24, KILLS)

WORDS: Final = ("well",) * 6 + ("badly", "late", "never", "never")
"""How often which ends are."""

LAST_SECONDS: Final = 120.0

SECONDS: Final = 1.0
"""For how long a life goes on, at the most, once it is ready."""

ENDS: Final = {
    "well": Result.COMPLETED,
    "badly": Result.FAILED,
    "late": Result.TIMEOUT,
    "never": Result.CANCELED,
}
"""How jobs end, by the first word of their names."""

_BODY: Final = {
    "well": "",
    "badly": "exit 3",
    "late": "exec sleep 1000",
    "never": "exec sleep 1000",
}

SITE: Final = """
[exec]
kill-timeout = "1s"
[job-manager.prolog]
command = ["{place}/prolog"]
per-rank = true
[job-manager.epilog]
command = ["{place}/epilog"]
"""


@dataclass(kw_only=True)
class Load:
    """Users of a cluster that keeps dying under them."""

    cluster: Cluster
    place: Path
    dice: random.Random
    unsubmitted: list[str]
    accepted: dict[int, str] = field(default_factory=dict)
    """Names of jobs by the ids that their users were told."""

    async def life(self, seconds: float, count: int) -> None:
        """Live for a while, in which jobs come if it is long enough, and die."""
        self.cluster.launch()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.use(count)
                await asyncio.sleep(seconds)
        self.cluster.kill()

    async def use(self, count: int) -> None:
        """Submit some jobs, and cancel those that would not end, as soon as there is an answer."""
        await answered(self.cluster, lambda handle: self._use(handle, count))

    async def _use(self, handle: Handle, count: int) -> None:
        for _ in range(min(count, len(self.unsubmitted))):
            await self._submit(handle, self.unsubmitted.pop())
            await asyncio.sleep(self.dice.random() * 0.05)
        for job in await listed(handle):
            if job["name"].startswith("never") and "result" not in job:
                await asyncio.sleep(self.dice.random() * 0.2)
                await cancel(handle, job["id"])

    async def _submit(self, handle: Handle, name: str) -> None:
        how = name.partition("-")[0]
        body = f'echo "{name} $FLUX_TASK_RANK" >> {self.place}/tasks; {_BODY[how]}'
        wide: dict[str, Any] = self.dice.choice(
            [{"nodes": 2}, {"nodes": 3}, {"tasks": 2}, {"tasks": 1}]
        )
        spec = jobspec.make(
            ["sh", "-c", body],
            name=name,
            cwd="/",
            environment={"PATH": os.environ["PATH"]},
            duration=0.5 if how == "late" else 0.0,
            **wide,
        )
        self.accepted[await submit(handle, spec)] = name

    async def last_life(self) -> list[Mapping[str, Any]]:
        """Live until all jobs are over, and return them."""
        while True:
            await self.use(JOBS)
            jobs = await answered(self.cluster, listed)
            if all("result" in job for job in jobs):
                return jobs
            await asyncio.sleep(0.2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one rabbit and three nodes, with commands around its jobs."""
    for name in ("prolog", "epilog"):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nsleep 0.05; echo "$FLUX_JOB_ID" >> {tmp_path}/{name}s\n')
        script.chmod(0o755)
    site = tmp_path / "site.toml"
    site.write_text(SITE.format(place=tmp_path))
    small = ("--rabbits", "1", "--computes-per-rabbit", "3", "--flash", "directory")
    yield from running(Cluster(tmp_path, *small, "--config", str(site)))


def test_a_load_survives_any_number_of_kills(cluster: Cluster) -> None:
    dice = random.Random(SEED)
    names = [f"{dice.choice(WORDS)}-{number}" for number in range(JOBS)]
    load = Load(cluster=cluster, place=cluster.shared.parent, dice=dice, unsubmitted=names)
    assert cluster("job", "attach", cluster.submit("true")).returncode == 0
    before = open_files(cluster)
    cluster.kill()
    began = time.monotonic()
    cluster.up()
    start = time.monotonic() - began
    cluster.kill()
    for number in range(KILLS):
        # At any moment, while it starts, too.
        moment = dice.random() * (start + SECONDS)
        print(f"seed {SEED}, life {number}: {moment:.3f} s")  # pytest shows it if we fail
        asyncio.run(load.life(moment, math.ceil(2 * JOBS / KILLS)))
    cluster.up()
    jobs = asyncio.run(asyncio.wait_for(load.last_life(), LAST_SECONDS))

    assert set(load.accepted.items()) <= {(job["id"], job["name"]) for job in jobs}
    jobs = [job for job in jobs if job["name"] != "true"]
    for job in jobs:
        assert job["result"] == ENDS[job["name"].partition("-")[0]].bit, job
    ran = Counter((cluster.shared.parent / "tasks").read_text().splitlines())
    assert set(ran.values()) == {1}, [task for task, times in ran.items() if times > 1]
    expected = {
        f"{job['name']} {rank}"
        for job in jobs
        if job["name"].startswith(("well", "badly"))
        for rank in range(job["ntasks"])
    }
    assert expected <= set(ran)
    known = {job["name"] for job in jobs}
    assert {task.partition(" ")[0] for task in ran} <= known
    labels = {fluid.f58(job["id"]): job["name"].partition("-")[0] for job in jobs}
    to_their_end = {label for label, how in labels.items() if how in ("well", "badly", "late")}
    for script in ("prologs", "epilogs"):
        found = set((cluster.shared.parent / script).read_text().split())
        assert to_their_end <= found

    assert pids_with_variable(f"FLUX_URI={cluster.state.uri}") == []
    wait_for(lambda: open_files(cluster) <= before)
    cluster.down()
    with SqliteJournal(cluster.state.jobs_journal) as journal:
        assert Kvs(journal, os.getuid()).namespaces() == ["primary"]
