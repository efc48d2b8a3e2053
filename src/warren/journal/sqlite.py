"""The journal on SQLite: a writer thread, one row and one sync per append.

WAL with synchronous=FULL: neither a killed process nor a power cut loses what
was acknowledged.

What is appended is in the table `journal`. A rewrite puts its records beside it, into
`base`, row by row, between the appends; then one small transaction says in `turn` that
this base is in force, and which rows of the journal it replaces. Whatever is not in force,
because it was replaced or because the process died, is passed over by a replay and deleted
by the next rewrite, row by row as well.

Each row has a sum of its bytes. One that does not agree is a fault of the disk; the file is
refused then, for half of the truth is none.
"""

import asyncio
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Self, TypeVar

from warren.base.errors import UserMistake
from warren.journal import JournalBroken, rows

T = TypeVar("T")

SCHEMA: Final = 2
"""The version of the file's layout. A newer one is refused; 1 had the journal alone."""

_LENGTH: Final = 4
_ROW: Final = 2**20
"""Bytes that a rewrite puts into a row. An append waits for one row at the most."""
_CARRIED: Final = 4000
"""Pages of the log, of 4 KiB, after which it is carried over into the file."""
_DELETED: Final = 16
"""Rows that are deleted at once."""


class SqliteJournal:
    """A journal in one file. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises UserMistake where it is not ours to read."""
        self._path = path
        self._writer = ThreadPoolExecutor(1, f"journal {path.name}")
        try:
            self._connection = _open(path)
            (newest,) = self._connection.execute("SELECT max(id) FROM journal").fetchone()
        except sqlite3.Error as error:
            raise UserMistake(f"{path} cannot be read as a state file: {error}.") from error
        self._last: int = newest or 0
        """The last row of the journal."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()
        self._connection.close()

    def replay(self) -> Iterator[bytes]:
        try:
            yield from self._replay()
        except sqlite3.Error as error:
            raise UserMistake(f"{self._path} cannot be read as a state file: {error}.") from error

    def _replay(self) -> Iterator[bytes]:
        turn, after = self._in_force()
        read = self._connection.execute
        base = read("SELECT sum, data FROM base WHERE turn = ? ORDER BY id", (turn,))
        later = read("SELECT sum, data FROM journal WHERE id > ? ORDER BY id", (after,))
        for number, (checksum, row) in enumerate(chain(base, later), 1):
            # Rows of layout 1 have no sum.
            if checksum is not None and checksum != zlib.crc32(row):
                raise UserMistake(
                    f"{self._path} is damaged in row {number}: restore it from a copy, or begin "
                    "anew with another state directory."
                )
            yield from _unpack(row)

    async def append(self, records: Sequence[bytes]) -> None:
        self._last = await self._run(lambda: self._insert(records))

    async def rewrite(self, records: Iterable[bytes]) -> None:
        await self._sweep()
        turn = (await self._run(self._in_force))[0] + 1
        after = self._last
        async for row in rows(records, _ROW):
            await self._run(partial(self._lay, turn, _pack(row)))
        await self._run(partial(self._switch, turn, after))
        await self._sweep()

    async def _sweep(self) -> None:
        """Delete what is not in force."""
        while await self._run(self._delete):
            pass

    async def _run(self, deed: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, deed)
        except sqlite3.Error as error:
            raise JournalBroken(f"{self._path} cannot be written: {error}.") from error

    def _insert(self, records: Sequence[bytes]) -> int:
        with self._connection as transaction:
            data = _pack(records)
            done = transaction.execute(
                "INSERT INTO journal (sum, data) VALUES (?, ?)", (zlib.crc32(data), data)
            )
        assert done.lastrowid is not None
        return done.lastrowid

    def _lay(self, turn: int, data: bytes) -> None:
        with self._connection as transaction:
            transaction.execute(
                "INSERT INTO base (turn, sum, data) VALUES (?, ?, ?)",
                (turn, zlib.crc32(data), data),
            )

    def _switch(self, turn: int, after: int) -> None:
        with self._connection as transaction:
            transaction.execute("UPDATE turn SET number = ?, after = ?", (turn, after))

    def _in_force(self) -> tuple[int, int]:
        """Give the number of the last rewrite, and the last row of the journal that it replaces."""
        turn, after = self._connection.execute("SELECT number, after FROM turn").fetchone()
        return turn, after

    def _delete(self) -> int:
        turn, after = self._in_force()
        with self._connection as transaction:
            journal = transaction.execute(
                "DELETE FROM journal WHERE id IN "
                "(SELECT id FROM journal WHERE id <= ? ORDER BY id LIMIT ?)",
                (after, _DELETED),
            )
            base = transaction.execute(
                "DELETE FROM base WHERE id IN "
                "(SELECT id FROM base WHERE turn != ? ORDER BY id LIMIT ?)",
                (turn, _DELETED),
            )
        return journal.rowcount + base.rowcount


def _open(path: Path) -> sqlite3.Connection:
    # The thread that opens it replays, then one other thread writes; never both at a time.
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA:
        raise UserMistake(
            f"{path} was written by a newer Warren (layout {version}, and this one reads "
            f"{SCHEMA}): upgrade, or choose another state directory."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # Commits wait while the log is carried over into the file: a fourth as often as SQLite does
    # it, for 16 MiB of log.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CARRIED}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB)"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS base "
        "(id INTEGER PRIMARY KEY, turn INTEGER, sum INTEGER, data BLOB)"
    )
    columns = [row[1] for row in connection.execute("PRAGMA table_info(journal)")]
    if "sum" not in columns:
        connection.execute("ALTER TABLE journal ADD COLUMN sum INTEGER")
    connection.execute("CREATE TABLE IF NOT EXISTS turn (number INTEGER, after INTEGER)")
    if connection.execute("SELECT count(*) FROM turn").fetchone() == (0,):
        connection.execute("INSERT INTO turn VALUES (0, 0)")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.commit()


def _pack(records: Sequence[bytes]) -> bytes:
    return b"".join(len(record).to_bytes(_LENGTH, "big") + record for record in records)


def _unpack(row: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(row):
        start = position + _LENGTH
        position = start + int.from_bytes(row[position:start], "big")
        yield row[start:position]
