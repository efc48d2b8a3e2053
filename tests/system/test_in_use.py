"""Storage that is in use when its job is over: nodes go back, flash stays counted."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import InUse, NodeTrouble
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

DW = {"dw": "\n".join(DIRECTIVES)}


class Kept(SimulatedNode):
    """A node of which a process keeps all volumes: for a moment, and then for good."""

    users: Mapping[str, bool]
    asked = 0

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        if self.users["there"]:
            self.asked += 1
            if self.asked < 3:
                raise InUse(f"{rabbit}/{name} is in use by process 7 (sh of root)")
            raise NodeTrouble(f"{rabbit}/{name} is kept by process 7 (sh of root)")
        await super().release(rabbit, name, profile)


def test_flash_that_is_kept_keeps_neither_nodes_nor_the_jobs_success() -> None:
    async def main() -> None:
        users = {"there": True}
        shape = ClusterShape(rabbits=1, global_file_systems=(GLOBAL,))
        async with opened(shape) as world:

            def machine(node: str, rabbit: str) -> Kept:
                kept = Kept(node, world.flash[rabbit])
                kept.users = users
                return kept

            world.machine = machine

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW, nodes=4)
                await world.until(lambda: _names(world, control, job).count("partial-free"))
                await asyncio.sleep(1)  # what is written down is done then
                status = await control.instance.handle.rpc("resource.status")
                assert [each["allocated"] for each in status["nodes"]] == [0, 0, 0, 0]
                plain = await world.submit(control, nodes=4)
                await world.until(lambda: "clean" in _names(world, control, plain))
                # The nodes are free, and the flash is not: it would be reserved twice.
                fits = {"dw": "#DW jobdw type=xfs capacity=140GiB name=large"}
                large = await world.submit(control, attributes=fits, nodes=1)
                await asyncio.sleep(60)
                assert "alloc" not in _names(world, control, large)
                message = world.workflow(control)["status"]["message"]
                assert "is kept by process 7 (sh of root)" in message

                users["there"] = False
                ended = await world.ended(control, job)
                assert ended.job.result is Result.COMPLETED
                assert (await world.ended(control, large)).job.result is Result.COMPLETED
                assert _names(world, control, job).count("partial-free") == 1
                await world.assert_nothing_left(control)

            async with asyncio.timeout(3600):  # of virtual time
                await world.live(life)

    virtual.run(main())


def _names(world: World, control: Control, job: Any) -> list[str]:
    return [event.name for event in world.eventlog(control, job)]
