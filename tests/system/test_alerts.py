"""Running jobs hear of their rabbits within a second, and other jobs do not."""

import asyncio
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from tests.system.test_health import R0, R1, make, patch
from warren.base.objects import Key, Object
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc.fluid import JobId

HERE = {"dw": DIRECTIVES[0], "constraints": {"hostlist": ["compute-[00-01]"]}}
THERE = {"dw": DIRECTIVES[0], "constraints": {"hostlist": ["compute-[04-05]"]}}


def told(world: World, control: Control, job: JobId) -> list[str]:
    return [
        each.context["note"]
        for each in world.eventlog(control, job)
        if each.name == "exception" and each.context["type"] == "rabbit-alert"
    ]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_hears_that_its_rabbit_fails_loses_a_link_and_is_back(restarted: bool) -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=600.0)) as world:
            jobs: list[JobId] = []

            async def begin(control: Control) -> None:
                for attributes in (HERE, THERE):
                    jobs.append(await world.submit(control, nodes=2, attributes=attributes))
                await world.until(lambda: len(world.seen) == 2)
                await asyncio.sleep(5)
                await make(control, R0, "Offline")
                await asyncio.sleep(1)
                assert told(world, control, jobs[0]) == [f"{R0} is Offline"]

            async def go_on(control: Control) -> None:
                await asyncio.sleep(1)
                assert told(world, control, jobs[0]) == [f"{R0} is Offline"]
                await make(control, R0, "Ready")
                await asyncio.sleep(1)
                links = storage_links(control, R0)
                links["compute-01"]["status"] = "Offline"
                await patch(control, R0, {"status": {"access": {"computes": [*links.values()]}}})
                await asyncio.sleep(1)
                assert told(world, control, jobs[0]) == [
                    f"{R0} is Offline",
                    f"{R0} is Ready again",
                    f"{R0} has lost its link to compute-01",
                ]
                assert told(world, control, jobs[1]) == []
                for job in jobs:
                    assert (await world.ended(control, job)).job.result is Result.COMPLETED

            if restarted:
                await world.live(begin)
                await world.live(go_on)
            else:

                async def whole(control: Control) -> None:
                    await begin(control)
                    await go_on(control)

                await world.live(whole)

    virtual.run(main())


def storage_links(control: Control, rabbit: str) -> dict[str, Any]:
    found: Object = control.api.store.get(kinds.STORAGE, Key(kinds.DEFAULT_NAMESPACE, rabbit))
    return {each["name"]: dict(each) for each in found["status"]["access"]["computes"]}


def test_a_drain_is_told_with_who_and_why() -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=60.0)) as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, nodes=2, attributes=THERE)
                await world.until(lambda: len(world.seen) == 2)
                note = '{"by":"ann","reason":"bad disk"}'
                annotations = {"warren.cluster/drained": note}
                await patch(control, R1, {"metadata": {"annotations": annotations}})
                await asyncio.sleep(1)
                assert told(world, control, job) == [f"{R1} is Drained by ann: bad disk"]
                assert (await world.ended(control, job)).job.result is Result.COMPLETED

            await world.live(life)

    virtual.run(main())
