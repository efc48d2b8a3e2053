"""What a copy has of its source besides the data: mode, times, and extended attributes.

Modes are kept but for the bits by which one user becomes another: set-user-ID goes, and of files
the set-group-ID and sticky bits, too. Of the extended attributes there are those of the user, the
access control lists, and, in root's own copies, `trusted.`. Not `security.`: capabilities are no
user's to give, and the labels of one machine mean something else on another.
"""

import errno
import os
import stat
from collections.abc import Mapping
from typing import Final

import msgspec

from warren.node import acl
from warren.node.copying.retry import MARK

_UNSUPPORTED: Final = frozenset({errno.ENODATA, errno.EOPNOTSUPP, errno.ENOSYS})
_FILE_MODE_MASK: Final = 0o777
_DIRECTORY_MODE_MASK: Final = 0o3777
_DEFAULT_ACL: Final = "system.posix_acl_default"
_ACLS: Final = (acl.NAME, _DEFAULT_ACL)
_NO_ATTRIBUTES: Final[Mapping[str, bytes]] = {}


class Metadata(msgspec.Struct, frozen=True):
    """The metadata of one file or directory, as its copy gets it."""

    status: os.stat_result
    attributes: Mapping[str, bytes]

    def apply_to(self, target_fd: int) -> bool:
        """Give it to an open file, as the last of what the file gets.

        Return whether the target could have all of it. Raises OSError.
        """
        is_directory = stat.S_ISDIR(self.status.st_mode)
        mode = self.status.st_mode & (_DIRECTORY_MODE_MASK if is_directory else _FILE_MODE_MASK)
        for name in copied_attributes(target_fd):
            if name not in self.attributes:
                if name == acl.NAME:
                    # Its mask would be the group's right when it is gone.
                    os.chmod(target_fd, mode & 0o700)
                os.removexattr(target_fd, name)
        complete = True
        for name, value in self.attributes.items():
            if name != acl.NAME:
                complete &= _set_attribute(target_fd, name, value)
        access_acl = self.attributes.get(acl.NAME)
        os.chmod(
            target_fd,
            mode if access_acl is None else mode & 0o3000 | acl.mode_without_acl(mode, access_acl),
        )
        if access_acl is not None:
            complete &= _set_attribute(target_fd, acl.NAME, access_acl)
        os.utime(target_fd, ns=(self.status.st_atime_ns, self.status.st_mtime_ns))
        return complete


def read(descriptor: int, status: os.stat_result) -> Metadata:
    """Return what an open file has. Raises OSError."""
    names = copied_attributes(descriptor)
    if not names:
        return Metadata(status, _NO_ATTRIBUTES)
    return Metadata(status, {name: os.getxattr(descriptor, name) for name in names if name != MARK})


def copied_attributes(descriptor: int) -> list[str]:
    """Return the names of those extended attributes of an open file that copies have, too.

    Raises OSError.
    """
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return []
        raise
    return [name for name in names if name.startswith(("user.", "trusted.")) or name in _ACLS]


def has_default_acl(directory_fd: int) -> bool:
    """Return whether what is made in an open directory gets an ACL. Raises OSError."""
    return _DEFAULT_ACL in copied_attributes(directory_fd)


def _set_attribute(target_fd: int, name: str, value: bytes) -> bool:
    try:
        os.setxattr(target_fd, name, value)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True
