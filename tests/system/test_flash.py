"""How much flash jobs get of a rabbit: of one pool, or in quanta by configuration."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from tests.harness import virtual
from tests.harness.workloads import Workloads
from tests.harness.world import World, opened
from warren.base.bytesize import GIB
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control, placement_policy
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitPolicy, RabbitTable
from warren.instance.simulated import TaskBehavior
from warren.instance.storagetables import StorageTable
from warren.lifecycle.states import Result, State
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

SITE = ClusterShape(rabbits=1, capacity=64 * GIB)
IN_QUANTA = Config(storage=StorageTable(flash_quantum="8GiB"))
PADDING = 300
"""MiB that the default profile puts to each file system of xfs."""


def lived(*lives: tuple[Config, Callable[[World, Control], Awaitable[None]]]) -> None:
    """Live once or more often on the same cluster, each time with a configuration."""

    async def main() -> None:
        async with opened(SITE, lambda command, environment: TaskBehavior(seconds=60.0)) as world:
            for config, life in lives:
                world.config = config
                await world.live(lambda control, life=life: life(world, control))  # type: ignore[misc]

    virtual.run(main())


async def submit(world: World, control: Control, mib: int, nodes: int = 1) -> JobId:
    """Submit a job whose nodes get so much flash each, padding included."""
    directive = f"#DW jobdw type=xfs capacity={mib - PADDING}MiB name=scratch"
    return await world.submit(control, nodes=nodes, attributes={"dw": directive})


def states(control: Control, *jobs: JobId) -> list[State]:
    found = [control.instance.manager.find(job) for job in jobs]
    return [each.job.state for each in found if each is not None]


async def complete(world: World, control: Control, *jobs: JobId) -> None:
    for job in jobs:
        ended = await world.ended(control, job)
        assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)


def test_all_flash_of_a_rabbit_is_given_out() -> None:
    async def life(world: World, control: Control) -> None:
        whole = await submit(world, control, 16 * 1024, nodes=4)
        await complete(world, control, whole)

        parts = [await submit(world, control, gib * 1024) for gib in (27, 36, 1)]
        more = await submit(world, control, 1024)
        await asyncio.sleep(10.0)
        assert states(control, *parts, more) == [*[State.RUN] * 3, State.SCHED]
        await complete(world, control, *parts, more)

    lived((Config(), life))


def test_more_than_a_rabbit_has_is_refused_at_once() -> None:
    async def life(world: World, control: Control) -> None:
        with pytest.raises(
            RpcError, match="1 node with 65 GiB of flash is asked for, and a rabbit"
        ):
            await submit(world, control, 65 * 1024)

    lived((Config(), life))


def test_a_site_may_bound_what_a_job_has_for_each_node_by_the_type_of_its_storage() -> None:
    """coral2-spec section 13."""

    async def life(world: World, control: Control) -> None:
        one = "#DW jobdw type=xfs capacity={}GiB name={}"
        fits = {"dw": "\n".join([one.format(20, "aa"), one.format(9, "bb")])}
        more = {"dw": "\n".join([one.format(20, "aa"), one.format(10, "bb")])}
        await complete(world, control, await world.submit(control, nodes=2, attributes=fits))
        with pytest.raises(RpcError, match="32 GiB of xfs storage for each node are asked for"):
            await world.submit(control, nodes=2, attributes=more)

    maximums = RabbitPolicy(maximums={"xfs": 31, "raw": 1})
    lived((Config(rabbit=RabbitTable(policy=maximums)), life))


def test_a_site_may_have_it_given_out_in_quanta() -> None:
    async def life(world: World, control: Control) -> None:
        jobs = [await submit(world, control, 9 * 1024, nodes=n) for n in (3, 1, 1)]
        await asyncio.sleep(10.0)
        assert states(control, *jobs) == [State.RUN, State.RUN, State.SCHED]
        await complete(world, control, *jobs)

    lived((IN_QUANTA, life))


@pytest.mark.parametrize("before", [Config(), IN_QUANTA])
def test_jobs_keep_their_flash_through_a_restart_even_into_a_pool(before: Config) -> None:
    jobs: list[JobId] = []

    async def begin(world: World, control: Control) -> None:
        jobs.append(await submit(world, control, 20 * 1024, nodes=2))
        await asyncio.sleep(10.0)
        assert states(control, *jobs) == [State.RUN]

    async def go_on(world: World, control: Control) -> None:
        left = 16 if before is IN_QUANTA else 24
        rest = await submit(world, control, left * 1024)
        more = await submit(world, control, 1024)
        await asyncio.sleep(10.0)
        assert states(control, *jobs, rest, more) == [State.RUN, State.RUN, State.SCHED]
        await complete(world, control, *jobs, rest, more)
        await world.assert_nothing_left(control)

    lived((before, begin), (Config(), go_on))


def test_a_quantum_is_a_whole_number_of_gib() -> None:
    for text in ("4GB", "1.5GiB", "0GiB", "much", ""):
        with pytest.raises(ValueError, match="is not a whole number of GiB: write 4GiB"):
            StorageTable(flash_quantum=text)
    assert msgspec.convert({"flash-quantum": "2TiB"}, StorageTable).quantum_gib == 2048


def test_persistent_storage_and_jobs_share_a_rabbit_out_between_them() -> None:
    async def life(world: World, control: Control) -> None:
        workloads = Workloads(world)
        await workloads.make(
            control, "maker", "#DW create_persistent type=xfs capacity=19GiB name=pers"
        )
        await workloads.finish(control, "maker", ("compute-00", "compute-01"))

        fits, more = [await submit(world, control, gib * 1024) for gib in (24, 1)]
        await asyncio.sleep(10.0)
        # Twice 19 GiB, and twice 300 MiB of padding: one GiB of 39 is not all used.
        assert states(control, fits, more) == [State.RUN, State.RUN]
        last = await submit(world, control, 1024)
        await asyncio.sleep(10.0)
        assert states(control, last) == [State.SCHED]
        (reason,) = (await control.instance.handle.rpc("sched.waits", {"ids": [last]}))[
            "waits"
        ].values()
        assert reason.endswith("storage of no running job has 39 GiB of 1 rabbit")

        await complete(world, control, fits, more, last)
        await workloads.make(control, "destroyer", "#DW destroy_persistent name=pers")
        await workloads.finish(control, "destroyer")
        await complete(world, control, await submit(world, control, 64 * 1024))

    lived((Config(), life))


def test_a_scale_and_a_bound_that_are_none_are_refused() -> None:
    for scale in (0, 11):
        with pytest.raises(ValueError, match=f"scale: {scale} is not from 1 to 10"):
            StorageTable(scale=scale)
    with pytest.raises(ValueError, match=r"most-allocations\.mdt: 0 is less than 1"):
        StorageTable(most_allocations={"mdt": 0})
    found = msgspec.convert({"scale": 3, "most-allocations": {"mdt": 50}}, StorageTable)
    assert (found.scale, found.most_allocations) == (3, {"mdt": 50})
    assert [
        placement_policy(each).allow_any_rabbit for each in (found, StorageTable(placement="any"))
    ] == [
        False,
        True,
    ]
    with pytest.raises(msgspec.ValidationError, match=r"'every'.*placement"):
        msgspec.convert({"placement": "every"}, StorageTable)
