"""Users and groups of this machine, as its name services know them."""

import grp
import os
import pwd


def groups_of(userid: int) -> frozenset[int]:
    """Return the groups that a user is in, by number; none for a user without an entry.

    Asked of the name service each time: a member who has left is none any more.
    """
    try:
        found = pwd.getpwuid(userid)
    except (KeyError, OverflowError):
        return frozenset()
    return frozenset(os.getgrouplist(found.pw_name, found.pw_gid))


def user_name(userid: int) -> str:
    """Return a user's name, or the number of one without."""
    try:
        return pwd.getpwuid(userid).pw_name
    except (KeyError, OverflowError):
        return str(userid)


def group_name(groupid: int) -> str:
    """Return a group's name, or the number of one without."""
    try:
        return grp.getgrgid(groupid).gr_name
    except (KeyError, OverflowError):
        return str(groupid)
