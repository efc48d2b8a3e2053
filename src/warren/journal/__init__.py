"""The durable truth: records in order, safe on disk once `append` has returned.

Both stores of the house stand on it, the API server's objects and the KVS. A
journal knows nothing of what its records mean; who writes them replays them.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from warren.base.errors import WarrenError


class JournalBroken(WarrenError):
    """The disk has refused a record. Nothing after it is durable; the process must end."""


class Journal(Protocol):
    """Ordered records. One writer, which waits for each call before the next."""

    def replay(self) -> Iterable[bytes]:
        """Give every record that is durable, oldest first."""
        ...

    async def append(self, records: Sequence[bytes]) -> None:
        """Add records, all or none. They are durable when this returns."""
        ...

    async def rewrite(self, records: Sequence[bytes]) -> None:
        """Replace everything appended so far by fewer records that say the same."""
        ...


class MemoryJournal:
    """A journal for tests: it outlives the parts that write to it, and nothing else."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def replay(self) -> Iterable[bytes]:
        return list(self.records)

    async def append(self, records: Sequence[bytes]) -> None:
        self.records.extend(records)

    async def rewrite(self, records: Sequence[bytes]) -> None:
        self.records[:] = records
