"""Jobs that may lose nodes to failing storage, in the whole system and in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.faults import Fault
from warren.dws.node import Copy, Progress
from warren.instance.config import Config
from warren.instance.jobs.manager import InactiveJob
from warren.instance.rabbittable import RabbitTable
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode
from warren.rfc import hostlist

SECOND = frozenset(f"compute-0{number}" for number in range(4, 8))
LIMITS = RabbitTable(setup_timeout=30, prerun_timeout=30)
LONG = 600.0


class Bad(SimulatedNode):
    """A node that cannot do some of its work: it refuses it, or takes too long for it."""

    where: frozenset[str] = frozenset()
    what = "make"
    refuses = False
    moment = 0.0

    async def make(self, *arguments: Any) -> None:
        await self._try("make")
        await super().make(*arguments)

    async def mount(self, *arguments: Any) -> None:
        await self._try("mount")
        await super().mount(*arguments)

    async def unmount(self, *arguments: Any) -> None:
        await self._try("unmount")
        await super().unmount(*arguments)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        async for each in super().copy(copy):
            yield each

    async def _try(self, what: str) -> None:
        left = self.moment - asyncio.get_running_loop().time()
        if what != self.what or self._name not in self.where or left <= 0:
            return
        if self.refuses:
            raise Fault("the disk is broken")
        await asyncio.sleep(left)


class Lived:
    """What came of a job."""

    def __init__(self) -> None:
        self.ended: Any = None
        self.exceptions: list[tuple[str, int, str]] = []
        self.computes: list[str] = []
        self.drained: dict[str, str] = {}
        self.copied_out: set[str] = set()
        self.tasks = 0
        self.lost = ""


def lived(
    tolerance: int,
    where: frozenset[str],
    what: str,
    *,
    refuses: bool = False,
    limits: RabbitTable = LIMITS,
    stop: Callable[[World, Control], Any] | None = None,
    meanwhile: Callable[[World, Control], Any] | None = None,
) -> Lived:
    """Have a job of eight nodes on two rabbits live, of which some cannot do some of their work."""
    found = Lived()

    async def main() -> None:
        async with opened() as world:
            world.config = Config(rabbit=limits)
            moment = asyncio.get_running_loop().time() + LONG
            facts = {"where": where, "what": what, "refuses": refuses, "moment": moment}
            kind = type("Some", (Bad,), facts)
            world.machine = lambda node, rabbit: kind(node, world.flash[rabbit], seconds=1.0)
            dw = {"dw": "\n".join(DIRECTIVES), "dw_failure_tolerance": tolerance}
            submitted: list[Any] = []

            async def begin(control: Control) -> None:
                submitted.append(await world.submit(control, nodes=8, attributes=dw))
                if stop is not None:
                    await stop(world, control)

            async def life(control: Control) -> None:
                if not submitted:
                    await begin(control)
                (job,) = submitted

                def running() -> bool:
                    over = isinstance(control.instance.manager.find(job), InactiveJob)
                    return over or len(world.seen) == 8

                await world.until(running)
                for each in control.api.store.objects_of(kinds.COMPUTES):
                    found.computes = [node["name"] for node in each["data"]]
                annotations = world.workflow(control).get("metadata", {}).get("annotations", {})
                found.lost = annotations.get("warren.cluster/lost-nodes", "")
                if meanwhile is not None:
                    await meanwhile(world, control)
                found.ended = (await world.ended(control, job)).job
                found.tasks = len(world.seen)
                status = await control.instance.bus.handle().rpc("resource.status")
                nodes = status["nodes"]
                found.drained = {each["name"]: each["reason"] for each in nodes if "reason" in each}
                for event in world.eventlog(control, job):
                    if event.name == "exception":
                        context = event.context
                        told = (context["type"], context["severity"], context["note"])
                        found.exceptions.append(told)
                found.copied_out = {
                    copy.source for copy in world.copies() if copy.destination.startswith(GLOBAL)
                }
                await world.assert_nothing_left(control)

            if stop is not None:
                await world.live(begin)
            await world.live(life)

    with capture_logs():
        virtual.run(main())
    return found


FAILURES = [
    (frozenset({"rabbit-1"}), "make", SECOND),
    (frozenset({"compute-01", "compute-05"}), "mount", frozenset({"compute-01", "compute-05"})),
    (SECOND, "mount", SECOND),
]


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(("where", "what", "lost"), FAILURES)
def test_a_job_goes_on_without_as_many_nodes_as_it_may_lose(
    where: frozenset[str], what: str, lost: frozenset[str], refuses: bool
) -> None:
    """Statement 000.54: dw_failure_tolerance=N, where N nodes fail."""
    found = lived(len(lost), where, what, refuses=refuses)

    assert found.ended.result is Result.COMPLETED, found.exceptions
    names = hostlist.encode(sorted(lost))
    assert found.exceptions == [("dws-node-failure", 1, names)]
    assert found.tasks == 8
    # Each other node's allocation is copied out, and no other: a lost node may still mount its own.
    assert len(found.copied_out) == 8 - len(lost)


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize(("where", "what", "lost"), FAILURES)
def test_a_job_that_loses_one_more_has_failed(
    where: frozenset[str], what: str, lost: frozenset[str], refuses: bool
) -> None:
    found = lived(len(lost) - 1, where, what, refuses=refuses)

    assert found.ended.result is Result.FAILED
    assert [severity for _, severity, _ in found.exceptions] == [0]
    assert (found.tasks, found.drained) == (0, {})


def test_nodes_that_are_lost_in_setup_are_not_mounted_and_their_rabbit_is_to_blame() -> None:
    """Statement 000.55: Computes without them, forceReady."""
    found = lived(4, frozenset({"rabbit-1"}), "make")

    assert found.computes == [f"compute-0{number}" for number in range(4)]
    assert (found.lost, found.drained) == ("compute-[04-07]", {})


def test_nodes_that_do_not_mount_are_drained() -> None:
    """Statement 000.55: drained, so that they are not scheduled until they were looked at."""
    found = lived(4, SECOND, "mount", limits=RabbitTable(prerun_timeout=200))

    assert found.lost == "compute-[04-07]"
    assert found.drained == dict.fromkeys(sorted(SECOND), "rabbit storage is not there")


@pytest.mark.parametrize("limits", [{"drain_compute_nodes": False}])
def test_they_are_not_drained_where_a_site_does_not_want_that(limits: dict[str, Any]) -> None:
    found = lived(4, SECOND, "mount", limits=RabbitTable(prerun_timeout=200, **limits))

    assert found.ended.result is Result.COMPLETED
    assert found.drained == {}


def test_a_job_that_would_lose_all_of_its_nodes_has_failed() -> None:
    found = lived(100, frozenset({"rabbit-0", "rabbit-1"}), "make")

    assert found.ended.result is Result.FAILED


def test_a_restart_forgets_no_node_that_was_lost() -> None:

    async def stop(world: World, control: Control) -> None:
        def lost() -> bool:
            metadata = world.workflow(control).get("metadata", {})
            return "warren.cluster/lost-nodes" in metadata.get("annotations", {})

        await world.until(lost)

    found = lived(4, SECOND, "mount", stop=stop)

    assert found.ended.result is Result.COMPLETED
    assert [severity for _, severity, _ in found.exceptions] == [1]


def dying(dead: frozenset[str], told: list[tuple[str, str]]) -> Callable[[World, Control], Any]:
    """Have nodes be out of reach, until the Workflow has lost some; tell in which state, and which.

    What they were asked to unmount, they have not unmounted yet then.
    """

    async def die(world: World, control: Control) -> None:
        await control.instance.resources.set_down(sorted(dead))

        def lost() -> bool:
            metadata = world.workflow(control).get("metadata", {})
            said = metadata.get("annotations", {}).get("warren.cluster/lost-nodes", "")
            if said:
                told.append((world.workflow(control)["status"]["state"], said))
            return bool(said)

        await world.until(lost)

    return die


def test_results_of_other_nodes_are_copied_out_when_one_has_died_under_its_job() -> None:
    """ADR 098: it is not waited for, and what it may still have mounted no rabbit mounts."""
    told: list[tuple[str, str]] = []
    dead = frozenset({"compute-05"})

    found = lived(0, dead, "unmount", meanwhile=dying(dead, told))

    assert told == [("PostRun", "compute-05")]
    assert len(found.copied_out) == 7


def test_a_job_whose_nodes_have_all_died_says_that_nothing_is_copied_out() -> None:
    told: list[tuple[str, str]] = []
    dead = SECOND | {f"compute-0{number}" for number in range(4)}

    found = lived(0, dead, "unmount", meanwhile=dying(dead, told))

    assert told == [("PostRun", "compute-[00-07]")]
    assert found.copied_out == set()
    assert found.ended.result is Result.FAILED
    assert any("nothing of it can be copied" in note for _, _, note in found.exceptions)
