"""The process dies after every single write. The next one finishes the work."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.dws.sharing import Sharing
from warren.instance.jobs.manager import Inactive
from warren.instance.simulated import Play
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedMachine

SHARDS = 4
"""So that a failure says sooner which write it was."""

EVERY = extent("WARREN_STOPS_EVERY", usual=6, everything=1)
"""After one write of how many, each test after others."""

COPIES = 5
"""Four allocations that data is copied into, and one place that results are copied to."""


class SlowToMount(SimulatedMachine):
    """A node whose agent comes up later than all others."""

    async def mount(
        self,
        group: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
    ) -> None:
        await asyncio.sleep(5)
        await super().mount(group, name, file_system, path, shared)


async def live(world: World, control: Control) -> Inactive:
    """Do what a user would: submit, if the job is not there, and wait for its end."""
    known = world.only_job(control)
    if known is not None:
        return await world.ended(control, known.job.id)
    job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
    return await world.ended(control, job)


async def stopped_after(
    write: int,
    right: Callable[[World, Inactive], bool],
    between: Callable[[World], Awaitable[None]] | None = None,
    play: Play | None = None,
) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened(play=lambda command, environment: play or Play()) as world:

        async def and_look(control: Control) -> None:
            ended = await live(world, control)

            assert right(world, ended), (write, seam.actions[-1], ended.job)
            assert world.without_storage == [], (write, seam.actions[-1])
            await world.assert_nothing_left(control)

        await world.live(lambda control: live(world, control), seam)
        if between is not None:
            await between(world)
        await world.live(and_look)
    return len(seam.actions) == write


def each_write(shard: int, test: int, once: Callable[[int], Awaitable[bool]]) -> int:
    """Stop after each write of a test's shard, until there are no more; return their number."""
    write = 1 + 2 * test % EVERY + shard * EVERY
    while virtual.run(once(write)):  # type: ignore[arg-type]
        write += SHARDS * EVERY
    return write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_after_any_write_changes_nothing_in_the_end(shard: int) -> None:
    def right(world: World, ended: Inactive) -> bool:
        copied = {copy.destination for copy in world.copies()}
        return ended.job.result is Result.COMPLETED and len(copied) == COPIES

    writes = each_write(shard, 0, lambda write: stopped_after(write, right))

    assert writes > 200


@pytest.mark.parametrize("shard", range(SHARDS))
def test_when_shells_and_mounts_die_too_the_job_completes_or_says_why_not(shard: int) -> None:
    def right(world: World, ended: Inactive) -> bool:
        if ended.job.result is Result.COMPLETED:
            return True
        return ended.job.fatal is not None and "shells were lost" in ended.job.fatal.note

    async def cut_power(world: World) -> None:
        await world.kill_everything()
        world.machine = lambda node, rabbit: SlowToMount(
            node, world.flash[rabbit], seconds=world.copy_seconds
        )

    async def once(write: int) -> bool:
        return await stopped_after(write, right, between=cut_power)

    assert each_write(shard, 1, once) > 200


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_failing_job_fails_in_the_same_way_after_any_stop(shard: int) -> None:
    def right(world: World, ended: Inactive) -> bool:
        return ended.job.result is Result.FAILED and ended.job.status == 7 << 8

    async def once(write: int) -> bool:
        return await stopped_after(write, right, play=Play(status=7 << 8))

    assert each_write(shard, 2, once) > 200
