"""What every journal promises, told to each of them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warren.journal import Journal, MemoryJournal
from warren.journal.sqlite import SqliteJournal

Opened = Callable[[], AbstractContextManager[Journal]]
"""Opens the same journal each time, as a process does after another."""


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "memory":
        journal = MemoryJournal()
        return lambda: nullcontext(journal)
    return lambda: SqliteJournal(tmp_path / "journal")


def append(journal: Journal, *records: bytes) -> None:
    asyncio.run(journal.append(records))


def test_a_new_journal_is_empty(opened: Opened) -> None:
    with opened() as journal:
        assert list(journal.replay()) == []


def test_records_come_back_in_the_order_of_their_appends(opened: Opened) -> None:
    with opened() as journal:
        append(journal, b"one", b"two")
        append(journal, b"three")

        assert list(journal.replay()) == [b"one", b"two", b"three"]


def test_records_outlive_who_wrote_them(opened: Opened) -> None:
    with opened() as journal:
        append(journal, b"one")
    with opened() as journal:
        append(journal, b"two")
    with opened() as journal:
        assert list(journal.replay()) == [b"one", b"two"]


def test_a_rewrite_takes_the_place_of_everything_before(opened: Opened) -> None:
    with opened() as journal:
        append(journal, b"one", b"two")
        asyncio.run(journal.rewrite([b"both"]))
        append(journal, b"three")
    with opened() as journal:
        assert list(journal.replay()) == [b"both", b"three"]


def test_a_rewrite_to_nothing_leaves_nothing(opened: Opened) -> None:
    with opened() as journal:
        append(journal, b"one")
        asyncio.run(journal.rewrite([]))
    with opened() as journal:
        assert list(journal.replay()) == []


def test_what_is_appended_during_a_rewrite_stays_after_it(opened: Opened) -> None:
    async def both(journal: Journal) -> None:
        await journal.append([b"one", b"two"])
        taken = asyncio.Event()

        def fewer() -> Iterator[bytes]:
            taken.set()
            yield b"both"

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(journal.rewrite(fewer()))
            await taken.wait()
            await journal.append([b"three"])
        await journal.append([b"four"])

    with opened() as journal:
        asyncio.run(both(journal))
    with opened() as journal:
        assert list(journal.replay()) == [b"both", b"three", b"four"]


def test_a_rewrite_that_is_not_brought_to_its_end_changes_nothing(opened: Opened) -> None:
    def fewer() -> Iterator[bytes]:
        yield from (b"x" * 2**20, b"y" * 2**20)
        raise EOFError

    with opened() as journal:
        append(journal, b"one")
        with pytest.raises(EOFError):
            asyncio.run(journal.rewrite(fewer()))
        append(journal, b"two")
    with opened() as journal:
        assert list(journal.replay()) == [b"one", b"two"]
        asyncio.run(journal.rewrite([b"both"]))
        append(journal, b"three")
        assert list(journal.replay()) == [b"both", b"three"]


def test_a_large_record_comes_back_whole(opened: Opened) -> None:
    large = bytes(range(256)) * 4096
    with opened() as journal:
        append(journal, b"before", large, b"after")
        assert list(journal.replay()) == [b"before", large, b"after"]


Step = tuple[str, list[bytes]]
steps = st.lists(
    st.tuples(st.sampled_from(["append", "rewrite", "reopen"]), st.lists(st.binary(max_size=8))),
    max_size=8,
)


@given(steps=steps)
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_bytes_in_any_order_come_back(opened: Opened, steps: list[Step]) -> None:
    expected: list[bytes] = []
    with _emptied(opened):
        pass
    for action, records in steps:
        with opened() as journal:
            if action == "append":
                append(journal, *records)
                expected = expected + records
            elif action == "rewrite":
                asyncio.run(journal.rewrite(records))
                expected = [*records]
            assert list(journal.replay()) == expected
    with opened() as journal:
        assert list(journal.replay()) == expected


@contextmanager
def _emptied(opened: Opened) -> Iterator[Journal]:
    with opened() as journal:
        asyncio.run(journal.rewrite([]))
        yield journal
