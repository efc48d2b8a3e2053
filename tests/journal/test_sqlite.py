"""The journal on SQLite: what is lost with the process, and which files are refused."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.journal import JournalBroken, sqlite
from warren.journal.sqlite import SCHEMA, SqliteJournal

WRITER = """
import asyncio, sys
from pathlib import Path
from warren.journal import sqlite
from warren.journal.sqlite import SqliteJournal

sqlite._ROW = 8

async def main():
    with SqliteJournal(Path(sys.argv[1])) as journal:
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
from warren.journal import JournalBroken, sqlite
from warren.journal.sqlite import SqliteJournal

async def main():
    with SqliteJournal(Path(sys.argv[1])) as journal:
        await journal.append([b"before"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        try:
            await journal.append([b"too much" * 100_000])
        except JournalBroken as error:
            print(error)

asyncio.run(main())
"""


def replayed(path: Path) -> list[bytes]:
    with SqliteJournal(path) as journal:
        return list(journal.replay())


def killed(path: Path, acknowledgements: int, delay: float) -> int:
    """Run a writer, and kill it at some moment; give how many records it has acknowledged."""
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


def test_a_full_disk_is_the_end_and_takes_nothing_back(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    told = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )

    assert f"{path} cannot be written" in told.stdout
    assert replayed(path) == [b"before"]


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
        newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
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


def test_a_journal_that_is_too_large_for_a_row_is_rewritten_into_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_ROW", 100)
    records = [b"%d" % number * 10 for number in range(50)]

    async def rewritten() -> None:
        with SqliteJournal(tmp_path / "journal") as journal:
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
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    file.close()


def test_a_rewrite_gives_its_room_back_however_often_it_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_ROW", 100)

    async def given_up(journal: SqliteJournal, rows: int) -> None:
        rewriting = asyncio.ensure_future(journal.rewrite([b"x" * 100] * rows))
        for number in range(rows // 2):
            await journal.append([b"%d" % number])
        rewriting.cancel()
        await asyncio.wait({rewriting})

    with SqliteJournal(tmp_path / "journal") as journal:
        for _ in range(5):
            asyncio.run(given_up(journal, 20))
        asyncio.run(journal.rewrite([b"all"]))
        count = journal._connection.execute(
            "SELECT (SELECT count(*) FROM journal), (SELECT count(*) FROM base)"
        )
        assert count.fetchone() == (0, 1)
        assert list(journal.replay()) == [b"all"]
