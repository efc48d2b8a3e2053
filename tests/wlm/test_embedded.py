"""The embedded instance as a workload manager, and its RPCs to the letter."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.instance.simulated import Play
from warren.lifecycle.states import State
from warren.rpc.message import RpcError
from warren.wlm import codec

DW = {"dw": "\n".join(DIRECTIVES)}


def in_a_world(deed: Callable[[World, Control], Awaitable[None]], **play: Any) -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: Play(**play)) as world:
            await world.live(lambda control: deed(world, control))

    virtual.run(main())


def test_requests_that_are_repeated_change_nothing() -> None:
    async def deed(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        handle = control.bus.handle()
        before = world.eventlog(control, job)
        for topic, payload in (
            ("resource-update", {"id": job, "resources": [], "exclude": None}),
            ("prolog-remove", {"id": job, "variables": {}}),
            ("epilog-remove", {"id": job}),
        ):
            assert await handle.rpc(f"job-manager.dws.{topic}", payload) == {}
        assert world.eventlog(control, job) == before
        await world.ended(control, job)

    in_a_world(deed)


def test_a_request_that_is_malformed_is_refused_with_its_path() -> None:
    async def deed(world: World, control: Control) -> None:
        handle = control.bus.handle()
        with pytest.raises(RpcError, match=r"received malformed request: .*variables"):
            await handle.rpc("job-manager.dws.prolog-remove", {"id": 1, "variables": {"a": 3}})

    in_a_world(deed)


def test_guests_may_not_let_jobs_go() -> None:
    async def deed(world: World, control: Control) -> None:
        guest = control.bus.handle(control.bus.owner + 1)
        with pytest.raises(RpcError, match="instance owner"):
            await guest.rpc("job-manager.dws.epilog-remove", {"id": 1})

    in_a_world(deed)


def test_the_conductor_tells_which_jobs_it_leads() -> None:
    async def deed(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        told = await control.bus.handle().rpc("dws.status")
        assert told == {"success": True, "workflows": [job]}
        await world.ended(control, job)

    in_a_world(deed)


def test_a_create_request_for_a_job_that_is_known_is_answered_at_once() -> None:
    async def deed(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        request = codec.Create(jobid=job, userid=1, dw_directives=[], resources=[])
        answer = await control.bus.handle().rpc("dws.create", codec.write(request))
        assert answer == {"success": True}
        await world.ended(control, job)

    in_a_world(deed)


def test_an_exception_during_the_epilog_skips_what_is_left_to_do() -> None:
    async def deed(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(
            lambda: (world.workflow(control).get("status") or {}).get("state") == "PostRun"
        )
        await world.cancel(control, job)
        await world.ended(control, job)
        names = control.kvs.names(f"job.{'.'.join(['0000', '0000', '0100', '0000'])}")
        assert "rabbit_dataout_timing" not in names
        assert not any(copy.index for copy in world.copies())

    in_a_world(deed)


def test_an_epilog_timeout_lets_the_job_go_before_its_storage() -> None:
    async def deed(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(
            lambda: (world.workflow(control).get("status") or {}).get("state") == "DataOut"
        )
        request = {"id": job, "type": "dws-epilog-timeout", "severity": 0, "note": ""}
        await control.bus.handle().rpc("job-manager.raise", request)
        await asyncio.sleep(0)
        found = control.manager.find(job)
        assert found is not None
        assert found.job.state is State.INACTIVE
        assert world.workflow(control)
        await world.ended(control, job)
        await world.assert_nothing_left(control)

    in_a_world(deed)
