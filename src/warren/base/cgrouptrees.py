"""The hierarchies of cgroups that this machine has (cgroups(7)).

A user that cgroups have been delegated to can make one of any name, and has power over all that is
in it. So one is taken for a cluster's only where no other user has power over it: it and all above
it are root's, or of the user whose cluster it is.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from warren.base import mountinfo
from warren.base.mountinfo import Mount


def find(version: int, controller: str, proc: Path) -> Iterator[tuple[Path, Path]]:
    """Return where hierarchies of a version are mounted, and where a process is in each.

    The process is that of a directory of /proc. Of version 1, these are the hierarchies of a
    controller; version 2 has one, whose controllers are another question: `controller` is empty.
    """
    mount_type = "cgroup2" if version == 2 else "cgroup"
    try:
        lines = os.fsdecode((proc / "cgroup").read_bytes()).split("\n")
        memberships = [line.split(":", 2) for line in lines if line]
    except OSError:
        return
    for mount in _mounts(proc):
        if mount.type != mount_type:
            continue
        if controller and controller not in mount.super_options.split(","):
            continue
        for _, controllers, path in memberships:
            if controller in controllers.split(",") and Path(path).is_relative_to(mount.root):
                relative = Path(path).relative_to(mount.root)
                yield Path(mount.point), Path(mount.point) / relative


def _mounts(proc: Path) -> Iterator[Mount]:
    """Yield what a process has mounted, up to a line that the kernel cannot write, if there is one.

    Such are users' mounts. Cgroups are mounted before there are users.
    """
    with suppress(OSError), mountinfo.open_table(proc) as table:
        yield from mountinfo.read_each(table)


def find_named(top: Path, name: str, userids: Collection[int]) -> Iterator[Path]:
    """Return the cgroups of a name in a hierarchy that nobody but these users has power over."""
    if not is_of(top, userids):
        return
    for directory, names, _ in os.walk(top):
        # What is below another user's is not looked at: they may have made very many.
        names[:] = [each for each in names if is_of(Path(directory, each), userids)]
        if name in names:
            yield Path(directory, name)


def trusted_upwards(directory: Path, top: Path, userids: Collection[int]) -> list[Path]:
    """Return a cgroup and those above it, the innermost first, but for those in another user's."""
    directories = [directory, *directory.parents]
    downwards = reversed(directories[: directories.index(top) + 1])
    return list(takewhile(lambda each: is_of(each, userids), downwards))[::-1]


def is_of(directory: Path, userids: Collection[int]) -> bool:
    """Return whether a cgroup is one of these users'; one that is gone is nobody's."""
    with suppress(OSError):
        return directory.lstat().st_uid in userids
    return False
