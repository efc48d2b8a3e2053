"""Group commit: records in the order they come, as many as have come, one sync for all.

The rule of every store: change nothing that anybody can see before it is
durable. A record is submitted together with what makes it visible.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
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
        self,
        journal: Journal,
        snapshot: Callable[[], Iterable[bytes]],
        held: int = 0,
        appended: int = 0,
    ) -> None:
        """`snapshot` gives records that say the same as all that are visible at the first of them.

        They are taken from it little by little, while commits go on. `held` is how many
        bytes the journal's last rewrite had, and `appended` how many came since: it is
        rewritten again when they are as many, for that costs seconds of work.
        """
        self._journal = journal
        self._snapshot = snapshot
        self._entries: list[_Entry] = []
        self._news = asyncio.Event()
        self._appended = appended
        self._limit = max(_COMPACT_BYTES, held)
        self._rewriting: asyncio.Task[None] | None = None

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
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                if self._rewriting is not None and self._rewriting.done():
                    self._rewriting.result()
                    self._rewriting = None
                await self._commit()
                if self._appended > self._limit and self._rewriting is None:
                    self._compact()
        finally:
            if self._rewriting is not None:
                self._rewriting.cancel()
                await asyncio.wait({self._rewriting})

    async def _commit(self) -> None:
        entries, self._entries = self._entries, []
        if not entries:
            return
        await self._journal.append([entry.record for entry in entries])
        for entry in entries:
            entry.visible()
            if not entry.done.done():
                entry.done.set_result(None)
        self._appended += sum(len(entry.record) for entry in entries)

    def _compact(self) -> None:
        # Not a task group: what the disk refuses is to be raised as it is.
        self._rewriting = asyncio.create_task(self._journal.rewrite(self._fewer()))
        self._rewriting.add_done_callback(lambda _: self._news.set())

    def _fewer(self) -> Iterator[bytes]:
        self._appended = held = 0
        for record in self._snapshot():
            held += len(record)
            yield record
        self._limit = max(_COMPACT_BYTES, held)
