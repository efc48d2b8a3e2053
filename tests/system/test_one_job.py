"""One rabbit job, in the whole system, in virtual time."""

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.base.objects import Key, Remove, key_of
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.objects.workflows import State as WorkflowState
from warren.instance import keys
from warren.instance.jobs.manager import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result, State
from warren.rfc.fluid import JobId

DW = {"dw": "\n".join(DIRECTIVES)}


async def to_the_end(world: World, control: Control) -> InactiveJob:
    job = await world.submit(control, attributes=DW)
    return await world.ended(control, job)


def test_a_rabbit_job_lives_its_whole_life() -> None:
    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                ended = await to_the_end(world, control)

                assert ended.job.result is Result.COMPLETED
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_its_events_come_in_the_order_that_the_field_knows() -> None:
    async def main() -> list[str]:
        async with opened() as world:

            async def life(control: Control) -> list[str]:
                ended = await to_the_end(world, control)
                return [event.name for event in world.eventlog(control, ended.job.id)]

            return await world.live(life) or []

    assert virtual.run(main()) == [
        "submit", "validate", "dependency-add", "memo", "jobspec-update", "dependency-remove",
        "depend", "priority", "alloc", "prolog-start", "memo", "dws_environment",
        "prolog-finish", "start", "finish", "epilog-start", "release", "epilog-finish", "free",
        "clean",
    ]  # fmt: skip


def test_its_workflow_goes_through_all_seven_states() -> None:
    async def main() -> list[str]:
        async with opened() as world:

            async def life(control: Control) -> list[str]:
                ended = await to_the_end(world, control)
                return control.instance.kvs.names(keys.job_key(ended.job.id, "").rstrip("."))

            return await world.live(life) or []

    kept = virtual.run(main())
    assert {f"rabbit_{state.lower()}_timing" for state in WorkflowState} <= set(kept)
    assert "rabbit_workflow" in kept


def test_the_records_of_its_storage_are_found_under_the_name_of_their_service() -> None:
    """Statement 003.37: other services store data under job.<jobid>.data.<service>."""

    async def main() -> tuple[bytes | None, bytes | None, list[str]]:
        async with opened() as world:

            async def life(
                control: Control,
            ) -> tuple[bytes | None, bytes | None, list[str]]:
                ended = await to_the_end(world, control)
                kvs, job = control.instance.kvs, ended.job.id
                return (
                    kvs.get(keys.job_key(job, "data.dws.rabbit_workflow")),
                    kvs.get(keys.job_key(job, "rabbit_workflow")),
                    kvs.names(keys.job_key(job, "data.dws")),
                )

            found = await world.live(life)
            assert found is not None
            return found

    linked, kept, names = virtual.run(main())
    assert linked == kept is not None
    assert {f"rabbit_{state.lower()}_timing" for state in WorkflowState} <= set(names)


def test_its_tasks_find_their_storage_in_the_environment() -> None:
    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                await to_the_end(world, control)
                environments = list(world.seen.values())

                assert len(environments) == 4
                paths = {environment["DW_JOB_scratch"] for environment in environments}
                assert len(paths) == 1
                assert paths.pop().startswith("/mnt/nnf/")
                assert environments[0]["DW_WORKFLOW_NAME"].startswith("fluxjob-")

            await world.live(life)

    virtual.run(main())


def test_data_is_copied_to_every_allocation_and_back_from_each() -> None:
    """Statements 000.21, 000.32: from a global file system, and back to it."""

    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                await to_the_end(world, control)
                into = [copy for copy in world.copies() if copy.source == f"{GLOBAL}/input"]
                back = [copy for copy in world.copies() if copy.index is not None]

                assert len({copy.destination for copy in into}) == 4
                assert {copy.destination for copy in back} == {f"{GLOBAL}/results"}
                assert {copy.index for copy in back} == {f"rabbit-0-{n}" for n in range(4)}

            await world.live(life)

    virtual.run(main())


def test_its_resources_carry_flash_of_its_own_chassis() -> None:
    """Statement 000.46: storage is a resource that is scheduled."""

    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                ended = await to_the_end(world, control)
                r = orjson.loads(control.instance.kvs.lookup(keys.job_key(ended.job.id, "R")))
                vertices = [node["metadata"] for node in r["scheduling"]["graph"]["nodes"]]

                assert r["execution"]["nodelist"] == ["compute-[00-03]"]
                ssds = [each["paths"]["containment"] for each in vertices if each["type"] == "ssd"]
                assert ssds
                assert all(path.startswith("/warren/chassis0/") for path in ssds)

            await world.live(life)

    virtual.run(main())


def test_a_job_that_fails_still_has_its_results_copied_out() -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(status=3 << 8)) as world:

            async def life(control: Control) -> None:
                ended = await to_the_end(world, control)

                assert ended.job.result is Result.FAILED
                assert ended.job.wait_status == 3 << 8
                assert any(copy.index for copy in world.copies())
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


@pytest.mark.parametrize("state", list(WorkflowState)[:-1])
def test_a_job_cancelled_in_any_state_of_its_workflow_leaves_nothing(state: WorkflowState) -> None:
    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW)
                await world.until(
                    lambda: (world.workflow(control).get("status") or {}).get("state") == state
                )
                await world.cancel(control, job)
                ended = await world.ended(control, job)

                assert ended.job.fatal_exception is not None
                assert ended.job.fatal_exception.type == "cancel"
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_job_cancelled_while_its_tasks_run_is_copied_out_all_the_same() -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=1000)) as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW)
                await world.until(lambda: len(world.seen) == 4)
                await world.cancel(control, job)
                ended = await world.ended(control, job)

                assert ended.job.result is Result.CANCELED
                assert any(copy.index for copy in world.copies())
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_tasks_that_ignore_a_signal_are_killed() -> None:
    def stubborn(command: object, environment: object) -> TaskBehavior:
        return TaskBehavior(seconds=1000, stubborn=True)

    async def main() -> None:
        async with opened(play=stubborn) as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW)
                await world.until(lambda: len(world.seen) == 4)
                await world.cancel(control, job)
                ended = await world.ended(control, job)

                assert ended.job.result is Result.CANCELED
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_job_that_outlives_its_time_limit_is_ended() -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=1000)) as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW, duration=30.0)
                ended = await world.ended(control, job)

                assert ended.job.result is Result.TIMEOUT
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_deleted_workflow_ends_its_job_with_a_reason() -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=1000)) as world:

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes=DW)
                await world.until(lambda: len(world.seen) == 4)
                key = key_of(world.workflow(control))
                await control.api.store.delete(Remove(kind=kinds.WORKFLOW, key=key))
                ended = await world.ended(control, job)

                assert ended.job.fatal_exception is not None
                assert "was deleted" in ended.job.fatal_exception.note
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_job_whose_workflow_is_lost_while_it_is_queued_goes_on_with_another() -> None:
    """Users want (c2#487): "ability to restart with queued jobs is critical"."""

    async def main() -> None:
        async with opened(ClusterShape(rabbits=1)) as world:

            async def life(control: Control) -> None:
                large = {"dw": "#DW jobdw type=xfs capacity=60GiB name=scratch"}
                first = await world.submit(control, attributes=large, nodes=2)
                second = await world.submit(control, attributes=large, nodes=2)
                await world.until(lambda: _reason(control, second))
                key, store = Key(kinds.DEFAULT_NAMESPACE, f"fluxjob-{second}"), control.api.store
                lost = store.get(kinds.WORKFLOW, key)["metadata"]["uid"]
                await store.delete(Remove(kind=kinds.WORKFLOW, key=key))
                await world.until(
                    lambda: any(
                        key_of(each) == key and each["metadata"]["uid"] != lost
                        for each in store.objects_of(kinds.WORKFLOW)
                    )
                )
                results = [
                    (await world.ended(control, each)).job.result for each in (first, second)
                ]

                assert results == [Result.COMPLETED, Result.COMPLETED]
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_second_job_waits_for_flash_and_says_so() -> None:
    async def main() -> None:
        async with opened(ClusterShape(rabbits=1)) as world:

            async def life(control: Control) -> None:
                large = {"dw": "#DW jobdw type=xfs capacity=60GiB name=scratch"}
                first = await world.submit(control, attributes=large, nodes=2)
                second = await world.submit(control, attributes=large, nodes=2)
                await world.until(lambda: _reason(control, second))
                waits = _reason(control, second)
                await world.ended(control, first)
                ended = await world.ended(control, second)

                assert waits == "waits for 61 GiB of flash beside each of 2 nodes"
                assert ended.job.result is Result.COMPLETED
                assert ended.job.times[State.RUN] >= _times(control, first)[State.INACTIVE]

            await world.live(life)

    virtual.run(main())


def test_ten_jobs_share_the_rabbits_and_leave_them_empty() -> None:
    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                jobs = [
                    await world.submit(control, attributes=DW, nodes=1 + number % 4)
                    for number in range(10)
                ]
                for job in jobs:
                    ended = await world.ended(control, job)
                    assert ended.job.result is Result.COMPLETED
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())


def test_a_job_without_directives_touches_no_storage() -> None:
    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                job = await world.submit(control)
                ended = await world.ended(control, job)
                names = [event.name for event in world.eventlog(control, job)]

                assert ended.job.result is Result.COMPLETED
                assert "prolog-start" not in names
                assert "epilog-start" not in names

            await world.live(life)

    virtual.run(main())


def _reason(control: Control, job: JobId) -> str:
    found = control.instance.manager.find(job)
    sched = found.job.annotations.get("sched") or {} if found else {}
    return str(sched.get("reason_pending") or "")


def _times(control: Control, job: JobId) -> dict[State, float]:
    found = control.instance.manager.find(job)
    assert found is not None
    return dict(found.job.times)
