"""POSIX access control lists, as the extended attribute of a file has them (acl(5), xattr(7))."""

import errno
import os
import stat
import struct
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warren.dws.node import NodeTrouble

if TYPE_CHECKING:  # the copier imports this module, and starts faster without the rest
    from warren.dws.persistent.sharing import Sharing

NAME: Final = "system.posix_acl_access"

_HEADER_BYTES: Final = 4
_ENTRY: Final = struct.Struct("<HHI")
_USER_OBJ, _USER, _GROUP_OBJ, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_VERSION: Final = struct.pack("<I", 2)
_NO_ID: Final = 0xFFFFFFFF
_STICKY: Final = 0o1000

_UNSUPPORTED: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})


def read(descriptor: int) -> bytes | None:
    """Return the ACL of an open file; None if it has none. Raises OSError."""
    try:
        return os.getxattr(descriptor, NAME)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise


def mode_without_acl(mode: int, acl: bytes) -> int:
    """Return a mode for a file that cannot have the ACL: it allows no user more than the ACL did.

    With an ACL the group's bits of a mode are the ACL's mask, and no right of the group.
    """
    entries = list(_ENTRY.iter_unpack(acl[_HEADER_BYTES:]))
    mask = mode >> 3 & 7
    group_rights = reduce(and_, (rights for tag, rights, _ in entries if tag == _GROUP_OBJ), mask)
    named_user_rights = reduce(
        and_, (rights & mask for tag, rights, _ in entries if tag == _USER), 7
    )
    named_group_rights = reduce(
        and_, (rights & mask for tag, rights, _ in entries if tag == _GROUP), 7
    )
    return (
        mode & 0o700
        | (group_rights & named_user_rights) << 3
        | mode & 7 & group_rights & named_user_rights & named_group_rights
    )


def set_access(path: Path, sharing: "Sharing") -> None:
    """Have a root directory let in its owner, and those with whom it is shared, and no others.

    They may all make files there, and only their owners remove them. Raises NodeTrouble.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
        try:
            _set_access(descriptor, sharing)
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = "it has no access control lists" if error.errno in _UNSUPPORTED else error.strerror
        raise NodeTrouble(
            f"{path} cannot be shared: {reason}", fatal=error.errno in _UNSUPPORTED
        ) from error


def _set_access(descriptor: int, sharing: "Sharing") -> None:
    mode, acl = stat.S_IMODE(os.fstat(descriptor).st_mode), read(descriptor)
    entries = list(_ENTRY.iter_unpack(acl[_HEADER_BYTES:])) if acl is not None else []
    group_rights = next((rights for tag, rights, _ in entries if tag == _GROUP_OBJ), mode >> 3 & 7)
    other_rights = 7 if sharing.everyone else 0
    new_mode = mode & 0o6700 | (_STICKY if sharing else 0) | group_rights << 3 | other_rights
    if sharing.users or sharing.groups:
        new_acl = _encode(sharing, mode >> 6 & 7, group_rights, other_rights)
        if acl != new_acl:
            os.setxattr(descriptor, NAME, new_acl)
        new_mode |= 0o070  # the mask
    # What is taken away goes before the list does, whose mask would be the group's right then.
    if mode != new_mode:
        os.fchmod(descriptor, new_mode)
    if acl is not None and not (sharing.users or sharing.groups):
        os.removexattr(descriptor, NAME)


def _encode(sharing: "Sharing", user_rights: int, group_rights: int, other_rights: int) -> bytes:
    entries = [
        (_USER_OBJ, user_rights, _NO_ID),
        *((_USER, 7, each) for each in sorted(sharing.users)),
        (_GROUP_OBJ, group_rights, _NO_ID),
        *((_GROUP, 7, each) for each in sorted(sharing.groups)),
        (_MASK, 7, _NO_ID),
        (_OTHER, other_rights, _NO_ID),
    ]
    return _VERSION + b"".join(_ENTRY.pack(*each) for each in entries)
