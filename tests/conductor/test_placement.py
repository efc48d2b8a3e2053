"""Storage that is not beside each node, in the whole system: reserved and used on one rabbit."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.dws.builders import need
from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import World, opened
from warren.base.bytesize import GIB
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.directives.parse import Directive
from warren.dws import kinds
from warren.dws.breakdown import allocationneeds, computeaccess
from warren.dws.objects.breakdowns import AllocationNeed
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.simulated import TaskBehavior
from warren.instance.storagetables import StorageTable
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError
from warren.scheduling.allocatedflash import allocated_flash

BESIDE = {"dw": "#DW jobdw type=xfs capacity=60GiB name=beside"}
ACROSS = {"dw": "#DW jobdw type=xfs capacity=45GiB name=across"}
SHARED = {"dw": "#DW jobdw type=xfs capacity=8GiB name=shared"}

EVERY = extent("WARREN_STOPS_EVERY", usual=4, everything=1)
"""After one write of how many the process is stopped."""


@pytest.fixture(autouse=True)
def kinds_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break directives down as no file system of this cluster is: `shared` is on one server."""

    def needs_of(directive: Directive, profile: NnfStorageProfile) -> list[AllocationNeed]:
        size = int(directive.values["capacity"].removesuffix("GiB")) * GIB
        if directive.values["name"] == "beside":
            return [need("xfs", size)]
        if directive.values["name"] == "across":
            return [need("xfs", size, "AllocateAcrossServers")]
        return [need("xfs", size, "AllocateSingleServer")]

    monkeypatch.setattr(allocationneeds, "needs_of", needs_of)
    # Over the network its nodes reach it wherever they are.
    over = {
        **computeaccess.ACCESS_CONSTRAINTS,
        "xfs": [{"type": "network", "priority": "mandatory"}],
    }
    monkeypatch.setattr(computeaccess, "ACCESS_CONSTRAINTS", over)


def held_by(control: Control, job: JobId) -> dict[str, int]:
    r = control.instance.kvs.lookup(keys.job_key(job, "R"))
    return {each.rabbit: each.gib for each in allocated_flash(r)}


def assigned(control: Control, job: JobId) -> Mapping[str, Any] | None:
    for each in control.api.store.objects_of(kinds.SERVERS):
        if each["metadata"]["name"] == f"fluxjob-{job}-0" and each["spec"].get("allocationSets"):
            (found,) = each["spec"]["allocationSets"]
            return dict(found)
    return None


def shares(control: Control, job: JobId) -> list[str]:
    """Return the rabbits on which a job has storage."""
    label = "dataworkflowservices.github.io/workflow.name"
    return [
        each["metadata"]["namespace"]
        for each in control.api.store.objects_of(kinds.NNF_NODE_STORAGE)
        if each["metadata"]["labels"][label] == f"fluxjob-{job}"
    ]


def test_one_allocation_is_reserved_and_used_on_the_rabbit_that_has_room_for_it() -> None:
    async def action(world: World, control: Control) -> None:
        first = await world.submit(control, nodes=1, attributes=BESIDE)
        await world.until(lambda: assigned(control, first))
        assert held_by(control, first) == {"rabbit-0": 60}

        # rabbit-0 has nodes enough, and 4 GiB left.
        job = await world.submit(control, nodes=2, attributes=SHARED)
        await world.until(lambda: shares(control, job))
        assert held_by(control, job) == {"rabbit-0": 0, "rabbit-1": 8}
        assert assigned(control, job) == {
            "label": "xfs",
            "allocationSize": 8 * GIB,
            "storage": [{"name": "rabbit-1", "allocationCount": 1}],
        }
        assert shares(control, job) == ["rabbit-1"]
        await world.cancel(control, job)
        await world.ended(control, job)
        await world.ended(control, first)
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_nodes_are_where_they_reach_an_allocation_that_they_must_be_wired_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Statements 002.20, 002.23, 002.24: what is physical and mandatory, to the end."""
    wired = {"xfs": [{"type": "physical", "priority": "mandatory"}]}
    monkeypatch.setattr(computeaccess, "ACCESS_CONSTRAINTS", wired)

    async def action(world: World, control: Control) -> None:
        first = await world.submit(control, nodes=1, attributes=BESIDE)
        await world.until(lambda: assigned(control, first))
        job = await world.submit(control, nodes=2, attributes=SHARED)
        await world.until(lambda: shares(control, job))
        assert held_by(control, job) == {"rabbit-1": 8}
        assert shares(control, job) == ["rabbit-1"]
        await world.cancel(control, job)
        await world.ended(control, job)
        await world.ended(control, first)
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_a_site_has_a_set_shared_out_as_finely_as_it_wants() -> None:
    """Statement 002.18: what was reserved is what is made, at whatever scale."""

    async def life(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=5, attributes=ACROSS)
        await world.until(lambda: shares(control, job))
        assert held_by(control, job) == {"rabbit-0": 27, "rabbit-1": 18}
        found = assigned(control, job)
        assert found is not None
        assert found["allocationSize"] == 9 * GIB
        assert [each["allocationCount"] for each in found["storage"]] == [3, 2]
        await world.cancel(control, job)
        await world.ended(control, job)
        await world.assert_nothing_left(control)

    async def main() -> None:
        async with opened(ClusterShape(rabbits=2, capacity=64 * GIB)) as world:
            world.config = Config(storage=StorageTable(scale=10))
            await world.live(lambda control: life(world, control))

    virtual.run(main())


def test_a_job_whose_one_node_has_the_allocation_lives_its_whole_life() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, nodes=1, attributes=SHARED)
        ended = await world.ended(control, job)
        assert ended.job.fatal_exception is None
        assert world.seen[next(iter(world.seen))]["DW_JOB_shared"]
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_a_stop_after_any_write_leaves_the_allocation_where_it_was_reserved() -> None:
    async def set_up(world: World, control: Control) -> None:
        known = world.only_job(control)
        job = known.job.id if known else await world.submit(control, nodes=2, attributes=SHARED)
        await world.until(lambda: shares(control, job))
        assert held_by(control, job) == {"rabbit-0": 8}
        assert shares(control, job) == ["rabbit-0"]

    async def once(write: int) -> bool:
        seam = Seam(stop_after=write)
        shape = ClusterShape(rabbits=1, capacity=12 * GIB)
        async with opened(shape, lambda command, environment: TaskBehavior()) as world:
            await world.live(lambda control: set_up(world, control), seam)
            await world.live(lambda control: set_up(world, control))
        return len(seam.actions) == write

    write = 1
    while virtual.run(once(write)):
        write += EVERY
    assert write > 20


def test_what_can_never_be_placed_is_refused_at_submit() -> None:
    async def action(world: World, control: Control) -> None:
        large = {"dw": "#DW jobdw type=xfs capacity=65GiB name=shared"}
        with pytest.raises(RpcError) as raised:
            await world.submit(control, nodes=2, attributes=large)
        assert str(raised.value).startswith(
            "The job's storage cannot be placed because an allocation of 65 GiB is on one rabbit"
        )

    in_a_world(action)


def in_a_world(action: Any) -> None:
    async def main() -> None:
        shape = ClusterShape(rabbits=2, capacity=64 * GIB)
        async with opened(shape, lambda command, environment: TaskBehavior(seconds=5)) as world:
            await world.live(lambda control: action(world, control))

    virtual.run(main())
