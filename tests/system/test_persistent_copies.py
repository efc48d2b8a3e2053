"""Copies to and from persistent storage, beside jobs that use it (ADR 065)."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.workloads import Workloads
from tests.harness.world import GLOBAL, World, opened
from warren.controllers.localnode import LocalNode
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy
from warren.dws.objects.workflows import State
from warren.dws.persistent.sharing import Sharing
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode
from warren.rfc.fluid import JobId

CREATE = "#DW create_persistent type=xfs capacity=1GiB name"
USE = "#DW persistentdw name=pers"
COPY_IN = f"#DW copy_in source={GLOBAL}/input destination=$DW_PERSISTENT_pers/"
COPY_OUT = f"#DW copy_out source=$DW_PERSISTENT_pers/ destination={GLOBAL}/results"
COPYING = "\n".join((USE, COPY_IN, COPY_OUT))
SITE = ClusterShape(rabbits=2, computes_per_rabbit=2, global_file_systems=(GLOBAL,))
NODES = ("compute-00", "compute-01", "compute-02", "compute-03")
PARTS = dict(zip(NODES, ("rabbit-0-0", "rabbit-0-1", "rabbit-1-0", "rabbit-1-1"), strict=True))
SHARDS = 4
EVERY = extent("WARREN_STOPS_EVERY", usual=13, everything=1)


class Watched(SimulatedNode):
    """A node that sees to it that no other node mounts what it mounts."""

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        mounts = self._flash.mounts.items()
        others = [node for (node, _), volume in mounts if volume == (rabbit, name)]
        assert {self._name} >= {*others}, (self._name, name, others)
        await super().mount(rabbit, name, file_system, path, shared, profile)


def watched(world: World) -> Callable[[str, str], LocalNode]:
    return lambda node, rabbit: Watched(node, world.flash[rabbit], seconds=world.copy_seconds)


def told(
    story: Callable[[World, Workloads, Control], Awaitable[None]],
    play: Callable[..., TaskBehavior] = lambda *_: TaskBehavior(),
    *names: str,
) -> None:
    async def main() -> None:
        async with opened(SITE, play) as world:
            world.machine = watched(world)
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                async with asyncio.timeout(7200):
                    for name in names or ("pers",):
                        await made(workloads, control, name)
                    await story(world, workloads, control)

            await world.live(life)

    virtual.run(main())


async def made(workloads: Workloads, control: Control, name: str = "pers") -> None:
    await workloads.make(control, f"maker-{name}", f"{CREATE}={name}", userid=os.getuid())
    await workloads.finish(control, f"maker-{name}", NODES)


def places(copies: Sequence[Copy], *, out: bool) -> list[str]:
    """Return the index directories that were copied from, or into."""
    found = [(each.source, each.destination) for each in copies]
    own = [source if out else to for source, to in found if (GLOBAL in to) is out]
    return sorted(path.rstrip("/").split("/")[-1] for path in own)


async def running(world: World, control: Control, job: JobId) -> None:
    await world.until(lambda: "start" in [event.name for event in world.eventlog(control, job)])


async def free(world: World, control: Control) -> None:
    """See that nothing of jobs is left, and the storage with all its parts is."""
    for kind in (kinds.WORKFLOW, kinds.NNF_ACCESS, kinds.CLIENT_MOUNT, kinds.NNF_DATA_MOVEMENT):
        assert list(control.api.store.objects_of(kind)) == [], kind
    for found in control.api.store.objects_of(kinds.NNF_STORAGE):
        assert len(found["metadata"]["finalizers"]) == 1
        assert {*found["metadata"]["annotations"]} == {labels.MADE_BY}
    assert all(flash.mounts == {} for flash in world.flash.values())
    assert sum(len(flash.volumes) for flash in world.flash.values()) % len(NODES) == 0


def test_a_job_copies_to_and_from_the_parts_of_its_own_nodes() -> None:
    """Issue 15: copies to and from persistent storage."""

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        for count in (1, 3, 4):
            for flash in world.flash.values():
                flash.copies.clear()
            job = await world.submit(control, nodes=count, attributes={"dw": COPYING})
            ended = await world.ended(control, job)
            assert ended.job.result is Result.COMPLETED
            copies = list(world.copies())
            assert len(places(copies, out=False)) == count
            assert places(copies, out=False) == places(copies, out=True)
            assert {copy.userid for copy in copies} == {os.getuid()}
            await free(world, control)

    told(story)


def test_a_copy_does_not_wait_for_jobs_on_other_nodes_nor_touch_what_they_have() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        stays = await world.submit(control, nodes=1, attributes={"dw": USE, **on(NODES[1])})
        await running(world, control, stays)
        job = await world.submit(control, nodes=2, attributes={"dw": COPYING, **on(*NODES[::2])})
        await running(world, control, job)
        wanted = [PARTS[NODES[0]], PARTS[NODES[2]]]
        assert places(list(world.copies()), out=False) == wanted
        await world.cancel(control, stays)
        await world.cancel(control, job)
        await world.ended(control, job)
        await free(world, control)

    told(story, lambda *_: TaskBehavior(seconds=1000))


def on(*nodes: str) -> dict[str, object]:
    return {"constraints": {"hostlist": list(nodes)}}


def test_a_copy_waits_for_a_job_on_the_same_node_and_a_job_for_a_copy() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await workloads.make(control, "runs", USE, userid=os.getuid())
        await workloads.reach(control, "runs", State.PRE_RUN, NODES[:2])
        await workloads.make(control, "copies", COPYING, userid=os.getuid())
        await workloads.reach(control, "copies", State.SETUP, NODES[1:3])
        copying = asyncio.create_task(workloads.reach(control, "copies", State.DATA_IN, NODES[1:3]))
        await world.until(
            lambda: "is waited for" in workloads.status(control, "copies").get("message", "")
        )
        assert workloads.status(control, "copies")["status"] == "DriverWait"
        assert list(world.copies()) == []

        await workloads.reach(control, "runs", State.POST_RUN)
        await copying
        assert places(list(world.copies()), out=False) == [PARTS[each] for each in NODES[1:3]]

        # Its rabbits have it until its own nodes mount it.
        await workloads.make(control, "next", USE, userid=os.getuid())
        mounting = asyncio.create_task(workloads.reach(control, "next", State.PRE_RUN, NODES[2:]))
        await world.until(
            lambda: "is waited for" in workloads.status(control, "next").get("message", "")
        )
        await workloads.reach(control, "copies", State.PRE_RUN)
        await mounting
        for name in ("next", "runs", "copies"):
            await workloads.finish(control, name)
        await free(world, control)

    told(story)


@pytest.mark.parametrize("order", [("aa", "zz"), ("zz", "aa")])
def test_workflows_that_copy_to_the_same_storage_in_any_order_all_come_to_their_end(
    order: tuple[str, str],
) -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        for name, names in (("one", ("aa", "zz")), ("two", order)):
            await workloads.make(control, name, lines(*names), userid=os.getuid())
        await asyncio.gather(
            *(workloads.finish(control, name, NODES[:2]) for name in ("one", "two"))
        )
        assert len(list(world.copies())) == 2 * 2 * 2 * 2
        await free(world, control)

    told(story, lambda *_: TaskBehavior(), "aa", "zz")


def lines(*names: str) -> str:
    """Return the directives of a Workflow that copies to and from storage of these names."""
    return "\n".join(
        line
        for name in names
        for line in (
            f"#DW persistentdw name={name}",
            f"#DW copy_in source={GLOBAL}/input destination=$DW_PERSISTENT_{name}/",
            f"#DW copy_out source=$DW_PERSISTENT_{name}/ destination={GLOBAL}/{name}",
        )
    )


def test_a_job_that_is_cancelled_while_its_copy_waits_leaves_nothing() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await workloads.make(control, "runs", USE, userid=os.getuid())
        await workloads.reach(control, "runs", State.PRE_RUN, NODES)
        job = await world.submit(control, nodes=1, attributes={"dw": COPYING})
        await world.until(
            lambda: any(
                "is waited for" in (each.get("status") or {}).get("message", "")
                for each in control.api.store.objects_of(kinds.WORKFLOW)
            )
        )
        await world.cancel(control, job)
        await workloads.finish(control, "runs")
        assert (await world.ended(control, job)).job.result is Result.CANCELED
        assert list(world.copies()) == []
        await free(world, control)

    told(story)


async def stopped_after(write: int) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened(SITE) as world:
        world.machine = watched(world)
        workloads = Workloads(world)
        jobs: list[JobId] = []

        async def live(control: Control) -> None:
            async with asyncio.timeout(7200):
                await made(workloads, control)
                # A job whose id was never heard of may run, too.
                while len(jobs) < 2:
                    jobs.append(await world.submit(control, nodes=1, attributes={"dw": COPYING}))
                for job in jobs:
                    assert (await world.ended(control, job)).job.result is Result.COMPLETED
                await free(world, control)

        await world.live(live, seam)
        await world.live(live)
    return len(seam.actions) == write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_after_any_write_changes_nothing_in_the_end(shard: int) -> None:
    write = 1 + shard * EVERY
    while virtual.run(stopped_after(write)):
        write += SHARDS * EVERY
    assert write > 100
