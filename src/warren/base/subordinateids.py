"""Subordinate user ids (subuid(5)): one user may act under tens of thousands of them."""

import os
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/etc/subuid")
_ROOT_OWNERS: Final = ("root", "0")

ACCOUNTING_IDS_PER_OWNER: Final = 4
"""How many ids all that one user has as subordinate ids are counted under."""


class SubordinateIds:
    """The table of this machine, as it is when it is asked."""

    def __init__(self, table: Path = _TABLE) -> None:
        self._table = table
        self._loaded_state: tuple[int, int, int] | None = None
        """Which state of the table was read last."""
        self._ranges: list[tuple[range, int]] = []
        """Each range with the first id of its owner's first range; in order, and none overlap."""

    def accounting_id(self, userid: int) -> int:
        """Return the id under which an id is counted.

        A subordinate id counts as one of the first `ACCOUNTING_IDS_PER_OWNER` of its owner, any
        other as itself. So do ids of root: they may be all that there are, with users' own among
        them.
        """
        self._reload()
        position = bisect_right(self._ranges, userid, key=_start) - 1
        if position < 0 or userid not in self._ranges[position][0]:
            return userid
        _, first = self._ranges[position]
        return first + userid % ACCOUNTING_IDS_PER_OWNER

    def _reload(self) -> None:
        try:
            status = os.stat(self._table)
        except OSError:
            self._ranges, self._loaded_state = [], None
            return
        state = status.st_ino, status.st_size, status.st_mtime_ns
        if state == self._loaded_state:
            return
        ranges: list[tuple[range, int]] = []
        first_by_owner: dict[str, int] = {}
        with suppress(OSError):
            for line in self._table.read_text(errors="replace").splitlines():
                with suppress(ValueError):  # a comment, or a mistake
                    owner, first, count = line.split(":")
                    ids = range(int(first), int(first) + int(count))
                    if owner not in _ROOT_OWNERS:
                        ranges.append((ids, first_by_owner.setdefault(owner, ids.start)))
            self._loaded_state = state
        self._ranges = _disjoint(ranges)


def _start(owned: tuple[range, int]) -> int:
    ids, _ = owned
    return ids.start


def _disjoint(ranges: list[tuple[range, int]]) -> list[tuple[range, int]]:
    """Return the ranges in order: an id of several is of the one that starts first."""
    disjoint: list[tuple[range, int]] = []
    end = 0
    for ids, first in sorted(ranges, key=_start):
        rest = range(max(ids.start, end), ids.stop)
        if rest:
            disjoint.append((rest, first))
            end = rest.stop
    return disjoint
