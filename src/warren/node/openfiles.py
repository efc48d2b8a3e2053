"""What one process has open, as /proc tells of it.

Each of these questions may never be answered: they are asked in a child (`base/childcalls.py`).
Nothing is asked of the file systems that files are in, which may be no better.
"""

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from warren.base import mountinfo
from warren.base.processes import process_status
from warren.node import unixsockets
from warren.node.mountpoints import fd_mount_id, fdinfo_mount_id

_PROC: Final = Path("/proc")
_IO_URING: Final = "anon_inode:[io_uring]"
_KERNEL_FILES: Final = (
    "/memfd:",
    "/SYSV",
    "/dev/zero (deleted)",
    "/anon_hugepage",
    "/dmabuf:",
    "/[",
)
"""How the names of files begin that have a mount of the kernel's alone: shared memory, mostly."""

_AT_FDCWD: Final = -100
_AT_STATX_DONT_SYNC: Final = 0x4000
"""What the kernel knows is enough: no server is asked."""
_STATX_SIZE: Final = 256
_RDEV_AT: Final = 128
"""Where struct statx has the two parts of stx_rdev, and then those of stx_dev (linux/stat.h)."""
_statx: Final = ctypes.CDLL(None, use_errno=True).statx

ProcessFacts = tuple[int, str, int]
"""Of a process: the real user, the name, and when it began, in clock ticks."""


def facts_and_answer(pid: int, question: str, *args: Any) -> tuple[ProcessFacts, Any] | None:
    """Return what a process is and what a function of this module answers about it.

    None if it has ended.
    """
    facts = process_facts(pid)
    return facts and (facts, globals()[question](pid, *args))


def process_facts(pid: int) -> ProcessFacts | None:
    """Return what a process is; None if it has ended."""
    try:
        fields = process_status(_PROC / str(pid))
        return int(fields["Uid"].split()[0]), fields["Name"], _start_time(pid)
    except (OSError, KeyError, ValueError):
        return None


def send_signal(process: tuple[int, int], signum: int) -> None:
    """Send a signal to a process that began when it is said to, and to no other of its id."""
    pid, start_time = process
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _start_time(pid) == start_time:
                signal.pidfd_send_signal(pidfd, signum)
        finally:
            os.close(pidfd)


def uses_mounts(pid: int, mounts: Collection[int]) -> bool:
    """Return whether a process has files or directories of mounts open, by the ids of these."""
    return any(each in mounts for each in _mounts_used(pid))


def uses_devices(pid: int, devices: Collection[int]) -> tuple[int, bool]:
    """Return a process's mount namespace, and whether it has anything of devices open."""
    return mount_namespace(pid), any(each in devices for each in _devices_used(pid))


def may_hide_files(pid: int, userid: int) -> tuple[int, bool]:
    """Return a process's mount namespace, and whether it may use something without being seen to.

    The latter is looked for in processes of one user only.
    """
    facts = process_facts(pid)
    hides = (
        facts is not None
        and facts[0] == userid
        and (_has_hidden_files(pid) or _uses_unmounted_files(pid))
    )
    return mount_namespace(pid), hides


def mount_namespace(pid: int) -> int:
    """Return the number of a process's mount namespace, 0 if it has none any more."""
    with suppress(OSError):
        return (_PROC / str(pid) / "ns" / "mnt").stat().st_ino
    return 0


def _has_hidden_files(pid: int) -> bool:
    for thread_directory in _threads(pid):
        for link in _entries(thread_directory / "fd"):
            with suppress(OSError):
                target = os.readlink(link)
                if target.startswith(("mnt:[", _IO_URING)):
                    return True
                if target.startswith("socket:[") and _has_descriptors_in_flight(
                    thread_directory / "fdinfo" / link.name
                ):
                    return True
                if _is_unix(link) and _has_unknown_binding(
                    int(thread_directory.name), int(link.name)
                ):
                    return True
        with suppress(OSError):
            # Closed, but still mapped.
            if _IO_URING in (thread_directory / "maps").read_text(errors="replace"):
                return True
    return False


def _has_descriptors_in_flight(fdinfo: Path) -> bool:
    """Return whether descriptors wait in a socket to be received."""
    lines = fdinfo.read_text(errors="replace").splitlines()
    return any(line.startswith("scm_fds:") and int(line.split()[1]) for line in lines)


def _uses_unmounted_files(pid: int) -> bool:
    """Return whether a process uses a file of a mount that is not in its namespace (any more).

    An overlay, for instance, that outlives the namespace in which it was made of a job's storage.
    What is the machine's keeps no storage: shells of jobs have its files open on their nodes.
    """
    try:
        mounts = {mount for each in (pid, os.getpid()) for mount, _ in mounted_devices(each)}
    except OSError:
        return False  # nothing is known, by what may be another user's doing
    return any(mount not in mounts for link, mount in _files_used(pid) if _is_mounted(link))


def _is_mounted(link: Path) -> bool:
    """Return whether a link leads to a file of something that is mounted."""
    try:
        target = os.readlink(link)
    except OSError:
        return False
    return target.startswith("/") and not target.startswith(_KERNEL_FILES)


def _has_unknown_binding(thread: int, descriptor: int) -> bool:
    """Return whether it cannot be told what a socket that is still there is bound to."""
    try:
        with unixsockets.open_bound_file(thread, descriptor):
            return False
    except OSError as error:
        return error.errno not in (errno.EBADF, errno.ESRCH)


def _is_unix(link: Path) -> bool:
    # Only sockets are asked for what they are: a file's server would be asked, and need not answer.
    try:
        return os.readlink(link).startswith("socket:[") and unixsockets.is_unix(str(link))
    except OSError:
        return False


def _bound_files(thread_directory: Path) -> Iterator[int]:
    """Open, one after the other, the files that sockets of a thread are bound to."""
    for link in _entries(thread_directory / "fd"):
        if _is_unix(link):
            with (
                suppress(OSError),
                unixsockets.open_bound_file(
                    int(thread_directory.name), int(link.name)
                ) as descriptor,
            ):
                if descriptor is not None:
                    yield descriptor


def _threads(pid: int) -> list[Path]:
    """Return the threads of a process: each may have descriptors and directories of its own."""
    return _entries(_PROC / str(pid) / "task")


def _entries(directory: Path) -> list[Path]:
    with suppress(OSError):
        return list(directory.iterdir())
    return []


def _start_time(pid: int) -> int:
    return int(
        (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    )


def _mounts_used(pid: int) -> Iterator[int]:
    for thread_directory in _threads(pid):
        for fdinfo in _entries(thread_directory / "fdinfo"):
            with suppress(OSError, ValueError):
                yield fdinfo_mount_id(fdinfo)
        for name in ("cwd", "root", "exe"):
            with suppress(OSError, ValueError):
                yield _mount_of_link(thread_directory / name)
        for descriptor in _bound_files(thread_directory):
            with suppress(OSError, ValueError):
                yield fd_mount_id(descriptor)
    for link in _mapped_files(pid):  # which need no descriptor any more
        with suppress(OSError, ValueError):
            yield _mount_of_link(link)


def _mapped_files(pid: int) -> Iterator[Path]:
    """Return links to the files that a process has mapped: one of each, of several parts."""
    directory = _PROC / str(pid)
    files: set[tuple[bytes, bytes]] = set()
    with suppress(OSError):
        for line in (directory / "maps").read_bytes().split(b"\n"):
            fields = line.split(maxsplit=5)
            if len(fields) < 5 or fields[4] == b"0" or (fields[3], fields[4]) in files:
                continue  # memory, or the rest of a name with a line feed
            files.add((fields[3], fields[4]))
            start, _, end = fields[0].partition(b"-")
            with suppress(ValueError):
                yield directory / "map_files" / f"{int(start, 16):x}-{int(end, 16):x}"


def _files_used(pid: int) -> Iterator[tuple[Path, int]]:
    """Return links to the files that a process uses, mapped ones too, and their mounts' ids."""
    for thread_directory in _threads(pid):
        for link in [
            *(thread_directory / name for name in ("cwd", "root", "exe")),
            *_entries(thread_directory / "fd"),
        ]:
            with suppress(OSError, ValueError):
                yield link, _mount_of_link(link)
        for descriptor in _bound_files(thread_directory):
            with suppress(OSError, ValueError):
                yield _PROC / "self" / "fd" / str(descriptor), fd_mount_id(descriptor)
    for link in _entries(_PROC / str(pid) / "map_files"):
        with suppress(OSError, ValueError):
            yield link, _mount_of_link(link)


def _mount_of_link(link: Path) -> int:
    descriptor = os.open(link, os.O_PATH | os.O_CLOEXEC)
    try:
        return fd_mount_id(descriptor)
    finally:
        os.close(descriptor)


def _devices_of(link: Path) -> tuple[int, int]:
    """Return the device that a file is on, and the one that it is."""
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if _statx(_AT_FDCWD, os.fsencode(link), _AT_STATX_DONT_SYNC, 0, buffer) != 0:
        raise OSError(ctypes.get_errno(), str(link))
    major, minor, on_major, on_minor = struct.unpack_from("=4I", buffer, _RDEV_AT)
    return os.makedev(on_major, on_minor), os.makedev(major, minor)


def _devices_used(pid: int) -> Iterator[int]:
    for thread_directory in _threads(pid):
        links = [thread_directory / name for name in ("cwd", "root", "exe")]
        for link in [*links, *_entries(thread_directory / "fd")]:
            with suppress(OSError):
                yield from _devices_of(link)
        for descriptor in _bound_files(thread_directory):
            with suppress(OSError):  # a file system that has failed tells nothing
                yield from _devices_of(_PROC / "self" / "fd" / str(descriptor))
        with suppress(OSError, ValueError):
            # Names of files may hold all that ends a line elsewhere, but for the line feed.
            for line in filter(None, (thread_directory / "maps").read_bytes().split(b"\n")):
                major, _, minor = line.split(maxsplit=4)[3].partition(b":")
                yield os.makedev(int(major, 16), int(minor, 16))


def mounted_devices(pid: int) -> Iterator[tuple[int, int]]:
    """Yield the ids and devices of what a process sees mounted; none if it has ended.

    Raises OSError where that is not known.
    """
    try:
        yield from mountinfo.read_devices(_PROC / str(pid))
    except OSError as error:
        if error.errno not in mountinfo.ENDED:
            raise
