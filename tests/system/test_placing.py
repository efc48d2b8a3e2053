"""Jobs are where their storage may be: labels of rabbits, through the whole system."""

import asyncio
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import World, opened, submit
from warren.base.objects import Change, Key
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance import keys
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec
from warren.rpc.message import RpcError

SITE = ClusterShape(rabbits=3, computes_per_rabbit=2)
FAST = {"dw": "#DW jobdw type=xfs capacity=1GiB name=scratch profile=fast"}
NO_RABBIT = (
    "The job's storage cannot be placed because each of its nodes is to have flash of a rabbit "
    "with tier=fast, and no rabbit of nodes that would do has that."
)


def lived(*lives: Callable[[World, Control], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(SITE) as world:
            for life in lives:
                await world.live(lambda control, life=life: life(world, control))  # type: ignore[misc]

    virtual.run(main())


async def label(control: Control, rabbit: str, tier: str | None) -> None:
    """Label a Storage, as an administrator does."""
    key = Key(kinds.DEFAULT_NAMESPACE, rabbit)
    change = Change(kind=kinds.STORAGE, key=key, patch={"metadata": {"labels": {"tier": tier}}})
    await LocalClient(control.api.store).patch(change)


async def opening(world: World, control: Control) -> None:
    """Wait for the rabbits, and make a profile whose storage is on fast ones alone."""
    store = control.api.store

    def ready() -> bool:
        rabbits = list(store.objects_of(kinds.STORAGE))
        return len(rabbits) == 3 and all(
            each.get("status", {}).get("status") == "Ready" for each in rabbits
        )

    await world.until(ready)
    source = store.get(kinds.NNF_STORAGE_PROFILE, Key(kinds.PROFILES_NAMESPACE, "default"))
    data = {**source["data"], "default": False}
    data["xfsStorage"] = {**data["xfsStorage"], "storageLabels": ["tier=fast"]}
    made = {"metadata": {"name": "fast", "namespace": kinds.PROFILES_NAMESPACE}, "data": data}
    await store.create(kinds.NNF_STORAGE_PROFILE, made)
    await asyncio.sleep(1.0)


def test_a_job_gets_nodes_of_rabbits_that_carry_the_labels_of_its_storage() -> None:
    """Statement 002.15: labels, from the directive to the flash."""

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        with pytest.raises(RpcError, match=NO_RABBIT):
            await world.submit(control, nodes=1, attributes=FAST)

        await label(control, "rabbit-1", "fast")
        await asyncio.sleep(1.0)
        job = await world.submit(control, nodes=2, attributes=FAST)
        ended = await world.ended(control, job)
        assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)
        r = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "R")))
        assert r["execution"]["nodelist"] == ["compute-[02-03]"]

        await label(control, "rabbit-2", "fast")
        await asyncio.sleep(1.0)
        job = await world.submit(control, nodes=4, attributes=FAST)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED
        await world.assert_nothing_left(control)

    lived(life)


def test_after_a_restart_a_job_waits_for_what_rabbits_carry_to_be_known() -> None:
    """Statement 002.15: labels, from the directive to the flash."""
    jobs = []

    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        await label(control, "rabbit-1", "fast")
        await asyncio.sleep(1.0)
        first = await world.submit(control, nodes=2, attributes=FAST)
        jobs.append(await world.submit(control, nodes=2, attributes=FAST))
        await asyncio.sleep(0.2)
        found = control.instance.manager.find(jobs[0])
        assert found is not None
        assert found.job.state is not State.INACTIVE
        jobs.append(first)

    async def after(world: World, control: Control) -> None:
        for job in jobs:
            ended = await world.ended(control, job)
            assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)

    lived(before, after)


def test_a_job_is_on_as_many_chassis_as_it_says_with_its_flash() -> None:
    """coral2-spec section 14: chassis at the top of a jobspec."""

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        dw = {"dw": "#DW jobdw type=xfs capacity=1GiB name=scratch"}
        spec = jobspec.make(["app"], nodes=1, name="app", attributes=dw)
        for chassis, nodes, hosts in ((3, 1, "compute-[00,02,04]"), (1, 2, "compute-[00-01]")):
            on = {"type": "chassis", "count": chassis}
            inside = [{**spec["resources"][0], "count": nodes}]
            job = await submit(control, {**spec, "resources": [{**on, "with": inside}]})
            ended = await world.ended(control, job)
            assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)
            r = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "R")))
            assert r["execution"]["nodelist"] == [hosts]
            await world.assert_nothing_left(control)

    lived(life)
