"""Nodes that lose the link to their rabbit, by what the rabbit says, or they themselves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tests.harness import virtual
from tests.harness.world import Network, World, opened
from tests.system.test_health import DW, OF_R0, R0, ends, opening, patch, storage, waits
from warren.base.objects import Change, Key
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.rabbits.nodedrains import DRAIN_REASON
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.instance.simulated import TaskBehavior
from warren.kube.server.local import LocalClient
from warren.lifecycle.policy import Queue
from warren.scheduling.tags import UNTAGGED_CONSTRAINT

SOFTLY = Config(rabbit=RabbitTable(drain_compute_nodes=False))
Life = Callable[[World, Control], Awaitable[None]]


def lived(*lives: Life, config: Config | None = None, network: Network | None = None) -> None:
    """Live once or more often on the same cluster, by what a site wants."""

    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=1.0)) as world:
            world.config = config or Config()
            world.network = network
            for life in lives:
                await world.live(lambda control, life=life: life(world, control))  # type: ignore[misc]

    virtual.run(main())


async def link(control: Control, **links: str) -> None:
    """Have the rabbit say what its links are; those of which nothing is said are Ready."""
    servers = [
        {"id": str(number), "name": name, "hostname": name, "status": status, "health": "OK"}
        for number, (name, status) in enumerate(
            {name.replace("_", "-"): status for name, status in links.items()}.items()
        )
    ]
    change = Change(
        kind=kinds.NNF_NODE,
        key=Key(R0, NNF_NODE_NAME),
        patch={"status": {"servers": servers}},
        status=True,
    )
    await LocalClient(control.api.store).patch(change)
    await asyncio.sleep(0.5)


async def drained(control: Control) -> Mapping[str, str]:
    """Return why which nodes are drained."""
    told = (await control.instance.bus.handle().rpc("resource.status"))["nodes"]
    return {node["name"]: node["reason"] for node in told if node["state"].startswith("drain")}


async def drain(control: Control, node: str, reason: str) -> None:
    request = {"targets": node, "reason": reason}
    await control.instance.bus.handle().rpc("resource.drain", request)


def test_a_node_without_its_link_is_drained_within_a_second_and_undrained_when_it_is_back() -> None:
    """Statement 000.52: the Storages are watched, and lost links drain nodes."""

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await drain(control, "compute-02", "bad disk")
        await link(control, compute_01="Offline", compute_02="Offline")
        assert storage(control, R0)["status"]["status"] == "Ready"
        assert await drained(control) == {"compute-01": DRAIN_REASON, "compute-02": "bad disk"}
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert (await waits(control, held)).endswith("; drained: compute-[01-02]")

        await link(control)
        assert await drained(control) == {"compute-02": "bad disk"}
        await control.instance.bus.handle().rpc("resource.undrain", {"targets": "compute-02"})
        assert await ends(world, control, held) == "compute-[00-03]"

    lived(life)


def test_every_job_with_storage_excludes_the_nodes_that_are_tagged() -> None:
    """Statement 000.17: as today, by the property, and not by the names of the nodes."""

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        for given, made in (
            ({}, UNTAGGED_CONSTRAINT),
            ({"constraints": OF_R0}, {"and": [OF_R0, UNTAGGED_CONSTRAINT]}),
        ):
            job = await world.submit(control, attributes={**DW, **given})
            await ends(world, control, job)
            (update,) = [
                event for event in world.eventlog(control, job) if event.name == "jobspec-update"
            ]
            assert update.context["attributes.system.constraints"] == made

    lived(life)


def test_a_node_is_only_tagged_where_the_site_wants_so_and_jobs_without_storage_get_it() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await link(control, compute_01="Offline")
        assert await drained(control) == {}
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert (await waits(control, held)).endswith("; tagged badrabbit: compute-01")
        small = await world.submit(control, nodes=3, attributes={**DW, "constraints": OF_R0})
        await asyncio.sleep(60.0)
        found = control.instance.manager.find(small)
        assert found is not None
        assert found.r is not None
        assert found.r["execution"]["nodelist"] == ["compute-[00,02-03]"]
        plain = await world.submit(control, attributes={"constraints": OF_R0})
        await asyncio.sleep(60.0)
        other = control.instance.manager.find(plain)
        assert other is not None
        assert other.r is not None
        assert other.r["execution"]["nodelist"] == ["compute-[00-03]"]

        await link(control)
        assert await ends(world, control, held) == "compute-[00-03]"

    lived(life, config=SOFTLY)


def test_tags_and_drains_of_a_link_that_came_back_meanwhile_do_not_outlive_a_restart() -> None:
    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        await link(control, compute_01="Offline")
        assert await drained(control) == {"compute-01": DRAIN_REASON}
        await drain(control, "compute-02", "bad disk")
        # It comes back while the instance hears of nothing.
        await patch(control, R0, {"spec": {"mode": "Testing"}})
        links = [
            {**each, "status": "Ready"}
            for each in storage(control, R0)["status"]["access"]["computes"]
        ]
        resources: Any = control.instance.resources
        resources.keep_drained = _deaf
        await patch(control, R0, {"status": {"access": {"computes": links}}})
        assert await drained(control) == {"compute-01": DRAIN_REASON, "compute-02": "bad disk"}

    async def after(world: World, control: Control) -> None:
        await asyncio.sleep(1.0)
        assert await drained(control) == {"compute-02": "bad disk"}

    lived(before, after)


async def _deaf(*heard: object) -> None:
    """Does nothing, as an instance that is not there."""


def test_a_tag_is_there_again_after_a_restart_and_none_without_its_rabbit() -> None:
    held = []

    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        await link(control, compute_01="Offline")

    async def after(world: World, control: Control) -> None:
        held.append(await world.submit(control, attributes={**DW, "constraints": OF_R0}))
        assert (await waits(control, held[0])).endswith("; tagged badrabbit: compute-01")
        graph = control.instance.scheduler._graph
        assert list(graph._tagged_by_source) == [R0]
        key = Key("default", "default")
        nodes: Any = {"spec": {"storageNodes": []}}
        await LocalClient(control.api.store).patch(
            Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=nodes)
        )
        await asyncio.sleep(1.0)
        assert list(graph._tagged_by_source) == []

    lived(before, after, config=SOFTLY)


def test_a_rabbit_that_is_offline_itself_drains_none_of_its_nodes() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await patch(control, R0, {"spec": {"state": "Disabled"}})
        await asyncio.sleep(1.0)
        assert await drained(control) == {}

    lived(life)


def test_a_site_may_want_nothing_of_it_or_drain_nodes_of_some_queues_alone() -> None:
    async def nothing(world: World, control: Control) -> None:
        await opening(world, control)
        await link(control, compute_00="Offline", compute_01="Offline")
        assert await drained(control) == {}
        assert control.instance.scheduler._graph._tagged_by_source == {}

    async def few(world: World, control: Control) -> None:
        await opening(world, control)
        await link(control, compute_00="Offline", compute_01="Offline", compute_02="Offline")
        assert await drained(control) == {"compute-00": DRAIN_REASON, "compute-02": DRAIN_REASON}
        graph = control.instance.scheduler._graph
        assert graph._tagged_by_source == {R0: 0b10}

    lived(nothing, config=Config(rabbit=RabbitTable(drain_compute_nodes=False, soft_drain=False)))
    queues = {"a": Queue(hosts="compute-00"), "b": Queue(hosts="compute-[02-03]"), "c": Queue()}
    lived(few, config=Config(queues=queues, rabbit=RabbitTable(drain_queues=("a", "b"))))


# Over a network


def test_a_node_that_does_not_reach_its_rabbit_is_drained_until_it_does() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await drain(control, "compute-02", "bad disk")
        network.cut = {"compute-01", "compute-02"}
        await asyncio.sleep(100.0)
        assert await drained(control) == {"compute-01": DRAIN_REASON, "compute-02": "bad disk"}
        shown = storage(control, R0)
        assert [each["status"] for each in shown["status"]["access"]["computes"]] == (
            ["Ready", "Offline", "Offline", "Ready"]
        )
        assert "no answer within 5 s" in shown["metadata"]["annotations"][labels.LOST_LINKS]
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert (await waits(control, held)).endswith("; drained: compute-[01-02]")

        network.cut = set()
        await asyncio.sleep(15.0)
        assert await drained(control) == {"compute-02": "bad disk"}
        await control.instance.bus.handle().rpc("resource.undrain", {"targets": "compute-02"})
        assert await ends(world, control, held) == "compute-[00-03]"

    network = Network()
    lived(life, network=network)


def test_a_node_that_is_only_tagged_runs_jobs_without_storage_while_it_reaches_no_rabbit() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        network.cut = {"compute-01"}
        await asyncio.sleep(100.0)
        assert await drained(control) == {}
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert (await waits(control, held)).endswith("; tagged badrabbit: compute-01")
        plain = await world.submit(control, attributes={"constraints": OF_R0})
        await asyncio.sleep(60.0)
        found = control.instance.manager.find(plain)
        assert found is not None
        assert found.r is not None
        assert found.r["execution"]["nodelist"] == ["compute-[00-03]"]
        network.cut = set()
        assert await ends(world, control, held) == "compute-[00-03]"

    network = Network()
    lived(life, config=SOFTLY, network=network)


def test_a_link_that_is_lost_stays_so_over_a_restart_of_everything_until_it_is_back() -> None:
    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        network.cut = {"compute-01"}
        await asyncio.sleep(100.0)
        assert await drained(control) == {"compute-01": DRAIN_REASON}

    async def after(world: World, control: Control) -> None:
        # Before so many tests have failed as lose a link.
        await asyncio.sleep(5.0)
        assert await drained(control) == {"compute-01": DRAIN_REASON}
        network.cut = set()
        await asyncio.sleep(15.0)
        assert await drained(control) == {}

    network = Network()
    lived(before, after, network=network)
