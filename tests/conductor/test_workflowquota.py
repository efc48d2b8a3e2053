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
from warren.conductor.workflowquota import QuotaKey, WorkflowQuota
from warren.dws import kinds, labels
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
            3: "waits for its Workflow until other jobs of its user in queue batch have begun, or "
            "are over and their storage is gone: they have 4 directives, and there is room for 4; "
            "cancel some to make room",
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


URGENCIES = {3: 8, 4: 10, 5: 16, 6: 8}


def test_the_most_urgent_job_has_its_workflow_first_then_the_oldest() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await put(jobs, job(5, urgency=7))  # what it was is no more
        for number in (1, 2, 4, 3):
            await api.change(kinds.WORKFLOW, key(number), {"spec": {"desiredState": "Setup"}})
            await caught_up()
        assert made(api) == [1, 2, 4, 3, 6, 5]

    conducted(story, *map(job, (1, 2)), *(job(each, urgency=n) for each, n in URGENCIES.items()))


def test_jobs_that_cannot_begin_anyway_leave_room_for_those_that_can() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1]
        await put(jobs, job(3))
        await put(jobs, job(4))
        assert made(api) == [1, 3, 4]
        await put(jobs, job(2))  # released: it waits for room as others do
        assert made(api) == [1, 3, 4]
        await api.change(kinds.WORKFLOW, key(3), {"spec": {"desiredState": "Setup"}})
        await caught_up()
        assert made(api) == [1, 3, 4, 2]

    conducted(story, job(1, urgency=0), job(2, urgency=0))


def test_jobs_that_are_held_after_they_got_workflows_make_room_for_one_that_may_begin() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        for number in (1, 2):
            await put(jobs, job(number, urgency=0))
        assert made(api) == [1, 2, 3]  # half of what there is room for leaves, and no more

    conducted(story, *map(job, (1, 2, 3, 4)))


def test_a_job_that_an_admin_expedites_waits_for_no_others() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2]
        for number in (3, 4, 5):
            await put(jobs, job(number, urgency=31))
        assert made(api) == [1, 2, 3, 4, 5]

    conducted(story, *map(job, (1, 2, 3)))


def test_a_job_that_only_destroys_storage_waits_for_none_that_may_wait_for_its_flash() -> None:
    destroy = ("#DW destroy_persistent name=old",)

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert sorted(made(api)) == [1, 2, 4]
        reason = conductor.wait_reasons([5])[5]
        assert "until other jobs of its user that only destroy storage have begun" in reason

    destroying = [job(each, directives=destroy) for each in (4, 5)]
    conducted(story, *map(job, (1, 2, 3)), *destroying)


def test_jobs_of_one_queue_hold_up_none_of_another_even_if_they_are_moved_there() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2, 4]
        await put(jobs, job(3, queue="debug"))
        assert made(api) == [1, 2, 4, 3]

    conducted(story, *(job(each, queue="batch") for each in (1, 2, 3)), job(4, queue="debug"))


def test_a_job_that_moves_to_another_queue_makes_room_if_there_is_room_for_it_there() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2]
        for number in (1, 2):
            await put(jobs, job(number, queue="debug"))
        assert made(api) == [1, 2, 3, 4]
        for number in (3, 4):  # counts in its old queue: or users had as many again
            await put(jobs, job(number, queue="debug"))
        assert made(api) == [1, 2, 3, 4]

    conducted(story, *(job(each, queue="batch") for each in (1, 2, 3, 4, 5)))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_that_is_forgotten_counts_in_its_queue_until_its_storage_is_gone(
    restarted: bool,
) -> None:
    async def main(api: Api) -> None:
        jobs = Jobs(*(job(each, queue="batch") for each in (1, 2, 3)))
        async with running(api, new_conductor(api, jobs).run()):
            assert made(api) == [1, 2]
            if not restarted:
                for number in (1, 2):
                    jobs.forget(number)
                    await caught_up()
                await expect_room_when_one_is_gone(api)
        if restarted:
            for number in (1, 2):
                jobs.forget(number)
            async with running(api, new_conductor(api, jobs).run()):
                await expect_room_when_one_is_gone(api)

    async def expect_room_when_one_is_gone(api: Api) -> None:
        assert made(api) == [1, 2]
        assert api.find(kinds.WORKFLOW, key(1))["spec"]["desiredState"] == "Teardown"
        await api.change(kinds.WORKFLOW, key(1), {"metadata": {"finalizers": []}})
        await api.delete(Remove(kind=kinds.WORKFLOW, key=key(1)))
        await caught_up()
        assert made(api) == [1, 2, 3]

    alone(main)


def test_a_job_whose_objects_cannot_be_read_keeps_no_others_waiting() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2]
        metadata = {"name": "x", "namespace": "default", "labels": labels_of(3)}
        await api.add(kinds.SERVERS, {"metadata": metadata, "spec": {"allocationSets": 7}})
        await put(jobs, job(3))
        assert jobs.known[3].failed
        await api.change(kinds.WORKFLOW, key(1), {"spec": {"desiredState": "Setup"}})
        await caught_up()
        assert made(api) == [1, 2, 4]

    conducted(story, *map(job, (1, 2, 3, 4)))


def labels_of(number: int) -> dict[str, str]:
    return {
        labels.WORKFLOW_NAME: key(number).name,
        labels.WORKFLOW_NAMESPACE: key(number).namespace,
    }


def test_a_workflow_with_the_name_of_a_jobs_in_another_namespace_counts_for_none() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        assert made(api) == [1, 2]
        metadata = {"name": key(1).name, "namespace": "other"}
        await api.add(kinds.WORKFLOW, {"metadata": metadata, "spec": {"desiredState": "Setup"}})
        await caught_up()
        assert made(api) == [1, 2]

    conducted(story, *map(job, (1, 2, 3)))


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
    quota_key = QuotaKey(1001, "")
    quota.count(1, quota_key, 2)
    for number in range(1000):
        assert not quota.admit(job(2, urgency=1 + number % 16))
    assert len(quota._usages[quota_key].order) < 100
    quota.remove(2)
    quota.remove(1)
    assert not quota._usages
    assert not quota._quota_keys


def test_what_a_job_that_does_not_come_first_was_takes_no_more_memory_either() -> None:
    quota = WorkflowQuota(lambda job_id: None, max_directives=2)
    quota_key = QuotaKey(1001, "")
    quota.count(1, quota_key, 2)
    assert not quota.admit(job(3, urgency=16))
    for number in range(1000):
        assert not quota.admit(job(2, urgency=1 + number % 15))
    assert len(quota._usages[quota_key].order) < 100


def test_the_order_of_many_that_wait_holds_however_often_they_change() -> None:
    woken = list[int]()
    quota = WorkflowQuota(woken.append, max_directives=2)
    quota.count(1, QuotaKey(1001, ""), 2)
    for number in range(1000):
        assert not quota.admit(job(2 + number % 7, urgency=1 + number % 13))
    for number in range(2, 9):
        assert not quota.admit(job(number, urgency=16 - number))
    for number in range(1, 8):
        quota.remove(number)
        assert woken[-1] == number + 1
        assert quota.admit(job(number + 1, urgency=15 - number))


def test_a_waiting_job_that_goes_to_another_queue_waits_there_alone() -> None:
    quota = WorkflowQuota(lambda job_id: None, max_directives=2)
    quota.count(1, QuotaKey(1001, "a"), 2)
    assert not quota.admit(job(2, queue="a"))
    assert quota.quota_key(2) == QuotaKey(1001, "a")

    assert quota.admit(job(2, queue="b"))
    assert quota.quota_key(2) == QuotaKey(1001, "b")
    assert not quota._usages[QuotaKey(1001, "a")].waiting
    quota.remove(2)
    assert quota.quota_key(2) is None
    assert quota._usages.keys() == {QuotaKey(1001, "a")}


def test_a_workflow_goes_to_another_queue_only_if_there_is_room() -> None:
    here, there = QuotaKey(1001, "a"), QuotaKey(1001, "b")
    quota = WorkflowQuota(lambda job_id: None, max_directives=4)
    quota.count(1, here, 2)
    quota.count(2, there, 3)

    quota.count(1, there, 2)
    assert (quota.quota_key(1), quota._usages[here].total, quota._usages[there].total) == (
        here, 2, 3,
    )  # fmt: skip
    quota.count(2, there, 2)
    quota.count(1, there, 2)
    assert (quota.quota_key(1), quota._usages[there].total) == (there, 4)
    assert here not in quota._usages
    # One that is new counts where it is: its Workflow is there.
    quota.count(3, there, 2)
    assert (quota.quota_key(3), quota._usages[there].total) == (there, 6)


def test_a_job_that_is_let_in_wakes_the_next_for_which_there_is_room() -> None:
    woken = list[int]()
    quota = WorkflowQuota(woken.append, max_directives=4)
    quota.count(1, QuotaKey(1001, ""), 4)
    for number in (2, 3):
        assert not quota.admit(job(number, directives=(JOBDW,)))
    quota.count(1, QuotaKey(1001, ""), 0)

    assert quota.admit(job(2, directives=(JOBDW,)))
    assert woken[-1] == 3
