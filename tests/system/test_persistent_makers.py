"""Jobs that create and destroy persistent storage (issue 15, ADR 054)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import World, opened
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.instance import keys
from warren.instance.jobs.known import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.kube.client import NotFound
from warren.lifecycle.states import Result
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError
from warren.wlm.codec import BINDING

CREATE = {"dw": "#DW create_persistent type=xfs capacity=1GiB name=pers"}
USE = {"dw": "#DW persistentdw name=pers"}
DESTROY = {"dw": "#DW destroy_persistent name=pers"}
SITE = ClusterShape(rabbits=2, computes_per_rabbit=2, capacity=40 * GIB)
PERS = Key("default", "pers")
SHARDS = 4
EVERY = extent("WARREN_STOPS_EVERY", usual=13, everything=1)


def told(
    story: Callable[[World, Control], Awaitable[None]],
    play: Callable[..., TaskBehavior] = lambda *_: TaskBehavior(),
) -> None:
    async def main() -> None:
        async with opened(SITE, play) as world:

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await story(world, control)

            await world.live(life)

    virtual.run(main())


def held(command: Sequence[str], environment: Any) -> TaskBehavior:
    """Have commands named `hold` run for a while, and all others end at once."""
    return TaskBehavior(seconds=100 if command[0] == "hold" else 0)


def instance(control: Control) -> Any:
    try:
        return control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)
    except NotFound:
        return None


def volumes(world: World) -> int:
    return sum(len(flash.volumes) for flash in world.flash.values())


async def done(world: World, control: Control, job: JobId) -> Result | None:
    """Wait until a job is over, and its Workflow gone; return how it went."""
    while True:
        found = control.instance.manager.find(job)
        made = [each["metadata"]["name"] for each in control.api.store.objects_of(kinds.WORKFLOW)]
        if isinstance(found, InactiveJob) and BINDING.workflow_key(job).name not in made:
            return found.job.result
        await asyncio.sleep(0.05)


async def run(world: World, control: Control, attributes: Any, **options: Any) -> Result | None:
    """Run a job to its end, and return how it went."""
    options = {"nodes": 1, **options}
    job = await world.submit(control, attributes=attributes, **options)
    return await done(world, control, job)


def nodes_of(control: Control, job: JobId) -> str:
    found = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "R")))
    return ",".join(found["execution"]["nodelist"])


def after(job: JobId, scheme: str = "afterok") -> dict[str, Any]:
    return {"dependencies": [{"scheme": scheme, "value": str(job)}]}


def has(world: World, control: Control, event: str, job: JobId) -> bool:
    return event in [each.name for each in world.eventlog(control, job)]


def test_jobs_create_use_and_destroy_it_and_nothing_is_left() -> None:
    """Issue 15: create and destroy by jobs."""

    async def story(world: World, control: Control) -> None:
        maker = await world.submit(control, nodes=3, attributes=CREATE)
        assert await done(world, control, maker) is Result.COMPLETED
        assert instance(control)["status"]["state"] == "Active"
        assert volumes(world) == 3
        user = await world.submit(control, nodes=2, attributes=USE)
        assert await done(world, control, user) is Result.COMPLETED
        assert all(each["DW_PERSISTENT_pers"] for each in world.seen.values() if len(each) > 9)
        assert await run(world, control, DESTROY) is Result.COMPLETED
        assert instance(control) is None
        assert volumes(world) == 0
        assert list(control.api.store.objects_of(kinds.NNF_STORAGE)) == []

    told(story)


@pytest.mark.parametrize("attributes", [CREATE, DESTROY])
def test_a_job_of_one_task_needs_no_node_of_its_own(attributes: Any) -> None:
    """Issue 15: create and destroy by jobs without nodes."""

    async def story(world: World, control: Control) -> None:
        busy = await world.submit(control, command=["hold"], nodes=4, tasks=4)
        await world.until(lambda: has(world, control, "start", busy))
        assert await run(world, control, attributes, nodes=None, tasks=1) is Result.COMPLETED
        assert volumes(world) == (attributes is CREATE)
        assert not has(world, control, "finish", busy)
        await world.cancel(control, busy)

    told(story, held)


def test_who_creates_what_is_there_already_gets_it_and_no_flash() -> None:
    async def story(world: World, control: Control) -> None:
        assert await run(world, control, CREATE, nodes=2) is Result.COMPLETED
        before = control.api.store.get(kinds.SERVERS, PERS)["spec"]
        again = await world.submit(control, nodes=4, attributes=CREATE)
        assert await done(world, control, again) is Result.COMPLETED
        assert control.api.store.get(kinds.SERVERS, PERS)["spec"] == before
        r = orjson.loads(control.instance.kvs.lookup(keys.job_key(again, "R")))
        types = [each["metadata"]["type"] for each in r["scheduling"]["graph"]["nodes"]]
        assert "ssd" not in types
        assert volumes(world) == 2

    told(story)


def test_two_jobs_that_create_the_same_at_once_make_it_once() -> None:
    async def story(world: World, control: Control) -> None:
        jobs = [await world.submit(control, nodes=2, attributes=CREATE) for _ in range(2)]
        assert [await done(world, control, job) for job in jobs] == [Result.COMPLETED] * 2
        assert volumes(world) == 2

    told(story)


def test_its_flash_is_counted_once_while_its_maker_runs_and_afterwards() -> None:
    """ADR 052: at no time twice, and at no time not at all."""

    async def story(world: World, control: Control) -> None:
        # Of a rabbit's 40 GiB, the storage of two nodes has 2 x 13: with the padding rounded up.
        rabbit = {"constraints": {"hostlist": ["compute-[00-01]"]}}
        big = {"dw": CREATE["dw"].replace("1GiB", "12GiB"), **rabbit}
        rest = {"dw": "#DW jobdw type=xfs capacity=13GiB name=rest", **rabbit}
        maker = await world.submit(control, command=["hold"], nodes=2, tasks=2, attributes=big)
        await world.until(lambda: has(world, control, "start", maker))
        assert await run(world, control, rest, tasks=1) is Result.COMPLETED
        too_much = await world.submit(control, nodes=2, tasks=2, attributes=rest)
        await asyncio.sleep(200)
        await done(world, control, maker)
        assert instance(control)["status"]["state"] == "Active"
        assert not has(world, control, "alloc", too_much)
        assert await run(world, control, rest, tasks=1) is Result.COMPLETED
        assert await run(world, control, DESTROY, tasks=1) is Result.COMPLETED
        assert await done(world, control, too_much) is Result.COMPLETED

    told(story, held)


def test_a_job_that_dies_before_its_storage_is_there_leaves_none() -> None:
    async def story(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=2, attributes=CREATE)
        await world.until(lambda: instance(control) is not None)
        await world.cancel(control, job)
        await done(world, control, job)
        assert instance(control) is None
        assert volumes(world) == 0

    told(story)


def test_a_job_may_wait_for_the_one_that_creates_what_it_uses() -> None:
    """Issue 15: `--dependency` on the job that makes the storage."""

    async def story(world: World, control: Control) -> None:
        maker = await world.submit(control, nodes=2, attributes=CREATE)
        user = await world.submit(control, nodes=2, attributes={**USE, **after(maker)})
        last = await world.submit(
            control, nodes=1, attributes={**DESTROY, **after(user, "afterany")}
        )
        jobs = (maker, user, last)
        assert [await done(world, control, job) for job in jobs] == [Result.COMPLETED] * 3
        assert nodes_of(control, user) == nodes_of(control, maker)
        assert volumes(world) == 0

    told(story)


def test_what_no_job_before_it_creates_is_not_awaited() -> None:
    async def story(world: World, control: Control) -> None:
        other = await world.submit(control, command=["hold"], nodes=1)
        with pytest.raises(RpcError, match="There is no persistent storage named 'pers'"):
            await world.submit(control, nodes=1, attributes={**USE, **after(other)})
        maker = await world.submit(control, nodes=1, attributes=CREATE)
        wrong = {"dw": "#DW persistentdw name=perz"}
        with pytest.raises(RpcError, match="There is no persistent storage named 'perz'"):
            await world.submit(control, nodes=1, attributes={**wrong, **after(maker)})

    told(story, held)


def test_a_destroy_that_is_refused_fails_the_job_and_strands_nothing() -> None:
    """Issue 15: refusal while in use. It is not waited for, and the storage stays."""

    async def story(world: World, control: Control) -> None:
        assert await run(world, control, CREATE, nodes=2) is Result.COMPLETED
        destroyer = await world.submit(control, command=["hold"], nodes=1, attributes=DESTROY)
        await world.until(lambda: has(world, control, "start", destroyer))
        # Submitted later, and entered before the destroyer comes to its Teardown.
        await asyncio.sleep(50)
        user = await world.submit(control, command=["hold"], nodes=1, attributes=USE)
        await world.until(lambda: has(world, control, "start", user))
        assert await done(world, control, destroyer) is Result.FAILED
        (problem,) = [
            event.context["note"]
            for event in world.eventlog(control, destroyer)
            if event.name == "exception"
        ]
        assert "persistent storage cannot be deleted while in use" in problem
        assert instance(control)["status"]["state"] == "Active"
        await world.cancel(control, user)
        await done(world, control, user)
        assert list(control.api.store.objects_of(kinds.WORKFLOW)) == []
        assert await run(world, control, DESTROY) is Result.COMPLETED
        assert volumes(world) == 0

    told(story, held)


def test_another_users_storage_is_not_destroyed_though_it_is_shared() -> None:
    async def story(world: World, control: Control) -> None:
        assert await run(world, control, CREATE) is Result.COMPLETED
        other = {
            "metadata": {"annotations": {labels.IGNORE_UID: "true"}},
            "spec": {"userID": os.getuid() + 1},
        }
        await control.api.store.patch(Change(kind=kinds.PERSISTENT_INSTANCE, key=PERS, patch=other))
        await asyncio.sleep(1)
        with pytest.raises(RpcError, match="only that user can destroy it"):
            await world.submit(control, nodes=1, attributes=DESTROY)
        assert await run(world, control, USE) is Result.COMPLETED

    told(story)


async def stopped_after(write: int) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened(SITE) as world:
        jobs: dict[str, JobId] = {}

        async def live(control: Control) -> None:
            async with asyncio.timeout(3600):
                for attributes in (CREATE, USE, DESTROY):
                    name = attributes["dw"]
                    if name not in jobs:
                        jobs[name] = await world.submit(control, nodes=2, attributes=attributes)
                    assert await done(world, control, jobs[name]) is Result.COMPLETED
                assert instance(control) is None
                assert volumes(world) == 0

        await world.live(live, seam)
        await world.live(live)
    return len(seam.actions) == write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_after_any_write_changes_nothing_in_the_end(shard: int) -> None:
    write = 1 + shard * EVERY
    while virtual.run(stopped_after(write)):
        write += SHARDS * EVERY
    assert write > 60
