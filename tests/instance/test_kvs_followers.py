"""Followers of a value that grows: everything once, wherever the log moves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.harness import virtual
from tests.instance.parts import GUEST, SlowDisk, living, opened, settle, virtually
from warren.instance.kvs import PRIMARY, Kvs, append, create_namespace, graft, link, put, unlink


class Follower:
    """Follows a key, and remembers every chunk."""

    def __init__(self, kvs: Kvs, key: str, group: asyncio.TaskGroup, **options: Any) -> None:
        self.chunks: list[bytes] = []
        self.ended = False
        self._task = group.create_task(self._follow(kvs.follow(key, **options)))

    async def _follow(self, chunks: AsyncIterator[bytes]) -> None:
        async for chunk in chunks:
            self.chunks.append(chunk)
        self.ended = True

    @property
    def text(self) -> bytes:
        return b"".join(self.chunks)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


@virtually
async def test_a_follower_gets_what_is_there_and_what_comes() -> None:
    async with opened() as kvs, living() as group:
        await kvs.commit([append("log", b"one ")])
        follower = Follower(kvs, "log", group)
        await settle()
        await kvs.commit([append("log", b"two "), append("log", b"three")])
        await settle()

        assert follower.chunks == [b"one ", b"two three"]
        assert not follower.ended
        await follower.stop()


@virtually
async def test_a_follower_waits_for_what_is_not_there_yet() -> None:
    async with opened() as kvs, living() as group:
        follower = Follower(kvs, "job.log", group)
        await settle()
        await kvs.commit([put("job.other", b"x")])
        await kvs.commit([append("job.log", b"one")])
        await settle()

        assert follower.chunks == [b"one"]
        await follower.stop()


@virtually
async def test_a_follower_finds_a_log_when_it_is_linked_to() -> None:
    async with opened() as kvs, living() as group:
        follower = Follower(kvs, "job.guest.log", group)
        await settle()
        await kvs.commit([create_namespace("guest", GUEST), append("log", b"one", "guest")])
        await kvs.commit([link("job.guest", "guest")])
        await settle()
        assert follower.chunks == [b"one"]

        await kvs.commit([append("log", b"two", "guest")])
        await settle()
        assert follower.chunks == [b"one", b"two"]
        await follower.stop()


@virtually
async def test_a_follower_gets_nothing_before_it_is_durable() -> None:
    disk = SlowDisk()
    async with opened(disk) as kvs, living() as group:
        follower = Follower(kvs, "log", group)
        kvs.commit([append("log", b"one")])
        await settle()
        assert follower.chunks == []

        disk.free.set()
        await settle()
        assert follower.chunks == [b"one"]
        await follower.stop()


@virtually
async def test_a_removal_takes_nothing_back_and_gives_nothing_twice() -> None:
    async with opened() as kvs, living() as group:
        follower = Follower(kvs, "job.log", group)
        await kvs.commit([append("job.log", b"one")])
        await settle()
        await kvs.commit([unlink("job")])
        await settle()

        assert follower.chunks == [b"one"]
        assert not follower.ended
        await follower.stop()


@virtually
async def test_a_follower_ends_when_nothing_is_left_and_nothing_will_come() -> None:
    over = False
    async with opened() as kvs, living() as group:
        follower = Follower(kvs, "log", group, is_final=lambda: over, also_watch="job")
        await kvs.commit([append("log", b"one")])
        await settle()
        assert not follower.ended

        over = True
        await kvs.commit([append("log", b"two")])
        await settle()
        assert follower.text == b"onetwo"
        assert follower.ended


@virtually
async def test_a_follower_may_be_told_of_the_end_by_another_key() -> None:
    over = False
    async with opened() as kvs, living() as group:
        follower = Follower(
            kvs, "job.guest.log", group, is_final=lambda: over, also_watch="job.eventlog"
        )
        await settle()
        over = True
        await kvs.commit([append("job.eventlog", b"clean")])
        await settle()

        assert follower.ended
        assert follower.chunks == []


@virtually
async def test_who_does_not_follow_any_more_is_forgotten() -> None:
    async with opened() as kvs:
        await kvs.commit([append("log", b"one")])
        async with aclosing(kvs.follow("log")) as following:  # type: ignore[type-var]
            await anext(following)

        assert len(kvs._watches) == 0


LOG = st.lists(st.binary(min_size=1, max_size=3), min_size=3, max_size=8)


@given(chunks=LOG, moments=st.lists(st.integers(0, 8), min_size=4, max_size=4))
def test_no_byte_is_lost_or_given_twice_while_a_log_moves(
    chunks: list[bytes], moments: list[int]
) -> None:
    """A log begins in a namespace, is linked to, and is grafted, whenever its readers come."""
    linked, grafted, *comes = (moment % (len(chunks) + 1) for moment in moments)
    grafted = max(linked, grafted)

    async def main() -> None:
        async with opened() as kvs, living() as group:
            followers = []
            await kvs.commit([create_namespace("guest", GUEST)])
            for index in range(len(chunks) + 1):
                if index == linked:
                    await kvs.commit([link("job.guest", "guest")])
                if index == grafted:
                    await kvs.commit([graft("job.guest", "guest")])
                if index in comes:
                    followers.append(Follower(kvs, "job.guest.log", group))
                await settle()
                if index < len(chunks):
                    where = "job.guest.log" if index >= grafted else "log"
                    space = PRIMARY if index >= grafted else "guest"
                    await kvs.commit([append(where, chunks[index], space)])
            await settle()

            for follower in followers:
                assert follower.text == b"".join(chunks)
                await follower.stop()

    virtual.run(main())
