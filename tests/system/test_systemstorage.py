"""System storage: made on rabbits through their agents, reached by their nodes, given back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.base.objects import Change, Key, Kind, Remove, key_of
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import audit, kinds
from warren.kube.client import NotFound

LOCAL = Key("default", "local")
PROFILE = {"kind": "NnfStorageProfile", "name": "default", "namespace": "nnf-system"}
SITE = ClusterShape(rabbits=3, computes_per_rabbit=2)
PARTS = (
    kinds.SERVERS,
    kinds.COMPUTES,
    kinds.NNF_STORAGE,
    kinds.NNF_NODE_STORAGE,
    kinds.NNF_NODE_BLOCK_STORAGE,
    kinds.NNF_ACCESS,
    kinds.CLIENT_MOUNT,
)

Story = Callable[[World, Control], Awaitable[None]]


def told(story: Story) -> None:
    async def main() -> None:
        async with opened(SITE) as world:

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    await story(world, control)

            await world.live(life)

    virtual.run(main())


async def make(control: Control, **spec: Any) -> None:
    metadata = {"name": LOCAL.name, "namespace": LOCAL.namespace}
    whole = {"storageProfile": PROFILE, "capacity": 2**30, **spec}
    await control.api.store.create(kinds.SYSTEM_STORAGE, {"metadata": metadata, "spec": whole})


def status(control: Control) -> Any:
    try:
        return control.api.store.get(kinds.SYSTEM_STORAGE, LOCAL).get("status") or {}
    except NotFound:
        return None


async def ready(world: World, control: Control) -> None:
    await world.until(lambda: status(control).get("ready"))


def there(control: Control, kind: Kind) -> list[str]:
    return sorted(str(key_of(obj)) for obj in control.api.store.objects_of(kind))


def volumes(world: World) -> dict[str, int]:
    return {name: len(flash.volumes) for name, flash in world.flash.items()}


async def given_back(world: World, control: Control) -> None:
    await control.api.store.delete(Remove(kind=kinds.SYSTEM_STORAGE, key=LOCAL))
    await world.until(lambda: status(control) is None)
    assert {kind.name: there(control, kind) for kind in PARTS} == {kind.name: [] for kind in PARTS}
    assert set(volumes(world).values()) == {0}


def test_every_rabbit_has_a_volume_which_its_nodes_may_reach_until_it_is_deleted() -> None:
    async def story(world: World, control: Control) -> None:
        await make(control)
        await ready(world, control)
        assert volumes(world) == {"rabbit-0": 1, "rabbit-1": 1, "rabbit-2": 1}
        assert there(control, kinds.CLIENT_MOUNT) == []
        reached = {
            obj["metadata"]["namespace"]: obj["spec"]["allocations"][0]["access"]
            for obj in control.api.store.objects_of(kinds.NNF_NODE_BLOCK_STORAGE)
        }
        assert reached["rabbit-1"] == ["rabbit-1", "compute-02", "compute-03"]
        await given_back(world, control)

    told(story)


def test_each_node_mounts_an_allocation_of_its_own_where_that_is_asked_for() -> None:
    async def story(world: World, control: Control) -> None:
        spec = {"shared": False, "makeClientMounts": True, "clientMountPath": "/mnt/nnf/local"}
        await make(control, type="xfs", excludeRabbits=["rabbit-1"], **spec)
        await ready(world, control)
        assert volumes(world) == {"rabbit-0": 2, "rabbit-1": 0, "rabbit-2": 2}
        mounts = control.api.store.objects_of(kinds.CLIENT_MOUNT)
        devices = {
            obj["metadata"]["namespace"]: obj["spec"]["mounts"][0]["device"]["lvm"]["logicalVolume"]
            for obj in mounts
        }
        assert sorted(devices) == ["compute-00", "compute-01", "compute-04", "compute-05"]
        assert len(set(devices.values())) == 4
        await given_back(world, control)

    told(story)


def test_a_rabbit_that_was_disabled_gets_its_share_when_it_is_ready_again() -> None:
    async def story(world: World, control: Control) -> None:
        store, rabbit = control.api.store, Key("default", "rabbit-1")

        def standing() -> Any:
            found = [obj for obj in store.objects_of(kinds.STORAGE) if key_of(obj) == rabbit]
            return found and (found[0].get("status") or {}).get("status")

        await world.until(lambda: standing() == "Ready")
        disabled: Any = {"spec": {"state": "Disabled"}}
        await store.patch(Change(kind=kinds.STORAGE, key=rabbit, patch=disabled))
        await world.until(lambda: standing() == "Disabled")
        await make(control, excludeDisabledRabbits=True)
        await ready(world, control)
        # The first may be told of as ready before the last is.
        await world.until(lambda: sum(volumes(world).values()) == 2)
        assert volumes(world)["rabbit-1"] == 0

        enabled: Any = {"spec": {"state": "Enabled"}}
        await store.patch(Change(kind=kinds.STORAGE, key=rabbit, patch=enabled))
        await world.until(lambda: volumes(world)["rabbit-1"] == 1)
        await ready(world, control)
        await given_back(world, control)

    told(story)


@pytest.mark.parametrize("there_still", [True, False])
def test_what_is_the_systems_is_no_orphan_of_a_workflow(there_still: bool) -> None:
    async def story(world: World, control: Control) -> None:
        await make(control)
        await ready(world, control)
        objects = {
            kind: list(control.api.store.objects_of(kind))
            for kind in (*audit.OWNERS, *audit.DEPENDENTS)
        }
        if not there_still:
            objects[kinds.SYSTEM_STORAGE] = []
        found = audit.orphans(audit.NodeInventory(processes={}), objects, [])
        assert bool(found) is not there_still

    told(story)
