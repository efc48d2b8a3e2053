"""File systems that users have mounted on a node (FUSE), and that go when they have nothing there.

fusermount(1) mounts for any user, in the node's mount namespace. What is mounted does not go with
its server: others find a dead mount where their files were, and FUSE mounts only so many.
"""

import errno
import heapq
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple

from warren.base import mountinfo
from warren.base.mountinfo import Mount
from warren.node.detaching import detach

AskAbsent = Callable[[Sequence[int]], Collection[int]]
"""Return those of some users who have nothing on the node now, by their ids."""

_TYPES: Final = ("fuse", "fuseblk")
_USER_OPTION: Final = "user_id="
_ROOT: Final = 0
_MOST_CHARACTERS: Final = 2**22
"""Of all paths that are kept: the shortest ones, which keep others out."""


class UserMount(NamedTuple):
    """What is kept of a mount."""

    id: int
    parent_id: int
    device: int
    userid: int | None
    """Who has mounted it; None where it is not FUSE."""
    point: str | None
    """None where it is not needed, or too long."""


def detach_left(
    node: str, node_table: BinaryIO, machine_table: BinaryIO, ask_absent: AskAbsent
) -> int:
    """Detach what users have left mounted in this process's namespace; return how many mounts.

    The tables are those of the node's namespace and of the machine's, as files of mountinfo.
    Nothing is detached of root, nor what was not there when it was asked who is absent: a job of
    theirs may have begun since. It may wait for ever, where paths lead over what does not answer.
    """
    errors: list[OSError] = []
    mounts = read(_until_error(node_table, errors))
    # After the other: what the machine mounts meanwhile comes to the node, too.
    machine_devices = {each.device for each in _until_error(machine_table, errors)}
    userids = {
        mount.userid
        for mount in mounts
        if mount.userid is not None and mount.device not in machine_devices
    }
    candidates = sorted(userids - {_ROOT})
    absent = ask_absent(candidates) if candidates else ()
    detached = 0
    for mount in left_behind(mounts, machine_devices, absent):
        if mount.point is None:
            errors.append(OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG)))
            continue
        try:
            detached += detach(mount.id, mount.point, mount.device)
        except OSError as error:
            errors.append(error)
    if errors:
        why = errors[0].strerror
        print(f"{node}: mounts of users may stay: {why}", file=sys.stderr, flush=True)
    return detached


def _until_error(table: BinaryIO, errors: list[OSError]) -> Iterator[Mount]:
    """Yield the mounts of a table, up to a line that the kernel cannot write, if there is one.

    A user can have one; what has been mounted before it is seen to all the same.
    """
    try:
        yield from mountinfo.read_each(table)
    except OSError as error:
        errors.append(error)


def read(table: Iterable[Mount]) -> list[UserMount]:
    """Return all mounts of a table, of which users choose the size, as far as they are kept."""
    mounts: list[UserMount] = []
    kept: list[tuple[int, int]] = []
    """The lengths of paths, negated, with their places: the longest one first."""
    characters = 0
    for mount in table:
        userid = _userid(mount)
        point = None if userid is None else mount.point or None
        if point is not None:
            characters += len(point)
            heapq.heappush(kept, (-len(point), len(mounts)))
        mounts.append(UserMount(mount.id, mount.parent_id, mount.device, userid, point))
        while characters > _MOST_CHARACTERS:
            length, place = heapq.heappop(kept)
            characters += length
            mounts[place] = mounts[place]._replace(point=None)
    return mounts


def left_behind(
    mounts: Sequence[UserMount], machine_devices: Collection[int], absent_userids: Collection[int]
) -> list[UserMount]:
    """Return those of a node's mounts that are of absent users, in the order to detach.

    What the machine has mounted as well came from there, whatever its path on the node. Left out is
    also what is below a mount of a user's that stays, whose server might never answer who goes
    there; and what has any mounted in it that stays, FUSE or not, which would go with it.
    """
    left: list[UserMount] = []
    staying: list[UserMount] = []
    for mount in mounts:
        is_left = mount.device not in machine_devices and mount.userid in absent_userids
        (left if is_left else staying).append(mount)
    if not left:
        return []
    carrying = _ancestors(staying, {mount.id: mount for mount in left})
    staying += [mount for mount in left if mount.id in carrying]
    prefixes = tuple(f"{each.point}/" for each in staying if each.userid and each.point)
    left = [
        mount
        for mount in left
        if mount.id not in carrying and not (mount.point or "").startswith(prefixes)
    ]
    # The shortest path first: none that is long holds up what is in the way of many. What is in
    # others goes with them, and of several at one point the last is on top.
    return sorted(reversed(left), key=lambda each: len(each.point or ""))


def _ancestors(mounts: Iterable[UserMount], candidates: dict[int, UserMount]) -> set[int]:
    """Return the ids of those of `candidates` that others are mounted in, at whatever depth."""
    ancestors: set[int] = set()
    for mount in mounts:
        parent_id = mount.parent_id
        while parent_id in candidates and parent_id not in ancestors:
            ancestors.add(parent_id)
            parent_id = candidates[parent_id].parent_id
    return ancestors


def _userid(mount: Mount) -> int | None:
    """Return the user who has mounted a FUSE file system; None for another."""
    if mount.type.partition(".")[0] not in _TYPES:
        return None
    for option in mount.super_options.split(","):
        userid = option.removeprefix(_USER_OPTION)
        if userid != option and userid.isdecimal():
            return int(userid)
    return None
