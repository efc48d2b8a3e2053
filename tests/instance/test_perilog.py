"""The site's commands around jobs, in virtual time."""

import asyncio
import signal
from collections.abc import Mapping, Sequence

import pytest

from tests.instance.instance import Instance, Machine, machine
from tests.instance.lives import PLAIN
from tests.instance.parts import GUEST, virtually
from warren.instance.config import parse
from warren.instance.exec.perilog import Command, CommandNotStarted
from warren.instance.jobtables import JobManagerTable
from warren.instance.simulated import SimulatedCommands, TaskBehavior
from warren.lifecycle.states import Result
from warren.rfc import fluid, resource_set
from warren.rfc.fluid import JobId

AROUND = [
    *["submit", "validate", "depend", "priority", "alloc", "prolog-start", "prolog-finish"],
    *["start", "finish", "epilog-start", "release", "epilog-finish", "free", "clean"],
]
FAILED_BEFORE = [
    *["submit", "validate", "depend", "priority", "alloc", "prolog-start", "exception"],
    *["epilog-start", "prolog-finish", "epilog-finish", "free", "clean"],
]


def around(prolog: str = "", epilog: str = "") -> JobManagerTable:
    """A site's tables. Its commands are `pro` and `epi`."""
    text = f'[job-manager.prolog]\ncommand = ["pro"]\n{prolog}\n'
    return parse(f'{text}[job-manager.epilog]\ncommand = ["epi"]\n{epilog}').job_manager


class Recorded(SimulatedCommands):
    """Commands that are written down, and do what a test says of their name and node."""

    def __init__(self, **plays: TaskBehavior) -> None:
        super().__init__(self._played)
        self.plays = plays
        self.run: list[tuple[str, str]] = []
        """Name and node of each."""
        self.environments: list[Mapping[str, str]] = []

    def _played(self, argv: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        node = environment.get("WARREN_NODE", "")
        self.run.append((argv[0], node))
        self.environments.append(environment)
        play = self.plays.get(f"{argv[0]}_{node}") or self.plays.get(argv[0])
        return play or TaskBehavior()


async def lived(m: Machine, instance: Instance, **options: object) -> JobId:
    job = await instance.submit(**options)
    await instance.until(job)
    await instance.assert_nothing_left()
    return job


def moments(instance: Instance, job: JobId) -> Mapping[str, float]:
    return {event.name: event.timestamp for event in instance.log(job)}


@virtually
async def test_tasks_wait_for_the_prolog_and_nodes_for_the_epilog() -> None:
    async with machine() as m:
        m.around = around()
        m.commands = commands = Recorded(pro=TaskBehavior(seconds=20), epi=TaskBehavior(seconds=30))
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=3)

            assert instance.names(job) == AROUND
            at = moments(instance, job)
            assert at["start"] - at["alloc"] == pytest.approx(20, abs=0.1)
            assert at["free"] - at["finish"] == pytest.approx(30, abs=0.1)
            assert commands.run == [("pro", ""), ("epi", "")]
            assert commands.environments[0] == {
                "FLUX_JOB_ID": fluid.f58(job),
                "FLUX_JOB_USERID": "1000",
                "FLUX_JOB_RANKS": "0-2",
            }
            log = {event.name: event.context for event in instance.log(job)}
            assert log["prolog-finish"] == {"description": "job-manager.prolog", "status": 0}
            assert log["epilog-finish"] == {"description": "job-manager.epilog", "status": 0}


@virtually
async def test_a_command_per_rank_runs_on_each_of_the_jobs_nodes() -> None:
    async with machine() as m:
        m.around = around("per-rank = true", "per-rank = true")
        m.commands = commands = Recorded()
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=2)

            assert sorted(commands.run) == [
                ("epi", "node0"), ("epi", "node1"), ("pro", "node0"), ("pro", "node1")
            ]  # fmt: skip
            assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_a_prolog_that_fails_on_a_node_ends_the_job_and_drains_the_node() -> None:
    async with machine() as m:
        m.around = around("per-rank = true")
        m.commands = Recorded(pro_node1=TaskBehavior(status=3 << 8))
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=2)

            assert instance.names(job) == FAILED_BEFORE
            note = "prolog failed with exit status 3 on node1"
            assert instance.failures(job) == [("prolog", note)]
            assert instance.job(job).result is Result.FAILED
            reason = f"prolog failed with exit status 3 for job {fluid.f58(job)}"
            assert m.drained == [([1], reason)]


@virtually
async def test_a_prolog_for_the_whole_job_drains_no_node() -> None:
    async with machine() as m:
        m.around = around()
        m.commands = Recorded(pro=TaskBehavior(status=9))
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=2)

            assert instance.failures(job) == [("prolog", "prolog was killed by signal 9")]
            assert m.drained == []


@virtually
async def test_the_first_failure_ends_the_others_where_the_site_wants_that() -> None:
    async with machine() as m:
        m.around = around("per-rank = true\nexit-on-first-error = true")
        m.commands = Recorded(
            pro=TaskBehavior(seconds=500), pro_node1=TaskBehavior(seconds=5, status=256)
        )
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=3)

            at = moments(instance, job)
            assert at["prolog-finish"] - at["prolog-start"] == pytest.approx(5, abs=0.1)
            assert [ranks for ranks, _ in m.drained] == [[1]]


@virtually
async def test_an_epilog_that_fails_is_told_and_does_not_fail_the_job() -> None:
    async with machine() as m:
        m.around = around("", "per-rank = true")
        m.commands = commands = Recorded(epi=TaskBehavior(status=256))
        async with m.instance() as instance:
            job = await lived(m, instance)
            await asyncio.sleep(1)

            names = instance.names(job)
            assert names == [*AROUND[:11], "exception", *AROUND[11:]]
            (problem,) = instance.job(job).exceptions
            assert (problem.type, problem.severity) == ("epilog", 2)
            assert instance.job(job).result is Result.COMPLETED
            assert [ranks for ranks, _ in m.drained] == [[0]]
            assert commands.run == [("pro", ""), ("epi", "node0")]


@pytest.mark.parametrize(
    ("stubborn", "took", "drained"), [(False, 60, "timed out"), (True, 70, "timed out")]
)
@virtually
async def test_a_prolog_that_takes_too_long_is_ended(
    stubborn: bool, took: float, drained: str
) -> None:
    async with machine() as m:
        m.around = around('per-rank = true\ntimeout = "1m"\nkill-timeout = "10s"')
        m.commands = Recorded(pro=TaskBehavior(seconds=500, stubborn=stubborn))
        async with m.instance() as instance:
            job = await lived(m, instance)

            at = moments(instance, job)
            assert at["prolog-finish"] - at["prolog-start"] == pytest.approx(took, abs=0.1)
            assert instance.failures(job) == [("prolog", "prolog timed out on node0")]
            assert m.drained == [([0], f"prolog {drained} for job {fluid.f58(job)}")]


@virtually
async def test_a_prolog_has_half_an_hour_where_the_site_says_nothing_and_an_epilog_for_ever() -> (
    None
):
    async with machine() as m:
        m.around = around()
        m.commands = Recorded(pro=TaskBehavior(seconds=2000), epi=TaskBehavior(seconds=2000))
        async with m.instance() as instance:
            job = await instance.submit()
            await asyncio.sleep(5000)

            at = moments(instance, job)
            assert at["prolog-finish"] - at["prolog-start"] == pytest.approx(1800, abs=0.1)
            assert at["epilog-finish"] - at["epilog-start"] == pytest.approx(2000, abs=0.1)


@pytest.mark.parametrize(
    ("stubborn", "took", "drained"), [(False, 5, None), (True, 65, "canceled then timed out")]
)
@virtually
async def test_a_job_that_is_cancelled_in_its_prolog_has_it_ended_and_its_epilog_run(
    stubborn: bool, took: float, drained: str | None
) -> None:
    async with machine() as m:
        m.around = around("per-rank = true")
        m.commands = commands = Recorded(pro=TaskBehavior(seconds=500, stubborn=stubborn))
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "prolog-start")
            await asyncio.sleep(5)
            await instance.cancel(job)
            await instance.until(job)

            assert instance.names(job) == FAILED_BEFORE
            assert instance.job(job).result is Result.CANCELED
            at = moments(instance, job)
            assert at["prolog-finish"] - at["prolog-start"] == pytest.approx(took, abs=0.1)
            assert [name for name, _ in commands.run] == ["pro", "epi"]
            reasons = [f"prolog {drained} for job {fluid.f58(job)}"] if drained else []
            assert [reason for _, reason in m.drained] == reasons
            await instance.assert_nothing_left()


@virtually
async def test_a_prolog_runs_to_its_end_where_exceptions_are_not_to_end_it() -> None:
    async with machine() as m:
        m.around = around("cancel-on-exception = false")
        m.commands = Recorded(pro=TaskBehavior(seconds=50))
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "prolog-start")
            await instance.cancel(job)
            await instance.until(job)

            at = moments(instance, job)
            assert at["prolog-finish"] - at["prolog-start"] == pytest.approx(50, abs=0.1)
            assert instance.job(job).result is Result.CANCELED


@virtually
async def test_an_epilog_is_ended_by_an_exception_where_the_site_wants_that() -> None:
    async with machine() as m:
        m.around = around("", "cancel-on-exception = true")
        m.commands = Recorded(epi=TaskBehavior(seconds=50))
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "epilog-start")
            await asyncio.sleep(5)
            await instance.cancel(job)
            await instance.until(job)

            log = {event.name: event for event in instance.log(job)}
            seconds = log["epilog-finish"].timestamp - log["epilog-start"].timestamp
            assert seconds == pytest.approx(5, abs=0.1)
            assert log["epilog-finish"].context["status"] == signal.SIGTERM


class Missing:
    """A command that there is not."""

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        raise CommandNotStarted(f"{argv[0]}: No such file or directory")

    async def kill_leftovers(self, job: str | None = None) -> None:
        return None


@virtually
async def test_a_command_that_cannot_be_run_has_failed() -> None:
    async with machine() as m:
        m.around, m.commands = around(), Missing()
        async with m.instance() as instance:
            job = await lived(m, instance)

            assert instance.failures(job) == [("prolog", "prolog could not be run")]
            assert {each.type for each in instance.job(job).exceptions} == {"prolog", "epilog"}


# Many jobs, many nodes


class Meeting(SimulatedCommands):
    """Commands that end when so many of them have been started: each waits for all others."""

    def __init__(self, number: int) -> None:
        super().__init__(lambda argv, environment: TaskBehavior(seconds=1000))
        self._missing = number
        self._started: list[Command] = []

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        command = await super().start(argv, environment, keep_for_job)
        self._started.append(command)
        self._missing -= 1
        if not self._missing:
            for each in self._started:
                each.signal(0)
        return command


def nodes(number: int) -> list[resource_set.NodeResources]:
    return [resource_set.NodeResources(rank, f"node{rank}", (0, 1, 2, 3)) for rank in range(number)]


@virtually
async def test_the_commands_of_one_job_may_wait_for_each_other_on_however_many_nodes() -> None:
    async with machine() as m:
        m.around = parse(
            '[job-manager.prolog]\ncommand = ["pro"]\nper-rank = true\ntimeout = "1m"'
        ).job_manager
        m.nodes, m.commands = nodes(100), Meeting(100)
        async with m.instance() as instance:
            job = await lived(m, instance, nodes=100)

            assert instance.failures(job) == []
            assert m.drained == []


@virtually
async def test_the_commands_of_one_users_jobs_hold_up_no_other_user() -> None:
    async with machine() as m:
        m.around = around()
        m.nodes = nodes(20)
        m.commands = Recorded(pro=TaskBehavior(seconds=0.1), epi=TaskBehavior(seconds=1000))
        async with m.instance() as instance:
            for _ in range(76):
                await instance.submit(nodes=None)
            await asyncio.sleep(20)
            job = await instance.submit_as(GUEST, nodes=None)
            await instance.until(job)

            at = moments(instance, job)
            assert at["free"] - at["submit"] == pytest.approx(1000, abs=5)


# Restarts


@pytest.mark.parametrize("held", ["prolog", "epilog"])
@virtually
async def test_a_command_that_was_running_is_run_again_in_the_next_life(held: str) -> None:
    async with machine() as m:
        m.around = around()
        m.commands = commands = Recorded(**{held[:3]: TaskBehavior(seconds=50)})
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, f"{held}-start")
            await asyncio.sleep(10)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == AROUND
            assert [name for name, _ in commands.run].count(held[:3]) == 2
            await instance.assert_nothing_left()


@virtually
async def test_a_prolog_is_not_run_again_for_a_job_that_was_cancelled_in_it() -> None:
    async with machine() as m:
        m.around = around()
        m.commands = commands = Recorded(pro=TaskBehavior(seconds=50, stubborn=True))
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "prolog-start")
            await instance.cancel(job)
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.names(job) == FAILED_BEFORE
            assert [name for name, _ in commands.run] == ["pro", "epi"]


@virtually
async def test_a_job_is_not_held_by_a_command_that_the_site_has_taken_away() -> None:
    async with machine() as m:
        m.around = around()
        m.commands = Recorded(pro=TaskBehavior(seconds=50))
        async with m.instance() as instance:
            job = await instance.submit()
            await instance.until(job, "prolog-start")
        m.around = JobManagerTable()
        async with m.instance() as instance:
            await instance.until(job)

            assert instance.job(job).result is Result.COMPLETED


@virtually
async def test_without_commands_a_job_is_as_plain_as_ever() -> None:
    async with machine() as m, m.instance() as instance:
        assert instance.names(await lived(m, instance)) == PLAIN
