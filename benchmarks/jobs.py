"""Whole jobs: simulated storage and tasks, everything else real, journals on disk."""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path

from tests.harness.world import World, opened

from benchmarks.measure import Result, percentile
from warren.base.clock import SystemClock
from warren.daemons.compose import Control
from warren.daemons.nodes import Nodes
from warren.daemons.site import Site
from warren.instance.simulated import Play
from warren.journal.sqlite import SqliteJournal
from warren.rfc import eventlog
from warren.rfc.fluid import JobId

XFS = {"dw": "#DW jobdw type=xfs capacity=1GiB name=scratch"}


def one_life() -> Iterator[Result]:
    """One rabbit job after the other, submit to clean."""

    async def deed(world: World, control: Control) -> list[Result]:
        taken, began_cpu = [], time.process_time()
        for _ in range(20):
            began = time.perf_counter()
            await clean(control, await world.submit(control, nodes=1, attributes=XFS))
            taken.append((time.perf_counter() - began) * 1000)
        cpu = (time.process_time() - began_cpu) * 1000 / len(taken)
        return [
            Result(name="rabbit job, submit to clean", value=percentile(taken, 0.5), unit="ms",
                   budget=150),
            Result(name="rabbit job, CPU of all parts", value=cpu, unit="ms", budget=18),
        ]  # fmt: skip

    yield from simulated(deed)


def lives() -> Iterator[Result]:
    """Many rabbit jobs at once, as many as there are nodes for."""
    yield from simulated(lambda world, control: throughput(world, control, 200, XFS, 50), rabbits=8)


def plain() -> Iterator[Result]:
    """Plain jobs."""
    yield from simulated(lambda world, control: throughput(world, control, 500, {}, 500), rabbits=8)


async def throughput(
    world: World, control: Control, count: int, attributes: dict[str, str], budget: float
) -> list[Result]:
    """Submit jobs all at once and wait for the last one."""
    began, began_cpu = time.perf_counter(), time.process_time()
    shape = {"nodes": 1} if attributes else {"nodes": None, "tasks": 1}

    async def life() -> None:
        job = await world.submit(control, attributes=attributes, **shape)
        await clean(control, job)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(count):
            tasks.create_task(life())
    seconds = time.perf_counter() - began
    kind = "rabbit" if attributes else "plain"
    cpu = (time.process_time() - began_cpu) * 1000 / count
    return [
        Result(name=f"{kind} jobs, whole lives", value=count / seconds, unit="1/s",
               budget=budget, at_least=True),
        Result(name=f"{kind} jobs, CPU of each", value=cpu, unit="ms"),
    ]  # fmt: skip


def simulated(
    deed: Callable[[World, Control], Awaitable[list[Result]]], rabbits: int = 2
) -> list[Result]:
    """Do something with a cluster whose storage and tasks take no time."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(lived(deed, Path(directory), Site(rabbits=rabbits)))


async def lived(
    deed: Callable[[World, Control], Awaitable[list[Result]]],
    directory: Path,
    site: Site,
    nodes: Nodes | None = None,
) -> list[Result]:
    """Do something with a cluster whose journals are on disk, and whose nodes may be real."""
    with (
        SqliteJournal(directory / "objects.db") as objects,
        SqliteJournal(directory / "jobs.db") as jobs,
    ):
        async with opened(site, lambda command, environment: Play(seconds=0)) as world:
            world.clock = SystemClock()
            world.objects, world.jobs, world.copy_seconds = objects, jobs, 0.0
            if nodes is not None:
                world.mount_prefix = str(nodes.prefix)
                world.machine = lambda node, rabbit: nodes.machine(node)
            return await world.live(lambda control: deed(world, control)) or []


async def clean(control: Control, job: JobId) -> None:
    """Wait until a job is over, as a user would."""
    handle = control.instance.bus.handle()
    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog"})
    async with aclosing(watch) as entries:
        async for entry in entries:
            if eventlog.decode_line(entry["event"]).name == "clean":
                return


ALL = {"one rabbit life": one_life, "rabbit lives": lives, "plain jobs": plain}
