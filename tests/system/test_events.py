"""Kubernetes Events, in the whole system and in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.base.objects import Change, Key
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.kube.server.local import LocalClient

RABBIT = Key("default", "rabbit-0")
DW = {"dw": "#DW jobdw type=xfs capacity=1GiB name=scratch"}


def lived(*stories: Callable[[World, Control], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened() as world:
            for story in stories:
                await world.live(lambda control, story=story: story(world, control))  # type: ignore[misc]

    virtual.run(main())


def told(control: Control) -> list[tuple[str, str, str, int]]:
    """Return the Events: of what, type, reason and how often."""
    found = control.api.store.objects_of(kinds.EVENT)
    return sorted(
        (each["involvedObject"]["name"], each["type"], each["reason"], each["count"])
        for each in found
    )


async def enabled(control: Control, state: str) -> None:
    change = Change(kind=kinds.STORAGE, key=RABBIT, patch={"spec": {"state": state}})
    await LocalClient(control.api.store).patch(change)
    await asyncio.sleep(1)


async def settled(world: World, control: Control) -> None:
    def ready() -> bool:
        found: Any = list(control.api.store.objects_of(kinds.STORAGE))
        return bool(found) and all(
            each.get("status", {}).get("status") == "Ready" for each in found
        )

    await world.until(ready)
    await asyncio.sleep(1)


def test_what_befalls_a_rabbit_is_told_once_and_counted_and_goes_after_an_hour() -> None:
    async def first(world: World, control: Control) -> None:
        await settled(world, control)
        before = told(control)
        for state in ("Disabled", "Enabled", "Disabled"):
            await enabled(control, state)
        news = [each for each in told(control) if each not in before]
        assert ("rabbit-0", "Warning", "Disabled", 2) in news

    async def again(world: World, control: Control) -> None:
        await asyncio.sleep(5)
        # What is so since before is no news.
        assert ("rabbit-0", "Warning", "Disabled", 2) in told(control)
        await asyncio.sleep(3700)
        assert told(control) == []

    lived(first, again)


def test_a_job_that_lives_well_leaves_no_event() -> None:
    async def story(world: World, control: Control) -> None:
        await settled(world, control)
        before = told(control)
        job = await world.submit(control, attributes=DW)
        await world.ended(control, job)
        assert told(control) == before

    lived(story)


def test_a_workflow_in_trouble_says_so_where_kubectl_describes_it() -> None:
    async def story(world: World, control: Control) -> None:
        await settled(world, control)
        for flash in world.flash.values():
            flash.capacity = 1 << 20  # less than it said
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: world.workflow(control))
        name = world.workflow(control)["metadata"]["name"]
        await world.ended(control, job)
        found = [each for each in told(control) if each[0] == name]
        assert {each[1:3] for each in found} == {("Warning", "Error")}
        assert len(found) < 4

    lived(story)
