"""FUSE file systems whose server does not answer, for which processes of a job do not die.

A process that waits for a request which the server has read cannot be killed until it is
answered. FUSE's control file system lets root give up such a server: all that waits for it fails
(Documentation/filesystems/fuse.rst of Linux).
"""

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC: Final = 1
_CREATE: Final = 6
"""FSCONFIG_CMD_CREATE."""
_syscall: Final = ctypes.CDLL(None, use_errno=True).syscall


def give_up(processes: Iterable[int], userid: int, proc: Path = Path("/proc")) -> list[int]:
    """Abort the servers that processes which cannot be killed may wait for; return their devices.

    These are file systems of the job's user, and those of others but root that only the job
    sees, as they are in user namespaces with subordinate ids. Without the right to do so, none.
    """
    stuck = [each for each in processes if _uninterruptible(proc / str(each))]
    seen = {device for each in stuck for device in _devices(proc / str(each))}
    if not seen:
        return []
    outside = set(_devices(proc / "self"))
    with suppress(OSError), _control() as control:
        return [each for each in sorted(seen) if _abort(control, each, userid, each in outside)]
    return []


def _uninterruptible(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] == "D"
    except (OSError, IndexError):
        return False


def _devices(process: Path) -> Iterator[int]:
    """Return the devices of the FUSE file systems that a process sees (proc(5), mountinfo)."""
    try:
        mounts = (process / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return
    for mount in mounts:
        place, _, kind = mount.partition(" - ")
        if kind.split(" ", 1)[0].split(".")[0] in ("fuse", "fuseblk"):
            major, _, minor = place.split(" ")[2].partition(":")
            yield os.makedev(int(major), int(minor))


@contextmanager
def _control() -> Iterator[int]:
    """Open the control file system, mounted nowhere. Raises OSError."""
    opened = _call(_FSOPEN, b"fusectl", _CLOEXEC)
    try:
        _call(_FSCONFIG, opened, _CREATE, None, None, 0)
        root = _call(_FSMOUNT, opened, _CLOEXEC, 0)
    finally:
        os.close(opened)
    try:
        yield root
    finally:
        os.close(root)


def _abort(control: int, device: int, userid: int, outside: bool) -> bool:
    try:
        file = os.open(f"{device}/abort", os.O_WRONLY | os.O_CLOEXEC, dir_fd=control)
    except OSError:
        return False  # it is gone
    try:
        status = os.fstat(file)
        others = status.st_uid != userid and (outside or status.st_uid == 0)
        if others or not stat.S_ISREG(status.st_mode):
            return False
        os.write(file, b"1")
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def _call(*arguments: object) -> int:
    found: int = _syscall(*arguments)
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return found
