"""Files of several names: the copy is one file, too, whose other names are links to it.

What is remembered of each is forgotten when all of its names have been seen. A tree that has more
of them under way than can be remembered has the names of the others as files of their own.
"""

import os
import threading
from collections.abc import Sequence
from typing import Final

import msgspec

from warren.node.nofollow import Directory

_MAX_REMEMBERED: Final = 2**17

FilePair = tuple[Directory, str, Directory, str]
"""A directory of the source and a name in it, and those of its copy."""


class _Inode(msgspec.Struct):
    first: FilePair
    names_left: int
    copied: bool = False
    waiting: list[FilePair] = msgspec.field(default_factory=list)


class HardLinks:
    """The files of several names that are under way. Any thread may ask."""

    def __init__(self, limit: int = _MAX_REMEMBERED) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._inodes: dict[tuple[int, int], _Inode] = {}

    def first_copy(self, status: os.stat_result, pair: FilePair) -> FilePair | None:
        """Return the pair of a file that is copied already; else its caller is to copy it now.

        Of one that is being copied, this is `pair` itself: it waits, is returned by `mark_copied`
        or `mark_failed`, and then is to ask again.
        """
        key = (status.st_dev, status.st_ino)
        with self._lock:
            inode = self._inodes.get(key)
            if inode is None:
                if len(self._inodes) < self._limit:
                    self._inodes[key] = _Inode(pair, status.st_nlink - 1)
                return None
            if not inode.copied:
                inode.waiting.append(pair)
                return pair
            inode.names_left -= 1
            if inode.names_left <= 0:
                del self._inodes[key]
            return inode.first

    def mark_copied(self, status: os.stat_result, pair: FilePair) -> Sequence[FilePair]:
        """Hear that a file is copied; return the names that have waited for it."""
        key = (status.st_dev, status.st_ino)
        with self._lock:
            inode = self._inodes.get(key)
            if inode is None or inode.first != pair:
                return ()
            inode.copied = True
            waiting, inode.waiting = inode.waiting, []
            return waiting

    def mark_failed(self, status: os.stat_result, pair: FilePair) -> Sequence[FilePair]:
        """Hear that a file could not be copied, or have no more names; return those that waited."""
        key = (status.st_dev, status.st_ino)
        with self._lock:
            inode = self._inodes.get(key)
            if inode is None or inode.first != pair:
                return ()
            del self._inodes[key]
            return inode.waiting
