"""Jobs of a user with many wait for their Workflows: which, until when, and what they are told."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.controllers.alone import Api, alone, caught_up, running
from tests.dws.builders import BINDING, JOBDW
from warren.base.bytesize import GIB
from warren.base.objects import Key, Remove
from warren.conductor.conductor import Conductor
from warren.conductor.workflowquota import Account, WorkflowQuota
from warren.dws import kinds
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job

JOB = Job(
    id=1,
    phase=Phase.HELD,
    binding=BINDING,
    userid=1001,
    groupid=1002,
    directives=(JOBDW, JOBDW),
    resources=[{"type": "node", "count": 1, "with": []}],
)
LIMIT = 4
"""Directives, that is two such jobs."""

Story = Callable[[Api, Jobs, Conductor], Awaitable[None]]


def job(number: int, **changes: Any) -> Job:
    return replace(JOB, id=number, **changes)


def conducted(story: Story, *jobs: Job) -> None:
    async def main(api: Api) -> None:
        manager = Jobs(*jobs)
        conductor = new_conductor(api, manager)
        async with running(api, conductor.run()):
            await story(api, manager, conductor)

    alone(main)


def new_conductor(api: Api, manager: Jobs) -> Conductor:
    return Conductor(api, api.informers, manager, api.clock, GIB, max_directives=LIMIT)


def key(number: int) -> Key:
    return BINDING.workflow_key(number)


def made(api: Api) -> list[int]:
    """Return the jobs that have got Workflows, in order."""
    names = [key.name for verb, kind, key in api.written if (verb, kind) == CREATED]
    return [job_id for name in names if (job_id := BINDING.job_id(name)) is not None]


CREATED = ("create", kinds.WORKFLOW)


async def put(manager: Jobs, job: Job) -> None:
    manager.put(job)
    await caught_up()


def test_a_users_jobs_have_so_many_workflows_and_the_next_one_says_what_it_waits_for() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert sorted(made(api)) == [1, 2, 4]  # the fourth is another user's
        assert conductor.wait_reasons([1, 2, 3, 4]) == {
            **dict.fromkeys((1, 2, 4), "waits for Proposal, which no controller has taken up"),
            3: "waits for its Workflow until other jobs of its user in queue batch have begun or "
            "are over: they have 4 directives, and there is room for 4",
        }
        # The plugin has had its answer, and no exception is to be raised.
        assert (3, None) in jobs.passes

    conducted(story, *(job(each, queue="batch") for each in (1, 2, 3)), job(4, userid=1002))


@pytest.mark.parametrize("how", ["has nodes", "is gone", "failed"])
def test_a_waiting_job_has_its_workflow_as_soon_as_an_earlier_one_counts_no_more(how: str) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2]
        if how == "has nodes":
            await api.change(kinds.WORKFLOW, key(1), {"spec": {"desiredState": "Setup"}})
        else:
            await put(jobs, job(1, phase=Phase.OVER, failed=how == "failed"))
            workflow = api.find(kinds.WORKFLOW, key(1))
            assert workflow["spec"]["desiredState"] == "Teardown"
            assert made(api) == [1, 2]  # what is torn down counts
            await api.change(kinds.WORKFLOW, key(1), {"metadata": {"finalizers": []}})
            await api.delete(Remove(kind=kinds.WORKFLOW, key=key(1)))
        await caught_up()
        assert made(api) == [1, 2, 3]

    conducted(story, *map(job, (1, 2, 3, 4)))


def test_the_most_urgent_job_has_its_workflow_first_then_the_oldest() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await put(jobs, job(5, urgency=15))  # what it was is no more
        for number in (1, 2, 4, 3):
            await api.change(kinds.WORKFLOW, key(number), {"spec": {"desiredState": "Setup"}})
            await caught_up()
        assert made(api) == [1, 2, 4, 3, 6, 5]

    conducted(story, *map(job, (1, 2, 3)), job(4, urgency=20), job(5, urgency=31), job(6))


def test_jobs_that_cannot_begin_anyway_leave_room_for_those_that_can() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1]
        await put(jobs, job(3))
        assert made(api) == [1, 3]
        await put(jobs, job(2))  # released: it waits for room as others do
        assert made(api) == [1, 3]
        await api.change(kinds.WORKFLOW, key(3), {"spec": {"desiredState": "Setup"}})
        await caught_up()
        assert made(api) == [1, 3, 2]

    conducted(story, job(1, urgency=0), job(2, urgency=0))


def test_jobs_of_one_queue_hold_up_none_of_another_even_if_they_are_moved_there() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2, 4]
        await put(jobs, job(3, queue="debug"))
        assert made(api) == [1, 2, 4, 3]

    conducted(story, *(job(each, queue="batch") for each in (1, 2, 3)), job(4, queue="debug"))


def test_a_waiting_job_that_is_cancelled_gives_up_its_place() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await put(jobs, job(3, phase=Phase.ENDING, failed=True))
        await api.change(kinds.WORKFLOW, key(1), {"spec": {"desiredState": "Setup"}})
        await caught_up()
        assert made(api) == [1, 2, 4]
        assert jobs.known[3].phase is Phase.OVER

    conducted(story, *map(job, (1, 2, 3, 4)))


def test_a_conductor_that_begins_counts_what_is_there() -> None:
    async def main(api: Api) -> None:
        manager = Jobs(*map(job, (1, 2, 3)))
        async with running(api, new_conductor(api, manager).run()):
            assert made(api) == [1, 2]
        conductor = new_conductor(api, manager)
        async with running(api, conductor.run()):
            assert made(api) == [1, 2]
            await api.change(kinds.WORKFLOW, key(2), {"spec": {"desiredState": "Setup"}})
            await caught_up()
            assert made(api) == [1, 2, 3]

    alone(main)


def test_a_job_with_more_directives_than_there_is_room_for_has_its_workflow_when_it_is_alone() -> (
    None
):
    woken = list[int]()
    quota = WorkflowQuota(woken.append, max_directives=1)

    assert quota.admit(JOB)
    assert not quota.admit(job(2))
    quota.remove(1)
    assert woken == [2]
    assert quota.admit(job(2))


def test_however_often_a_waiting_job_changes_its_place_it_takes_no_more_memory() -> None:
    quota = WorkflowQuota(lambda job_id: None, max_directives=2)
    account = Account(1001, "")
    quota.count(1, account, 2)
    for number in range(1000):
        assert not quota.admit(job(2, urgency=number % 16))
    assert len(quota._usages[account].order) < 100
    quota.remove(2)
    quota.remove(1)
    assert not quota._usages
    assert not quota._accounts
