"""The file that a copy writes to: no other copy writes to it at the same time."""

import errno
import fcntl
import os
import time
from contextlib import suppress
from typing import Final

from warren.node import identity
from warren.node.beneath import open_to_write, replace
from warren.node.copying.transfer import SMALL

_NO_LOCKS: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_MAKING: Final = 60
"""Seconds that the short way takes at most."""


class InUse(Exception):
    """Another copy writes to the file."""


def open_alone(
    name: str, above: int, source: os.stat_result, *, read: bool = False, own: int | None = None
) -> int:
    """Open a file to write to, as `open_to_write`; return its descriptor, which holds a lock.

    Raises InUse, too.
    """
    descriptor, found = open_to_write(name, above, source, read=read, own=own)
    try:
        _lock(descriptor)
        if found is not None and _may_be_in_the_making(found):
            with suppress(PermissionError):
                made = replace(name, above, read=read)
                os.close(descriptor)
                descriptor = made
                _lock(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _may_be_in_the_making(found: os.stat_result) -> bool:
    """Return whether another copy may be making a file in the short way, which locks nothing.

    That one goes on with its own then, which has no name any more.
    """
    is_ours = found.st_uid == identity.file_user()
    return is_ours and found.st_size <= SMALL and found.st_ctime > time.time() - _MAKING
