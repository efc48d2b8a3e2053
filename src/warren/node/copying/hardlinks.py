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

_REMEMBERED: Final = 2**17

Names = tuple[Directory, str, Directory, str]
"""A directory of the source and a name in it, and those of its copy."""


class _Inode(msgspec.Struct):
    first: Names
    left: int
    done: bool = False
    waiting: list[Names] = msgspec.field(default_factory=list)


class HardLinks:
    """The files of several names that are under way. Any thread may ask."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], _Inode] = {}

    def first_copy(self, known: os.stat_result, names: Names) -> Names | None:
        """Return the name of a file that is copied already; else its caller is to copy it now.

        Of one that is being copied, this is `names` itself: it waits, is returned by `mark_copied`
        or `mark_failed`, and then is to ask again.
        """
        key = (known.st_dev, known.st_ino)
        with self._lock:
            inode = self._known.get(key)
            if inode is None:
                if len(self._known) < self._most:
                    self._known[key] = _Inode(names, known.st_nlink - 1)
                return None
            if not inode.done:
                inode.waiting.append(names)
                return names
            inode.left -= 1
            if inode.left <= 0:
                del self._known[key]
            return inode.first

    def mark_copied(self, known: os.stat_result, names: Names) -> Sequence[Names]:
        """Hear that a file is copied; return the names that have waited for it."""
        key = (known.st_dev, known.st_ino)
        with self._lock:
            inode = self._known.get(key)
            if inode is None or inode.first != names:
                return ()
            inode.done = True
            waiting, inode.waiting = inode.waiting, []
            return waiting

    def mark_failed(self, known: os.stat_result, names: Names) -> Sequence[Names]:
        """Hear that a file could not be copied, or have no more names; return those that waited."""
        key = (known.st_dev, known.st_ino)
        with self._lock:
            inode = self._known.get(key)
            if inode is None or inode.first != names:
                return ()
            del self._known[key]
            return inode.waiting
