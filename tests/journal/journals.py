"""Journals that do what a disk may do: take their time, and refuse."""

import asyncio
from collections.abc import Iterable, Sequence

from warren.journal import JournalBroken, JournalFull, MemoryJournal


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


class BrokenJournal(MemoryJournal):
    """A journal on a disk that refuses."""

    async def append(self, records: Sequence[bytes]) -> None:
        raise JournalBroken("the disk is broken")


class SmallJournal(MemoryJournal):
    """A journal on a disk with so much room, some of which it sets aside."""

    def __init__(self, room: int, wanted: int = 0) -> None:
        super().__init__()
        self.room = room
        self.wanted = wanted
        self.aside = 0
        self.tries = 0

    async def append(self, records: Sequence[bytes]) -> None:
        self.tries += 1
        size = sum(map(len, records))
        await asyncio.sleep(0)
        if size > self.room:
            self.room, self.aside = self.room + self.aside, 0
            raise JournalFull("the disk is full")
        self.room -= size
        await super().append(records)

    async def reserve(self) -> None:
        await asyncio.sleep(0)
        if self.room + self.aside < self.wanted:
            self.room, self.aside = self.room + self.aside, 0
            raise JournalFull("the disk is full")
        self.room, self.aside = self.room + self.aside - self.wanted, self.wanted

    async def rewrite(self, records: Iterable[bytes]) -> None:
        fewer = list(records)
        if sum(map(len, fewer)) > self.room:
            raise JournalFull("the disk is full")
        await super().rewrite(fewer)
