"""The memory that containers of pods may take: each has a cgroup, in its user's, in one of all.

What a container has written into a tmpfs counts as its cgroup's. It may outlive the container, by
a descriptor that was passed to another process, and counts then as what its user's cgroup has. So
that one stays, with its limit, as long as the cluster does, and the user has less for the next.

Where version 2 of cgroups has a memory controller, it is taken; or else version 1 (cgroups(7)).

One is taken only where it is this user's, and all above it are this user's or root's
(`base/cgrouptrees.py`).
"""

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from warren.base import cgrouptrees
from warren.node.threads import in_thread

NO_CONTROLLER: Final = "this user may make no cgroups that have a memory controller"

_CONTROL: Final = "cgroup.subtree_control"

_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 0.8)
"""Seconds before each time that a cgroup is tried to be removed again."""


class Limits(NamedTuple):
    """Bytes of memory that containers on this machine may have together."""

    total: int
    user: int
    """Those of one user."""


class _Write(NamedTuple):
    """A value for a file of a cgroup."""

    file: str
    value: str
    tolerated: tuple[int, ...] = ()
    """Errors that are no failure."""


def limit_writes(version: int, limit: int) -> list[_Write]:
    """Return what limits a cgroup to so many bytes, of which none are swapped out."""
    if version == 2:
        # Without swap there is no such file.
        return [_Write("memory.max", str(limit)), _Write("memory.swap.max", "0", (errno.ENOENT,))]
    memory = _Write("memory.limit_in_bytes", str(limit))
    both = _Write("memory.memsw.limit_in_bytes", str(limit), (errno.ENOENT, errno.EBUSY))
    # The limit of both is never less than that of memory, whichever of the two is changed first. A
    # limit that is less than what is taken is refused (EBUSY): the old one holds then.
    early = memory._replace(tolerated=(errno.EINVAL, errno.EBUSY))
    return [early, both, memory._replace(tolerated=(errno.EBUSY,))]


class PodMemory:
    """Makes the cgroups of a cluster's containers. What fails raises OSError."""

    def __init__(self, base: Path, version: int, limits: Limits) -> None:
        self._base = base
        self._version = version
        self._limits = limits

    def make(self, pod: str, number: int, userid: int, limit: int | None) -> Path:
        """Make the cgroup of a pod's container of that number, unless it is there; return it.

        Without a limit of its own it has what its user has.
        """
        container = self.path(pod, number, userid)
        user = container.parent
        for directory, bytes_ in ((self._base, self._limits.total), (user, self._limits.user)):
            self._make_one(directory, bytes_)
            if self._version == 2:
                _write(directory, _Write(_CONTROL, "+memory"))
        self._make_one(container, limit)
        if self._version == 2:
            # What is left of a container that lacks one of its processes is of no use. Before
            # Linux 4.19 there is no such file.
            _write(container, _Write("memory.oom.group", "1", (errno.ENOENT,)))
        return container

    def path(self, pod: str, number: int, userid: int) -> Path:
        """Return where the cgroup of a pod's container is, or will be."""
        return self._base / str(userid) / f"{pod}-{number}"

    def _make_one(self, directory: Path, limit: int | None) -> None:
        directory.mkdir(exist_ok=True)
        if not cgrouptrees.is_of(directory, {os.geteuid()}):
            raise PermissionError(errno.EPERM, "this cgroup is another user's", str(directory))
        for each in limit_writes(self._version, limit) if limit is not None else ():
            _write(directory, each)


def find(cluster: str, limits: Limits, proc: Path = Path("/proc/self")) -> PodMemory | None:
    """Return the memory of a cluster's pods; None where this process cannot bound any."""
    # What is there already goes on, wherever this process has been started.
    existing = [(base.parent, version) for base, version in _bases(cluster, proc)]
    for directory, version in (*existing, *_places(proc)):
        base = directory / _name(cluster)
        memory = PodMemory(base, version, limits)
        try:
            # A process is moved by a user that may write at both ends and where they meet.
            if os.access(directory / "cgroup.procs", os.W_OK):
                memory._make_one(base, limits.total)
                return memory
        except OSError:
            with suppress(OSError):
                base.rmdir()
    return None


def remove(cgroups: Iterable[str]) -> bool:
    """Remove cgroups in which nothing runs, in their order; return whether all are gone."""
    are_gone = True
    for cgroup in cgroups:
        try:
            os.rmdir(cgroup)
        except FileNotFoundError:
            pass
        except OSError:
            are_gone = False
    return are_gone


def remove_all(cluster: str, proc: Path = Path("/proc/self")) -> bool:
    """Remove the cgroups of a cluster's containers, as `remove` does."""
    return remove(
        directory
        for base, _ in _bases(cluster, proc)
        for directory, _, _ in os.walk(base, topdown=False)
    )


async def remove_of_killed(removal: Callable[[], bool]) -> None:
    """Remove cgroups of what was just killed: it is gone in a moment, unless somebody traces it.

    `removal` returns whether there was nothing in the way.
    """
    for pause in _PAUSES:
        if await in_thread(removal):
            return
        await asyncio.sleep(pause)
    await in_thread(removal)


def _name(cluster: str) -> str:
    return f"warren-{hashlib.sha256(cluster.encode()).hexdigest()[:16]}-pods"


def _bases(cluster: str, proc: Path) -> list[tuple[Path, int]]:
    """Return the cgroups that those of a cluster's containers are in, wherever, and the version."""
    name = _name(cluster)
    tops = dict.fromkeys((top, version) for top, _, version in _hierarchies(proc))
    return [
        (base, version)
        for top, version in tops
        for base in cgrouptrees.find_named(top, name, _trusted_userids())
        if cgrouptrees.is_of(base, {os.geteuid()})
    ]


def _trusted_userids() -> Collection[int]:
    return {0, os.geteuid()}


def _places(proc: Path) -> Iterator[tuple[Path, int]]:
    """Return the cgroups that may have some whose memory is limited, the best first.

    They are this process's own, or the nearest one above that has its children's memory counted:
    one that has processes cannot begin with that (cgroups(7), "no internal processes").
    """
    for top, own_directory, version in _hierarchies(proc):
        trusted = cgrouptrees.trusted_upwards(own_directory, top, _trusted_userids())
        if version == 1:
            for directory in trusted[:1]:
                yield directory, version
            continue
        if own_directory in trusted:
            with suppress(OSError):
                if "memory" in (own_directory / "cgroup.controllers").read_text().split():
                    _write(own_directory, _Write(_CONTROL, "+memory", (errno.EBUSY,)))
        for directory in trusted:
            with suppress(OSError):
                if "memory" in (directory / _CONTROL).read_text().split():
                    yield directory, version


def _hierarchies(proc: Path) -> Iterator[tuple[Path, Path, int]]:
    """Return the hierarchies that may have a memory controller, the best first.

    Of each where it is mounted, where this process is in it, and its version.
    """
    for version, controller in ((2, ""), (1, "memory")):
        for top, own_directory in cgrouptrees.find(version, controller, proc):
            yield top, own_directory, version


def _write(directory: Path, write: _Write) -> None:
    try:
        descriptor = os.open(directory / write.file, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.write(descriptor, write.value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in write.tolerated:
            raise
