"""A parent of toy shells, as a program: SOCKET MARKER DIRECTORY WAY PATIENCE.

A toy shell writes its process id into a file named `<job>-<rank>`, and ends when
there is a file `<job>-<rank>.end` with its exit code. On a host called `messy`
it leaves a process of its job's user behind, whose id it writes down as well, with MARKER in its
environment; on one called `scrubbed` that process has nothing by which it could be known.
On one called `talkative` it writes to standard error until that takes no more; on one called
`stalling` a process that it leaves has a write to that which does not end. On one
called `waiting` it becomes its job's user and looks at what a file named `look` says. WAY says
whether there are `cgroups`. The parent writes its own process id into a file named `parent`.

A file named `mounted` says which users have left something mounted. What detaches it waits while
there is a file `looking`, and for ever on the host that a file `silent` names; where there is a
file `forkless`, it cannot be started at first.
"""

import ctypes
import errno
import fcntl
import os
import platform
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from warren.base.processes import die_with_parent
from warren.instance.shell.imp import IdentityRefused
from warren.instance.shell.parent import AskAbsent, DetachLeft, ShellParent, StartRequest
from warren.instance.shell.subreaper import run_under_subreaper

socket, marker, directory = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
patience = float(sys.argv[5])


def write_a_page_that_never_comes() -> None:
    """Write memory to standard error whose pages only userfaultfd(2) would give: it never does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    number = {"x86_64": 323, "aarch64": 282}[platform.machine()]
    pages = libc.syscall(number, os.O_CLOEXEC)
    fcntl.ioctl(pages, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))  # UFFDIO_API
    address = libc.mmap(None, 4096, 3, 0x22, -1, 0)
    fcntl.ioctl(pages, 0xC020AA00, struct.pack("QQQQ", address, 4096, 1, 0))  # UFFDIO_REGISTER
    libc.write(2, ctypes.c_void_p(address), 4096)


def failing_once(fork: Callable[[], int]) -> Callable[[], int]:
    """Return what fails, and is not there the next time."""

    def fail() -> int:
        os.fork = fork
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    return fail


class ToyShell:
    """Does what the host's name says."""

    parent: ShellParent

    def prepare(self, start: StartRequest) -> bytes | None:
        if start.host == "refusing":
            raise IdentityRefused(f"not as user {start.userid} by {start.J}")
        return b"proven"

    def clean(self, start: StartRequest) -> int | None:
        print("cleaned", start.host, flush=True)
        return None

    def left_mounts(self, host: str) -> DetachLeft | None:
        if not (directory / "mounted").exists():
            return None
        if (directory / "forkless").exists():
            (directory / "forkless").unlink()
            os.fork = failing_once(os.fork)
        silent = directory / "silent"
        is_silent = silent.exists() and silent.read_text() == host
        # What answers may be slow.
        self.parent._detach_timeout = 0.2 if is_silent else 100.0

        def detach_left(ask_absent: AskAbsent) -> int:
            userids = [int(each) for each in (directory / "mounted").read_text().split()]
            print("looking", host, flush=True)
            if is_silent:
                signal.pause()
            while (directory / "looking").exists():
                time.sleep(0.01)
            absent = ask_absent(userids)
            print("detached", host, *sorted(absent), flush=True)
            return len(absent)

        return detach_left

    def run_shell(self, start: StartRequest, proven_payload: bytes | None) -> int:
        assert proven_payload == b"proven"
        die_with_parent()
        if start.host == "talkative":
            os.write(2, b"\x1b[2Jfirst\n")
            with suppress(OSError):
                while True:
                    os.write(2, b"x" * 999 + b"\n")
        if start.host == "stalling" and os.fork() == 0:
            write_a_page_that_never_comes()
        if start.host == "broken":
            raise RuntimeError("a shell with a bug")
        said = [str(os.getpid()), start.host]
        if start.host in ("messy", "scrubbed"):
            name, _, value = marker.partition("=")
            known = {name: value} if start.host == "messy" else {}
            task = subprocess.Popen(
                ["sleep", "1000"], start_new_session=True, env=known, user=start.userid
            )
            said.append(str(task.pid))
        place = directory / f"{start.id}-{start.rank}"
        unfinished = place.with_suffix(".new")
        unfinished.write_text(" ".join(said))
        unfinished.rename(place)
        if start.host == "waiting":
            look = (directory / "look").read_text()
            os.setresgid(start.userid, start.userid, start.userid)
            os.setresuid(start.userid, start.userid, start.userid)
            os.stat(look)
        end = place.with_suffix(".end")
        while not end.exists():
            time.sleep(0.01)
        return int(end.read_text())


def live() -> int:
    unfinished = directory / "parent.new"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(directory / "parent")
    life = ToyShell()
    here = life.parent = ShellParent(socket, life, str(directory), kill_timeout=patience)
    if sys.argv[4] != "cgroups":
        here._cgroups = None
    here.run()
    return 0


sys.exit(run_under_subreaper(live, lambda: (directory / "parent").unlink(), patience))
