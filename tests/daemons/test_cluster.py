"""The objects that a cluster starts with."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.harness import virtual
from tests.harness.world import opened
from warren.base.objects import Change, Key
from warren.daemons import clusterobjects
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.containers.ports import MANAGER_KEY
from warren.kube.server.local import LocalClient


def in_a_cluster(
    action: Callable[[Control], Awaitable[None]], shape: ClusterShape | None = None
) -> None:
    async def main() -> None:
        async with opened(shape) as world:
            await world.live(action)

    virtual.run(main())


def test_every_kind_that_decisions_know_is_served() -> None:
    async def look(control: Control) -> None:
        for kind in kinds.ALL:
            resource = control.api.store.resource(kind.group, kind.plural)
            assert resource is not None, kind
            assert kind in [resource.kind(version) for version in resource.versions]

    in_a_cluster(look)


def test_rabbits_become_ready_by_their_own_word() -> None:
    async def look(control: Control) -> None:
        await asyncio.sleep(1)
        found = {
            obj["metadata"]["name"]: obj["status"]
            for obj in control.api.store.objects_of(kinds.STORAGE)
        }
        assert {status["status"] for status in found.values()} == {"Ready"}
        assert found["rabbit-1"]["access"]["computes"][0] == {
            "name": "compute-04",
            "status": "Ready",
        }

    in_a_cluster(look)


def test_establishing_a_cluster_again_changes_nothing() -> None:
    async def look(control: Control) -> None:
        await asyncio.sleep(5)  # until the rabbits are there, and no Lease is about to be renewed
        before = control.api.store.resource_version
        await clusterobjects.establish(
            LocalClient(control.api.store), ClusterShape(global_file_systems=("/global",))
        )
        assert control.api.store.resource_version == before

    in_a_cluster(look)


def test_who_has_ports_keeps_them_when_a_cluster_is_established_again() -> None:
    async def look(control: Control) -> None:
        client = LocalClient(control.api.store)
        requester = {"kind": "NnfSystemStorage", "name": "a", "namespace": "default", "uid": "u"}
        asked = [{"requester": requester, "count": 2}]
        patch = {"spec": {"allocations": asked}}
        await client.patch(Change(kind=kinds.PORT_MANAGER, key=MANAGER_KEY, patch=patch))
        await clusterobjects.establish(client, ClusterShape())
        found = await client.get(kinds.PORT_MANAGER, MANAGER_KEY)
        assert [each["count"] for each in found["spec"]["allocations"]] == [2]

    in_a_cluster(look)


def test_global_file_systems_come_and_go_with_the_site() -> None:
    async def look(control: Control) -> None:
        client = LocalClient(control.api.store)
        await clusterobjects.establish(client, ClusterShape(global_file_systems=("/a", "/b")))
        second = await client.get(kinds.LUSTRE_FILE_SYSTEM, Key("default", "global-1"))
        assert second["spec"]["mountRoot"] == "/b"

        await clusterobjects.establish(client, ClusterShape())
        assert (await client.list(kinds.LUSTRE_FILE_SYSTEM)).items == []

    in_a_cluster(look)
