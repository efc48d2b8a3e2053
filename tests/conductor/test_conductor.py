"""The conductor in the whole system: troubles of a Workflow become words for the job."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.base.objects import Change, Key, key_of
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance.simulated import TaskBehavior

DW = {"dw": "\n".join(DIRECTIVES)}


def in_a_world(action: Callable[[World, Control], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=5)) as world:
            await world.live(lambda control: action(world, control))

    virtual.run(main())


def workflow_spec(wlm: str, job: int) -> dict[str, Any]:
    return {
        "desiredState": "Proposal",
        "dwDirectives": [],
        "jobID": job,
        "userID": 1,
        "groupID": 1,
        "wlmID": wlm,
    }


def test_a_workflow_that_no_job_needs_is_torn_down_and_deleted() -> None:
    async def action(world: World, control: Control) -> None:
        await control.api.store.create(
            kinds.WORKFLOW,
            {
                "metadata": {
                    "name": "fluxjob-42",
                    "namespace": "default",
                    "finalizers": ["flux-framework.readthedocs.io/workflow"],
                },
                "spec": workflow_spec("flux", 42),
            },
        )
        await world.until(lambda: not world.workflow(control))
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_a_workflow_of_another_workload_manager_is_left_alone() -> None:
    async def action(world: World, control: Control) -> None:
        metadata = {"name": "slurm-1", "namespace": "default"}
        made = {"metadata": metadata, "spec": workflow_spec("slurm", 1)}
        await control.api.store.create(kinds.WORKFLOW, made)
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: control.instance.manager.find(job) is not None)
        await world.until(lambda: len(list(control.api.store.objects_of(kinds.WORKFLOW))) == 1)

        assert world.workflow(control)["metadata"]["name"] == "slurm-1"

    in_a_world(action)


def told(control: Control) -> list[int]:
    """Return how much flash each rabbit says that it has."""
    rabbits = control.api.store.objects_of(kinds.STORAGE)
    return [rabbit.get("status", {}).get("capacity", 0) for rabbit in rabbits] or [0]


def test_a_rabbit_without_room_fails_the_job_in_the_rabbits_words() -> None:
    async def action(world: World, control: Control) -> None:
        await world.until(lambda: all(told(control)))
        # After they have told how much they have: the scheduler gives it out.
        for flash in world.flash.values():
            flash.capacity = 1
        job = await world.submit(control, attributes=DW)
        ended = await world.ended(control, job)

        assert ended.job.fatal_exception is not None
        assert "rabbit-0: rabbit-0 has 1 bytes of flash left" in ended.job.fatal_exception.note
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_a_transient_condition_is_borne_for_a_while_and_then_ends_the_job() -> None:
    """Statement 000.37: no longer than the patience, 10 s if nothing else is said."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        mounts = control.api.store
        await world.until(lambda: list(mounts.objects_of(kinds.CLIENT_MOUNT)))
        # A volume that has vanished: mounting it is tried again and again.
        world.flash["rabbit-0"].volumes.clear()
        ended = await world.ended(control, job)

        assert ended.job.fatal_exception is not None
        assert "'TransientCondition' state too long" in ended.job.fatal_exception.note
        assert "does not exist" in ended.job.fatal_exception.note
        await world.assert_nothing_left(control)

    in_a_world(action)


def test_a_finalizer_of_another_client_keeps_the_workflow_but_not_the_job() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        workflow = world.workflow(control)
        finalizers = [*workflow["metadata"]["finalizers"], "example.org/watching"]
        change = Change(
            kind=kinds.WORKFLOW,
            key=key_of(workflow),
            patch={"metadata": {"finalizers": finalizers}},
        )
        await control.api.store.patch(change)
        await world.until(lambda: _inactive(control, job))
        await world.until(
            lambda: (
                world.workflow(control)["metadata"].get("deletionTimestamp") is not None
                and "flux-framework.readthedocs.io/workflow"
                not in world.workflow(control)["metadata"]["finalizers"]
            )
        )
        left = Key("default", f"fluxjob-{job}")
        own = ["dataworkflowservices.github.io/workflow"]
        await control.api.store.patch(
            Change(kind=kinds.WORKFLOW, key=left, patch={"metadata": {"finalizers": own}})
        )
        await world.until(lambda: not world.workflow(control))

    in_a_world(action)


def _inactive(control: Control, job: int) -> bool:
    from warren.instance.jobs.manager import InactiveJob
    from warren.rfc.fluid import JobId

    return isinstance(control.instance.manager.find(JobId(job)), InactiveJob)
