"""The process dies after every single write, while nodes are drained and jobs come and go."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.harness import virtual
from tests.harness.extent import extent
from tests.harness.seam import Seam
from tests.harness.world import DIRECTIVES, opened
from warren.base.objects import Key
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.lifecycle.states import Result
from warren.rfc import resource_set

LATER = extent("WARREN_DRAINS_EVERY", usual=59, everything=7)
"""After one write of how many, of those that come after the drain's own."""

AROUND = extent("WARREN_DRAINS_AROUND", usual=16, everything=40)
"""Before which write after every single one: the drain's own are among the first ten."""

REQUEST = {"targets": "compute-01", "reason": "bad disk", "mode": "update"}


async def look(control: Control) -> Mapping[str, Any]:
    """Return what is known of the node that is drained."""
    nodes = (await control.instance.bus.handle().rpc("resource.status"))["nodes"]
    found: Mapping[str, Any] = nodes[1]
    return found


async def stopped_after(write: int) -> bool:
    """Drain, then live through a job; stop after a write, and do again what was not answered."""
    seam = Seam(stop_after=write)
    answered: list[Mapping[str, Any]] = []

    async with opened() as world:

        async def live(control: Control) -> None:
            if not answered:
                await control.instance.bus.handle().rpc("resource.drain", REQUEST)
                answered.append(await look(control))
            known = world.only_job(control)
            if known is None:
                job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
            else:
                job = known.job.id
            ended = await world.ended(control, job)

            assert await look(control) == answered[0], write
            assert answered[0]["state"] == "drained"
            assert ended.job.result is Result.COMPLETED, (write, ended.job)
            assert ended.r is not None
            assert "compute-01" not in resource_set.nodelist(ended.r)
            await world.assert_nothing_left(control)

        await world.live(live, seam)
        await world.live(live)
    return len(seam.actions) == write


def test_a_drain_that_was_answered_holds_after_a_stop_after_any_write() -> None:
    write = 1
    while virtual.run(stopped_after(write)):
        # Those around the drain one by one; of the many of the job's life some.
        write += 1 if write < AROUND else LATER

    assert write > 200


def test_a_node_that_is_away_is_disabled_in_the_system_status() -> None:
    async def main() -> None:
        async with opened() as world:
            await world.live(lambda control: life(control))

    async def life(control: Control) -> None:
        def told() -> dict[str, str]:
            found = control.api.store.get(kinds.SYSTEM_STATUS, Key("default", "default"))
            return dict(found["data"]["nodes"])

        await asyncio.sleep(1.0)
        assert told() == {f"compute-{number:02d}": "Enabled" for number in range(8)}
        await control.instance.resources.set_down(["compute-03"])
        await asyncio.sleep(1.0)
        assert told()["compute-03"] == "Disabled"
        await control.instance.resources.set_up(["compute-03"])
        await asyncio.sleep(1.0)
        assert set(told().values()) == {"Enabled"}

    virtual.run(main())
