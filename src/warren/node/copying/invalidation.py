"""What was copied and may not have reached the disk is invalidated: it is not finished any more.

The kernel tells once that something could not be written, and not what. Another try would neither
hear of it nor see it, for memory has what the disk has not: so the times of modification go by
which it knows what it need not copy again, and the marks by which it goes on with a file.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from warren.node import identity
from warren.node.copying.retry import MARK, REWRITTEN_BYTES
from warren.node.copying.tally import NotCopied
from warren.node.nofollow import Directory, Tree, open_to_look


def invalidate(name: str, source_dir_fd: int, target: str, target_dir_fd: int) -> None:
    """Have a file in an open directory be no finished copy of that in another one.

    Raises OSError.
    """
    status = os.stat(name, dir_fd=source_dir_fd, follow_symlinks=False)
    try:
        copied = os.stat(target, dir_fd=target_dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(copied.st_mode) or copied.st_uid != identity.file_user():
        return
    if copied.st_mtime_ns == status.st_mtime_ns:
        os.utime(target, dir_fd=target_dir_fd, follow_symlinks=False)
    if copied.st_size > REWRITTEN_BYTES:
        _remove_mark(target, target_dir_fd)


def _remove_mark(name: str, target_dir_fd: int) -> None:
    with suppress(OSError):  # mostly, there is none
        descriptor = open_to_look(name, target_dir_fd)
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
        source_dir, target_dir = waiting.pop()
        try:
            source_dir_fd = source.acquire(source_dir)
        except OSError as error:
            fail(error, source.path(source_dir))
            continue
        try:
            target_dir_fd = target.acquire(target_dir)
            try:
                with os.scandir(source_dir_fd) as entries:
                    for entry in entries:
                        try:
                            if entry.is_dir(follow_symlinks=False):
                                subdirectory = enter(target_dir, entry.name)
                                waiting.append((Directory(source_dir, entry.name), subdirectory))
                            else:
                                invalidate(entry.name, source_dir_fd, entry.name, target_dir_fd)
                        except FileNotFoundError:
                            continue  # it was not copied
                        except (OSError, NotCopied) as error:
                            fail(error, target.path(target_dir, entry.name))
            finally:
                target.release(target_dir)
        except OSError as error:
            fail(error, target.path(target_dir))
        finally:
            source.release(source_dir)
