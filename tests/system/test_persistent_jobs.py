"""Jobs that use persistent storage: where they run, who may, and several at once (issue 15)."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import orjson
import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.workloads import Workloads
from tests.harness.world import World, opened
from warren.base.accounts import groups_of
from warren.base.objects import Change, Key
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.persistent import sharing
from warren.dws.persistent.sharing import Sharing
from warren.instance import keys
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import hostlist
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
USE = {"dw": "#DW persistentdw name=pers"}
SITE = ClusterShape(rabbits=2, computes_per_rabbit=2)
NODES = ("compute-00", "compute-02", "compute-03")
"""Those that the instance is for: the first of one rabbit, and both of the other."""
PERS = Key("default", "pers")
SHARDS = 4
EVERY = extent("WARREN_STOPS_EVERY", usual=13, everything=1)


def told(
    story: Callable[[World, Workloads, Control], Awaitable[None]],
    play: Callable[..., TaskBehavior] = lambda *_: TaskBehavior(),
    *,
    owner: int | None = None,
) -> None:
    async def main() -> None:
        async with opened(SITE, play) as world:
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await made(workloads, control, owner)
                    await story(world, workloads, control)

            await world.live(life)

    virtual.run(main())


async def made(workloads: Workloads, control: Control, userid: int | None = None) -> None:
    owner = os.getuid() if userid is None else userid
    await workloads.make(control, "maker", CREATE, userid=owner)
    await workloads.finish(control, "maker", NODES)


def names(world: World, control: Control, job: JobId) -> list[str]:
    return [event.name for event in world.eventlog(control, job)]


def nodes_of(control: Control, job: JobId) -> str:
    found = orjson.loads(control.instance.kvs.lookup(keys.job_key(job, "R")))
    return ",".join(found["execution"]["nodelist"])


def volumes_by_node(world: World) -> set[tuple[str, str]]:
    """Return which volume each node has mounted, for all mounts."""
    return {
        (node, "/".join(volume))
        for flash in world.flash.values()
        for (node, _), volume in flash.mounts.items()
    }


async def running(world: World, control: Control, *jobs: JobId) -> None:
    await world.until(lambda: all("start" in names(world, control, job) for job in jobs))


async def left(control: Control) -> int:
    """Wait until no Workflow is left, and return how many consumers the instance has."""
    found = control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)["spec"]
    return len(found.get("consumerReferences") or ())


def test_a_job_runs_on_nodes_that_its_persistent_storage_is_for() -> None:
    """Issue 15: locality of node-local persistent storage is a constraint on the job."""

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        for count in (1, 2, 3):
            job = await world.submit(control, nodes=count, attributes=USE)
            ended = await world.ended(control, job)
            assert ended.job.result is Result.COMPLETED
            assert set(hostlist.decode(nodes_of(control, job))) <= set(NODES)
            assert all(each["DW_PERSISTENT_pers"] for each in world.seen.values())
        assert await left(control) == 0
        assert volumes_by_node(world) == set()

    told(story)


def test_several_jobs_use_it_at_once_and_each_node_has_its_own_part() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        jobs = [await world.submit(control, nodes=1, attributes=USE) for _ in NODES]
        await running(world, control, *jobs)
        assert {nodes_of(control, job) for job in jobs} == set(NODES)
        before = volumes_by_node(world)
        assert len({volume for _, volume in before}) == len(before) == 3
        assert reaching(control) == {*NODES, "rabbit-0", "rabbit-1"}
        # Another job of the same storage waits for a node that has a part of it.
        later = await world.submit(control, nodes=1, attributes=USE)
        elsewhere = await world.submit(control, nodes=1)
        await running(world, control, elsewhere)
        assert "alloc" not in names(world, control, later)
        for job in (*jobs, elsewhere):
            await world.cancel(control, job)
        await running(world, control, later)
        assert volumes_by_node(world) < before  # what the last job on the node has left
        await world.cancel(control, later)
        await world.ended(control, later)
        assert reaching(control) == {"rabbit-0", "rabbit-1"}

    told(story, lambda *_: TaskBehavior(seconds=1000))


def reaching(control: Control) -> set[str]:
    """Return the nodes that reach any flash."""
    blocks = control.api.store.objects_of(kinds.NNF_NODE_BLOCK_STORAGE)
    return {
        node for each in blocks for own in each["spec"]["allocations"] for node in own["access"]
    }


def test_the_jobs_own_constraints_hold_beside_those_of_its_storage() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        wanted = {"constraints": {"hostlist": ["compute-[01,03]"]}}
        job = await world.submit(control, nodes=1, attributes={**USE, **wanted})
        await world.ended(control, job)
        assert nodes_of(control, job) == "compute-03"
        elsewhere = {"constraints": {"hostlist": ["compute-01"]}}
        with pytest.raises(RpcError):
            await world.submit(control, nodes=1, attributes={**USE, **elsewhere})

    told(story)


def test_a_job_that_asks_for_more_nodes_than_it_is_for_is_refused() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        with pytest.raises(RpcError) as refused:
            await world.submit(control, nodes=4, attributes=USE)
        assert "The job asks for 4 nodes" in str(refused.value)
        assert "say -N3, or less" in str(refused.value)

    told(story)


def test_two_users_share_it_with_the_owners_consent_and_without_it_are_refused() -> None:
    """Issue 15: another user's storage is used with its owner's consent, and not without."""

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        with pytest.raises(RpcError) as refused:
            await world.submit(control, nodes=1, attributes=USE)
        assert "The persistent storage 'pers' is another user's." in str(refused.value)
        assert "                 ^^^^" in str(refused.value)
        shared = {"metadata": {"annotations": {labels.IGNORE_UID: "true"}}}
        await control.api.store.patch(
            Change(kind=kinds.PERSISTENT_INSTANCE, key=PERS, patch=shared)
        )
        await world.until(lambda: True)
        job = await world.submit(control, nodes=1, attributes=USE)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED

    told(story, owner=os.getuid() + 1)


@pytest.mark.parametrize("others", ["users", "groups"])
def test_it_is_shared_with_users_and_groups_until_it_is_not(others: str) -> None:
    """Issue 15: sharing with users and groups; what the root directory gives follows."""
    own = Sharing(users=frozenset({os.getuid()}))
    shared = own if others == "users" else Sharing(groups=groups_of(os.getuid()))

    async def patched(control: Control, value: Sharing) -> None:
        patch = {"metadata": {"annotations": sharing.annotations(value)}}
        await control.api.store.patch(Change(kind=kinds.PERSISTENT_INSTANCE, key=PERS, patch=patch))

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await patched(control, shared)
        await world.until(lambda: True)
        job = await world.submit(control, nodes=3, attributes=USE)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED
        let_in = [each for flash in world.flash.values() for each in flash.shared.values()]
        assert let_in == [shared] * 3
        await patched(control, Sharing())
        await world.until(lambda: True)
        with pytest.raises(RpcError, match="another user's"):
            await world.submit(control, nodes=1, attributes=USE)

    told(story, owner=os.getuid() + 1)


@pytest.mark.parametrize("directive", [CREATE, "#DW destroy_persistent name=pers"])
def test_another_users_name_is_neither_taken_nor_destroyed(directive: str) -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        with pytest.raises(RpcError):
            await world.submit(control, nodes=1, attributes={"dw": directive})
        found = control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)
        assert found["spec"]["userID"] == os.getuid() + 1
        assert found["status"]["state"] == "Active"

    told(story, owner=os.getuid() + 1)


def test_what_is_not_there_is_refused_before_the_job_is_accepted() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        with pytest.raises(RpcError, match="There is no persistent storage named 'perz'"):
            await world.submit(control, nodes=1, attributes={"dw": "#DW persistentdw name=perz"})

    told(story)


async def stopped_after(write: int) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened(SITE) as world:
        workloads = Workloads(world)
        jobs: list[JobId] = []

        async def live(control: Control) -> None:
            async with asyncio.timeout(3600):
                await made(workloads, control)
                # A job whose id was never heard of may run, too.
                while len(jobs) < 2:
                    jobs.append(await world.submit(control, nodes=1, attributes=USE))
                for job in jobs:
                    assert (await world.ended(control, job)).job.result is Result.COMPLETED
                assert await left(control) == 0
                assert volumes_by_node(world) == set()
                assert sum(len(flash.volumes) for flash in world.flash.values()) == 3

        await world.live(live, seam)
        await world.live(live)
    return len(seam.actions) == write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_after_any_write_changes_nothing_in_the_end(shard: int) -> None:
    write = 1 + shard * EVERY
    while virtual.run(stopped_after(write)):
        write += SHARDS * EVERY
    assert write > 100
