"""Group commit: nothing is visible before it is durable, and order is kept."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from tests.journal.journals import FullJournal, HeldJournal
from tests.journal.running import virtually
from warren.journal import Journal, JournalBroken, committer
from warren.journal.committer import Committer


class Numbers:
    """The least of all stores: what is visible, in the order in which it came to be."""

    def __init__(self, journal: Journal) -> None:
        self.visible = [record for record in journal.replay()]
        self.committer = Committer(journal, lambda: [*self.visible])

    def submit(self, record: bytes) -> "asyncio.Future[None]":
        return self.committer.submit(record, lambda: self.visible.append(record))


@asynccontextmanager
async def committing(journal: Journal) -> AsyncIterator[Numbers]:
    numbers = Numbers(journal)
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
    numbers = Numbers(FullJournal())
    done = numbers.submit(b"one")

    with pytest.raises(JournalBroken):
        await numbers.committer.run()
    assert not done.done()
    assert numbers.visible == []


@virtually
async def test_a_journal_that_has_grown_is_rewritten_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "_COMPACT_BYTES", 10)
    journal = HeldJournal()
    async with committing(journal) as numbers:
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
async def test_commits_go_on_during_a_rewrite_and_come_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "_COMPACT_BYTES", 2)
    journal = HeldJournal()
    async with committing(journal) as numbers:
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
async def test_a_disk_that_refuses_a_rewrite_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRoom(HeldJournal):
        async def rewrite(self, records: Iterable[bytes]) -> None:
            raise JournalBroken("the disk is full")

    monkeypatch.setattr(committer, "_COMPACT_BYTES", 2)
    numbers = Numbers(NoRoom())
    done = numbers.submit(b"one")

    with pytest.raises(JournalBroken):
        await numbers.committer.run()
    assert done.done()


@virtually
async def test_who_is_stopped_during_a_rewrite_has_changed_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "_COMPACT_BYTES", 2)
    journal = HeldJournal()
    async with committing(journal) as numbers:
        journal.rewrite_gate.clear()
        await numbers.submit(b"one")
        await numbers.submit(b"two")
    journal.rewrite_gate.set()
    await asyncio.sleep(1)

    assert journal.rewrites == 0
    assert journal.records == [b"one", b"two"]


@virtually
async def test_a_journal_that_was_there_is_rewritten_when_as_much_again_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committer, "_COMPACT_BYTES", 10)
    journal = HeldJournal()
    written = Committer(journal, lambda: [b"all"], held=120, appended=20)
    running = asyncio.ensure_future(written.run())

    for number in range(10):
        await written.submit(b"%010d" % number, lambda: None)
    await asyncio.sleep(1)
    assert len(journal.records) == 10
    await written.submit(b"more", lambda: None)
    await asyncio.sleep(1)
    assert journal.records == [b"all"]
    running.cancel()
