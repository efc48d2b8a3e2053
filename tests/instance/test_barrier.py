"""Barriers: who waits, who passes, and who is sent away."""

import asyncio
import errno
from typing import Any

import pytest

from tests.instance.parts import GUEST, OWNER, living, refused, settle, virtually
from warren.instance.barrier import Barriers
from warren.rpc.bus import Bus
from warren.rpc.message import Payload, RpcError


class Meeting:
    """All that enter a barrier, as a task each."""

    def __init__(self, group: asyncio.TaskGroup, barriers: Barriers | None = None) -> None:
        self.barriers = barriers or Barriers()
        self._bus = Bus(OWNER)
        self._bus.register("barrier", self.barriers.methods())
        self._group = group

    def enter(
        self, who: str, name: str = "f1-init", size: int = 3, userid: int = OWNER
    ) -> "asyncio.Task[int]":
        """Enter; the task gives 0 when all have met, and an errnum when it is sent away."""
        request = {"name": name, "nprocs": size, "who": who}
        return self._group.create_task(self._entered(userid, request))

    async def _entered(self, userid: int, request: Payload) -> int:
        try:
            await self._bus.handle(userid).rpc("barrier.enter", request)
        except RpcError as error:
            return error.errnum
        return 0


@virtually
async def test_a_guest_has_only_so_many_barriers_and_those_of_a_job_go_with_it() -> None:
    async with living() as group:
        meeting = Meeting(group, Barriers(most_barriers=2))
        for name in ("f1-init", "f1-end", "f1-init"):
            assert await meeting.enter("0", name, 1, GUEST) == 0
        assert await meeting.enter("0", "f2-init", 1, GUEST) == errno.ENOSPC
        assert await meeting.enter("0", "f2-init", 1, GUEST + 1) == 0

        meeting.barriers.forget(GUEST, "f1-")
        assert await meeting.enter("0", "f2-init", 1, GUEST) == 0


@virtually
async def test_a_guests_barriers_remember_no_more_names_than_fit_in_them() -> None:
    async with living() as group:
        meeting = Meeting(group, Barriers(most_barriers=1))
        for who in range(100):
            assert await meeting.enter(f"{who}", "f1-init", 1, GUEST) == 0
        for who in range(15):
            assert await meeting.enter(f"{who}", "f1-init", 2**16, GUEST) == 0
        meeting.barriers.forget(GUEST, "f1-")

        waiting = [meeting.enter(f"{who}", "f2-init", 2**16, GUEST) for who in range(16)]
        await settle()
        assert await meeting.enter("16", "f2-init", 2**16, GUEST) == errno.ENOSPC
        meeting.barriers.forget(GUEST, "f2-")
        assert [await each for each in waiting] == [errno.ECANCELED] * 16
        assert await meeting.enter("16", "f2-init", 1, GUEST) == 0


@pytest.mark.parametrize(
    "wide", [{"size": 2**16 + 1}, {"who": "0" * 257}, {"name": "f1" * 128}], ids=repr
)
@virtually
async def test_a_guests_barrier_is_no_wider_than_any_job(wide: dict[str, Any]) -> None:
    async with living() as group:
        asked = {"who": "0", "userid": GUEST, **wide}
        assert await Meeting(group).enter(**asked) == errno.EINVAL


@virtually
async def test_who_gives_up_waiting_leaves_nothing_behind() -> None:
    async with living() as group:
        meeting = Meeting(group)
        entering = meeting.enter("0")
        await settle()
        entering.cancel()
        await settle()

        [left] = meeting.barriers._barriers.values()
        assert left.waiting == []


@virtually
async def test_all_go_on_when_the_last_one_has_come() -> None:
    async with living() as group:
        meeting = Meeting(group)
        waiting = [meeting.enter("0"), meeting.enter("1")]
        await settle()
        assert not any(each.done() for each in waiting)

        last = meeting.enter("2")
        await settle()
        assert [await each for each in (*waiting, last)] == [0, 0, 0]


@virtually
async def test_who_enters_alone_does_not_wait() -> None:
    async with living() as group:
        assert await Meeting(group).enter("0", size=1) == 0


@virtually
async def test_who_comes_twice_counts_once_and_both_go_on() -> None:
    async with living() as group:
        meeting = Meeting(group)
        waiting = [meeting.enter(who) for who in ("0", "0", "1", "0")]
        await settle()
        assert not any(each.done() for each in waiting)

        meeting.enter("2")
        await settle()
        assert [await each for each in waiting] == [0, 0, 0, 0]


@virtually
async def test_who_comes_again_after_all_have_met_passes_at_once() -> None:
    async with living() as group:
        meeting = Meeting(group)
        for who in ("0", "1", "2"):
            meeting.enter(who)
        await settle()

        assert await meeting.enter("1") == 0


@virtually
async def test_who_has_gone_away_still_has_been_there() -> None:
    async with living() as group:
        meeting = Meeting(group)
        gone = meeting.enter("0")
        await settle()
        gone.cancel()
        waiting = meeting.enter("1")
        meeting.enter("2")
        await settle()

        assert await waiting == 0


@virtually
async def test_barriers_of_other_names_and_other_users_are_others() -> None:
    async with living() as group:
        meeting = Meeting(group)
        waiting = [
            meeting.enter("0"),
            meeting.enter("1", name="f1-start"),
            meeting.enter("2", userid=GUEST),
        ]
        await settle()

        assert not any(each.done() for each in waiting)
        for userid in (OWNER, GUEST):
            meeting.barriers.forget(userid, "f1-")


@virtually
async def test_who_waits_in_a_barrier_that_is_broken_is_sent_away() -> None:
    async with living() as group:
        meeting = Meeting(group)
        waiting = [meeting.enter(who) for who in ("0", "1", "1")]
        await settle()
        meeting.barriers.forget(OWNER, "f1-")

        assert await asyncio.gather(*waiting) == [errno.ECANCELED] * 3


@virtually
async def test_only_the_barriers_of_one_job_are_broken() -> None:
    async with living() as group:
        meeting = Meeting(group)
        others = [
            meeting.enter("0", "f2-init", 2),
            meeting.enter("0", "f11-init", 2),
            meeting.enter("0", "f1-init", 2, GUEST),
        ]
        await settle()
        meeting.barriers.forget(OWNER, "f1-")
        for name, userid in (("f2-init", OWNER), ("f11-init", OWNER), ("f1-init", GUEST)):
            meeting.enter("1", name, 2, userid)

        assert await asyncio.gather(*others) == [0, 0, 0]


@virtually
async def test_who_comes_to_a_barrier_that_is_broken_off_is_sent_away() -> None:
    async with living() as group:
        meeting = Meeting(group)
        early = meeting.enter("0")
        await settle()
        meeting.barriers.abort(OWNER, "f1-")

        assert await early == errno.ECANCELED
        assert await meeting.enter("1") == errno.ECANCELED
        assert await meeting.enter("1", "f1-start") == errno.ECANCELED
        assert await meeting.enter("1", "f2-init", 1) == 0


@virtually
async def test_who_has_met_all_others_passes_again_though_one_of_them_has_failed_since() -> None:
    async with living() as group:
        meeting = Meeting(group)
        for who in ("0", "1", "2"):
            meeting.enter(who)
        await settle()
        meeting.barriers.abort(OWNER, "f1-")

        assert await meeting.enter("1") == 0


@virtually
async def test_a_name_can_be_met_at_again_when_its_barrier_is_forgotten() -> None:
    async with living() as group:
        meeting = Meeting(group)
        meeting.enter("0", size=2)
        await settle()
        meeting.barriers.abort(OWNER, "f1-")
        meeting.barriers.forget(OWNER, "f1-")
        late = meeting.enter("1", size=2)
        await settle()
        assert not late.done()

        meeting.enter("0", size=2)
        assert await late == 0


@virtually
async def test_breaking_an_empty_barrier_is_no_trouble() -> None:
    Barriers().forget(OWNER, "f1-")


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"name": "a", "nprocs": 2},
        {"name": "a", "nprocs": "two", "who": "0"},
        {"name": "a", "nprocs": None, "who": "0"},
        {"name": "a", "who": "0"},
    ],
)
@virtually
async def test_a_malformed_request_is_refused(request_: Payload) -> None:
    bus = Bus(OWNER)
    bus.register("barrier", Barriers().methods())

    assert await refused(bus.handle().rpc("barrier.enter", request_)) == errno.EPROTO
