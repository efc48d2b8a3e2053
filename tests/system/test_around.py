"""The site's commands around jobs, in a whole cluster."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.daemons.compose import Control
from warren.instance import config
from warren.instance.simulated import SimulatedCommands, TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import fluid

SITE = """
[job-manager.prolog]
command = ["pro"]
per-rank = true
"""


def test_a_node_on_which_the_prolog_fails_gets_no_jobs_any_more() -> None:
    run: list[str] = []

    def play(argv: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        run.append(environment["WARREN_NODE"])
        return TaskBehavior(status=256 if environment["WARREN_NODE"] == "compute-01" else 0)

    async def story(world: World, control: Control) -> None:
        failed = await world.submit(control, nodes=3)
        assert (await world.ended(control, failed)).job.result is Result.FAILED
        later = await world.submit(control, nodes=3)
        assert (await world.ended(control, later)).job.result is Result.COMPLETED

        reason = f"prolog failed with exit status 1 for job {fluid.f58(failed)}"
        assert await drained(control) == {"compute-01": reason}
        assert run == [f"compute-0{number}" for number in (0, 1, 2, 0, 2, 3)]
        await world.assert_nothing_left(control)

    async def main() -> None:
        async with opened() as world:
            world.config = config.parse(SITE)
            world.commands = SimulatedCommands(play)
            await world.live(lambda control: story(world, control))

    virtual.run(main())


async def drained(control: Control) -> dict[str, Any]:
    nodes = (await control.instance.bus.handle().rpc("resource.status"))["nodes"]
    return {node["name"]: node["reason"] for node in nodes if node["state"] == "drained"}
