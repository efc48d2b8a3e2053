"""Who runs commands around jobs next."""

import asyncio
import resource

import pytest

from tests.harness import virtual
from warren.instance.exec.turns import TurnLimits, Turns, default_turn_limits

ALICE, BOB, CAROL = 1001, 1002, 1003


class Work:
    """Turns that last until they are ended, in the order in which they began."""

    def __init__(self, group: asyncio.TaskGroup, limits: TurnLimits) -> None:
        self._group = group
        self._turns = Turns(limits)
        self._ends: list[tuple[int, asyncio.Event]] = []
        self.begun: list[int] = []
        """The users whose turns have begun."""
        self.cancelled = asyncio.Event()
        self.at_once: list[int] = []
        """How many commands of each may run at a time."""

    async def ask(self, *userids: int, commands: int = 1) -> list[asyncio.Task[None]]:
        asked = [self._group.create_task(self._work(each, commands)) for each in userids]
        await settled()
        return asked

    async def end(self, userid: int) -> None:
        """End the first turn of a user."""
        found = next(each for each in self._ends if each[0] == userid)
        self._ends.remove(found)
        found[1].set()
        await settled()

    async def end_all(self) -> None:
        while self._ends:
            await self.end(self._ends[0][0])

    async def _work(self, userid: int, commands: int) -> None:
        async with self._turns.take(userid, commands, self.cancelled) as at_once:
            self.begun.append(userid)
            self.at_once.append(at_once)
            end = asyncio.Event()
            self._ends.append((userid, end))
            await end.wait()


async def settled() -> None:
    await asyncio.sleep(0.001)


def test_a_user_waits_for_the_turns_of_no_other() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=4, turns_of_own=2, max_commands=100))
            await work.ask(*[ALICE] * 10)
            assert work.begun == [ALICE] * 4

            await work.ask(*[BOB] * 10)
            assert work.begun[4:] == [BOB] * 2
            await work.ask(CAROL)
            assert work.begun[6:] == [CAROL]
            await work.end_all()

    virtual.run(main())


def test_what_becomes_free_is_given_to_the_user_with_the_fewest_turns() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=4, turns_of_own=1, max_commands=100))
            await work.ask(*[ALICE] * 10)
            await work.ask(*[BOB] * 3)
            assert work.begun == [*[ALICE] * 4, BOB]

            for _ in range(2):
                await work.end(ALICE)
            assert work.begun[5:] == [BOB]
            await work.end(ALICE)
            assert work.begun[6:] == [ALICE]
            await work.end(BOB)
            assert work.begun[7:] == [BOB]
            await work.end_all()

    virtual.run(main())


def test_users_with_as_many_turns_are_served_one_after_the_other() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=1, turns_of_own=1, max_commands=1))
            await work.ask(*[ALICE] * 3, *[BOB] * 2, CAROL)
            while len(work.begun) < 6:
                await work.end(work.begun[-1])
            assert work.begun == [ALICE, BOB, CAROL, ALICE, BOB, ALICE]
            await work.end_all()

    virtual.run(main())


def test_half_of_all_commands_are_left_to_users_who_have_no_turn_yet() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=64, turns_of_own=8, max_commands=100))
            await work.ask(*[ALICE] * 10, commands=10)
            assert work.begun == [ALICE] * 5
            await work.ask(*[BOB] * 2, commands=40)
            assert work.begun[5:] == [BOB]
            await work.ask(CAROL, commands=11)
            assert work.begun[6:] == []  # as many as there are of all
            await work.end(ALICE)
            assert work.begun[6:] == [CAROL]
            await work.end_all()

    virtual.run(main())


def test_a_turn_that_there_is_no_room_for_is_passed_for_a_minute_and_then_begins() -> None:
    """What others run may never end, and its commands may wait for each other."""

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=64, turns_of_own=8, max_commands=100))
            await work.ask(ALICE, commands=10)
            await work.ask(BOB, commands=100)
            await work.ask(ALICE, CAROL)
            assert work.begun == [ALICE, ALICE, CAROL]

            await asyncio.sleep(61)
            assert work.begun[3:] == [BOB]
            assert work.at_once[3:] == [100]
            await work.end_all()

    virtual.run(main())


def test_one_turn_at_a_time_begins_beyond_the_limit() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=64, turns_of_own=8, max_commands=100))
            await work.ask(ALICE)
            await work.ask(BOB, CAROL, commands=100)
            await asyncio.sleep(200)
            assert work.begun == [ALICE, BOB]
            await work.end(BOB)
            assert work.begun[2:] == [CAROL]
            await work.end_all()

    virtual.run(main())


def test_a_users_large_job_beside_an_own_one_that_hangs_holds_up_no_other_user() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=64, turns_of_own=8, max_commands=100))
            await work.ask(ALICE)
            await work.ask(ALICE, commands=60)
            await work.ask(BOB, BOB, BOB)
            assert work.begun == [ALICE, BOB, BOB, BOB]
            await asyncio.sleep(61)
            assert work.begun[4:] == [ALICE]
            await work.end_all()

    virtual.run(main())


def test_a_job_that_is_cancelled_waits_for_no_turn() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=1, turns_of_own=1, max_commands=1))
            await work.ask(ALICE, ALICE)
            work.cancelled.set()
            await settled()
            assert work.begun == [ALICE, ALICE]
            assert work.at_once == [1, 1]
            await work.end_all()

    virtual.run(main())


def test_of_more_commands_than_there_may_be_of_all_jobs_so_many_run_at_a_time() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_commands=100))
            await work.ask(ALICE, commands=250)
            assert work.at_once == [100]
            await work.end_all()

    virtual.run(main())


def test_turns_that_are_cancelled_leave_room_for_others() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            work = Work(group, TurnLimits(max_turns=1, turns_of_own=1, max_commands=1))
            begun, waiting, _ = await work.ask(ALICE, ALICE, BOB)
            waiting.cancel()
            begun.cancel()
            await settled()

            assert work.begun == [ALICE, BOB]
            await work.end(BOB)
            await work.ask(ALICE)
            assert work.begun == [ALICE, BOB, ALICE]
            await work.end_all()

    virtual.run(main())


@pytest.mark.parametrize(("descriptors", "commands"), [(1024, 128), (2**20, 4096), (4, 1)])
def test_commands_take_a_part_of_the_descriptors_that_there_may_be(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, commands: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (descriptors, descriptors))

    assert default_turn_limits().max_commands == commands
