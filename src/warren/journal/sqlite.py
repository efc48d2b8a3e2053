"""The journal on SQLite: a writer thread, one row and one sync per append.

WAL with synchronous=FULL: neither a killed process nor a power cut loses what
was acknowledged.

What is appended is in the table `journal`. A rewrite puts its records beside it, into
`base`, row by row, between the appends; then one small transaction says in `turn` that
this base is in force, and which rows of the journal it replaces. Whatever is not in force,
because it was replaced or because the process died, is passed over by a replay and deleted
by the next rewrite, row by row as well.

Each row has a sum of its bytes. One that does not agree is a fault of the disk; the file is
refused then, for half of the truth is none. Beside the file stands a marker, which says that
it was made: a file that is missing or empty then is no new one, and is refused as well.

Room for the records of what was begun is set aside in a file beside it, which is given up when
the disk is full.
"""

import asyncio
import errno
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, Self, TypeVar

from warren.base.errors import UserMistake
from warren.journal import ROW_BYTES, JournalBroken, JournalFull, rows

T = TypeVar("T")

SCHEMA_VERSION: Final = 2
"""The version of the file's layout. A newer one is refused; 1 had the journal alone."""

_LENGTH_BYTES: Final = 4
"""Bytes before each record of a row, which say how long it is."""
_CHECKPOINT_PAGES: Final = 4000
"""Pages of the log, of 4 KiB, after which it is carried over into the file."""
_DELETE_BATCH: Final = 16
"""Rows that are deleted at once."""
RESERVE_BYTES: Final = 16 * 2**20
"""Bytes that a service sets aside: the end of a job takes some ten thousand."""

_FULL_DISK_CODES: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
)
"""What SQLite says of a full disk: the second of a quota, or of a limit on the size of files."""
_FULL_DISK_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the kernel says of it."""


class SqliteJournal:
    """A journal in one file. Use it as a context manager."""

    def __init__(self, path: Path, reserve_bytes: int = 0, *, row_bytes: int = ROW_BYTES) -> None:
        """Open or make the file. Raises UserMistake where it is not ours to read.

        `reserve_bytes` is how many bytes are set aside, and `row_bytes` how many a row of a
        rewrite has.
        """
        self._path = path
        self._row_bytes = row_bytes
        self._reserve_bytes = reserve_bytes
        _check_not_lost(path)
        self._writer = ThreadPoolExecutor(1, f"journal {path.name}")
        try:
            self._connection = _open(path)
            (newest,) = self._connection.execute("SELECT max(id) FROM journal").fetchone()
        except (sqlite3.Error, OSError) as error:
            raise UserMistake(f"{path} cannot be read as a state file: {error}.") from error
        self._last_row_id: int = newest or 0
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
        turn, after = self._active_base()
        execute = self._connection.execute
        base = execute("SELECT sum, data FROM base WHERE turn = ? ORDER BY id", (turn,))
        later = execute("SELECT sum, data FROM journal WHERE id > ? ORDER BY id", (after,))
        for number, (checksum, row) in enumerate(chain(base, later), 1):
            # Rows of layout 1 have no sum.
            if checksum is not None and checksum != zlib.crc32(row):
                raise UserMistake(
                    f"{self._path} is damaged in row {number}: restore it from a copy, or begin "
                    "anew with another state directory."
                )
            yield from _unpack(row)

    async def append(self, records: Sequence[bytes]) -> None:
        try:
            self._last_row_id = await self._run_in_writer(lambda: self._insert(records))
        except JournalFull:
            await self._run_in_writer(partial(release_reserve, self._path))
            raise

    async def reserve(self) -> None:
        await self._run_in_writer(self._allocate_reserve)

    async def rewrite(self, records: Iterable[bytes]) -> None:
        await self._delete_replaced()
        try:
            await self._replace(records)
        except JournalFull:
            with suppress(JournalFull):  # or the next one deletes what is there of it
                await self._delete_replaced()
            raise

    async def _replace(self, records: Iterable[bytes]) -> None:
        turn = (await self._run_in_writer(self._active_base))[0] + 1
        after = self._last_row_id
        async for row in rows(records, self._row_bytes):
            await self._run_in_writer(partial(self._insert_base_row, turn, _pack(row)))
        await self._run_in_writer(partial(self._activate_base, turn, after))
        with suppress(JournalFull):
            await self._delete_replaced()

    async def _delete_replaced(self) -> None:
        """Delete what is not in force."""
        while await self._run_in_writer(self._delete_some):
            pass

    async def _run_in_writer(self, action: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._writer, action)
        except sqlite3.Error as error:
            if error.sqlite_errorcode in _FULL_DISK_CODES:
                raise self._full_error(error) from error
            raise JournalBroken(f"{self._path} cannot be written: {error}.") from error

    def _full_error(self, error: Exception) -> JournalFull:
        return JournalFull(
            f"the file system of {self._path} is full ({getattr(error, 'strerror', error)}): until "
            "there is room, no new work is taken"
        )

    def _allocate_reserve(self) -> None:
        if self._reserve_bytes == 0:
            return
        try:
            _allocate(_reserve_path(self._path), self._reserve_bytes)
        except OSError as error:
            if error.errno not in _FULL_DISK_ERRNOS:
                raise JournalBroken(f"{_reserve_path(self._path)}: {error.strerror}.") from error
            release_reserve(self._path)
            raise self._full_error(error) from error

    def _insert(self, records: Sequence[bytes]) -> int:
        with self._connection as transaction:
            data = _pack(records)
            cursor = transaction.execute(
                "INSERT INTO journal (sum, data) VALUES (?, ?)", (zlib.crc32(data), data)
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _insert_base_row(self, turn: int, data: bytes) -> None:
        with self._connection as transaction:
            transaction.execute(
                "INSERT INTO base (turn, sum, data) VALUES (?, ?, ?)",
                (turn, zlib.crc32(data), data),
            )

    def _activate_base(self, turn: int, after: int) -> None:
        with self._connection as transaction:
            transaction.execute("UPDATE turn SET number = ?, after = ?", (turn, after))

    def _active_base(self) -> tuple[int, int]:
        """Return the number of the last rewrite, and the last row that it replaces."""
        turn, after = self._connection.execute("SELECT number, after FROM turn").fetchone()
        return turn, after

    def _delete_some(self) -> int:
        turn, after = self._active_base()
        with self._connection as transaction:
            journal = transaction.execute(
                "DELETE FROM journal WHERE id IN "
                "(SELECT id FROM journal WHERE id <= ? ORDER BY id LIMIT ?)",
                (after, _DELETE_BATCH),
            )
            base = transaction.execute(
                "DELETE FROM base WHERE id IN "
                "(SELECT id FROM base WHERE turn != ? ORDER BY id LIMIT ?)",
                (turn, _DELETE_BATCH),
            )
        return journal.rowcount + base.rowcount


def release_reserve(path: Path) -> None:
    """Free the room that was set aside for a journal, if any was."""
    with suppress(OSError):
        os.truncate(_reserve_path(path), 0)


def _allocate(path: Path, size: int) -> None:
    """Make a file that takes so many bytes.

    Raises OSError, also where less than as much again would be left free.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size >= size:
            return
        file_system = os.fstatvfs(descriptor)
        if file_system.f_bavail * file_system.f_frsize < 2 * size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


def _reserve_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.reserve")


def was_made(path: Path) -> bool:
    """Return whether a journal was made there before, whatever has become of it."""
    return _marker_path(path).exists()


def _marker_path(path: Path) -> Path:
    # Not beginning with its name: it stays where all files that do are removed.
    return path.with_name(f".{path.name}.made")


def _check_not_lost(path: Path) -> None:
    """Raise UserMistake for a file that is missing or empty where there was one.

    SQLite would take it for a new one, and throw its log away.
    """
    wal = path.with_name(f"{path.name}-wal")
    try:
        has_content = path.stat().st_size > 0
        orphaned = not has_content and wal.exists() and wal.stat().st_size > 0
        if has_content or not (was_made(path) or orphaned):
            return
        condition = "is empty"
    except FileNotFoundError:
        if not was_made(path) and not wal.exists():
            return
        condition = "is missing"
    except OSError as error:
        raise UserMistake(f"{path} cannot be read as a state file: {error.strerror}.") from error
    raise UserMistake(_lost_file_message(path, condition))


def _lost_file_message(path: Path, condition: str) -> str:
    return (
        f"{path} {condition}, and it is not new here: restore it from a copy, or begin anew with "
        "another state directory."
    )


def _open(path: Path) -> sqlite3.Connection:
    try:
        # Private before anything is in it; the log gets its mode from it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise UserMistake(f"{path} cannot be read as a state file: {error.strerror}.") from error
    # The thread that opens it replays, then one other thread writes; never both at a time.
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        _prepare(connection, path)
        if not was_made(path):
            # Now that there is a file on disk which says that it is one.
            _marker_path(path).touch(0o600)
            _sync(path.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise UserMistake(
            f"{path} was written by a newer Warren (layout {version}, and this one reads "
            f"{SCHEMA_VERSION}): upgrade, or choose another state directory."
        )
    if version == 0 and was_made(path):
        raise UserMistake(_lost_file_message(path, "has nothing in it"))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # Commits wait while the log is carried over into the file: a fourth as often as SQLite does
    # it, for 16 MiB of log.
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if version == SCHEMA_VERSION:
        return
    # All or nothing: what says its version is whole.
    with connection as transaction:
        transaction.execute("BEGIN IMMEDIATE")
        transaction.execute(
            "CREATE TABLE IF NOT EXISTS journal (id INTEGER PRIMARY KEY AUTOINCREMENT, data BLOB)"
        )
        transaction.execute(
            "CREATE TABLE IF NOT EXISTS base "
            "(id INTEGER PRIMARY KEY, turn INTEGER, sum INTEGER, data BLOB)"
        )
        columns = [row[1] for row in transaction.execute("PRAGMA table_info(journal)")]
        if "sum" not in columns:
            transaction.execute("ALTER TABLE journal ADD COLUMN sum INTEGER")
        transaction.execute("CREATE TABLE IF NOT EXISTS turn (number INTEGER, after INTEGER)")
        if transaction.execute("SELECT count(*) FROM turn").fetchone() == (0,):
            transaction.execute("INSERT INTO turn VALUES (0, 0)")
        transaction.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _pack(records: Sequence[bytes]) -> bytes:
    return b"".join(len(record).to_bytes(_LENGTH_BYTES, "big") + record for record in records)


def _unpack(row: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(row):
        start = position + _LENGTH_BYTES
        position = start + int.from_bytes(row[position:start], "big")
        yield row[start:position]
