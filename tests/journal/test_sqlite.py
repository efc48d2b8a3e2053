"""The journal on SQLite: what is lost with the process, and which files are refused."""

import asyncio
import os
import random
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.journal import JournalBroken, JournalFull, sqlite
from warren.journal.sqlite import SCHEMA_VERSION, SqliteJournal

WRITER = """
import asyncio, sys
from pathlib import Path
from warren.journal.sqlite import SqliteJournal

async def main():
    with SqliteJournal(Path(sys.argv[1]), row_bytes=8) as journal:
        count = sum(1 for _ in journal.replay())
        print(count, flush=True)
        rewriting = None

        def fewer():
            yield from [b"%d" % number for number in range(count)]

        while True:
            await journal.append([b"%d" % (count + more) for more in range(3)])
            count += 3
            print(count, flush=True)
            if rewriting is None or rewriting.done():
                rewriting = asyncio.ensure_future(journal.rewrite(fewer()))

asyncio.run(main())
"""
"""Numbers its records, and says how many are durable."""

FULL = """
import asyncio, resource, sys
from pathlib import Path
from warren.journal import JournalFull, sqlite
from warren.journal.sqlite import SqliteJournal

def limit(size):
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard if size is None else size, hard))

async def refused(action):
    try:
        await action
    except JournalFull as error:
        print(error)

async def main():
    with SqliteJournal(Path(sys.argv[1]), reserve_bytes=2**20) as journal:
        await journal.append([b"before"])
        limit(2**16)
        await refused(journal.reserve())
        await refused(journal.append([b"too much" * 100_000]))
        await refused(journal.rewrite([b"too much" * 100_000]))
        await journal.append([b"little"])
        limit(None)
        await journal.reserve()
        await journal.append([b"much" * 100_000])

asyncio.run(main())
"""
"""Meets a limit on the size of its files, which stands for a full disk, and has it lifted."""


def replayed(path: Path) -> list[bytes]:
    with SqliteJournal(path) as journal:
        return list(journal.replay())


def killed(path: Path, acknowledgements: int, delay: float) -> int:
    """Run a writer, and kill it at some moment; return how many records it has acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(acknowledgements)]
        try:
            writer.wait(delay)
        except subprocess.TimeoutExpired:
            writer.kill()
        said += writer.stdout.readlines()
    return int([line for line in said if line.endswith("\n")][-1])


def test_a_killed_writer_has_lost_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    chance = random.Random(1)
    for _ in range(8):
        acknowledged = killed(path, chance.randrange(1, 12), chance.uniform(0, 0.01))

        found = replayed(path)
        assert found == [b"%d" % number for number in range(len(found))]
        assert acknowledged <= len(found) <= acknowledged + 3


def test_a_full_disk_refuses_and_takes_nothing_back_and_records_fit_when_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    told = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )

    refusals = told.stdout.splitlines()
    assert len(refusals) == 3
    for refusal in refusals:
        assert refusal.startswith(f"the file system of {path} is full (")
    assert replayed(path) == [b"before", b"little", b"much" * 100_000]


@contextmanager
def small(place: Path, size: int) -> Iterator[None]:
    """Have a file system of so many bytes on a directory. For root."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system")
def test_the_room_that_was_set_aside_is_given_up_once_and_taken_back(tmp_path: Path) -> None:
    path, filler = tmp_path / "journal", tmp_path / "filler"

    async def story() -> None:
        with SqliteJournal(path, reserve_bytes=2**21) as journal:
            await journal.reserve()
            await journal.append([b"before"])
            fill(filler)
            with pytest.raises(JournalFull, match=f"{path} is full"):
                await journal.append([b"x" * 2**20])
            await journal.append([b"x" * 2**20])
            with pytest.raises(JournalFull):
                await journal.reserve()
            filler.unlink()
            await journal.reserve()
            await journal.append([b"after"])
            assert list(journal.replay()) == [b"before", b"x" * 2**20, b"after"]

    with small(tmp_path, 2**23):
        asyncio.run(story())
        assert replayed(path) == [b"before", b"x" * 2**20, b"after"]


def fill(path: Path) -> None:
    """Write a file until nothing fits any more."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_broken_journal_says_so_in_the_houses_words(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with SqliteJournal(path) as journal:
        with sqlite3.connect(path) as other:
            other.execute("DROP TABLE journal")
        other.close()

        with pytest.raises(JournalBroken, match="cannot be written"):
            asyncio.run(journal.append([b"one"]))


def test_a_file_of_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with sqlite3.connect(path) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        newer.execute("CREATE TABLE something (new)")
    newer.close()
    before = path.read_bytes()

    with pytest.raises(UserMistake) as refused:
        SqliteJournal(path)

    assert str(refused.value).endswith("choose another state directory.")
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database\n", b"no " * 4096], ids=["short", "long"])
def test_a_file_that_is_not_sqlite_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)

    with pytest.raises(UserMistake, match="cannot be read as a state file"):
        SqliteJournal(path)
    assert path.read_bytes() == content


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="cannot be read as a state file"):
        SqliteJournal(tmp_path)


def test_a_refused_file_is_not_kept_open(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"not a database\n")

    with pytest.raises(UserMistake) as refused:
        SqliteJournal(path)

    # The error is still held here, and with it everything that its frames have held.
    held = [each for each in Path("/proc/self/fd").iterdir() if each.exists()]
    assert refused.value
    assert path not in {each.resolve() for each in held}


def test_every_append_is_synced(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal") as journal:
        connection = journal._connection
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_journal_that_is_too_large_for_a_row_is_rewritten_into_several(tmp_path: Path) -> None:
    records = [b"%d" % number * 10 for number in range(50)]

    async def rewritten() -> None:
        with SqliteJournal(tmp_path / "journal", row_bytes=100) as journal:
            await journal.append([b"before"])
            await journal.rewrite(records)
            assert list(journal.replay()) == records

    asyncio.run(rewritten())
    with sqlite3.connect(tmp_path / "journal") as file:
        sizes = [len(row) for (row,) in file.execute("SELECT data FROM base")]
        assert file.execute("SELECT count(*) FROM journal").fetchone() == (0,)
    file.close()
    assert len(sizes) > 5
    assert max(sizes) < 200


def test_a_file_of_the_older_schema_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with sqlite3.connect(path) as older:
        older.execute("PRAGMA user_version = 1")
        older.execute("CREATE TABLE journal (id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB)")
        older.execute("INSERT INTO journal (data) VALUES (?)", (sqlite._pack([b"one", b"two"]),))
    older.close()

    assert replayed(path) == [b"one", b"two"]
    with SqliteJournal(path) as journal:
        asyncio.run(journal.append([b"three"]))
        asyncio.run(journal.rewrite([b"all three"]))
    assert replayed(path) == [b"all three"]
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    file.close()


def test_a_rewrite_gives_its_room_back_however_often_it_was_given_up(tmp_path: Path) -> None:
    async def given_up(journal: SqliteJournal, rows: int) -> None:
        rewriting = asyncio.ensure_future(journal.rewrite([b"x" * 100] * rows))
        for number in range(rows // 2):
            await journal.append([b"%d" % number])
        rewriting.cancel()
        await asyncio.wait({rewriting})

    with SqliteJournal(tmp_path / "journal", row_bytes=100) as journal:
        for _ in range(5):
            asyncio.run(given_up(journal, 20))
        asyncio.run(journal.rewrite([b"all"]))
        count = journal._connection.execute(
            "SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM base)"
        )
        assert count.fetchone() == (0, 1)
        assert list(journal.replay()) == [b"all"]


# What was there, and is not any more


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "emptied": lambda path: os.truncate(path, 0),
    "truncated to its header": lambda path: os.truncate(path, 100),
    "truncated to its first page": lambda path: os.truncate(path, 4096),
    "truncated in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "a directory": replace_by_directory,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_was_there_and_is_damaged_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal"
    with SqliteJournal(path) as journal:
        asyncio.run(journal.append([b"x" * 100_000]))
    DAMAGES[damage](path)

    with pytest.raises(UserMistake, match=f"{path} (is|has|cannot)") as refused:
        replayed(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damage", ["missing", "emptied"])
def test_a_log_beside_a_damaged_file_is_left_alone(tmp_path: Path, damage: str) -> None:
    path, log = tmp_path / "journal", tmp_path / "journal-wal"
    killed(path, 3, 0)
    content = log.read_bytes()
    assert content
    DAMAGES[damage](path)

    for mark in (True, False):
        if not mark:
            (tmp_path / ".journal.made").unlink()
        with pytest.raises(UserMistake, match=f"{path} (is|has|cannot)"):
            replayed(path)
        assert log.read_bytes() == content


def test_a_file_that_is_missing_is_refused_by_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    replayed(path)
    path.unlink()

    with pytest.raises(UserMistake) as refused:
        replayed(path)
    assert str(refused.value) == (
        f"{path} is missing, and it is not new here: restore it from a copy, or begin anew with "
        "another state directory."
    )


def test_a_copy_that_is_put_back_is_taken_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with SqliteJournal(path) as journal:
        asyncio.run(journal.append([b"one"]))
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(UserMistake):
        replayed(path)
    path.write_bytes(content)

    assert replayed(path) == [b"one"]


BEGINNERS = """
import os, sys
from pathlib import Path
from warren.journal.sqlite import SqliteJournal

def begin(path, line):
    def ended(frame, event, argument):
        nonlocal line
        if not frame.f_code.co_filename.endswith("warren/journal/sqlite.py"):
            return None
        line -= 1
        if line == 0:
            os._exit(1)
        return ended

    sys.settrace(ended)
    SqliteJournal(path).__exit__()
    sys.settrace(None)

def forked(action):
    process = os.fork()
    if process == 0:
        action()
        os._exit(0)
    return os.waitpid(process, 0)[1]

line, died = 1, True
while died:
    path = Path(sys.argv[1], str(line))
    died = forked(lambda: begin(path, line))
    assert forked(lambda: begin(path, 0)) == 0, line
    line += 1
print(line)
"""
"""Opens a new journal, dies on each of the lines in turn, and opens it once more."""


def test_a_first_start_that_died_on_any_line_is_followed_by_another(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-c", BEGINNERS, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert int(told.stdout) > 50


def test_a_journal_is_private_before_anything_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    before = os.umask(0)
    try:
        with SqliteJournal(path) as journal:
            asyncio.run(journal.append([b"one"]))
            files = list(tmp_path.iterdir())
            assert len(files) == 4
            assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    finally:
        os.umask(before)
