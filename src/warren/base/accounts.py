"""Users and groups of this machine, as its name services know them."""

import grp
import os
import pwd


def groups_of(userid: int) -> frozenset[int]:
    """Return the groups that a user is in, by number; none for a user without an entry.

    The name service is asked each time: a user that has left a group is not in it any more.
    """
    try:
        entry = pwd.getpwuid(userid)
    except (KeyError, OverflowError):
        return frozenset()
    return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))


def user_name(userid: int) -> str:
    """Return a user's name; of a user without an entry, the number."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return str(userid)


def group_name(groupid: int) -> str:
    """Return a group's name; of a group without an entry, the number."""
    try:
        return grp.getgrgid(groupid).gr_name
    except (KeyError, OverflowError):
        return str(groupid)
