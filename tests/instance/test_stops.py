"""The process dies after every single write of some jobs' lives. The next one finishes them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.seam import Seam
from tests.instance.instance import Instance, Machine, machine
from tests.instance.parts import OWNER
from warren.instance import config, keys
from warren.instance.jobs.manager import InactiveJob
from warren.instance.kvs import Kvs
from warren.instance.simulated import SimulatedCommands, TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import fluid
from warren.rfc import jobspec as jobspecs
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError


@dataclass(kw_only=True)
class Story:
    """Some jobs, what happens to them, and what has to be true in the end."""

    jobs: Mapping[str, Mapping[str, Any]]
    """What they are submitted with, by their names."""
    result: Result
    note: str | None = None
    """Of the first fatal exception."""
    play: TaskBehavior = field(default_factory=TaskBehavior)
    site: str = ""
    """The instance's configuration."""
    commands: Mapping[str, TaskBehavior] = field(default_factory=dict)
    """What the site's commands do."""
    cancelled: bool = False
    """Whether a user cancels each job once it has started."""
    started: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each task was started, by job and rank."""
    run: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """How often each command was run, by job, name and node."""

    def tasks(self, command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        self.started[environment["FLUX_JOB_ID"], environment["FLUX_TASK_RANK"]] += 1
        return self.play

    def around(self, argv: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        self.run[environment["FLUX_JOB_ID"], argv[0], environment["WARREN_NODE"]] += 1
        return self.commands.get(argv[0], TaskBehavior())

    async def live(self, instance: Instance) -> list[InactiveJob]:
        """Do what users would, as far as it is not done, and wait for the ends of all jobs."""
        known = {jobspecs.name(each.jobspec): each.job.id for each in instance.manager.jobs()}
        for name, options in self.jobs.items():
            if name not in known:
                known[name] = await instance.submit(name=name, **options)
        if self.cancelled:
            for job in known.values():
                await cancelled(instance, job)
        return [await ended(instance, job) for job in known.values()]

    def came_true(self, ended: InactiveJob) -> bool:
        fatal = ended.job.fatal_exception
        noted = self.note is None or (fatal is not None and fatal.note == self.note)
        return noted and ended.job.result is self.result


async def cancelled(instance: Instance, job: JobId) -> None:
    """Cancel a job once it has started, unless it is over."""
    while not (instance.job(job).started or isinstance(instance.manager.find(job), InactiveJob)):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    try:
        await instance.cancel(job)
    except RpcError:
        return


async def ended(instance: Instance, job: JobId) -> InactiveJob:
    """Wait until a job is over, and nothing is done for it any more."""
    while True:
        found = instance.manager.find(job)
        if isinstance(found, InactiveJob) and instance.names(job)[-1] == "clean":
            return found
        await asyncio.sleep(0.05)


COMMANDS = """
[job-manager.prolog]
command = ["pro"]
per-rank = true
[job-manager.epilog]
command = ["epi"]
per-rank = true
"""

STORIES: Mapping[str, Callable[[], Story]] = {
    "jobs on many nodes": lambda: Story(
        jobs={"one": {"nodes": 2}, "two": {"nodes": 2}, "waits": {"nodes": 3}},
        result=Result.COMPLETED,
    ),
    "failing": lambda: Story(
        jobs={"one": {"nodes": 2}}, play=TaskBehavior(status=7 << 8), result=Result.FAILED
    ),
    "cancelled": lambda: Story(
        jobs={"one": {"nodes": 2}, "waits": {"nodes": 3}},
        play=TaskBehavior(seconds=1e6),
        cancelled=True,
        result=Result.CANCELED,
    ),
    "stubborn": lambda: Story(
        jobs={"one": {"nodes": 2}},
        play=TaskBehavior(seconds=1e6, stubborn=True),
        site="[exec]\nkill-timeout = 0.5",
        cancelled=True,
        result=Result.CANCELED,
    ),
    "out of time": lambda: Story(
        jobs={"one": {"nodes": 2, "duration": 2.0}},
        play=TaskBehavior(seconds=1e6),
        result=Result.TIMEOUT,
        note="resource allocation expired",
    ),
    "for show": lambda: Story(
        jobs={
            "one": {"nodes": 3, "attributes": {"exec": {"test": {"run_duration": "1s"}}}},
            "two": {"nodes": 1, "attributes": {"exec": {"test": {"run_duration": "2s"}}}},
        },
        result=Result.COMPLETED,
    ),
    "with commands": lambda: Story(
        jobs={"one": {"nodes": 2}}, site=COMMANDS, result=Result.COMPLETED
    ),
    "failing in its prolog": lambda: Story(
        jobs={"one": {"nodes": 2}},
        site=COMMANDS,
        commands={"pro": TaskBehavior(status=256)},
        result=Result.FAILED,
    ),
}


async def stopped_after(write: int, made: Callable[[], Story], *, lost: bool) -> bool:
    """Stop after a write, then live to the end; return whether there was such a write."""
    story, seam = made(), Seam(stop_after=write)
    async with machine(story.tasks) as m:
        site = config.parse(story.site)
        m.config, m.around = site.exec, site.job_manager
        m.commands = SimulatedCommands(story.around)

        async def live(instance: Instance) -> None:
            await story.live(instance)

        async def and_look(instance: Instance) -> None:
            for over in await story.live(instance):
                what = (write, seam.actions[-1], over.job)
                fatal = over.job.fatal_exception
                if not (lost and fatal is not None and "were lost" in fatal.note):
                    assert story.came_true(over), what
                assert story.site != COMMANDS or over.job.ever_epilogs, what
            await asyncio.sleep(1)
            await instance.assert_nothing_left()

        await m.live(live, seam)
        before = Counter(story.started)
        recorded = at_work(m, {job for job, _ in before})
        if lost:
            await m.lose_shells()
        await m.live(and_look, Seam())
    for (job, rank), times in story.started.items():
        # A task may be started again only if it was not written down that it was.
        again = lost and job not in recorded
        assert times <= before[job, rank] + 1 if again else times == 1, (write, job, rank)
    assert bool(story.run) == (story.site == COMMANDS)
    return len(seam.actions) == write


def at_work(m: Machine, labels: Iterable[str]) -> set[str]:
    """Return the jobs of which it is written down that their tasks have started."""
    kvs, found = Kvs(m.journal, OWNER), set()
    for label in labels:
        job = fluid.parse(label)
        logs = [
            kvs.get(keys.job_key(job, key)) or b"" for key in ("eventlog", "guest.exec.eventlog")
        ]
        if any(name in log for log in logs for name in (b'"start"', b'"shell.start"')):
            found.add(label)
    return found


@pytest.mark.parametrize("story", STORIES)
def test_no_job_is_lost_and_no_task_started_twice(story: str) -> None:
    assert stops_of(story, lost=False) >= 10


@pytest.mark.parametrize("story", ["jobs on many nodes", "cancelled", "with commands"])
def test_when_shells_die_too_none_is_started_again_of_which_it_is_known(story: str) -> None:
    assert stops_of(story, lost=True) >= 10


def stops_of(story: str, *, lost: bool) -> int:
    """Stop after each write of a story; return how many there are."""
    write = 1
    while virtual.run(stopped_after(write, STORIES[story], lost=lost)):
        write += 1
    return write
