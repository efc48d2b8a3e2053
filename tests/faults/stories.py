"""One job, lived through whatever a schedule brings, and looked at afterwards."""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.faults.proxy import Faults, Schedule
from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.seam import Seam
from tests.harness.world import DIRECTIVES, GLOBAL, JOB_KINDS, World, opened
from warren.base.objects import key_of
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance.jobs.manager import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc.fluid import JobId

LONGEST: Final = 4 * 3600.0
"""Virtual seconds after which a job that has not ended never will."""

NODES: Final = 4
ALLOCATIONS: Final = [f"rabbit-0-{number}" for number in range(NODES)]
HOSTS: Final = {f"compute-{number:02}" for number in range(NODES)}
RESULTS: Final = f"{GLOBAL}/results"

_SLOW: Final = "reconcile took too long"
"""The one complaint that a slow API may give rise to."""


@dataclass(kw_only=True)
class Story:
    """How it went."""

    play: TaskBehavior = field(default_factory=TaskBehavior)
    """What each task does."""
    cancelled: float | None = None
    """When the user cancels the job, in seconds after it was submitted."""
    copying: float = 1.0
    """How long each copy takes."""
    ended: InactiveJob | None = None
    events: Sequence[str] = ()
    met: Sequence[str] = ()
    """What befell whom, and when."""
    started: list[frozenset[str]] = field(default_factory=list)
    """On which nodes the storage was mounted when each task started."""
    copied: Sequence[str] = ()
    """From which allocations results were copied out, each time to the end."""
    outlived: Sequence[str] = ()
    """What was there yet when the Workflow had gone."""
    stray: list[Mapping[str, Any]] = field(default_factory=list)
    """What was raised where it is not caught."""
    seconds: float = 0.0

    @property
    def job(self) -> Any:
        assert self.ended is not None
        return self.ended.job


@contextmanager
def same_luck(seed: int) -> Iterator[random.Random]:
    """Return dice, with all the luck of the house coming from the same seed."""
    before = random.getstate()
    random.seed(seed)
    try:
        yield random.Random(seed)
    finally:
        random.setstate(before)


def assert_right(story: Story) -> None:
    """It is over as if nothing had happened: each task with its storage, all results copied."""
    assert story.job.result is Result.COMPLETED, story.job
    assert len(story.started) == NODES
    rabbit = rabbit_of(story.copied)
    hosts = {f"compute-{NODES * rabbit + number:02}" for number in range(NODES)}
    assert all(nodes >= hosts for nodes in story.started), story.started


def rabbit_of(copied: Sequence[str]) -> int:
    """Return which rabbit's allocations were copied, all of them.

    It is the second one where the scheduler has heard of it before the first.
    """
    places = [{f"rabbit-{rabbit}-{number}" for number in range(NODES)} for rabbit in range(2)]
    assert set(copied) in places, copied
    return places.index(set(copied))


def live(story: Story, schedule: Schedule, stops: Sequence[int] = ()) -> Story:
    """Live through a job; the process dies after as many writes as each of `stops` says.

    Fails where something is left, or where a part met what it did not expect.
    """
    with capture_logs() as logged:
        virtual.run(_lived(story, schedule, stops))
    slow = any("Late" in each or "Belated" in each for each in story.met)
    wrong = [each for each in logged if not (slow and each["event"] == _SLOW)]
    assert not wrong, wrong
    assert not story.stray, story.stray
    return story


async def _lived(story: Story, schedule: Schedule, stops: Sequence[int]) -> None:
    worlds: list[World] = []

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        path = environment["DW_JOB_scratch"]
        mounts = [place for flash in worlds[0].flash.values() for place in flash.mounts]
        story.started.append(frozenset(node for node, where in mounts if where == path))
        return story.play

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: story.stray.append(context))
    faults = Faults(schedule)
    story.met = faults.met
    async with opened(ClusterShape(global_file_systems=(GLOBAL,)), play) as world:
        worlds.append(world)
        world.copy_seconds = story.copying
        world.client = faults.wrap  # type: ignore[method-assign]
        for seam in (*map(Seam, stops), Seam()):
            await world.live(lambda control: _to_the_end(story, world, control, faults), seam)
            await faults.drop()
    story.seconds = loop.time()
    story.copied = sorted(str(each.index) for each in world.copies() if each.destination == RESULTS)


async def _to_the_end(story: Story, world: World, control: Control, faults: Faults) -> None:
    try:
        async with asyncio.timeout(LONGEST):
            job = await _the_job(world, control)
            async with asyncio.TaskGroup() as tasks:
                cancelling = tasks.create_task(_cancel(story.cancelled, world, control, job))
                looking = tasks.create_task(_look_when_it_goes(story, world, control))
                story.ended = await _ended(world, control, job)
                cancelling.cancel()
                looking.cancel()
            await faults.wait_done()
            await _until(lambda: _announced(control) and not _left(world, control))
    except TimeoutError:
        where = [world.workflow(control), _left(world, control)]
        raise AssertionError(f"it never ends: {where}") from None
    await world.assert_nothing_left(control)
    story.events = [event.name for event in world.eventlog(control, job)]


async def _the_job(world: World, control: Control) -> JobId:
    """Do what a user would: submit once the cluster is up, if that is not done already."""
    known = world.only_job(control)
    if known is not None:
        return known.job.id
    await _until(lambda: _announced(control))
    return await world.submit(control, nodes=NODES, attributes={"dw": "\n".join(DIRECTIVES)})


async def _ended(world: World, control: Control, job: JobId) -> InactiveJob:
    def over() -> bool:
        found = control.instance.manager.find(job)
        return isinstance(found, InactiveJob) and not world.workflow(control)

    await _until(over)
    found = control.instance.manager.find(job)
    assert isinstance(found, InactiveJob)
    return found


async def _look_when_it_goes(story: Story, world: World, control: Control) -> None:
    await world.until(lambda: world.workflow(control))
    await world.until(lambda: not world.workflow(control))
    story.outlived = _left(world, control)


async def _cancel(delay: float | None, world: World, control: Control, job: JobId) -> None:
    if delay is None:
        return
    await asyncio.sleep(delay)
    if not isinstance(control.instance.manager.find(job), InactiveJob):
        await world.cancel(control, job)


def _announced(control: Control) -> bool:
    """Return whether all that is not of the job is well, too: it has been under the same faults."""
    storages = control.api.store.objects_of(kinds.STORAGE)
    system = next(iter(control.api.store.objects_of(kinds.SYSTEM_CONFIGURATION)))
    ready = [(each.get("status") or {}).get("status") == "Ready" for each in storages]
    return len(ready) == 2 and all(ready) and bool((system.get("status") or {}).get("ready"))


def _left(world: World, control: Control) -> list[str]:
    """Return what is left of jobs in the API."""
    store = control.api.store
    return [f"{kind} {key_of(obj)}" for kind in JOB_KINDS for obj in store.objects_of(kind)]


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - it takes no time
        await asyncio.sleep(0.5)
