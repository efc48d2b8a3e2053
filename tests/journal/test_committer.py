"""Group commit: nothing is visible before it is durable, and order is kept."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness import virtual
from tests.journal.journals import BrokenJournal, HeldJournal, SmallJournal
from tests.journal.running import virtually
from warren.journal import Journal, JournalBroken
from warren.journal.committer import Committer


def least(size: int) -> Callable[[int], int]:
    """Let as many bytes be appended as are held, and `size` of them in any case."""
    return lambda held: max(size, held)


class Numbers:
    """The least of all stores: what is visible, in the order in which it came to be."""

    def __init__(self, journal: Journal, size: int = 2**20) -> None:
        self.visible = [record for record in journal.replay()]
        self.committer = Committer(journal, lambda: [*self.visible], limit=least(size))

    def submit(self, record: bytes) -> "asyncio.Future[None]":
        return self.committer.submit(record, lambda: self.visible.append(record))


@asynccontextmanager
async def committing(journal: Journal, size: int = 2**20) -> AsyncIterator[Numbers]:
    numbers = Numbers(journal, size)
    running = asyncio.ensure_future(numbers.committer.run())
    try:
        yield numbers
    finally:
        running.cancel()
        await asyncio.wait({running})


@virtually
async def test_a_record_is_visible_when_it_is_durable_and_not_before() -> None:
    journal = HeldJournal()
    async with committing(journal) as numbers:
        journal.gate.clear()
        done = numbers.submit(b"one")
        await asyncio.sleep(10)
        assert not done.done()
        assert numbers.visible == []

        journal.gate.set()
        await done
        assert numbers.visible == journal.records == [b"one"]


@virtually
async def test_what_comes_while_the_disk_is_busy_is_committed_together() -> None:
    journal = HeldJournal()
    async with committing(journal) as numbers:
        journal.gate.clear()
        waits = [numbers.submit(b"0")]
        await asyncio.sleep(1)
        waits += [numbers.submit(b"%d" % number) for number in range(1, 100)]
        journal.gate.set()
        await asyncio.gather(*waits)

        assert [len(records) for records in journal.appends] == [1, 99]
        assert numbers.visible == [b"%d" % number for number in range(100)]


@virtually
async def test_giving_up_the_wait_does_not_unsay_the_record() -> None:
    journal = HeldJournal()
    async with committing(journal) as numbers:
        journal.gate.clear()
        done = numbers.submit(b"one")
        await asyncio.sleep(1)
        done.cancel()
        journal.gate.set()
        await numbers.submit(b"two")

        assert numbers.visible == journal.records == [b"one", b"two"]


@virtually
async def test_a_disk_that_refuses_ends_it_and_makes_nothing_visible() -> None:
    numbers = Numbers(BrokenJournal())
    done = numbers.submit(b"one")

    with pytest.raises(JournalBroken):
        await numbers.committer.run()
    assert not done.done()
    assert numbers.visible == []


@virtually
async def test_a_journal_that_has_grown_is_rewritten_once() -> None:
    journal = HeldJournal()
    async with committing(journal, 10) as numbers:
        for _ in range(3):
            await numbers.submit(b"12345")
        await asyncio.sleep(1)
        assert journal.rewrites == 1

        # The limit grows with what is kept: or a large store would be rewritten
        # over and over.
        await numbers.submit(b"1234567890" * 3)
        await asyncio.sleep(1)
        assert journal.rewrites == 2
        await numbers.submit(b"12345" * 8)
        await asyncio.sleep(1)
        assert journal.rewrites == 2
        await numbers.submit(b"123456")
        await asyncio.sleep(1)
        assert journal.rewrites == 3

    assert Numbers(journal).visible == numbers.visible


@virtually
async def test_commits_go_on_during_a_rewrite_and_come_after_it() -> None:
    journal = HeldJournal()
    async with committing(journal, 2) as numbers:
        journal.rewrite_gate.clear()
        for record in (b"one", b"two", b"three"):
            await numbers.submit(record)
        await asyncio.sleep(1)
        assert numbers.visible == journal.records == [b"one", b"two", b"three"]
        assert journal.rewrites == 0

        journal.rewrite_gate.set()
        await asyncio.sleep(1)
        assert journal.rewrites == 1
        await numbers.submit(b"four")
        assert journal.records == [b"one", b"two", b"three", b"four"]


@virtually
async def test_a_disk_that_refuses_a_rewrite_is_the_end() -> None:
    class Broken(HeldJournal):
        async def rewrite(self, records: Iterable[bytes]) -> None:
            raise JournalBroken("the disk is broken")

    numbers = Numbers(Broken(), 2)
    done = numbers.submit(b"one")

    with pytest.raises(JournalBroken):
        await numbers.committer.run()
    assert done.done()


@virtually
async def test_who_is_stopped_during_a_rewrite_has_changed_nothing() -> None:
    journal = HeldJournal()
    async with committing(journal, 2) as numbers:
        journal.rewrite_gate.clear()
        await numbers.submit(b"one")
        await numbers.submit(b"two")
    journal.rewrite_gate.set()
    await asyncio.sleep(1)

    assert journal.rewrites == 0
    assert journal.records == [b"one", b"two"]


@virtually
async def test_a_journal_that_was_there_is_rewritten_when_as_much_again_is() -> None:
    journal = HeldJournal()
    written = Committer(
        journal, lambda: [b"all"], base_bytes=120, appended_bytes=20, limit=least(10)
    )
    running = asyncio.ensure_future(written.run())

    for number in range(10):
        await written.submit(b"%010d" % number, lambda: None)
    await asyncio.sleep(1)
    assert len(journal.records) == 10
    await written.submit(b"more", lambda: None)
    await asyncio.sleep(1)
    assert journal.records == [b"all"]
    running.cancel()


# On a full disk


@virtually
async def test_on_a_full_disk_a_record_waits_and_is_committed_when_there_is_room() -> None:
    journal = SmallJournal(room=3)
    async with committing(journal) as numbers:
        done = numbers.submit(b"12345")
        await asyncio.sleep(60)
        assert not done.done()
        assert numbers.visible == []
        assert numbers.committer.full_reason == "the disk is full"
        assert numbers.committer.stuck

        later = numbers.submit(b"1")
        journal.room = 10
        await later
        assert numbers.visible == journal.records == [b"12345", b"1"]
        await asyncio.sleep(2)
        assert numbers.committer.full_reason is None
        assert not numbers.committer.stuck


@virtually
async def test_a_full_disk_is_tried_no_more_often_than_once_in_a_pause() -> None:
    journal = SmallJournal(room=0)
    async with committing(journal) as numbers:
        numbers.submit(b"1")
        await asyncio.sleep(100)
    assert 90 < journal.tries < 105


@virtually
async def test_what_is_under_way_is_committed_at_once_in_the_room_that_was_set_aside() -> None:
    journal = SmallJournal(room=12, wanted=8)
    async with committing(journal) as numbers:
        await numbers.submit(b"1234")
        assert numbers.committer.full_reason is None

        await numbers.submit(b"1234")
        assert numbers.committer.full_reason == "the disk is full"
        assert not numbers.committer.stuck
        await numbers.submit(b"1234")
        assert numbers.visible == [b"1234"] * 3


@virtually
async def test_new_work_is_taken_again_only_when_there_is_room_to_set_aside() -> None:
    journal = SmallJournal(room=10, wanted=8)
    async with committing(journal) as numbers:
        await numbers.submit(b"1234")
        journal.room += 1
        await asyncio.sleep(10)
        assert numbers.committer.full_reason == "the disk is full"
        journal.room += 1
        await asyncio.sleep(10)
        assert numbers.committer.full_reason is None
        assert journal.aside == 8


@virtually
async def test_a_disk_that_is_full_from_the_start_is_known_to_be() -> None:
    async with committing(SmallJournal(room=3, wanted=8)) as numbers:
        await asyncio.sleep(1)
        assert numbers.committer.full_reason == "the disk is full"
        await numbers.submit(b"1")


@virtually
async def test_a_rewrite_that_finds_no_room_is_put_off() -> None:
    journal = SmallJournal(room=20)
    async with committing(journal, 10) as numbers:
        await numbers.submit(b"1234567890ab")
        await asyncio.sleep(1)
        await numbers.submit(b"3")
        assert numbers.visible == journal.records == [b"1234567890ab", b"3"]
        assert numbers.committer.full_reason is None


Steps = list[tuple[str, int]]
steps_on_a_disk = st.lists(
    st.tuples(st.sampled_from(["submit", "wait", "fill", "free"]), st.integers(0, 20)), max_size=30
)


@given(steps=steps_on_a_disk, room=st.integers(0, 30), wanted=st.integers(0, 20))
def test_whatever_the_room_all_records_are_committed_once_and_in_order(
    steps: Steps, room: int, wanted: int
) -> None:
    async def story() -> None:
        journal = SmallJournal(room, wanted)
        submitted: list[bytes] = []
        waits: list[asyncio.Future[None]] = []
        async with committing(journal) as numbers:
            for step, amount in steps:
                match step:
                    case "submit":
                        submitted.append(b"%d:" % len(submitted) + b"x" * amount)
                        waits.append(numbers.submit(submitted[-1]))
                    case "wait":
                        await asyncio.sleep(amount / 7)
                    case "fill":
                        journal.room = max(0, journal.room - amount)
                    case "free":
                        journal.room += amount
                assert numbers.visible == submitted[: len(numbers.visible)]
                assert numbers.visible == journal.records[: len(numbers.visible)]
                acknowledged = [wait.done() for wait in waits]
                assert all(acknowledged[: len(numbers.visible)])
                assert not any(acknowledged[len(numbers.visible) :])
            journal.room += 10_000
            await asyncio.gather(*waits)
            await asyncio.sleep(3)
            assert numbers.visible == journal.records == submitted
            assert numbers.committer.full_reason is None

    virtual.run(story())
