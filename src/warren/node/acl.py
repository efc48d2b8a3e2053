"""POSIX access control lists, as the extended attribute of a file has them (acl(5), xattr(7))."""

import errno
import os
import struct
from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import Final

NAME: Final = "system.posix_acl_access"

_HEADER_BYTES: Final = 4
_ENTRY: Final = struct.Struct("<HHI")
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_VERSION: Final = struct.pack("<I", 2)
NO_ID: Final = 0xFFFFFFFF
"""That of an entry which names nobody."""

UNSUPPORTED: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
"""The errors of a file system that has no access control lists, and of a file without one."""

Entry = tuple[int, int, int]
"""A tag, rights, and the id of a user or group."""


def read(descriptor: int) -> bytes | None:
    """Return the ACL of an open file; None if it has none. Raises OSError."""
    try:
        return os.getxattr(descriptor, NAME)
    except OSError as error:
        if error.errno in UNSUPPORTED:
            return None
        raise


def decode(acl: bytes) -> list[Entry]:
    """Return the entries of an ACL."""
    return list(_ENTRY.iter_unpack(acl[_HEADER_BYTES:]))


def encode(entries: Iterable[Entry]) -> bytes:
    """Return the ACL of some entries."""
    return _VERSION + b"".join(_ENTRY.pack(*each) for each in entries)


def mode_without_acl(mode: int, acl: bytes) -> int:
    """Return a mode for a file that cannot have the ACL: it allows no user more than the ACL did.

    With an ACL the group's bits of a mode are the ACL's mask, and no right of the group.
    """
    entries = decode(acl)
    mask = mode >> 3 & 7
    group_rights = reduce(and_, (rights for tag, rights, _ in entries if tag == GROUP_OBJ), mask)
    named_user_rights = reduce(
        and_, (rights & mask for tag, rights, _ in entries if tag == USER), 7
    )
    named_group_rights = reduce(
        and_, (rights & mask for tag, rights, _ in entries if tag == GROUP), 7
    )
    return (
        mode & 0o700
        | (group_rights & named_user_rights) << 3
        | mode & 7 & group_rights & named_user_rights & named_group_rights
    )
