"""The credentials of a copier: its user's for files, and an unused id's in all else.

A process that had the user's ids could be stopped, traced and killed by the user, whose copies
share their slots with others. One whose real, effective and saved ids are others' cannot; what
it may do to files is said by two ids that Linux keeps apart for file servers (ADR 029).
"""

import ctypes
import os
import pwd
from typing import Final

from warren.base import userlimits

_PR_SET_DUMPABLE: Final = 4
_PR_SET_KEEPCAPS: Final = 8
_PR_CAPBSET_DROP: Final = 24
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522
_CAP_SETUID: Final = 1 << 7
_GREATEST_ID: Final = 2**32 - 3
"""The greatest id that means no user: of the two after it one is no id, and the other is the
`nobody` of some systems."""
_NO_ID: Final = -1
"""What is no id: `setfsuid` changes nothing then, and tells the one that there is."""

_libc = ctypes.CDLL(None, use_errno=True)


def become_file_user(userid: int, groupid: int) -> None:
    """Be a user where files are concerned, for good.

    Holds for this thread and for those that it starts: call it while there is no other. A user
    who is not root stays that, as does the root of a namespace of one user, and root for
    itself. All but the last go without any capability from then on. Raises OSError.
    """
    changes_user = os.geteuid() == 0 and userid != 0 and not _is_only_user()
    # A tree that its user's file server makes up has no end; the memory for it has one.
    userlimits.raise_oom_score()
    userlimits.limit_copier_memory()
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability):
        capability += 1
    if changes_user:
        _set_file_ids(userid, groupid)
    if changes_user or userid != 0 or _is_only_user():
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        _limit_capabilities(0)
    _raise_unless(_prctl(_PR_SET_NO_NEW_PRIVS, 1))


def become_user(userid: int, groupid: int) -> None:
    """Be a user in all, for good: for programs that are not ours, which have only one user.

    What `become_file_user` says of root and of others than root holds here, too. Raises OSError.
    """
    changes_user = os.geteuid() == 0 and userid != 0 and not _is_only_user()
    # The user may trace such a program, and so have it do anything.
    userlimits.raise_oom_score()
    if changes_user:
        userlimits.limit_processes()
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability):
        capability += 1
    if changes_user:
        _set_groups(userid, groupid)
        os.setresgid(groupid, groupid, groupid)
        os.setresuid(userid, userid, userid)  # all capabilities go with it
    if changes_user or userid != 0 or _is_only_user():
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
        _limit_capabilities(0)
    _raise_unless(_prctl(_PR_SET_NO_NEW_PRIVS, 1))


def file_user() -> int:
    """Return whose files this thread makes."""
    return int(_libc.setfsuid(_NO_ID)) & 0xFFFFFFFF


def file_group() -> int:
    """Return the group of the files that this thread makes."""
    return int(_libc.setfsgid(_NO_ID)) & 0xFFFFFFFF


def _set_groups(userid: int, groupid: int) -> None:
    try:
        os.initgroups(pwd.getpwuid(userid).pw_name, groupid)
    except KeyError:
        os.setgroups([groupid])


def _set_file_ids(userid: int, groupid: int) -> None:
    _set_groups(userid, groupid)
    # Not root's: some files of /proc/sys look at these ids, and not at those for files.
    unused_gid, unused_uid = _unused_id("gid", groupid), _unused_id("uid", userid)
    os.setresgid(unused_gid, unused_gid, unused_gid)
    _libc.setfsgid(groupid)
    # The change of user takes all capabilities, and the next line needs one.
    _raise_unless(_prctl(_PR_SET_KEEPCAPS, 1))
    os.setresuid(unused_uid, unused_uid, unused_uid)
    _limit_capabilities(_CAP_SETUID)
    _libc.setfsuid(userid)
    # Nothing of it below /proc is another user's than root's.
    _raise_unless(_prctl(_PR_SET_DUMPABLE, 0))
    # They do not say whether they have succeeded.
    if (file_user(), file_group()) != (userid, groupid):
        raise PermissionError(f"files cannot be made for user {userid} and group {groupid} here")


def _unused_id(kind: str, file_id: int) -> int:
    """Return the last id that there is here, or the one before it if that is `file_id`."""
    with open(f"/proc/self/{kind}_map") as table:
        ranges = [[int(word) for word in line.split()] for line in table]
    highest = min(max(first + count - 1 for first, _, count in ranges), _GREATEST_ID)
    return highest if highest != file_id else highest - 1


def _is_only_user() -> bool:
    """Return whether root here is an ordinary user outside, and there is no other user to be."""
    with open("/proc/self/uid_map") as table:
        return sum(int(line.split()[2]) for line in table) == 1


def _limit_capabilities(capabilities: int) -> None:
    """Have no other capabilities than these, of the first 32."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(capabilities, capabilities, 0, 0, 0, 0)
    _raise_unless(_libc.capset(header, sets) == 0)


def _prctl(option: int, value: int) -> bool:
    zero = ctypes.c_ulong(0)
    return int(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero)) == 0


def _raise_unless(succeeded: bool) -> None:
    if not succeeded:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
