"""Subordinate user ids (subuid(5)), of which one user has tens of thousands to be."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/etc/subuid")
_ROOT: Final = ("root", "0")


class SubordinateIds:
    """The table of this machine, as it is when it is asked."""

    def __init__(self, table: Path = _TABLE) -> None:
        self._table = table
        self._read: tuple[int, int, int] | None = None
        """Which state of the table was read last."""
        self._ranges: list[tuple[range, str]] = []
        """Each range with its owner, as the table has it: a name or a number."""

    def owner_of(self, userid: int) -> str | None:
        """Return whose subordinate an id is; None for one that is nobody's, or root's.

        Root's may be all that there are, those of users in a directory among them.
        """
        self._look()
        return next((owner for each, owner in self._ranges if userid in each), None)

    def _look(self) -> None:
        try:
            status = os.stat(self._table)
        except OSError:
            self._ranges, self._read = [], None
            return
        state = status.st_ino, status.st_size, status.st_mtime_ns
        if state == self._read:
            return
        self._ranges = []
        with suppress(OSError):
            for line in self._table.read_text(errors="replace").splitlines():
                with suppress(ValueError):  # a comment, or a mistake
                    owner, first, count = line.split(":")
                    if owner not in _ROOT:
                        self._ranges.append((range(int(first), int(first) + int(count)), owner))
            self._read = state
