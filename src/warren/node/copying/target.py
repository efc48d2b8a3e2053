"""The file that a copy writes to: no other copy does so meanwhile, and no other user reads it."""

import errno
import fcntl
import os
import struct
import time
from contextlib import suppress
from typing import Final

from warren.node import identity
from warren.node.copying.transfer import SMALL_FILE_BYTES
from warren.node.nofollow import open_to_write, replace

_NO_LOCKS_ERRORS: Final = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
_LOCKED_ERRORS: Final = (errno.EAGAIN, errno.EACCES)
_FLOCK: Final = "hhqqi4x"
"""The kernel's `struct flock`: type, whence, start, length and process."""
_TRIES: Final = 5
"""How often a lock is asked for that has gone when it is looked at."""
_OTHERS_RIGHTS: Final = 0o077
"""The rights of others; those of the group are the mask of an access control list."""
_FAST_PATH_SECONDS: Final = 60
"""Seconds that the fast path takes at most."""


class TargetInUse(Exception):
    """Another copy writes to the file."""


def open_locked(
    name: str,
    parent_fd: int,
    source: os.stat_result,
    *,
    readable: bool = False,
    owner: int | None = None,
) -> int:
    """Open a file to write to, as `open_to_write`; return its descriptor, which holds a lock.

    Until one that is ours gets the rights of its source, no other user may open it. Raises
    TargetInUse, too.
    """
    descriptor, old_status = open_to_write(name, parent_fd, source, readable=readable, owner=owner)
    try:
        locked = _lock(descriptor)
        if old_status is None or old_status.st_uid != identity.file_user():
            return descriptor
        if old_status.st_mode & _OTHERS_RIGHTS:
            os.chmod(descriptor, 0o600)
        if not locked or (_may_be_incomplete(old_status) and not os.listxattr(descriptor)):
            with suppress(OSError):
                new_descriptor = replace(name, parent_fd, readable=readable)
                os.close(descriptor)
                descriptor = new_descriptor
                _lock(descriptor)
        if not os.fstat(descriptor).st_nlink:
            # What was to be replaced has gone, and another has made one in its place.
            raise TargetInUse
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def close_locked(descriptor: int) -> None:
    """Let go of a file, whose lock what is to be synced later would keep."""
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK))
    os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Lock a file against other copies; return False if a reader's lock is in the way.

    Every user who may read a file can lock it for reading, and with `flock` altogether: that is no
    copy, and hinders none. Only users who may write to it can have such a lock as this. Raises
    TargetInUse, and OSError.
    """
    for _ in range(_TRIES):
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK))
        except OSError as error:
            if error.errno in _NO_LOCKS_ERRORS:
                return True
            if error.errno not in _LOCKED_ERRORS:
                raise
        else:
            return True
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK))
        lock_type, *_ = struct.unpack(_FLOCK, answer)
        if lock_type == fcntl.F_WRLCK:
            raise TargetInUse
        if lock_type == fcntl.F_RDLCK:
            break
    return False


def _flock(lock_type: int) -> bytes:
    """Return a `struct flock` for the whole file: the lock is the open file's (fcntl(2))."""
    return struct.pack(_FLOCK, lock_type, os.SEEK_SET, 0, 0, 0)


def _may_be_incomplete(status: os.stat_result) -> bool:
    """Return whether another copy may be making a file on the fast path, which locks nothing.

    That one goes on with its own then, which has no name any more. One that has attributes, as a
    layout of Lustre, was made by a user, for what is to be copied there.
    """
    return status.st_size <= SMALL_FILE_BYTES and status.st_ctime > time.time() - _FAST_PATH_SECONDS
