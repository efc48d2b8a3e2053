"""The process dies after a write, and so do shells and mounts: as when the machine goes down."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.persistent.sharing import Sharing
from warren.instance.jobs.manager import InactiveJob
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

SHARDS = 4
"""So that a failure says sooner which write it was."""

EVERY = extent("WARREN_STOPS_EVERY", usual=13, everything=1)
"""After one write of how many, each shard after others."""


class SlowToMount(SimulatedNode):
    """A node whose agent comes up later than all others."""

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        await asyncio.sleep(5)
        await super().mount(rabbit, name, file_system, path, shared, profile)


async def live(world: World, control: Control) -> InactiveJob:
    """Do what a user would: submit, if the job is not there, and wait for its end."""
    known = world.only_job(control)
    if known is not None:
        return await world.ended(control, known.job.id)
    job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
    return await world.ended(control, job)


async def stopped_after(
    write: int,
    right: Callable[[World, InactiveJob], bool],
    between: Callable[[World], Awaitable[None]],
) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened() as world:

        async def and_look(control: Control) -> None:
            ended = await live(world, control)

            assert right(world, ended), (write, seam.actions[-1], ended.job)
            assert world.without_storage == [], (write, seam.actions[-1])
            await world.assert_nothing_left(control)

        await world.live(lambda control: live(world, control), seam)
        await between(world)
        await world.live(and_look)
    return len(seam.actions) == write


def each_write(shard: int, once: Callable[[int], Awaitable[bool]]) -> int:
    """Stop after each write of a shard, until there are no more; return their number."""
    write = 3 + shard * EVERY
    while virtual.run(once(write)):  # type: ignore[arg-type]
        write += SHARDS * EVERY
    return write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_when_shells_and_mounts_die_too_the_job_completes_or_says_why_not(shard: int) -> None:
    def right(world: World, ended: InactiveJob) -> bool:
        if ended.job.result is Result.COMPLETED:
            return True
        return (
            ended.job.fatal_exception is not None
            and "shells were lost" in ended.job.fatal_exception.note
        )

    async def cut_power(world: World) -> None:
        await world.kill_everything()
        world.machine = lambda node, rabbit: SlowToMount(
            node, world.flash[rabbit], seconds=world.copy_seconds
        )

    async def once(write: int) -> bool:
        return await stopped_after(write, right, between=cut_power)

    assert each_write(shard, once) > 200
