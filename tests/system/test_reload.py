"""A configuration that is reloaded has its effect on what runs, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.world import DIRECTIVES, World, opened
from tests.system.test_alerts import storage_links
from tests.system.test_health import R0, patch
from tests.system.test_timeouts import LONG, slow
from warren.daemons.compose import Control
from warren.instance.jobs.manager import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

DW = {"dw": DIRECTIVES[0]}

Story = Callable[[World, Control], Awaitable[None]]


async def load(control: Control, text: str) -> Any:
    return await control.instance.bus.handle().rpc("config.load", {"toml": text})


def lived(story: Story, *what: str, **play: Any) -> None:
    """Live a story, in which nodes are slow to do something, or nothing."""

    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(**play)) as world:
            world.machine = slow(*what)(world)
            await world.live(lambda control: story(world, control))

    with capture_logs():
        virtual.run(main())


@pytest.mark.parametrize(
    ("what", "limit", "words"),
    [
        ("make", "setup_timeout", "File system creation took too long"),
        ("mount", "prerun_timeout", "timed out waiting for mounts"),
        ("unmount", "postrun_timeout", "unmounts timed out"),
        ("unmount", "epilog_timeout", "DWS epilog timed out"),
    ],
)
def test_a_limit_holds_for_jobs_that_are_there_already(what: str, limit: str, words: str) -> None:
    async def story(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        if limit == "epilog_timeout":  # of epilogs that begin from then on
            await load(control, f"rabbit.{limit} = 30")
        await asyncio.sleep(10)
        await load(control, f"rabbit.{limit} = 30")
        await world.until(lambda: isinstance(control.instance.manager.find(job), InactiveJob))
        log = world.eventlog(control, job)
        (told,) = (each for each in log if each.name == "exception")
        assert told.context["note"].startswith(words)
        assert told.timestamp - log[0].timestamp < 60
        await world.ended(control, job)

    lived(story, what)


def test_a_limit_that_is_gone_ends_no_job() -> None:
    async def story(world: World, control: Control) -> None:
        await load(control, "rabbit.setup_timeout = 30")
        job = await world.submit(control, attributes=DW)
        await asyncio.sleep(20)
        await load(control, "")
        ended = await world.ended(control, job)
        assert ended.job.result is Result.COMPLETED
        log = world.eventlog(control, job)
        assert log[-1].timestamp - log[0].timestamp > LONG - 10

    lived(story, "make")


def test_submissions_are_held_to_what_is_configured_now() -> None:
    """Presets, maximums, who creates persistent storage, and limits of queues."""

    async def story(world: World, control: Control) -> None:
        async def submitted(**options: Any) -> JobId | str:
            try:
                return await world.submit(control, **options)
            except RpcError as error:
                return str(error)

        preset = {"attributes": {"dw": "big"}}
        assert isinstance(await submitted(**preset), str)
        await load(control, f"rabbit.presets.big = '{DIRECTIVES[0]}'")
        job = await submitted(**preset)
        assert isinstance(job, int)
        await world.ended(control, JobId(job))

        await load(control, "rabbit.policy.maximums.xfs = 0")
        assert "xfs" in str(await submitted(attributes=DW))
        await load(control, "policy.limits.job-size.max.nnodes = 2")
        assert "nnodes" in str(await submitted(nodes=4))
        await load(control, "")
        job = await submitted(attributes=DW)
        assert isinstance(job, int)
        await world.ended(control, JobId(job))

    lived(story)


def test_nodes_that_have_lost_their_rabbit_are_what_the_site_wants_now() -> None:
    async def story(world: World, control: Control) -> None:
        await asyncio.sleep(5)
        links = storage_links(control, R0)
        links["compute-01"]["status"] = "Offline"
        await patch(control, R0, {"spec": {"mode": "Testing"}})
        await patch(control, R0, {"status": {"access": {"computes": [*links.values()]}}})

        async def drained() -> list[str]:
            await asyncio.sleep(1)
            status = await control.instance.bus.handle().rpc("resource.status")
            return [each["name"] for each in status["nodes"] if each["state"] == "drained"]

        assert await drained() == ["compute-01"]
        await load(control, "rabbit.drain_compute_nodes = false")
        assert await drained() == []
        await load(control, "")
        assert await drained() == ["compute-01"]

    lived(story)


def test_jobs_come_and_go_while_the_configuration_is_reloaded() -> None:
    async def story(world: World, control: Control) -> None:
        jobs: list[JobId] = []

        async def reload() -> None:
            while True:
                for number in (100, 200):
                    text = f"rabbit.setup_timeout = {number}\nsched.queue-depth = {number}\n"
                    await load(control, f"{text}storage.scale = {number // 100}")
                    await asyncio.sleep(0.05)

        reloading = asyncio.create_task(reload())
        for _ in range(20):
            jobs.append(await world.submit(control, attributes=DW, nodes=2))
            await asyncio.sleep(0.1)
        for job in jobs:
            assert (await world.ended(control, job)).job.result is Result.COMPLETED
        reloading.cancel()
        await asyncio.wait({reloading})
        await world.assert_nothing_left(control)

    lived(story, seconds=1.0)
