"""FUSE file systems whose server does not answer, for which processes do not die.

A process that waits for a request which the server has read cannot be killed until it is
answered. FUSE's control file system lets root give up such a server: all that waits for it fails
(Documentation/filesystems/fuse.rst of Linux).
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from warren.base.childcalls import SILENT, call_in_child
from warren.base.processes import ids_of_user, process_status, threads

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""The numbers of the system calls."""
_CLOEXEC: Final = 1
"""FSOPEN_CLOEXEC, and FSMOUNT_CLOEXEC."""
_FSCONFIG_CMD_CREATE: Final = 6
_FUSE_WAIT_CHANNELS: Final = ("request_wait_answer", "fuse_")
"""Where Linux waits for a server's answer, as /proc/PID/task/TID/wchan begins (proc(5))."""
_CONTROL: Final = Path("/sys/fs/fuse/connections")
"""Where the control file system usually is, with a directory for each FUSE file system."""
_CONTROL_MAGIC: Final = 0x65735543
"""FUSE_CTL_SUPER_MAGIC, the type by which statfs(2) knows it."""
_SYSFS_MAGIC: Final = 0x62656572
_STATFS_BYTES: Final = 256
"""More than its answer takes, which begins with the type."""
_libc: Final = ctypes.CDLL(None, use_errno=True)
_syscall: Final = _libc.syscall


def may_be_mounted() -> bool:
    """Return whether there may be any FUSE file system on this machine, in whatever namespace.

    It takes no longer if there are many.
    """
    if _file_system_type(_CONTROL) != _CONTROL_MAGIC:
        # Where Linux has not loaded FUSE, sysfs has no place for it. Else it is not known.
        place = _CONTROL.parent
        return place.exists() or _file_system_type(place.parent) != _SYSFS_MAGIC
    with os.scandir(_CONTROL) as connections:
        return next(connections, None) is not None


def _file_system_type(path: Path) -> int | None:
    """Return the type by which statfs(2) knows the file system at a path; None if it does not."""
    answer = (ctypes.c_long * (_STATFS_BYTES // ctypes.sizeof(ctypes.c_long)))()
    return answer[0] if _libc.statfs(os.fsencode(path), answer) == 0 else None


def abort_servers(pids: Iterable[int], userid: int, proc: Path = Path("/proc")) -> list[int]:
    """Abort those of a user's servers that processes may wait for; return their devices.

    Where a thread waits in FUSE and cannot be killed, these are all of the user's servers, for
    what it waits for may be mounted nowhere any more; and those of the subordinate ids of its
    user namespace. Those of root and of other users are left alone, also where the thread sees
    them. Without the right to do so, none are aborted. It takes a second where a thread does
    not answer.
    """
    waiting = [
        str(thread) for pid in pids for thread in threads(proc / str(pid)) if _is_waiting(thread)
    ]
    answers = call_in_child(wait_channel, waiting)
    # What waits for FUSE in the middle of execve(2) does not even answer what it waits for.
    stuck = [
        Path(thread)
        for thread, answer in zip(waiting, answers, strict=True)
        if answer is SILENT or answer.startswith(_FUSE_WAIT_CHANNELS)
    ]
    if not stuck or userid == 0:
        return []
    user_ids = ids_of_user(userid, stuck, proc / "self")
    with suppress(OSError), _open_control() as control:
        devices = sorted(int(each) for each in os.listdir(control))
        return [each for each in devices if _abort(control, each, user_ids)]
    return []


def _is_waiting(thread: Path) -> bool:
    """Return whether a thread waits and cannot be killed."""
    try:
        status = process_status(thread)
        state = status["State"][0]
    except (OSError, KeyError):
        return False
    # What exits by itself, and closes its files, gets no signal any more: it has no memory then.
    return state == "D" or (state == "S" and "VmSize" not in status)


def wait_channel(thread: str) -> str:
    """Return where a thread waits in the kernel (proc_pid_wchan(5)). It may never answer."""
    try:
        return Path(thread, "wchan").read_text()
    except OSError:
        return ""


@contextmanager
def _open_control() -> Iterator[int]:
    """Open the control file system, mounted nowhere. Raises OSError."""
    context = _call(_FSOPEN, b"fusectl", _CLOEXEC)
    try:
        _call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        mount = _call(_FSMOUNT, context, _CLOEXEC, 0)
        try:
            root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=mount)
        finally:
            os.close(mount)
    finally:
        os.close(context)
    try:
        yield root
    finally:
        os.close(root)


def _abort(control: int, device: int, user_ids: Sequence[range]) -> bool:
    try:
        descriptor = os.open(f"{device}/abort", os.O_WRONLY | os.O_CLOEXEC, dir_fd=control)
    except OSError:
        return False  # it is gone
    try:
        status = os.fstat(descriptor)
        is_theirs = status.st_uid != 0 and any(status.st_uid in each for each in user_ids)
        if not is_theirs or not stat.S_ISREG(status.st_mode):
            return False
        os.write(descriptor, b"1")
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _call(*arguments: object) -> int:
    result: int = _syscall(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
