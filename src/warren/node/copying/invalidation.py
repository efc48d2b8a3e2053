"""What was copied and may not have reached the disk: nothing of it is finished any more.

The kernel tells once that something could not be written, and not what. Another try would neither
hear of it nor see it, for memory has what the disk has not: so the times of modification go by
which it knows what it need not copy again, and the marks by which it goes on with a file.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from warren.node import identity
from warren.node.copying.retry import MARK, REWRITTEN
from warren.node.copying.tally import NotCopied
from warren.node.nofollow import Directory, Tree, open_to_look


def invalidate(name: str, above: int, target: str, there: int) -> None:
    """Have a file in an open directory be no finished copy of that in another one.

    Raises OSError.
    """
    known = os.stat(name, dir_fd=above, follow_symlinks=False)
    try:
        copied = os.stat(target, dir_fd=there, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(copied.st_mode) or copied.st_uid != identity.file_user():
        return
    if copied.st_mtime_ns == known.st_mtime_ns:
        os.utime(target, dir_fd=there, follow_symlinks=False)
    if copied.st_size > REWRITTEN:
        _remove_mark(target, there)


def _remove_mark(name: str, there: int) -> None:
    with suppress(OSError):  # mostly, there is none
        descriptor = open_to_look(name, there)
        try:
            os.removexattr(descriptor, MARK)
        finally:
            os.close(descriptor)


def invalidate_tree(
    source: Tree,
    target: Tree,
    top: Directory,
    enter: Callable[[Directory, str], Directory],
    fail: Callable[[OSError | NotCopied, str], None],
) -> None:
    """Have no file of a tree be finished in its copy; `fail` hears of those that may still be.

    `enter` returns a directory of the copy that is there, and lets us into it.
    """
    waiting = [(source.top, top)]
    while waiting:
        here, there = waiting.pop()
        try:
            above = source.acquire(here)
        except OSError as error:
            fail(error, source.path(here))
            continue
        try:
            below = target.acquire(there)
            try:
                with os.scandir(above) as entries:
                    for entry in entries:
                        try:
                            if entry.is_dir(follow_symlinks=False):
                                place = enter(there, entry.name)
                                waiting.append((Directory(here, entry.name), place))
                            else:
                                invalidate(entry.name, above, entry.name, below)
                        except FileNotFoundError:
                            continue  # it was not copied
                        except (OSError, NotCopied) as error:
                            fail(error, target.path(there, entry.name))
            finally:
                target.release(there)
        except OSError as error:
            fail(error, target.path(there))
        finally:
            source.release(here)
