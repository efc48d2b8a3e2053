"""One cancel ends a job, wherever its storage is, and leaves nothing of it."""

import asyncio
from contextlib import suppress

import pytest

from tests.conductor.test_conductor import DW, in_a_world
from tests.harness.world import World
from warren.daemons.compose import Control
from warren.dws.objects.workflows import State
from warren.rpc.message import RpcError

RUNNING = "running"


def is_at(world: World, control: Control, where: str) -> bool:
    if where == RUNNING:
        return len(world.seen) == 4
    return (world.workflow(control).get("status") or {}).get("state") == where


@pytest.mark.parametrize("where", [*State, RUNNING])
def test_one_cancel_ends_a_job_in_every_state_of_its_storage(where: str) -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: is_at(world, control, where))
        await world.cancel(control, job)
        async with asyncio.timeout(60):
            ended = await world.ended(control, job)

        assert [each.type for each in ended.job.exceptions] == ["cancel"]
        assert world.without_storage == []
        await world.assert_nothing_left(control)

    in_a_world(action)


@pytest.mark.parametrize("types", [("cancel", "cancel"), ("cancel", "late"), ("late", "cancel")])
@pytest.mark.parametrize("where", [*State, RUNNING])
def test_a_second_exception_after_one_in_any_state_ends_the_job_no_worse(
    where: str, types: tuple[str, str]
) -> None:
    """It comes at once, and one more after a while, in whichever state the first has led to."""

    async def action(world: World, control: Control) -> None:
        ask = control.instance.bus.handle().rpc
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: is_at(world, control, where))
        for delay, type_ in ((0.0, types[0]), (0.0, types[1]), (0.7, "late")):
            await asyncio.sleep(delay)
            with suppress(RpcError):  # it has ended
                await ask("job-manager.raise", {"id": job, "type": type_, "severity": 0})
        async with asyncio.timeout(60):
            ended = await world.ended(control, job)

        told = [each.type for each in ended.job.exceptions]
        assert tuple(told[:2]) == types[: len(told)]
        assert world.without_storage == []
        await world.assert_nothing_left(control)

    in_a_world(action)


@pytest.mark.parametrize(
    ("where", "copied"), [(RUNNING, True), (State.POST_RUN, False), (State.TEARDOWN, True)]
)
def test_results_are_saved_unless_the_job_is_cancelled_while_it_saves_them(
    where: str, copied: bool
) -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: is_at(world, control, where))
        await world.cancel(control, job)
        await world.ended(control, job)

        assert any(copy.index for copy in world.copies()) is copied

    in_a_world(action)
