"""The durable truth: records in order, safe on disk once `append` has returned.

The API server's objects and the KVS are stored in one each. A journal knows nothing of
what its records mean; the part that writes them replays them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Protocol

from warren.base.errors import Retryable, WarrenError

ROW_BYTES: Final = 2**20
"""Bytes that a rewrite puts into a row. An append waits for one row at the most."""
_SLICE: Final = 0.004
"""Seconds for which the event loop makes records of a rewrite before it yields to other tasks."""


class JournalBroken(WarrenError):
    """The disk has refused a record. Nothing after it is durable; the process must end."""


class JournalFull(Retryable):
    """The disk has no room for a record. No part of it is there; what was appended before is."""


class Journal(Protocol):
    """Ordered records. One writer, which waits for each append before the next."""

    def replay(self) -> Iterable[bytes]:
        """Return every record that is durable, oldest first."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """Add records, all or none. They are durable when this returns.

        Raises JournalFull, and may be tried again then: room that was set aside is given up.
        """
        ...

    async def reserve(self) -> None:
        """Set room aside, for when the disk is full. Raises JournalFull. May be repeated."""
        ...

    async def rewrite(self, records: Iterable[bytes]) -> None:
        """Replace everything by fewer records that say the same.

        The records are taken little by little, and appends go on meanwhile. They say the
        same as what had been appended when the first of them was taken; what is appended
        later stays, after them. A caller that is cancelled, or dies, has changed nothing.
        Raises JournalFull, and has changed nothing then either.
        """
        ...


class MemoryJournal:
    """A journal for tests: it outlives the parts that write to it, and nothing else."""

    def __init__(self, row_bytes: int = ROW_BYTES) -> None:
        self.records: list[bytes] = []
        self._row_bytes = row_bytes

    def replay(self) -> Iterable[bytes]:
        return list(self.records)

    async def append(self, records: Sequence[bytes]) -> None:
        self.records.extend(records)

    async def reserve(self) -> None:
        return

    async def rewrite(self, records: Iterable[bytes]) -> None:
        replaced_count = len(self.records)
        fewer = [record async for row in rows(records, self._row_bytes) for record in row]
        self.records[:replaced_count] = fewer


async def rows(records: Iterable[bytes], size: int) -> AsyncIterator[list[bytes]]:
    """Yield records in rows of about `size` bytes. Other tasks run in between.

    The first record is taken before any other task runs.
    """
    now = asyncio.get_running_loop().time
    row: list[bytes] = []
    row_bytes, began = 0, now()
    for record in records:
        row.append(record)
        row_bytes += len(record)
        if row_bytes >= size:
            yield row
            row, row_bytes = [], 0
            await asyncio.sleep(0)
            began = now()
        elif now() - began > _SLICE:
            await asyncio.sleep(0)
            began = now()
    if row:
        yield row
