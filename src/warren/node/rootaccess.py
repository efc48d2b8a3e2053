"""Root directories of storage that is shared: whom they let in (ADR 057)."""

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from warren.dws.node import NodeTrouble
from warren.dws.persistent.sharing import NotShared, Sharing
from warren.node import acl

_STICKY: Final = 0o1000
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def set_access(path: Path, sharing: Sharing) -> None:
    """Have a root directory let in its owner, and those with whom it is shared, and no others.

    They may all make files there, and only their owners remove them. Nodes may do it at the same
    time. Raises NodeTrouble; NotShared where there is no room for the list: it lets in no user then
    with whom it is not shared.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
        try:
            let_in = _set_access(descriptor, sharing)
            owner = os.fstat(descriptor).st_uid
        finally:
            os.close(descriptor)
    except OSError as error:
        reason = (
            "it has no access control lists" if error.errno in acl.UNSUPPORTED else error.strerror
        )
        raise NodeTrouble(
            f"{path} cannot be shared: {reason}", fatal=error.errno in acl.UNSUPPORTED
        ) from error
    if let_in != sharing:
        raise NotShared(
            f"{path} has no room to say with whom it is shared: its owner has to remove files, or "
            "extended attributes of its root directory",
            owner_userid=owner,
            let_in=let_in,
        )


def _set_access(descriptor: int, sharing: Sharing) -> Sharing:
    """Set it, and return who is let in: where there is no room, who was, or the owner alone."""
    current = _read_access(descriptor)
    try:
        _write_access(descriptor, current, sharing)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
    else:
        return sharing
    if not current.let_in - sharing:
        # The mode may be set by now, which takes rights from the list that stays.
        _write_access(descriptor, current, current.let_in)
        return current.let_in
    # What is taken away takes no room.
    without_names = Sharing(everyone=sharing.everyone)
    _write_access(descriptor, current, without_names)
    return without_names


class _Access(NamedTuple):
    """The mode and the list of a root directory."""

    mode: int
    acl_bytes: bytes | None

    @property
    def entries(self) -> Sequence[acl.Entry]:
        return () if self.acl_bytes is None else acl.decode(self.acl_bytes)

    @property
    def group_rights(self) -> int:
        """Those of the owner's group. With a list, the mode has its mask there."""
        rights = (rights for tag, rights, _ in self.entries if tag == acl.GROUP_OBJ)
        return next(rights, self.mode >> 3 & 7)

    @property
    def let_in(self) -> Sharing:
        """Those whom it lets in, besides its owner."""
        return Sharing(
            everyone=self.mode & 7 != 0,
            users=frozenset(user for tag, _, user in self.entries if tag == acl.USER),
            groups=frozenset(group for tag, _, group in self.entries if tag == acl.GROUP),
        )


def _read_access(descriptor: int) -> _Access:
    """Read mode and list as they belong together, whatever other nodes write meanwhile."""
    current = acl.read(descriptor)
    while True:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        before, current = current, acl.read(descriptor)
        if current == before:
            return _Access(mode, current)


def _write_access(descriptor: int, current: _Access, sharing: Sharing) -> None:
    """Set mode and list.

    The kernel writes the rights of a list and those of the mode at once, and whatever is written
    here has the same rights for the owner's group: of two that write at the same time, with other
    lists, neither takes the other's mask for them.
    """
    special = current.mode & 0o6000 | (_STICKY if sharing else 0)
    user_rights, other_rights = current.mode >> 6 & 7, 7 if sharing.everyone else 0
    mode = special | user_rights << 6 | current.group_rights << 3
    new_list = _encode_acl(sharing, user_rights, current.group_rights, other_rights)
    if sharing.users or sharing.groups:
        sets_mode = current.mode & 0o7000 != special
        if sets_mode:
            os.fchmod(descriptor, mode)
        # Of a directory with a list, that has set the mask, too: the list is set after it.
        if sets_mode or current.acl_bytes != new_list:
            os.setxattr(descriptor, acl.NAME, new_list)
    else:
        if current.acl_bytes is not None:
            # One without names is a mode, and the kernel keeps it as that.
            os.setxattr(descriptor, acl.NAME, new_list)
        if current.mode != mode | other_rights:
            os.fchmod(descriptor, mode | other_rights)


def _encode_acl(sharing: Sharing, user_rights: int, group_rights: int, other_rights: int) -> bytes:
    named = sharing.users or sharing.groups
    return acl.encode(
        [
            (acl.USER_OBJ, user_rights, acl.NO_ID),
            *((acl.USER, 7, each) for each in sorted(sharing.users)),
            (acl.GROUP_OBJ, group_rights, acl.NO_ID),
            *((acl.GROUP, 7, each) for each in sorted(sharing.groups)),
            *([(acl.MASK, 7, acl.NO_ID)] if named else []),
            (acl.OTHER, other_rights, acl.NO_ID),
        ]
    )
