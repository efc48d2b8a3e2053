"""A node that does not answer for a while, in each state of a job's storage."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.dws.node import Copy, Progress
from warren.dws.objects.workflows import State
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

AWAY: Final = 600.0
"""Virtual seconds."""


class Silent(SimulatedNode):
    """A node that does nothing while it is away."""

    silent: dict[str, asyncio.Event]
    """Those that are away, with what says that they are back."""

    async def make(self, *what: Any, **how: Any) -> None:
        await self._back()
        await super().make(*what, **how)

    async def release(self, *what: Any, **how: Any) -> None:
        await self._back()
        await super().release(*what, **how)

    async def mount(self, *what: Any, **how: Any) -> None:
        await self._back()
        await super().mount(*what, **how)

    async def unmount(self, *what: Any, **how: Any) -> None:
        await self._back()
        await super().unmount(*what, **how)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        await self._back()
        async for each in super().copy(copy):
            await self._back()
            yield each

    async def _back(self) -> None:
        back = self.silent.get(self._name)
        if back is not None:
            await back.wait()


def is_at(world: World, control: Control, state: str) -> bool:
    return (world.workflow(control).get("status") or {}).get("state") == state


@pytest.mark.parametrize("node", ["rabbit-0", "compute-01"])
@pytest.mark.parametrize("state", State)
def test_a_node_that_is_silent_for_a_while_in_any_state_delays_the_job(
    state: State, node: str
) -> None:
    """And nothing more: no task starts without its storage, and nothing is left in the end."""

    async def main() -> None:
        async with opened(play=lambda *arguments: TaskBehavior(seconds=1.0)) as world:
            silent: dict[str, asyncio.Event] = {}
            kind = type("Some", (Silent,), {"silent": silent})
            world.machine = lambda name, rabbit: kind(name, world.flash[rabbit], seconds=1.0)

            async def life(control: Control) -> Any:
                job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
                await world.until(lambda: is_at(world, control, state))
                silent[node] = asyncio.Event()
                await asyncio.sleep(AWAY)
                silent.pop(node).set()
                ended = await world.ended(control, job)
                await world.assert_nothing_left(control)
                return ended

            ended = await world.live(life)
            assert ended is not None
            assert ended.job.result is Result.COMPLETED
            assert world.without_storage == []
            assert len(list(world.copies())) == 8

    virtual.run(main())
