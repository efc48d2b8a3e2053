"""Processes that use a mount or a device, as /proc tells of them.

The kernel says that something is busy, and not by whom. It is looked for only then: that
goes over all that all processes have open. A process that was found is signalled through a
descriptor of it, so that never another one is met that has its id by then.
"""

import errno
import os
import pwd
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warren.node import bindings

_NAMED: Final = 3
"""Processes that a message names."""

_PROC: Final = Path("/proc")
_RING: Final = "anon_inode:[io_uring]"
_KERNELS_OWN: Final = (
    "/memfd:",
    "/SYSV",
    "/dev/zero (deleted)",
    "/anon_hugepage",
    "/dmabuf:",
    "/[",
)
"""How the names of files begin that have a mount of the kernel's alone: shared memory, mostly."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that keeps something busy."""

    id: int
    userid: int
    """The real one: what a set-user-id program cannot change."""
    name: str
    began: int
    """When it was started, in clock ticks: with the id, no other process has the same."""

    @property
    def command(self) -> str:
        """Its program and its user."""
        return f"{self.name} of {user_name(self.userid)}"

    def __str__(self) -> str:
        return f"process {self.id} ({self.command})"


def named(processes: Sequence[Process], most: int = _NAMED) -> str:
    """Return the words for some processes: the first of them, and how many there are more."""
    if not processes:
        return "something that /proc does not show"
    words = ", ".join(str(each) for each in processes[:most])
    more = len(processes) - most
    return f"{words} and {more} more" if more > 0 else words


def send(process: Process, signum: int) -> None:
    """Send a signal to a process, and to no other one that has its id by now."""
    with suppress(OSError):
        opened = os.pidfd_open(process.id)
        try:
            if _began(_PROC / str(process.id)) == process.began:
                signal.pidfd_send_signal(opened, signum)
        finally:
            os.close(opened)


def on_mounts(mounts: Collection[int]) -> list[Process]:
    """Return the processes with files or directories open on mounts, by the ids of these."""
    return [
        found
        for id in _processes()
        if any(each in mounts for each in _mounts_used(id)) and (found := process(id))
    ]


def on_devices(devices: Collection[str]) -> list[Process]:
    """Return the processes that use block devices or what is mounted of them.

    Of those that merely share a mount namespace in which it is mounted, only where all of
    them are one user's: the namespaces of nodes and of the machine are not theirs to answer for.
    """
    numbers = _numbers(devices)
    found = {}
    spaces: dict[int, list[Process]] = {}
    for id in _processes():
        known = process(id)
        if known is None:
            continue
        with suppress(OSError):
            spaces.setdefault((_PROC / str(id) / "ns" / "mnt").stat().st_ino, []).append(known)
        if any(each in numbers for each in _devices_used(id)):
            found[id] = known
    for members in spaces.values():
        alone = len({each.userid for each in members}) == 1
        if alone and not numbers.isdisjoint(_devices_mounted(members[0].id)):
            found |= {each.id: each for each in members}
    return [found[id] for id in sorted(found)]


def are_mounted_by_root(devices: Collection[str]) -> bool:
    """Return whether a process of root's sees one of some block devices mounted.

    So it is in the namespaces of the machine and of the nodes, and in none of a user's alone,
    also where that user has other ids in it (subuid(5)).
    """
    numbers = _numbers(devices)
    each_once = {
        _mount_namespace(id): id
        for id in _processes()
        if (known := process(id)) is not None and known.userid == 0
    }
    return any(not numbers.isdisjoint(_devices_mounted(id)) for id in each_once.values())


def _numbers(devices: Collection[str]) -> set[int]:
    numbers = set()
    for device in devices:
        with suppress(OSError):
            numbers.add(os.stat(device).st_rdev)
    return numbers


def of_user(userid: int) -> list[Process]:
    """Return all processes of a user."""
    known = (process(id) for id in sorted(_processes()))
    return [each for each in known if each is not None and each.userid == userid]


def hiding(userid: int) -> list[Process]:
    """Return the processes of a user that may use something without being seen to.

    They hold what /proc does not look into: descriptors that were sent to a socket and not
    received, mount namespaces, the files of an io_uring; or files of what is mounted nowhere
    any more, which may be made of others.
    """
    machine = _mount_namespace(os.getpid())
    spaces: dict[int, set[int]] = {}
    of_user = []
    for id in _processes():
        known = process(id)
        if known is None:
            continue
        space = _mount_namespace(id)
        spaces.setdefault(space, set()).add(known.userid)
        if known.userid == userid:
            of_user.append((known, space))
    return [
        known
        for known, space in of_user
        # Not the nodes' namespaces, which a process of root holds.
        if (space != machine and spaces[space] == {userid}) or _hides(known.id) or _strays(known.id)
    ]


def _hides(id: int) -> bool:
    for place in _tasks(id):
        for link in _entries(place / "fd"):
            with suppress(OSError):
                target = os.readlink(link)
                if target.startswith(("mnt:[", _RING)):
                    return True
                if target.startswith("socket:[") and _in_flight(place / "fdinfo" / link.name):
                    return True
                if bindings.is_unix(str(link)) and _untold(int(place.name), int(link.name)):
                    return True
        with suppress(OSError):
            # Closed, but still mapped.
            if _RING in (place / "maps").read_text(errors="replace"):
                return True
    return False


def _in_flight(entry: Path) -> bool:
    """Return whether descriptors wait in a socket to be received."""
    lines = entry.read_text().splitlines()
    return any(line.startswith("scm_fds:") and int(line.split()[1]) for line in lines)


def _strays(id: int) -> bool:
    """Return whether a process uses a file of a mount that is not in its namespace (any more).

    An overlay, for instance, that outlives the namespace in which it was made of a job's storage.
    """
    mounts = {mount for mount, _ in _mount_lines(id)}
    return any(mount not in mounts for link, mount in _files_used(id) if _is_mounted(link))


def _is_mounted(link: Path) -> bool:
    """Return whether a link leads to a file of something that is mounted."""
    try:
        target = os.readlink(link)
    except OSError:
        return False
    return target.startswith("/") and not target.startswith(_KERNELS_OWN)


def _untold(thread: int, descriptor: int) -> bool:
    """Return whether it cannot be told what a socket that is still there is bound to."""
    try:
        with bindings.bound_to(thread, descriptor):
            return False
    except OSError as error:
        return error.errno not in (errno.EBADF, errno.ESRCH)


def _names(place: Path) -> Iterator[int]:
    """Open, one after the other, the files that sockets of a thread are bound to."""
    for link in _entries(place / "fd"):
        if bindings.is_unix(str(link)):
            with suppress(OSError), bindings.bound_to(int(place.name), int(link.name)) as name:
                if name is not None:
                    yield name


def _mount_namespace(id: int) -> int:
    with suppress(OSError):
        return (_PROC / str(id) / "ns" / "mnt").stat().st_ino
    return 0


def _tasks(id: int) -> list[Path]:
    """Return the threads of a process: each may have descriptors and directories of its own."""
    return _entries(_PROC / str(id) / "task")


def _entries(directory: Path) -> list[Path]:
    with suppress(OSError):
        return list(directory.iterdir())
    return []


def _processes() -> Iterator[int]:
    for place in _PROC.iterdir():
        if place.name.isdecimal() and int(place.name) != os.getpid():
            yield int(place.name)


def process(id: int) -> Process | None:
    """Return a process as it is now; None if it has ended."""
    place = _PROC / str(id)
    try:
        status = (place / "status").read_text(errors="replace")
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return Process(
            id=id,
            userid=int(fields["Uid"].split()[0]),
            name=fields["Name"].strip(),
            began=_began(place),
        )
    except (OSError, KeyError, ValueError):
        return None


def _began(place: Path) -> int:
    return int((place / "stat").read_text(errors="replace").rpartition(")")[2].split()[19])


def _mounts_used(id: int) -> Iterator[int]:
    for place in _tasks(id):
        for entry in _entries(place / "fdinfo"):
            with suppress(OSError, ValueError):
                yield _mount_of(entry)
        for name in ("cwd", "root", "exe"):
            with suppress(OSError, ValueError):
                yield _mount_of_link(place / name)
        for opened in _names(place):
            with suppress(OSError, ValueError):
                yield _mount_of(_own(opened))


def _files_used(id: int) -> Iterator[tuple[Path, int]]:
    """Return links to the files that a process uses, mapped ones too, and their mounts' ids."""
    for place in _tasks(id):
        for link in [*(place / name for name in ("cwd", "root", "exe")), *_entries(place / "fd")]:
            with suppress(OSError, ValueError):
                yield link, _mount_of_link(link)
        for opened in _names(place):
            with suppress(OSError, ValueError):
                yield _PROC / "self" / "fd" / str(opened), _mount_of(_own(opened))
    for link in _entries(_PROC / str(id) / "map_files"):
        with suppress(OSError, ValueError):
            yield link, _mount_of_link(link)


def _mount_of_link(link: Path) -> int:
    opened = os.open(link, os.O_PATH | os.O_CLOEXEC)
    try:
        return _mount_of(_own(opened))
    finally:
        os.close(opened)


def _own(descriptor: int) -> Path:
    return _PROC / "self" / "fdinfo" / str(descriptor)


def _mount_of(entry: Path) -> int:
    for line in entry.read_text().splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    raise ValueError(entry)


def _devices_used(id: int) -> Iterator[int]:
    for place in _tasks(id):
        links = [place / name for name in ("cwd", "root", "exe")]
        for link in [*links, *_entries(place / "fd")]:
            with suppress(OSError):
                seen = link.stat()
                yield seen.st_dev
                yield seen.st_rdev
        for opened in _names(place):
            with suppress(OSError):  # a file system that has failed tells nothing
                yield os.fstat(opened).st_dev
        with suppress(OSError, ValueError):
            for line in (place / "maps").read_text(errors="replace").splitlines():
                major, _, minor = line.split(maxsplit=4)[3].partition(":")
                yield os.makedev(int(major, 16), int(minor, 16))


def _devices_mounted(process: int) -> Iterator[int]:
    for _, device in _mount_lines(process):
        yield device


def _mount_lines(process: int) -> Iterator[tuple[int, int]]:
    """Return the ids and devices of what a process sees mounted."""
    with suppress(OSError, ValueError):
        table = (_PROC / str(process) / "mountinfo").read_text(errors="replace")
        for line in table.splitlines():
            id, _, device = line.split(maxsplit=3)[:3]
            major, _, minor = device.partition(":")
            yield int(id), os.makedev(int(major), int(minor))


def user_name(userid: int) -> str:
    """Return the name of a user, or the words for one who has none."""
    try:
        return pwd.getpwuid(userid).pw_name
    except KeyError:
        return f"user {userid}"
