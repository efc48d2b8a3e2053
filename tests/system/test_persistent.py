"""Storage that outlives its job: made, shared, and destroyed (dws-spec section 7)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.workloads import Workloads
from tests.harness.world import JOB_KINDS, World, opened
from warren.base.objects import Key, key_of
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.objects.workflows import State

CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
USE = "#DW persistentdw name=pers"
DESTROY = "#DW destroy_persistent name=pers"
SITE = ClusterShape(rabbits=2, computes_per_rabbit=2)
NODES = ("compute-00", "compute-01", "compute-02")
PERS = Key("default", "pers")

SHARDS = 4
EVERY = extent("WARREN_STOPS_EVERY", usual=7, everything=1)


def told(story: Callable[[World, Workloads, Control], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(SITE) as world:
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await story(world, workloads, control)

            await world.live(life)

    virtual.run(main())


def volumes(world: World) -> int:
    return sum(len(flash.volumes) for flash in world.flash.values())


def left(control: Control) -> list[str]:
    store = control.api.store
    own = (kinds.PERSISTENT_INSTANCE, *JOB_KINDS)
    return [f"{kind.name} {key_of(obj)}" for kind in own for obj in store.objects_of(kind)]


async def made(workloads: Workloads, control: Control) -> None:
    await workloads.make(control, "maker", CREATE)
    await workloads.finish(control, "maker", NODES)


async def destroyed(workloads: Workloads, control: Control) -> None:
    await workloads.make(control, "destroyer", DESTROY)
    await workloads.finish(control, "destroyer")


def test_persistent_storage_outlives_its_maker_and_its_users() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await made(workloads, control)
        assert volumes(world) == 3
        assert left(control) == [
            "PersistentStorageInstance default/pers",
            "Servers default/pers",
            "NnfStorage default/pers",
            "NnfNodeStorage rabbit-0/default-pers-xfs-0",
            "NnfNodeStorage rabbit-1/default-pers-xfs-0",
            "NnfNodeBlockStorage rabbit-0/default-pers-xfs-0",
            "NnfNodeBlockStorage rabbit-1/default-pers-xfs-0",
        ]
        found = control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)
        assert found["status"]["state"] == "Active"
        assert "ownerReferences" not in found["metadata"]

        await workloads.make(control, "user", USE)
        await workloads.finish(control, "user", NODES)
        path = workloads.env["user"]["DW_PERSISTENT_pers"]
        assert workloads.env["user"]["DW_PERSISTENTS"] == f"pers:{path}"
        assert "DW_PERSISTENT_" not in workloads.env["user"]
        assert volumes(world) == 3

        await destroyed(workloads, control)
        assert left(control) == []
        assert volumes(world) == 0

    told(story)


def test_workflows_mount_the_parts_of_their_own_nodes_at_a_time() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await made(workloads, control)
        parts = {"one": NODES[:1], "two": NODES[1:2]}
        for name, nodes in parts.items():
            await workloads.make(control, name, USE)
            await workloads.reach(control, name, State.PRE_RUN, nodes)
        mounted = [
            (obj["metadata"]["namespace"], each["device"])
            for obj in control.api.store.objects_of(kinds.CLIENT_MOUNT)
            for each in obj["spec"]["mounts"]
        ]
        assert sorted(node for node, _ in mounted) == sorted(NODES[:2])
        assert mounted[0][1] != mounted[1][1]
        (storage,) = control.api.store.objects_of(kinds.NNF_STORAGE)
        assert len(storage["metadata"]["finalizers"]) == 3

        for name, nodes in parts.items():
            await workloads.finish(control, name, nodes)
        await destroyed(workloads, control)
        assert left(control) == []

    told(story)


def test_two_users_at_a_time_keep_it_from_being_destroyed() -> None:
    """12-destroy-in-use: refused in Teardown, and done once it is free."""

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await made(workloads, control)
        for name in ("one", "two"):
            await workloads.make(control, name, USE)
        # Each on a rabbit of its own: a node-local file system is mounted by one at a time.
        nodes = {"one": NODES[:2], "two": NODES[2:]}
        await asyncio.gather(
            *(workloads.reach(control, name, State.SETUP, nodes[name]) for name in nodes)
        )
        references = control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)["spec"][
            "consumerReferences"
        ]
        assert sorted(each["name"] for each in references) == ["one-0", "two-0"]

        await workloads.make(control, "destroyer", DESTROY)
        status = await workloads.reach(control, "destroyer", State.TEARDOWN)
        assert status["message"] == (
            "DW Directive 0: User error: persistent storage cannot be deleted while in use"
        )
        assert control.api.store.get(kinds.PERSISTENT_INSTANCE, PERS)["status"]["state"] == "Active"

        await workloads.finish(control, "one", nodes["one"])
        await workloads.delete(control, "two")  # in Setup, without Teardown
        await world.until(lambda: workloads.status(control, "destroyer").get("ready"))
        await workloads.delete(control, "destroyer")
        assert left(control) == []

    told(story)


def test_another_users_storage_is_neither_used_nor_destroyed() -> None:
    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await made(workloads, control)
        await workloads.make(control, "thief", USE, userid=1060)
        status = await workloads.reach(control, "thief", State.PROPOSAL)
        assert status["message"] == (
            "DW Directive 0: User error: User ID does not match existing persistent storage"
        )
        await workloads.make(control, "vandal", DESTROY, userid=1060)
        status = await workloads.reach(control, "vandal", State.TEARDOWN)
        assert status["message"] == (
            "DW Directive 0: User error: user ID does not match existing persistent storage"
        )
        for name in ("thief", "vandal"):
            await workloads.delete(control, name)
        assert volumes(world) == 3

    told(story)


def test_storage_whose_making_is_broken_off_goes() -> None:
    """dws-spec section 7: a Workflow that did not complete every earlier state takes it along."""

    async def story(world: World, workloads: Workloads, control: Control) -> None:
        await workloads.make(control, "maker", CREATE)
        await workloads.reach(control, "maker", State.PROPOSAL)
        await workloads.delete(control, "maker")
        await world.until(lambda: left(control) == [])

    told(story)


async def stopped_after(write: int) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    seam = Seam(stop_after=write)
    async with opened(SITE) as world:
        workloads = Workloads(world)

        async def live(control: Control) -> None:
            async with asyncio.timeout(3600):
                await made(workloads, control)
                await workloads.make(control, "user", USE)
                await workloads.finish(control, "user", NODES)
                await destroyed(workloads, control)

        async def and_look(control: Control) -> None:
            await live(control)
            await world.until(lambda: left(control) == [])
            assert volumes(world) == 0, (write, seam.actions[-1])

        await world.live(live, seam)
        await world.live(and_look)
    return len(seam.actions) == write


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_stop_after_any_write_changes_nothing_in_the_end(shard: int) -> None:
    write = 1 + shard * EVERY
    while virtual.run(stopped_after(write)):
        write += SHARDS * EVERY
    assert write > 100
