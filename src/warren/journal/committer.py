"""Group commit: records in the order they come, as many as have come, one sync for all.

The rule of every store: change nothing that anybody can see before it is
durable. A record is submitted together with what makes it visible.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from warren.journal import Journal

_COMPACT_BYTES: Final = 16 * 2**20
"""How much may be appended before the journal is first rewritten."""


@dataclass(frozen=True)
class _Entry:
    record: bytes
    visible: Callable[[], None]
    done: "asyncio.Future[None]"


class Committer:
    """Commits what is submitted. `run` must be running for anything to become durable."""

    def __init__(
        self, journal: Journal, snapshot: Callable[[], Iterable[bytes]], held: int = 0
    ) -> None:
        """`snapshot` gives records that say the same as all that are visible.

        `held` is how many bytes the journal had before. Not to be rewritten before as
        much again is there: to rewrite a large one costs seconds.
        """
        self._journal = journal
        self._snapshot = snapshot
        self._entries: list[_Entry] = []
        self._news = asyncio.Event()
        self._appended = 0
        self._limit = max(_COMPACT_BYTES, held)

    def submit(self, record: bytes, visible: Callable[[], None]) -> "asyncio.Future[None]":
        """Commit `record`, then call `visible`, then resolve the future.

        Giving up the wait does not unsay the record.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entries.append(_Entry(record, visible, done))
        self._news.set()
        return done

    async def run(self) -> None:
        """Commit until cancelled. Raises JournalBroken when the disk refuses: the end."""
        while True:
            await self._news.wait()
            self._news.clear()
            entries, self._entries = self._entries, []
            await self._journal.append([entry.record for entry in entries])
            for entry in entries:
                entry.visible()
                if not entry.done.done():
                    entry.done.set_result(None)
            self._appended += sum(len(entry.record) for entry in entries)
            if self._appended > self._limit:
                await self._compact()

    async def _compact(self) -> None:
        records = list(self._snapshot())
        await self._journal.rewrite(records)
        self._appended = 0
        self._limit = max(_COMPACT_BYTES, 2 * sum(len(record) for record in records))
