"""POSIX access control lists, as the extended attribute of a file has them (acl(5), xattr(7))."""

import errno
import os
import struct
from functools import reduce
from operator import and_
from typing import Final

NAME: Final = "system.posix_acl_access"

_HEADER: Final = 4
_ENTRY: Final = struct.Struct("<HHI")
_USER, _GROUP_OBJ, _GROUP = 0x02, 0x04, 0x08

_NONE: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})


def read(descriptor: int) -> bytes | None:
    """Return the ACL of an open file; None if it has none. Raises OSError."""
    try:
        return os.getxattr(descriptor, NAME)
    except OSError as error:
        if error.errno in _NONE:
            return None
        raise


def without(mode: int, acl: bytes) -> int:
    """Return the mode of a file that cannot have the ACL: it lets no user do more than that did.

    With an ACL the group's bits of a mode are the ACL's mask, and no right of the group.
    """
    entries = list(_ENTRY.iter_unpack(acl[_HEADER:]))
    mask = mode >> 3 & 7
    owning = reduce(and_, (rights for tag, rights, _ in entries if tag == _GROUP_OBJ), mask)
    users = reduce(and_, (rights & mask for tag, rights, _ in entries if tag == _USER), 7)
    groups = reduce(and_, (rights & mask for tag, rights, _ in entries if tag == _GROUP), 7)
    return mode & 0o700 | (owning & users) << 3 | mode & 7 & owning & users & groups
