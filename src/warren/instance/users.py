"""Users: their names, and the groups that they are in, as the machine knows them."""

import asyncio
import grp
import os
import pwd
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec


class User(msgspec.Struct, frozen=True):
    """A user's name, if it has one, and the names of all its groups."""

    name: str | None
    groups: frozenset[str] = frozenset()


UserLookup = Callable[[int], Awaitable[User]]


_TIMEOUT: Final = 10.0
"""Seconds that a directory has to answer."""

# Threads of its own: a directory that does not answer must not keep the disk from being written.
_threads: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="users")


async def look_up_user(userid: int) -> User:
    """Return the user of an id, as it is known now. Raises TimeoutError if that takes long."""
    async with asyncio.timeout(_TIMEOUT):
        return await asyncio.get_running_loop().run_in_executor(_threads, _look_up, userid)


async def user_exists(userid: int) -> bool:
    """Return whether a user of this machine has an id; False, too, if it is not known in time."""
    try:
        return (await look_up_user(userid)).name is not None
    except TimeoutError:
        return False


def _look_up(userid: int) -> User:
    try:
        entry = pwd.getpwuid(userid)
    except KeyError:
        return User(None)
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return User(entry.pw_name, frozenset(_names(groups)))


def _names(groups: Iterable[int]) -> Iterator[str]:
    for group in groups:
        try:
            yield grp.getgrgid(group).gr_name
        except KeyError:
            continue  # one without a name is not what a configuration can mean


def unknown_names(users: Iterable[str], groups: Iterable[str]) -> Iterator[str]:
    """Return those of the names that no user and no group has."""
    for find, names in ((pwd.getpwnam, users), (grp.getgrnam, groups)):
        for name in names:
            try:
                find(name)
            except KeyError:
                yield name
