"""Jobs come and go for many rounds, some badly: what is accounted for is what there is."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import orjson

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import GLOBAL, World, opened
from tests.scheduling.systems import Bits, parts, taken, together
from warren.controllers.localnode import LocalNode
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, LustreMount, NodeTrouble, Progress, RawVolumeAccess, Volume
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeStorage
from warren.dws.persistent.sharing import Sharing
from warren.dws.storage.nnfstorage import volume_group_and_name
from warren.instance import keys
from warren.instance.jobs.manager import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError
from warren.scheduling.graph import Graph

ROUNDS = extent("WARREN_SOAK_ROUNDS", usual=3, everything=100)
JOBS = 10


class Flaky:
    """A node of which actions fail now and then, most of them only once."""

    def __init__(self, inner: LocalNode, dice: random.Random) -> None:
        self._inner = inner
        self._dice = dice

    def _roll(self) -> None:
        if self._dice.random() < 0.03:
            raise NodeTrouble("bad luck", fatal=self._dice.random() < 0.3)

    async def capacity(self) -> int:
        return await self._inner.capacity()

    async def raw_volume_access(self) -> RawVolumeAccess:
        return await self._inner.raw_volume_access()

    async def unsupported_types(self) -> Mapping[str, str]:
        return await self._inner.unsupported_types()

    async def lnet_nid(self) -> str:
        return await self._inner.lnet_nid()

    async def make(self, volume: Volume) -> None:
        self._roll()
        await self._inner.make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        self._roll()
        await self._inner.release(rabbit, name, profile)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        self._roll()
        await self._inner.mount(rabbit, name, file_system, path, shared, profile)

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._inner.mount_lustre(source, path, profile)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        self._roll()
        await self._inner.configure_mgs(commands)

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self._roll()
        await self._inner.unmount(path, userid, profile)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        self._roll()
        async with aclosing(self._inner.copy(copy)) as copying:  # type: ignore[type-var]
            async for progress in copying:
                yield progress


class Soak:
    """One world, and a round of jobs after the other."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world = world
        self._dice = dice
        self._to_submit = 0
        self.results: dict[JobId, Result | None] = {}
        self.looks = 0
        """How often something was there to be accounted for."""
        world.machine = lambda node, rabbit: Flaky(world._simulated(node, rabbit), dice)

    async def round(self) -> None:
        """Submit jobs and see them end; now and then the process dies in between."""
        self._to_submit = JOBS
        stop_after = self._dice.randrange(1000) if self._dice.random() < 0.5 else None
        if await self._world.live(self._life, Seam(stop_after)) is None:
            await self._world.live(self._life)

    async def _life(self, control: Control) -> bool:
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_all_the_time(control))
            while self._to_submit:
                job = await self._submit(control)
                self._to_submit -= 1  # one that is stopped before its answer is submitted again
                if self._dice.random() < 0.3:
                    tasks.create_task(self._cancel(control, job))
                await asyncio.sleep(self._dice.random())
            for job in [each.job.id for each in control.instance.manager.jobs()]:
                ended = await self._world.ended(control, job)
                self.results[job] = ended.job.result
            looking.cancel()
        await self._world.assert_nothing_left(control)
        assert taken(the_graph(control)) == {}
        return True

    async def _submit(self, control: Control) -> JobId:
        gib = self._dice.randint(1, 40)
        directives = [
            f"#DW jobdw type=xfs capacity={gib}GiB name=scratch",
            f"#DW copy_in source={GLOBAL}/input destination=$DW_JOB_scratch/",
            f"#DW copy_out source=$DW_JOB_scratch/ destination={GLOBAL}/results",
        ]
        return await self._world.submit(
            control,
            attributes={"dw": "\n".join(directives[: self._dice.randint(1, 3)])},
            nodes=self._dice.randint(1, 3),
        )

    async def _cancel(self, control: Control, job: JobId) -> None:
        await asyncio.sleep(self._dice.random() * 20)
        if not isinstance(control.instance.manager.find(job), InactiveJob):
            await self._world.cancel(control, job)

    async def _look_all_the_time(self, control: Control) -> None:
        while True:
            await asyncio.sleep(self._dice.random())
            await self._look(control)

    async def _look(self, control: Control) -> None:
        """What is promised is what jobs have; what is recorded is what there is, at any time."""
        for _ in range(100):
            if taken(the_graph(control)) == (held := promised(self._world, control)):
                break
            await asyncio.sleep(0)  # no time passes: what is under way comes to its end
        assert taken(the_graph(control)) == held
        self.looks += bool(held)
        shares = [
            read(each, NnfNodeStorage)
            for each in control.api.store.objects_of(kinds.NNF_NODE_STORAGE)
        ]
        recorded = {
            volume_group_and_name(each, n) for each in shares for n in range(each.spec.count)
        }
        ready = [each for each in shares if each.status.ready and not each.metadata.deleting]
        made = {volume_group_and_name(each, n) for each in ready for n in range(each.spec.count)}
        there = {place for flash in self._world.flash.values() for place in flash.volumes}
        assert made <= there <= recorded


def promised(world: World, control: Control) -> Bits:
    """Return what active jobs have been given, as their R says. No two have the same."""
    graph = the_graph(control)
    found = []
    for each in control.instance.manager.jobs():
        if isinstance(each, InactiveJob):
            continue
        try:
            names = {event.name for event in world.eventlog(control, each.job.id)}
        except RpcError:
            continue  # it is about to be submitted
        if "alloc" not in names or "free" in names:
            continue
        r = orjson.loads(control.instance.kvs.lookup(keys.job_key(each.job.id, "R")))
        given = parts(graph, graph.decode(r))
        # Of nodes that went back early, the flash has stayed.
        found.append({part: bits for part, bits in given.items() if not _freed(part, each.job)})
    return together(found)


def _freed(part: tuple[str, object], job: Job) -> bool:
    sort, place = part
    return sort != "ssd" and place in job.freed_ranks


def the_graph(control: Control) -> Graph:
    graph = control.instance.manager._scheduler._graph  # type: ignore[attr-defined]
    assert isinstance(graph, Graph)
    return graph


def test_after_any_number_of_rounds_nothing_is_lost_and_nothing_is_given_twice() -> None:
    dice = random.Random(7)

    def play(command: object, environment: object) -> TaskBehavior:
        status = dice.choice([0, 0, 0, 3 << 8])
        return TaskBehavior(seconds=dice.random() * 20, status=status, stubborn=dice.random() < 0.1)

    async def main() -> Soak:
        async with opened(play=play) as world:
            soak = Soak(world, dice)
            for _ in range(ROUNDS):
                await soak.round()
            return soak

    soak = virtual.run(main())

    assert len(soak.results) >= ROUNDS * JOBS
    assert set(soak.results.values()) == {Result.COMPLETED, Result.FAILED, Result.CANCELED}
    assert soak.looks > ROUNDS * JOBS
