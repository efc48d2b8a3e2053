"""A store's past made short: while it is at work, whatever kills it, and what cannot be read."""

import asyncio
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instance.parts import GUEST, OWNER, compacted, living, opened, virtually
from warren.base.errors import UserMistake
from warren.instance.kvs import Kvs, append, create_namespace, graft, link, put, unlink
from warren.instance.kvs.packs import Pack
from warren.instance.kvs.tree import Directory
from warren.journal import MemoryJournal
from warren.journal.sqlite import SqliteJournal
from warren.rfc import fluid


def jobs(count: int) -> list[str]:
    return [fluid.kvs(number << 24 | 1) for number in range(1, count + 1)]


async def lived(kvs: Kvs, job: str) -> None:
    guest = f"guest-{job}".replace(".", "-")
    await kvs.commit([put(f"{job}.J", b"J" * 300), append(f"{job}.eventlog", b"submit\n")])
    await kvs.commit([create_namespace(guest, GUEST), link(f"{job}.guest", guest)])
    await kvs.commit([append("output", b"hello\n", guest)], "shell-0", 1)
    await kvs.commit([graft(f"{job}.guest", guest), append(f"{job}.eventlog", b"clean\n")])


def ref(kvs: Kvs) -> tuple[str, int]:
    return kvs.refs.ref_now(kvs.root("primary")), kvs.version("primary")


def as_much_again(held: int) -> int:
    """Let a journal grow by what it holds before it is compacted: at once, if it never was."""
    return held


class Dying(MemoryJournal):
    """A journal of a process that dies when so many records of a rewrite are taken."""

    def __init__(self, records: list[bytes], after: int) -> None:
        super().__init__(row_bytes=1)
        self.records = records
        self.after = after

    async def rewrite(self, records: Iterable[bytes]) -> None:
        def some() -> Iterable[bytes]:
            for number, record in enumerate(records):
                if number == self.after:
                    raise EOFError
                yield record

        await super().rewrite(some())


@virtually
async def test_commits_go_on_during_a_compaction_and_whatever_ends_it_nothing_is_lost() -> None:
    first = MemoryJournal()
    async with opened(first) as kvs:
        for job in jobs(12):
            await lived(kvs, job)
    whole = len(compacted(Kvs(first, OWNER, pack_bytes=1000)).records)
    assert whole > 5
    for after in range(whole + 2):
        journal = Dying(list(first.records), after)
        kvs = Kvs(journal, OWNER, pack_bytes=1000, limit=as_much_again)
        running = asyncio.ensure_future(kvs.run())
        expected = ref(kvs)
        for number, job in enumerate(jobs(12)):
            if running.done():
                break
            asked = asyncio.ensure_future(kvs.commit([append(f"{job}.eventlog", b"%d" % number)]))
            await asyncio.wait({running, asked}, return_when=asyncio.FIRST_COMPLETED)
            expected = ref(kvs)
        running.cancel()
        await asyncio.wait({running})

        assert ref(Kvs(journal, OWNER)) == expected


@virtually
async def test_commits_are_made_while_a_long_compaction_takes_its_time() -> None:
    journal = MemoryJournal(row_bytes=1)
    async with opened(journal) as kvs:
        for job in jobs(60):
            await lived(kvs, job)
    kvs = Kvs(journal, OWNER, pack_bytes=1000, limit=as_much_again)
    async with living(kvs.run):
        await kvs.commit([put("begin", b"")])
        await asyncio.sleep(0)
        done = 0
        while kvs._context.snapshot is not None:
            each = (append(f"{job}.eventlog", b"%d" % done) for job in jobs(60)[done::7])
            await kvs.commit([*each, unlink(f"{jobs(60)[done]}.J")])
            done += 1
        assert done > 5
        expected = ref(kvs)
    assert ref(Kvs(journal, OWNER)) == expected


@virtually
async def test_what_is_not_touched_is_packed_and_opened_by_a_write() -> None:
    journal = MemoryJournal()
    async with opened(kvs=Kvs(journal, OWNER, pack_bytes=4000)) as kvs:
        for job in jobs(50):
            await lived(kvs, job)
        before = ref(kvs)
        loud = sum(map(len, journal.records))
    seventh = jobs(50)[7]
    async with opened(kvs=Kvs(journal, OWNER, pack_bytes=4000)) as kvs:
        small = compacted(kvs)
        assert packed(kvs) == 50
        assert ref(kvs) == before
        assert sum(map(len, small.records)) < loud / 5
        assert kvs.get(f"{seventh}.guest.output") == b"hello\n"
        assert packed(kvs) == 50
    async with opened(kvs=Kvs(small, OWNER, pack_bytes=4000)) as kvs:
        assert packed(kvs) == 50
        assert ref(kvs) == before
        await kvs.commit([append(f"{seventh}.eventlog", b"memo\n")])
        assert packed(kvs) == 49
        assert kvs.get(f"{seventh}.eventlog") == b"submit\nclean\nmemo\n"
        compacted(kvs)
        assert packed(kvs) == 49, "it has changed since the last time"
        compacted(kvs)
        assert packed(kvs) == 50


@virtually
async def test_what_is_left_of_a_pack_is_packed_anew() -> None:
    journal = MemoryJournal()
    async with opened(kvs=Kvs(journal, OWNER, pack_bytes=4000)) as kvs:
        for job in jobs(50):
            await lived(kvs, job)
    async with opened(kvs=Kvs(journal, OWNER, pack_bytes=4000)) as kvs:
        compacted(kvs)
        counts = [found.initial_count for found in packs(kvs.root("primary"))]
        await kvs.commit([unlink(job) for index, job in enumerate(jobs(50)) if index % 4])
        fewer = compacted(kvs)
        assert max(counts) > 5
        assert len(packs(kvs.root("primary"))) < len(counts) / 2
        assert packed(kvs) == 13
        assert ref(Kvs(fewer, OWNER)) == ref(kvs)


def packs(place: Directory) -> list[Pack]:
    """The packs in a directory, and below it."""
    found: list[Pack] = []
    for node in place.values():
        if isinstance(node, Directory):
            found += packs(node)
        elif isinstance(node, Pack) and node not in found:
            found.append(node)
    return found


def packed(kvs: Kvs) -> int:
    """How many jobs are in packs."""

    def counted(node: Any, inside: bool) -> int:
        if not isinstance(node, dict):
            return 0
        count = int(inside and "J" in node)
        for name, each in node.items():
            if isinstance(each, Pack):
                count += counted(kvs._context.packs.entries(each)[name], True)
            else:
                count += counted(each, inside)
        return count

    return counted(kvs.root("primary"), False)


@virtually
async def test_a_journal_is_compacted_when_as_much_has_come_as_it_holds() -> None:
    journal = MemoryJournal()
    limited = Kvs(journal, OWNER, limit=lambda held: max(10_000, held))
    async with opened(kvs=limited) as kvs:
        for number in range(500):
            await kvs.commit([put("a.b", b"%d" % number * 50)])
            await asyncio.sleep(0.01)
        assert sum(map(len, journal.records)) < 25_000
    again = Kvs(journal, OWNER)
    assert again.version("primary") == 500
    assert 0 < again._committer._appended_bytes < 12_000


# What cannot be read


UNREADABLE = [b"", b"\x00", b"nonsense", b"\x91\x91\xc0", b'{"a": 1}']


@pytest.mark.parametrize("record", UNREADABLE, ids=repr)
@virtually
async def test_a_record_that_cannot_be_read_is_refused_by_its_number(record: bytes) -> None:
    journal = MemoryJournal()
    async with opened(journal) as kvs:
        await kvs.commit([put("a", b"x")])
    journal.records.append(record)

    with pytest.raises(
        UserMistake, match=r"^Record 2 of the KVS's journal cannot be read \("
    ) as no:
        Kvs(journal, OWNER)
    assert "\n" not in str(no.value)


@virtually
async def test_a_deed_of_a_newer_warren_is_refused() -> None:
    journal = MemoryJournal()
    async with opened(journal) as kvs:
        await kvs.commit([put("a", b"x")])
    journal.records = [record.replace(b"\xa3put", b"\xa3pot") for record in journal.records]

    with pytest.raises(UserMistake, match="a newer Warren"):
        Kvs(journal, OWNER)


@given(st.data())
@settings(deadline=None, max_examples=80)
def test_damaged_records_are_refused_or_read_and_never_a_riddle(data: st.DataObject) -> None:
    async def made() -> MemoryJournal:
        journal = MemoryJournal()
        async with opened(journal) as kvs:
            for job in jobs(3):
                await lived(kvs, job)
        journal.records += compacted(kvs).records
        return journal

    journal = asyncio.run(made())
    number = data.draw(st.integers(0, len(journal.records) - 1))
    record = bytearray(journal.records[number])
    if data.draw(st.booleans()):
        del record[data.draw(st.integers(0, len(record) - 1)) :]
    else:
        record[data.draw(st.integers(0, len(record) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    journal.records[number] = bytes(record)
    try:
        Kvs(journal, OWNER)
    except UserMistake as mistake:
        said = str(mistake)
        assert said.startswith(f"Record {number + 1} of") or "cannot be read" in said


def test_a_damaged_row_of_a_state_file_is_refused_before_anything_is_believed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.db"

    async def written() -> None:
        with SqliteJournal(path) as journal:
            async with opened(journal) as kvs:
                await kvs.commit([put("a", b"the truth")])

    asyncio.run(written())
    with sqlite3.connect(path) as file:
        (row,) = file.execute("SELECT data FROM journal").fetchone()
        file.execute("UPDATE journal SET data = ?", (row.replace(b"truth", b"trust"),))
    file.close()

    with SqliteJournal(path) as journal, pytest.raises(UserMistake, match="is damaged"):
        Kvs(journal, OWNER)
