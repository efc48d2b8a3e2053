"""Whole jobs: simulated storage and tasks, everything else real, journals on disk."""

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from tests.harness.world import World, opened

from benchmarks.measure import Result, percentile
from warren.base.clock import SystemClock
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, lock_holder
from warren.dws import kinds
from warren.instance import keys
from warren.instance.jobs.eventjournal import SENTINEL
from warren.instance.kvs import Kvs, put
from warren.instance.simulated import TaskBehavior
from warren.journal.sqlite import SqliteJournal
from warren.rfc import eventlog, fluid, jobspec, signed_request
from warren.rfc.fluid import JobId
from warren.rpc.client import connect
from warren.rpc.message import Handle

REAL = 200
"""How many real jobs there are."""

XFS = {"dw": "#DW jobdw type=xfs capacity=1GiB name=scratch"}


def one_life() -> Iterator[Result]:
    """One rabbit job after the other, submit to clean."""

    async def action(world: World, control: Control) -> list[Result]:
        taken, began_cpu = [], time.process_time()
        for _ in range(20):
            began = time.perf_counter()
            await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))
            taken.append((time.perf_counter() - began) * 1000)
        cpu = (time.process_time() - began_cpu) * 1000 / len(taken)
        return [
            Result(name="rabbit job, submit to clean", value=percentile(taken, 0.5), unit="ms",
                   budget=150),
            Result(name="rabbit job, CPU of all parts", value=cpu, unit="ms", budget=18),
        ]  # fmt: skip

    yield from run_simulated(action)


def growth() -> Iterator[Result]:
    """One rabbit job after the other, in systems of several sizes: what one costs is the same."""

    def action(rabbits: int) -> Callable[[World, Control], Awaitable[list[Result]]]:
        async def run(world: World, control: Control) -> list[Result]:
            await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))
            await wait_rabbits_ready(control, rabbits)
            began = time.process_time()
            for _ in range(20):
                await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))
            cpu = (time.process_time() - began) * 1000 / 20
            return [Result(name=f"rabbit job at {rabbits} rabbits, CPU", value=cpu, unit="ms")]

        return run

    for rabbits in (4, 64, 720):
        yield from run_simulated(action(rabbits), rabbits=rabbits)


async def wait_rabbits_ready(control: Control, rabbits: int) -> None:
    """Wait until all rabbits have said what they have."""

    def ready() -> int:
        storages = control.api.store.objects_of(kinds.STORAGE)
        return sum(each.get("status", {}).get("status") == "Ready" for each in storages)

    while ready() < rabbits:  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.1)


def lives() -> Iterator[Result]:
    """Many rabbit jobs at once, as many as there are nodes for."""
    yield from run_simulated(
        lambda world, control: throughput(world, control, 200, XFS, 50), rabbits=8
    )


def plain() -> Iterator[Result]:
    """Plain jobs."""
    yield from run_simulated(
        lambda world, control: throughput(world, control, 500, {}, 500), rabbits=8
    )


def for_show() -> Iterator[Result]:
    """Jobs that take no time and start no shells, on 64 slots."""
    show = {"exec": {"test": {"run_duration": "1ms"}}}
    yield from run_simulated(
        lambda world, control: throughput(world, control, 500, show), rabbits=4
    )


def real() -> Iterator[Result]:
    """Jobs that are `true`, with all processes that a user's cluster has."""
    with tempfile.TemporaryDirectory() as directory:
        state = StateDir(Path(directory) / "state")
        up = ["up", "--rabbits", "1", "--computes-per-rabbit", "4", "--flash", "directory"]
        command = [sys.executable, "-m", "warren", *up, "--statedir", str(state.path)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as cluster:
            try:
                processes = (cluster.pid, shells_parent(cluster, state))
                asyncio.run(
                    run_real_jobs(state, 20)
                )  # what is done once only is not to be measured
                before = [seconds(each) for each in processes]
                began = time.perf_counter()
                asyncio.run(run_real_jobs(state, REAL))
                taken = time.perf_counter() - began
                control, shells = (
                    seconds(each) - was for each, was in zip(processes, before, strict=True)
                )
            finally:
                cluster.terminate()
    yield Result(name="real jobs, whole lives", value=REAL / taken, unit="1/s",
                 budget=90, at_least=True)  # fmt: skip
    yield Result(name="real jobs, CPU of control", value=control * 1000 / REAL, unit="ms")
    yield Result(name="real jobs, CPU of shells", value=shells * 1000 / REAL, unit="ms")


def shells_parent(
    cluster: subprocess.Popen[bytes], state: StateDir, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Wait until a cluster is ready, and return the process that is the parent of its shells.

    A cluster is ready before that process has been started. Raise RuntimeError where the cluster
    ends instead.
    """
    while True:
        parent = lock_holder(state.shells_lock)
        if parent and state.status() is not None:
            return parent
        if cluster.poll() is not None:
            raise RuntimeError(f"the cluster has ended with status {cluster.returncode}")
        sleep(0.05)


async def run_real_jobs(state: StateDir, count: int) -> None:
    """Submit jobs all at once, and wait for the ends of all."""
    async with connect(state.socket) as handle:
        await run_jobs_of(handle, count, os.getuid())


async def run_jobs_of(handle: Handle, count: int, userid: int) -> None:
    """Submit jobs all at once, and wait until the journal has told the ends of as many."""
    spec = jobspec.make(["true"], tasks=1, environment={"PATH": os.environ["PATH"]}, cwd="/")
    token = signed_request.wrap(orjson.dumps(spec), userid)
    over: set[int] = set()
    async with aclosing(handle.stream("job-manager.events-journal")) as entries:  # type: ignore[type-var]
        async for entry in entries:
            if entry["id"] == SENTINEL:
                break  # from here on, no end is missed
        async with asyncio.TaskGroup() as tasks:
            for _ in range(count):
                tasks.create_task(handle.rpc("job-ingest.submit", {"J": token}))
        async for entry in entries:
            if any(event["name"] == "clean" for event in entry["events"]):
                over.add(entry["id"])
            if len(over) == count:
                return


def seconds(process: int) -> float:
    """Return the CPU time of a process and of those below it that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def aged() -> Iterator[Result]:
    """Plain jobs on 64 slots, where 200,000 have been before them."""

    async def action(world: World, control: Control) -> list[Result]:
        return await throughput(world, control, 2000, {}, 500, where=" on an aged store")

    yield from run_simulated(action, rabbits=4, before=StoreContent(inactive=200_000))


def restart() -> Iterator[Result]:
    """From nothing to the first answer, with 100,000 jobs that are over and 10,000 that wait."""
    began = 0.0

    async def action(world: World, control: Control) -> list[Result]:
        await control.instance.bus.handle().rpc("job-list.list", {"max_entries": 1})
        seconds = time.perf_counter() - began
        return [Result(name="restart, 110,000 jobs", value=seconds, unit="s", budget=10)]

    def begin() -> None:
        nonlocal began
        began = time.perf_counter()

    before = StoreContent(inactive=100_000, active=10_000, then=begin)
    yield from run_simulated(action, rabbits=4, before=before)


def listing() -> Iterator[Result]:
    """Lists of jobs, where 200,000 are over."""
    asked = {
        "list the latest 1,000 of 200,000 jobs": {},
        "list the active ones of 200,000 jobs": {"constraint": {"states": ["active"]}},
        "search 200,000 jobs for a name": {"constraint": {"name": ["none"]}},
    }

    async def action(world: World, control: Control) -> list[Result]:
        ask = control.instance.bus.handle().rpc
        await ask("job-list.list", {"max_entries": 1})
        results = []
        for name, request in asked.items():
            began = time.perf_counter()
            await ask("job-list.list", {"max_entries": 1000, "attrs": ["all"], **request})
            milliseconds = (time.perf_counter() - began) * 1000
            results.append(Result(name=name, value=milliseconds, unit="ms"))
        began = time.perf_counter()
        await ask("job-list.job-stats")
        milliseconds = (time.perf_counter() - began) * 1000
        return [*results, Result(name="count 200,000 jobs", value=milliseconds, unit="ms")]

    yield from run_simulated(action, rabbits=4, before=StoreContent(inactive=200_000))


async def throughput(
    world: World,
    control: Control,
    count: int,
    attributes: Mapping[str, Any],
    budget: float | None = None,
    where: str = "",
) -> list[Result]:
    """Submit jobs all at once and wait for the last one."""
    began, began_cpu = time.perf_counter(), time.process_time()
    shape = {"nodes": 1} if "dw" in attributes else {"nodes": None, "tasks": 1}

    async def life() -> None:
        job = await world.submit(control, attributes=attributes, **shape)
        await wait_clean(control, job)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(life())
    seconds = time.perf_counter() - began
    sort = "rabbit" if "dw" in attributes else "shown" if "exec" in attributes else "plain"
    kind = f"{sort} jobs{where}"
    cpu = (time.process_time() - began_cpu) * 1000 / count
    return [
        Result(name=f"{kind}, whole lives", value=count / seconds, unit="1/s",
               budget=budget, at_least=True),
        Result(name=f"{kind}, CPU of each", value=cpu, unit="ms"),
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StoreContent:
    """What a store holds when a cluster starts."""

    inactive: int
    active: int = 0
    """Jobs that wait for resources."""
    then: Callable[[], None] = lambda: None


def run_simulated(
    action: Callable[[World, Control], Awaitable[list[Result]]],
    rabbits: int = 2,
    before: StoreContent | None = None,
    metrics: Any = None,
) -> list[Result]:
    """Do something with a cluster whose storage and tasks take no time."""
    with tempfile.TemporaryDirectory() as directory:
        if before is not None:
            age(Path(directory), before)
            before.then()
        return asyncio.run(
            run_on_disk(action, Path(directory), ClusterShape(rabbits=rabbits), metrics=metrics)
        )


def age(directory: Path, before: StoreContent) -> None:
    """Make the store of a cluster that has run many plain jobs, all like one that it did run."""

    async def action(world: World, control: Control) -> list[Result]:
        job = await world.submit(control, nodes=None, tasks=1)
        await wait_clean(control, job)
        left.update(values_below(control.instance.kvs, fluid.kvs(job)))
        return []

    async def fill(jobs: SqliteJournal) -> None:
        kvs = Kvs(jobs, os.getuid())
        day_ago = int((time.time() - 86_400) * 1000)
        made = fluid.JobIdGenerator(day_ago)
        # Queued, and not given anything yet.
        *begun, _ = left["eventlog"].partition(b'"priority"')[0].splitlines(keepends=True)
        waits = {**{key: left[key] for key in ("J", "jobspec")}, "eventlog": b"".join(begun)}
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(kvs.run())
            for kept, count in ((left, before.inactive), (waits, before.active)):
                for start in range(0, count, 1000):
                    await kvs.commit(
                        [
                            put(keys.job_key(job, key), value)
                            for job in (made.next(day_ago) for _ in range(min(1000, count - start)))
                            for key, value in kept.items()
                        ]
                    )
            running.cancel()

    left: dict[str, bytes] = {}
    run_simulated(action)
    with SqliteJournal(directory / "jobs.db") as jobs:
        asyncio.run(fill(jobs))
    os.sync()  # or the disk would still be busy with it when something is measured


def values_below(kvs: Kvs, key: str, below: str = "") -> Mapping[str, bytes]:
    """Return all values below a key."""
    value = kvs.get(f"{key}.{below}" if below else key)
    if value is not None:
        return {below: value}
    found: dict[str, bytes] = {}
    for name in kvs.names(f"{key}.{below}" if below else key):
        found.update(values_below(kvs, key, f"{below}.{name}" if below else name))
    return found


async def run_on_disk(
    action: Callable[[World, Control], Awaitable[list[Result]]],
    directory: Path,
    shape: ClusterShape,
    nodes: Nodes | None = None,
    metrics: Any = None,
) -> list[Result]:
    """Do something with a cluster whose journals are on disk, and whose nodes may be real."""
    with (
        SqliteJournal(directory / "objects.db") as objects,
        SqliteJournal(directory / "jobs.db") as jobs,
    ):
        async with opened(shape, lambda command, environment: TaskBehavior(seconds=0)) as world:
            world.clock = SystemClock()
            world.objects, world.jobs, world.copy_seconds = objects, jobs, 0.0
            if metrics is not None:
                world.metrics, world.client = metrics, metrics.counting_client  # type: ignore[method-assign]
            if nodes is not None:
                world.mount_prefix = str(nodes.mount_prefix)
                world.machine = lambda node, rabbit: nodes.local_node(node)
                # Its tasks are of this process, which is on none of the nodes.
                world.place = lambda node, path: f"{nodes.namespace(node).root}{path}"

            async def begin(control: Control) -> list[Result]:
                gc.freeze()
                gc.enable()
                return await action(world, control)

            gc.disable()  # until all is read, as `warren up` does
            try:
                return await world.live(begin) or []
            finally:
                gc.enable()
                gc.unfreeze()


async def wait_clean(control: Control, job: JobId) -> None:
    """Wait until a job is over, as a user would."""
    handle = control.instance.bus.handle()
    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog"})
    async with aclosing(watch) as entries:  # type: ignore[type-var]
        async for entry in entries:
            if eventlog.decode_line(entry["event"]).name == "clean":
                return


ALL = {
    "one rabbit life": one_life,
    "rabbit lives": lives,
    "growth": growth,
    "plain jobs": plain,
    "shown jobs": for_show,
    "real jobs": real,
    "jobs on an aged store": aged,
    "restart with many jobs": restart,
    "lists of many jobs": listing,
}
