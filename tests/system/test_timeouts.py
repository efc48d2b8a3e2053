"""States that take too long end, by a site's limits, in the whole system and in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.controllers.localnode import LocalNode
from warren.daemons.compose import Control
from warren.dws.node import Copy, Progress
from warren.instance.config import Config
from warren.instance.jobs.manager import InactiveJob
from warren.instance.rabbittable import RabbitTable
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

DW = {"dw": "\n".join(DIRECTIVES)}
LONG = 600.0


class Slow(SimulatedNode):
    """A node that does not do some of its work before a moment."""

    slow: tuple[str, ...] = ()
    moment = 0.0

    async def make(self, *arguments: Any) -> None:
        await self._take("make")
        await super().make(*arguments)

    async def mount(self, *arguments: Any) -> None:
        if self._name.startswith("compute"):
            await self._take("mount")
        await super().mount(*arguments)

    async def unmount(self, *arguments: Any) -> None:
        if self._name.startswith("compute"):
            await self._take("unmount")
        await super().unmount(*arguments)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        if copy.destination.startswith(GLOBAL):
            await self._take("copy")
        async for each in super().copy(copy):
            yield each

    async def _take(self, what: str) -> None:
        if what in self.slow:
            await asyncio.sleep(max(0.0, self.moment - asyncio.get_running_loop().time()))


def slow(
    *what: str, kind: type[Slow] = Slow, until: float = LONG
) -> Callable[[World], Callable[[str, str], LocalNode]]:
    """Have nodes do nothing of a sort before so many seconds have gone by."""

    def machine(world: World) -> Callable[[str, str], LocalNode]:
        moment = asyncio.get_running_loop().time() + until
        made = type("Some", (kind,), {"slow": what, "moment": moment})
        return lambda node, rabbit: made(node, world.flash[rabbit], seconds=world.copy_seconds)

    return machine


def lived(
    rabbit: RabbitTable,
    machine: Callable[[World], Callable[[str, str], LocalNode]],
    *,
    copy_seconds: float = 1.0,
    task_seconds: float = 1.0,
    restarted: bool = False,
) -> tuple[InactiveJob, list[tuple[float, str, dict[str, Any]]]]:
    """Return how a job ended, and its events, each with the seconds since it was submitted."""

    async def main() -> Any:
        async with opened(play=lambda *arguments: TaskBehavior(seconds=task_seconds)) as world:
            world.config = Config(rabbit=rabbit)
            world.machine = machine(world)
            world.copy_seconds = copy_seconds
            submitted: list[Any] = []

            async def begin(control: Control) -> None:
                submitted.append(await world.submit(control, attributes=DW))
                await asyncio.sleep(20)

            async def life(control: Control) -> Any:
                if not submitted:
                    submitted.append(await world.submit(control, attributes=DW))
                (job,) = submitted
                await world.until(
                    lambda: isinstance(control.instance.manager.find(job), InactiveJob)
                )
                ended = await world.ended(control, job)
                await world.assert_nothing_left(control)
                log = world.eventlog(control, job)
                return ended, [
                    (each.timestamp - log[0].timestamp, each.name, dict(each.context))
                    for each in log
                ]

            if restarted:
                await world.live(begin)
            return await world.live(life)

    with capture_logs():  # what takes too long is logged often, with all that is known of it
        return virtual.run(main())  # type: ignore[no-any-return]


def told(events: Any) -> list[tuple[int, str, str]]:
    """Return the exceptions of a job: when they came, their types and what they say."""
    return [
        (round(seconds), context["type"], context["note"])
        for seconds, name, context in events
        if name == "exception"
    ]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("what", "limits", "note"),
    [
        (
            "make",
            RabbitTable(setup_timeout="30s"),
            "File system creation took too long: it waits for Setup on rabbit-0",
        ),
        (
            "mount",
            RabbitTable(prerun_timeout=30),
            "timed out waiting for mounts: it waits for PreRun on compute-[00-03]",
        ),
    ],
)
def test_storage_that_is_not_there_in_time_fails_the_job_before_it_begins(
    what: str, limits: RabbitTable, note: str, restarted: bool
) -> None:
    ended, events = lived(limits, slow(what), restarted=restarted)
    assert ended.job.result is Result.FAILED
    ((seconds, type, words),) = told(events)
    assert (type, words.startswith(note)) == ("dws-timeout", True), words
    assert 30 <= seconds <= 34
    assert "start" not in [name for _, name, _ in events]


def test_nodes_that_do_not_unmount_in_time_cost_the_job_its_results() -> None:
    ended, events = lived(RabbitTable(postrun_timeout=60), slow("unmount"))
    assert ended.job.result is Result.FAILED
    ((seconds, type, words),) = told(events)
    assert type == "rabbit-timeout"
    assert "skipping data movement: it waits for PostRun on compute-[00-03]" in words
    finish = next(at for at, name, _ in events if name == "finish")
    assert 60 <= seconds - finish <= 61


def test_a_copy_that_does_not_go_on_is_given_up_and_the_job_has_not_failed() -> None:
    ended, events = lived(RabbitTable(teardown_after=100), slow("copy"))
    assert ended.job.result is Result.COMPLETED
    ((seconds, type, words),) = told(events)
    assert seconds == pytest.approx(105, abs=5)
    assert type == "teardown-timeout"
    assert words.startswith("skipping rabbit data movement: it waits for DataOut on rabbit-0")


def test_a_copy_that_goes_on_has_the_time_that_it_takes() -> None:
    """It says four times how far it is."""
    ended, events = lived(RabbitTable(teardown_after=100), slow(), copy_seconds=320)
    assert ended.job.result is Result.COMPLETED
    assert told(events) == []


def test_but_no_more_than_the_latest() -> None:
    limits = RabbitTable(teardown_after=100, teardown_latest=200)
    _, events = lived(limits, slow(), copy_seconds=320)
    ((seconds, type, _),) = told(events)
    finish = next(at for at, name, _ in events if name == "finish")
    assert seconds - finish == pytest.approx(200, abs=1)
    assert type == "teardown-timeout"


def test_a_job_is_let_go_before_its_storage_if_that_takes_too_long() -> None:
    """Statement 000.59: the option epilog-timeout of the plugin."""
    for restarted in (False, True):
        ended, events = lived(
            RabbitTable(epilog_timeout="5m"), slow("unmount"), restarted=restarted
        )
        ((seconds, type, words),) = told(events)
        assert (type, words) == ("dws-epilog-timeout", "DWS epilog timed out")
        finish = next(at for at, name, _ in events if name == "finish")
        # Anew after a restart, which comes after 20 s.
        assert 300 <= seconds - finish <= (321 if restarted else 301)
        assert ended.job.result is Result.FAILED
        assert events[-1][0] < LONG


@pytest.mark.parametrize(
    ("what", "limits", "before"),
    [
        ("make", RabbitTable(setup_timeout=30), 0.0),
        ("mount", RabbitTable(prerun_timeout=30), 1.0),
        ("unmount", RabbitTable(postrun_timeout=30), 1.0),
    ],
)
def test_what_ends_about_when_its_time_is_up_has_ended_in_time_or_late_and_not_both(
    what: str, limits: RabbitTable, before: float
) -> None:
    """`before` is how long the job takes until then: its copies in."""
    late = []
    for tenths in (-20, -5, -1, 0, 1, 2, 3, 5, 20):
        ended, events = lived(limits, slow(what, until=before + 30 + tenths / 10))
        late.append(bool(told(events)))
        assert len(told(events)) <= 1
        assert ended.job.result is (Result.FAILED if late[-1] else Result.COMPLETED)
    assert late == sorted(late)
    assert (late[0], late[-1]) == (False, True)


def test_the_time_of_a_state_that_has_ended_is_never_up() -> None:
    limits = RabbitTable(
        setup_timeout=30, prerun_timeout=30, postrun_timeout=30, teardown_after=30, tc_timeout=30
    )
    ended, events = lived(limits, slow(), task_seconds=LONG)
    assert ended.job.result is Result.COMPLETED
    assert told(events) == []
    assert events[-1][0] > LONG


def test_without_limits_a_job_waits_for_its_storage() -> None:
    ended, events = lived(RabbitTable(), slow("make"))
    assert ended.job.result is Result.COMPLETED
    assert told(events) == []
    assert events[-1][0] > LONG
