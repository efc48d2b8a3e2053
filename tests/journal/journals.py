"""Journals that do what a disk may do: take their time, and refuse."""

import asyncio
from collections.abc import Iterable, Sequence

from warren.journal import JournalBroken, MemoryJournal


class HeldJournal(MemoryJournal):
    """A journal whose writes come to an end when their gate is open, and not before."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.single = False
        """Whether the gate falls shut after each append."""
        self.rewrite_gate = asyncio.Event()
        self.rewrite_gate.set()
        self.appends: list[list[bytes]] = []
        self.rewrites = 0

    async def append(self, records: Sequence[bytes]) -> None:
        await self.gate.wait()
        if self.single:
            self.gate.clear()
        self.appends.append(list(records))
        await super().append(records)

    async def rewrite(self, records: Iterable[bytes]) -> None:
        await self.rewrite_gate.wait()
        self.rewrites += 1
        await super().rewrite(records)


class FullJournal(MemoryJournal):
    """A journal on a disk that is full."""

    async def append(self, records: Sequence[bytes]) -> None:
        raise JournalBroken("the disk is full")
