"""Jobs whose storage only some rabbits make: they get nodes there (ADR 090)."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from tests.system.test_why import asked, states
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance import keys
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import Result, State
from warren.rpc.message import RpcError

SITE = ClusterShape(rabbits=3, computes_per_rabbit=2, capacity=64 * GIB)


def lived(life: Callable[[World, Control], Awaitable[None]]) -> None:
    """Live on a system of which rabbit-1 alone makes gfs2."""

    async def main() -> None:
        async with opened(SITE) as world:
            for rabbit, flash in world.flash.items():
                if rabbit != "rabbit-1":
                    flash.unsupported_types = {"gfs2": "dlm is not installed"}

            async def begun(control: Control) -> None:
                await world.until(lambda: _ready(control))
                await asyncio.sleep(1.0)
                await life(world, control)

            await world.live(begun)

    virtual.run(main())


def _ready(control: Control) -> bool:
    rabbits = list(control.api.store.objects_of(kinds.STORAGE))
    return len(rabbits) == 3 and all(
        each.get("status", {}).get("status") == "Ready" for each in rabbits
    )


def wanting(kind: str, gib: int = 1) -> dict[str, str]:
    return {"dw": f"#DW jobdw type={kind} capacity={gib}GiB name=scratch"}


@pytest.mark.parametrize(
    ("kind", "nodelist"), [("gfs2", "compute-[02-03]"), ("xfs", "compute-[00-01]")]
)
def test_a_job_gets_nodes_of_rabbits_that_make_what_it_asks_for(kind: str, nodelist: str) -> None:
    async def life(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=2, attributes=wanting(kind))
        ended = await world.ended(control, job)

        assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)
        r = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "R")))
        assert r["execution"]["nodelist"] == [nodelist]
        await world.assert_nothing_left(control)

    lived(life)


def test_a_job_that_wants_more_of_them_than_there_are_is_refused() -> None:
    async def life(world: World, control: Control) -> None:
        with pytest.raises(RpcError, match=r"with warren\.cluster/makes-gfs2=true"):
            await world.submit(control, nodes=4, attributes=wanting("gfs2"))

    lived(life)


def test_a_job_waits_for_the_rabbit_that_makes_it_though_others_are_free() -> None:
    async def life(world: World, control: Control) -> None:
        key = Key(kinds.DEFAULT_NAMESPACE, "rabbit-1")
        client = LocalClient(control.api.store)

        async def turn(state: str) -> None:
            patch = {"spec": {"state": state}}
            await client.patch(Change(kind=kinds.STORAGE, key=key, patch=patch))
            await asyncio.sleep(20.0)

        await turn("Disabled")
        job = await world.submit(control, nodes=2, attributes=wanting("gfs2"))
        await asyncio.sleep(20.0)
        found = await asked(control, job)
        assert await states(control, job) is State.SCHED
        assert "rabbits with warren.cluster/makes-gfs2=true" in found["reason"], found["reason"]
        assert "rabbit-1 (Disabled)" in found["reason"]

        await turn("Enabled")
        ended = await world.ended(control, job)
        assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)

    lived(life)
