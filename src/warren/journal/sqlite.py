"""The journal on SQLite: a writer thread, one row and one sync per append.

WAL with synchronous=FULL: neither a killed process nor a power cut loses what
was acknowledged.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from warren.base.errors import UserMistake
from warren.journal import JournalBroken

SCHEMA: Final = 1
"""The version of the file's layout. A newer one is refused."""

_LENGTH: Final = 4
_ROW: Final = 16 * 2**20
"""Bytes that a rewritten journal has in a row: SQLite refuses one of more than a billion."""


class SqliteJournal:
    """A journal in one file. Use it as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises UserMistake where it is not ours to read."""
        self._path = path
        self._writer = ThreadPoolExecutor(1, f"journal {path.name}")
        try:
            self._connection = _open(path)
        except sqlite3.Error as error:
            raise UserMistake(f"{path} cannot be read as a state file: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.shutdown()
        self._connection.close()

    def replay(self) -> Iterator[bytes]:
        for (row,) in self._connection.execute("SELECT data FROM journal ORDER BY id"):
            yield from _unpack(row)

    async def append(self, records: Sequence[bytes]) -> None:
        await self._run(lambda: self._insert(records))

    async def rewrite(self, records: Sequence[bytes]) -> None:
        await self._run(lambda: self._replace(records))

    async def _run(self, deed: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, deed)
        except sqlite3.Error as error:
            raise JournalBroken(f"{self._path} cannot be written: {error}.") from error

    def _insert(self, records: Sequence[bytes]) -> None:
        with self._connection as transaction:
            transaction.execute("INSERT INTO journal (data) VALUES (?)", (_pack(records),))

    def _replace(self, records: Sequence[bytes]) -> None:
        with self._connection as transaction:
            transaction.execute("DELETE FROM journal")
            for row in _rows(records):
                transaction.execute("INSERT INTO journal (data) VALUES (?)", (row,))


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
    connection.execute(
        "CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB)"
    )
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    connection.commit()


def _pack(records: Sequence[bytes]) -> bytes:
    return b"".join(len(record).to_bytes(_LENGTH, "big") + record for record in records)


def _rows(records: Sequence[bytes]) -> Iterator[bytes]:
    start = size = 0
    for end, record in enumerate(records, 1):
        size += len(record)
        if size >= _ROW or end == len(records):
            yield _pack(records[start:end])
            start, size = end, 0


def _unpack(row: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(row):
        start = position + _LENGTH
        position = start + int.from_bytes(row[position:start], "big")
        yield row[start:position]
