"""Whole Workflows: flash simulated, and real with loop devices, mkfs and mounts."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tests.harness.world import World

from benchmarks.jobs import XFS, run_on_disk, run_simulated, wait_clean
from benchmarks.measure import Result, percentile
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.node import loops


def on_simulated_flash() -> Iterator[Result]:
    """One xfs Workflow after the other, with the job around it."""
    yield from run_simulated(measured("one xfs Workflow, simulated", count=1, rounds=20, budget=60))


def on_loop_devices() -> Iterator[Result]:
    """One xfs Workflow after the other, then eight at once."""
    why_not = loops.why_unavailable()
    if why_not is not None:
        print(f"xfs Workflows on loop devices are not measured: {why_not}", file=sys.stderr)
        return
    for action in (
        measured("one xfs Workflow, loop devices", count=1, rounds=20, budget=600),
        measured("eight xfs Workflows, loop devices", count=8, rounds=5, budget=1500),
    ):
        with tempfile.TemporaryDirectory() as directory:
            yield from asyncio.run(_on_real_nodes(action, Path(directory)))


def measured(
    name: str, *, count: int, rounds: int, budget: float
) -> Callable[[World, Control], Awaitable[list[Result]]]:
    """Let `count` jobs live at once, several times: submission to nothing left."""

    async def action(world: World, control: Control) -> list[Result]:
        taken = []
        for _ in range(rounds):
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(count):
                    tasks.create_task(life(world, control))
            taken.append((time.perf_counter() - began) * 1000)
        return [Result(name=name, value=percentile(taken, 0.5), unit="ms", budget=budget)]

    return action


async def life(world: World, control: Control) -> None:
    await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))


async def _on_real_nodes(
    action: Callable[[World, Control], Awaitable[list[Result]]], directory: Path
) -> list[Result]:
    state, shape = StateDir(directory), ClusterShape(flash="image")
    state.prepare()
    nodes = Nodes(state, shape, isolated=True)
    try:
        return await run_on_disk(action, directory, shape, nodes)
    finally:
        await nodes.release_all()


ALL = {"simulated Workflows": on_simulated_flash, "real Workflows": on_loop_devices}
