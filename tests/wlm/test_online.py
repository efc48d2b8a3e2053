"""Which nodes of an instance can be reached."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.daemons.compose import Control
from warren.dws.jobs.abort import DRAIN_REASON
from warren.rpc.message import Handle
from warren.wlm.flux.drainer import Drainer
from warren.wlm.online import FluxNodes, InstanceUnreachable


class Garbling:
    """A broker that answers what cannot be read."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def rpc(self, topic: str, payload: Any = None) -> Any:
        self.topics.append(topic)
        return {"R": {"version": 2}, "drain": {}}


def test_a_broker_that_tells_of_no_nodes_is_asked_again() -> None:
    async def follow() -> None:
        async for _ in FluxNodes(cast(Handle, Garbling())).follow():
            pass

    with pytest.raises(InstanceUnreachable, match="the instance does not tell of its nodes"):
        asyncio.run(follow())


def test_a_broker_that_tells_of_no_nodes_has_none_drained() -> None:
    broker = Garbling()
    asyncio.run(Drainer(cast(Handle, broker)).keep_drained(["compute-01"], "lost its rabbit"))
    assert broker.topics == ["resource.status"]


def test_nodes_that_did_not_unmount_are_out_of_reach_until_they_are_undrained() -> None:
    """coral2-spec section 9: offline, or drained for a failed unmount, and for nothing else."""

    async def story(world: World, control: Control) -> None:
        handle = control.instance.bus.handle()
        told: list[Mapping[str, bool]] = []

        async def follow() -> None:
            async with aclosing(FluxNodes(handle).follow()) as news:  # type: ignore[type-var]
                async for each in news:
                    told.append(each)

        async def now() -> list[str]:
            await asyncio.sleep(1)
            return [node for node, there in told[-1].items() if not there]

        async def ask(verb: str, targets: str, **rest: Any) -> None:
            await handle.rpc(f"resource.{verb}", {"targets": targets, **rest})

        await ask("drain", "compute-05", reason=DRAIN_REASON)  # before it is looked at
        following = asyncio.create_task(follow())
        assert await now() == ["compute-05"]
        await ask("drain", "compute-01", reason="bad fan")
        assert len(told) == 1
        await ask("drain", "compute-02", reason=DRAIN_REASON)
        assert await now() == ["compute-02", "compute-05"]
        await control.instance.resources.set_down(["compute-03"])
        assert await now() == ["compute-02", "compute-03", "compute-05"]
        await control.instance.resources.set_up(["compute-03"])
        await ask("undrain", "compute-[02,05]")
        assert await now() == []
        following.cancel()
        await asyncio.wait({following})

    async def main() -> None:
        async with opened() as world:
            await world.live(lambda control: story(world, control))

    virtual.run(main())
