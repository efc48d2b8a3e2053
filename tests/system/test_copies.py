"""Copies that fail, hang, are given up, or are many: in the whole system, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.base.objects import Change, Key, Object, Remove
from warren.controllers.copies import SLOTS
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.dws.copies.retries import Retries
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Progress
from warren.instance.jobs.manager import InactiveJob
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

DW = {"dw": "\n".join(DIRECTIVES)}
RABBIT = "rabbit-0"
TRIES = Retries().tries


class Copiers:
    """What becomes of each copy that is begun, in any life of the world."""

    def __init__(self, behave: Callable[[Copy, int], Exception | float | None]) -> None:
        """`behave` says of a copy, and of how often it was begun before, how it fails, how many
        seconds it takes, or None for one that neither ends nor says anything."""
        self._behave = behave
        self.begun: list[Copy] = []
        self.times: list[float] = []
        """When each was begun."""
        self.working: list[Copy] = []
        self.most = 0

    def machine(self, world: World) -> Callable[[str, str], SimulatedNode]:
        outer = self

        class LocalNode(SimulatedNode):
            async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
                copy = replace(copy, since=0.0)  # all tries of a movement are the same
                how = outer._behave(copy, outer.begun.count(copy))
                outer.begun.append(copy)
                outer.times.append(asyncio.get_running_loop().time())
                outer.working.append(copy)
                outer.most = max(outer.most, len(outer.working))
                try:
                    if isinstance(how, Exception):
                        raise how
                    if how is None:
                        await asyncio.get_running_loop().create_future()
                    await asyncio.sleep(how or 0)
                    async for progress in super().copy(copy):
                        yield progress
                finally:
                    outer.working.remove(copy)

        return lambda node, rabbit: LocalNode(node, world.flash[rabbit], seconds=world.copy_seconds)

    def pauses(self) -> list[list[float]]:
        """The seconds between the tries of each copy."""
        times = [
            [at for at, each in zip(self.times, self.begun, strict=True) if each == copy]
            for copy in dict.fromkeys(self.begun)
        ]
        return [[after - before for before, after in pairwise(each)] for each in times]

    def tries(self) -> set[int]:
        return {self.begun.count(each) for each in self.begun}


def goes_out(copy: Copy) -> bool:
    return copy.destination.startswith(GLOBAL)


def in_a_world(copiers: Copiers, *lives: Callable[[World, Control], Awaitable[None]]) -> None:
    async def main() -> None:
        async with opened() as world:
            world.machine = copiers.machine(world)
            for life in lives:

                async def action(control: Control, life: Any = life) -> None:
                    await life(world, control)

                await world.live(action)

    virtual.run(main())


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that no write may tell of, such as the beginning of a copy."""
    async with asyncio.timeout(3600):
        while True:
            if condition():
                return
            await asyncio.sleep(0.05)


async def lived(world: World, control: Control) -> InactiveJob:
    job = await world.submit(control, attributes=DW)
    ended = await world.ended(control, job)
    await world.assert_nothing_left(control)
    return ended


# What fails


@pytest.mark.parametrize("error", [NodeTrouble("killed by signal 9"), ValueError("a bug")])
def test_a_copy_whose_copier_dies_is_made_again_and_the_job_succeeds(error: Exception) -> None:
    copiers = Copiers(lambda copy, before: error if before < TRIES - 1 else 0)

    async def life(world: World, control: Control) -> None:
        ended = await lived(world, control)
        assert (ended.job.result, ended.job.fatal_exception) == (Result.COMPLETED, None)

    in_a_world(copiers, life)
    assert copiers.tries() == {TRIES}
    wanted = [Retries().pause * 2**number for number in range(TRIES - 1)]
    for pauses in copiers.pauses():
        assert pauses == pytest.approx(wanted, abs=0.5), pauses


def test_a_copy_out_that_fails_for_good_fails_the_job_whose_tasks_succeeded() -> None:
    error = CopyFailed("/global/results: No space left on device")
    copiers = Copiers(lambda copy, before: error if goes_out(copy) else 0)

    async def life(world: World, control: Control) -> None:
        ended = await lived(world, control)
        assert (ended.job.result, ended.job.wait_status) == (Result.FAILED, 0)
        assert ended.job.fatal_exception is not None
        assert "data movement operation failed during 'DataOut'" in ended.job.fatal_exception.note
        assert f"No space left on device (tried {TRIES} times)" in ended.job.fatal_exception.note

    in_a_world(copiers, life)
    assert {copiers.begun.count(each) for each in copiers.begun if goes_out(each)} == {TRIES}


def test_when_one_copy_out_fails_for_good_all_others_are_made_to_their_end() -> None:
    def behave(copy: Copy, before: int) -> Exception | float:
        if not goes_out(copy):
            return 0
        return CopyFailed("no") if copy.index == f"{RABBIT}-1" else 600

    async def life(world: World, control: Control) -> None:
        ended = await lived(world, control)
        assert ended.job.result is Result.FAILED
        saved = {copy.index for copy in world.copies() if goes_out(copy)}
        assert saved == {f"{RABBIT}-{number}" for number in (0, 2, 3)}

    in_a_world(Copiers(behave), life)


def test_when_one_copy_out_fails_for_good_others_are_mounted_and_made_to_their_end() -> None:
    """What the second copies is mounted when the first has had all its tries."""
    pauses = sum(Retries().pause * 2**number for number in range(TRIES))

    class SlowMount(Copiers):
        def machine(self, world: World) -> Callable[[str, str], SimulatedNode]:
            make = super().machine(world)

            def made(node: str, rabbit: str) -> SimulatedNode:
                machine = make(node, rabbit)
                mount = machine.mount

                async def slowly(rabbit: str, name: str, kind: str, path: str, *more: Any) -> None:
                    if path.endswith(f"-1/{RABBIT}-0"):
                        await asyncio.sleep(pauses + 10)
                    await mount(rabbit, name, kind, path, *more)

                machine.mount = slowly  # type: ignore[method-assign,assignment]
                return machine

            return made

    lines = [
        f"#DW {line}"
        for name in ("first", "second")
        for line in (
            f"jobdw type=xfs capacity=1GiB name={name}",
            f"copy_out source=$DW_JOB_{name}/ destination={GLOBAL}/{name}",
        )
    ]
    directives = {"dw": "\n".join([*lines[::2], *lines[1::2]])}

    async def life(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=directives)
        ended = await world.ended(control, job)
        await world.assert_nothing_left(control)
        assert ended.job.result is Result.FAILED
        assert ended.job.fatal_exception is not None
        assert "rabbit-0: no (tried" in ended.job.fatal_exception.note
        saved = {copy.destination for copy in world.copies()}
        assert saved == {f"{GLOBAL}/second"}

    def behave(copy: Copy, before: int) -> Exception | float:
        return CopyFailed("no") if copy.destination.endswith("/first") else 600

    in_a_world(SlowMount(behave), life)


def test_what_a_copier_says_of_a_copy_in_is_told_at_once_and_once() -> None:
    copiers = Copiers(lambda copy, before: CopyFailed("/global/input: No such file or directory"))

    async def life(world: World, control: Control) -> None:
        ended = await lived(world, control)
        assert ended.job.result is Result.FAILED
        assert ended.job.fatal_exception is not None
        assert "No such file or directory" in ended.job.fatal_exception.note
        names = [event.name for event in world.eventlog(control, ended.job.id)]
        assert names.count("exception") == 1

    in_a_world(copiers, life)
    assert copiers.tries() == {1}


def test_how_often_a_copy_was_tried_outlives_its_agent() -> None:
    copiers = Copiers(lambda copy, before: CopyFailed("no") if goes_out(copy) else 0)

    async def first(world: World, control: Control) -> None:
        await world.submit(control, attributes=DW)
        await until(lambda: sum(map(goes_out, copiers.begun)) >= 4)
        moved = [each["status"] for each in movements(control) if each["status"].get("restarts")]
        assert moved

    async def second(world: World, control: Control) -> None:
        (job,) = [each.job.id for each in control.instance.manager.jobs()]
        ended = await world.ended(control, job)
        assert ended.job.result is Result.FAILED

    in_a_world(copiers, first, second)
    assert max(copiers.tries()) <= TRIES


def test_a_workflow_that_is_deleted_before_its_copy_out_fails_the_job() -> None:
    copiers = Copiers(lambda copy, before: None if goes_out(copy) else 0)

    async def life(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await until(lambda: any(map(goes_out, copiers.working)))
        name = world.workflow(control)["metadata"]["name"]
        await control.api.store.delete(Remove(kind=kinds.WORKFLOW, key=Key("default", name)))
        ended = await world.ended(control, job)
        assert (ended.job.result, ended.job.wait_status) == (Result.FAILED, 0)
        assert ended.job.fatal_exception is not None
        assert ended.job.fatal_exception.note == f"Workflow {name} was deleted"

    in_a_world(copiers, life)


# What is given up: copiers that neither end nor say anything


@pytest.mark.parametrize("out", [False, True])
def test_a_job_that_is_cancelled_does_not_wait_for_a_silent_copier(out: bool) -> None:
    copiers = Copiers(lambda copy, before: None if goes_out(copy) is out else 0)

    async def life(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await until(lambda: sum(goes_out(each) is out for each in copiers.working) == 4)
        await world.cancel(control, job)
        ended = await world.ended(control, job)
        assert ended.job.result is Result.CANCELED
        await world.assert_nothing_left(control)

    in_a_world(copiers, life)
    assert copiers.working == []


def movements(control: Control) -> list[Object]:
    return list(control.api.store.objects_of(kinds.NNF_DATA_MOVEMENT))


def status_of(control: Control, name: str) -> Object:
    return next(
        each.get("status") or {} for each in movements(control) if each["metadata"]["name"] == name
    )


async def make(control: Control, name: str, userid: int) -> None:
    await control.api.store.create(
        kinds.NNF_DATA_MOVEMENT,
        {
            "metadata": {
                "name": name,
                "namespace": RABBIT,
                "finalizers": [labels.MOVEMENT_FINALIZER],
            },
            "spec": {
                "source": {"path": f"{GLOBAL}/{name}"},
                "destination": {"path": f"{GLOBAL}/to"},
                "userId": userid,
                "groupId": userid,
                "cancel": False,
            },
        },
    )


async def cancel(control: Control, name: str) -> None:
    kind, key = kinds.NNF_DATA_MOVEMENT, Key(RABBIT, name)
    await control.api.store.patch(Change(kind=kind, key=key, patch={"spec": {"cancel": True}}))


def test_a_copy_that_is_cancelled_ends_whether_it_is_silent_or_waits_for_a_slot() -> None:
    copiers = Copiers(lambda copy, before: None)

    async def life(world: World, control: Control) -> None:
        for number in range(SLOTS + 1):
            await make(control, str(number), 7)
        await until(lambda: len(copiers.working) == SLOTS)
        begun = {each.source.rpartition("/")[2] for each in copiers.working}
        (waits,) = {str(number) for number in range(SLOTS + 1)} - begun

        def finished(name: str) -> bool:
            return bool(status_of(control, name).get("state") == "Finished")

        for name in (waits, min(begun)):
            await cancel(control, name)
            await until(partial(finished, name))
            assert status_of(control, name)["status"] == "Cancelled"
        assert len(copiers.working) == SLOTS - 1
        for each in movements(control):
            name = each["metadata"]["name"]
            await control.api.store.delete(
                Remove(kind=kinds.NNF_DATA_MOVEMENT, key=Key(RABBIT, name))
            )
        await until(lambda: not movements(control))

    in_a_world(copiers, life)
    assert copiers.working == []
    assert len(copiers.begun) == SLOTS


def test_a_user_with_many_copies_keeps_no_other_waiting() -> None:
    copiers = Copiers(lambda copy, before: 60)

    async def life(world: World, control: Control) -> None:
        for number in range(3 * SLOTS):
            await make(control, f"many-{number}", 1)
        await until(lambda: len(copiers.working) == SLOTS)
        for number in range(2):
            await make(control, f"few-{number}", 2)
        await until(lambda: len(copiers.begun) == 3 * SLOTS + 2)
        begun = [each.userid for each in copiers.begun]
        assert begun[: SLOTS + 1] == [1] * SLOTS + [2]
        assert sorted(begun[SLOTS : SLOTS + 3]) == [1, 2, 2]
        await until(
            lambda: all(
                (each.get("status") or {}).get("state") == "Finished" for each in movements(control)
            )
        )

    in_a_world(copiers, life)
    # The other user's first copy has not waited for a slot.
    assert copiers.most == SLOTS + 1
