"""Room for a start: what is given up for it, what is said, and when it goes on."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.journal.running import really, virtually
from warren.daemons import diskspace
from warren.daemons.statedir import StateDir, hold_lock, lock_holder

ALL = 2**62
"""More bytes than any file system has."""


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path)
    state.prepare()
    return state


@really
async def test_where_there_is_room_nothing_is_said_or_left(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(state.path.iterdir())
    await diskspace.wait_for_space(state.path, (state.objects_journal, state.jobs_journal))

    assert capsys.readouterr().err == ""
    assert sorted(state.path.iterdir()) == before


@virtually
async def test_where_there_is_none_it_says_so_once_and_waits(
    state: StateDir, capsys: pytest.CaptureFixture[str]
) -> None:
    for journal in ("jobs.db", "objects.db"):
        (state.path / f"{journal}.reserve").write_bytes(b"x" * 100)
    waiting = asyncio.ensure_future(
        diskspace.wait_for_space(
            state.path, (state.objects_journal, state.jobs_journal), needed_bytes=ALL
        )
    )
    await asyncio.sleep(100)
    assert not waiting.done()
    waiting.cancel()

    told = capsys.readouterr().err
    assert told.startswith(f"warren: the file system of {state.path} is full (")
    assert told.count("\n") == 1
    assert {path.stat().st_size for path in state.path.glob("*.reserve")} == {0}


@virtually
async def test_what_finds_no_room_is_written_when_there_is_some() -> None:
    tries = 0

    def write() -> None:
        nonlocal tries
        tries += 1
        if tries < 5:
            raise OSError(28, "No space left on device")

    await diskspace.retry_while_full(write)
    assert tries == 5


def test_what_fails_for_another_reason_is_not_tried_again() -> None:
    def fail() -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(PermissionError):
        asyncio.run(diskspace.retry_while_full(fail))


def in_place(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Say how long the files were that were written to."""
    lengths: list[int] = []
    write = os.pwrite

    def pwrite(opened: int, data: bytes, offset: int) -> int:
        lengths.append(os.fstat(opened).st_size)
        return write(opened, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return lambda: lengths


def test_a_lock_is_written_over_in_the_room_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.write_text("123456789")
    lengths = in_place(monkeypatch)

    with hold_lock(lock):
        assert lock_holder(lock) == os.getpid()
    assert lengths() == [9]
