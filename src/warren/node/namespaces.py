"""Namespaces of emulated nodes: mounts of their own, held by a process, and host names.

One path names a job's file system on every node, so each node needs a mount
table of its own. Root unshares a mount namespace; an ordinary user a user
namespace as well, in which it may mount. The holder outlives the agent that
started it, and with it everything that is mounted.

The host name of a node each job has in a UTS namespace of its own: it ends with the job's
processes, and needs no holder.
"""

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from warren.base import log, mountinfo
from warren.base.childcalls import call_in_child
from warren.base.mountinfo import Mount
from warren.base.processes import pids, process_status
from warren.dws.node import NodeTrouble
from warren.node import commands, mountpoints
from warren.node.openfiles import mount_namespace
from warren.node.threads import in_thread

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWUTS: Final = 0x04000000
_CLONE_NEWUSER: Final = 0x10000000

_POLL_INTERVAL: Final = 0.02
_POLLS: Final = 1500
"""How often to look for the record of a holder that another process is starting: for 30 s."""

_MOUNT_TMPFS: Final = 'mount -t tmpfs -o mode=0711 none "$1"'
"""What the holder of a node does first: make a file system for mount points."""

_BIND_HOSTS: Final = '[ ! -e "$2" ] || [ ! -e /etc/hosts ] || mount --bind "$2" /etc/hosts'
"""And: have the node's hosts known by name, where there are some."""

_RECORD_AND_WAIT: Final = (
    'echo $$ > "$0.new" && mv "$0.new" "$0" && echo held && exec sleep infinity >/dev/null 2>&1'
)
"""What a holder does then: write its own record, say so, and wait."""


class HeldMountNamespace:
    """The mount namespace of one node, which a process holds.

    `directory` remembers the process that holds it. Over `prefix` the node has a file system
    of its own, for its mount points: a mount point shared with other namespaces
    could be pulled from under them.
    """

    _namespace_options: Sequence[str] = ("--mount",)
    _prepare_command: str = f"{_MOUNT_TMPFS} && {{ {_BIND_HOSTS}; }}"

    def __init__(self, directory: Path, prefix: Path, hosts: Path | None = None) -> None:
        """What /etc/hosts says there is in the file `hosts`, if it is there."""
        self._hosts = hosts
        self._directory = directory
        self._prefix = prefix
        self._ensured = asyncio.Event()

    @property
    def prefix(self) -> Path:
        """Where the node has a file system of its own."""
        return self._prefix

    @property
    def holder(self) -> int | None:
        """The process that holds the namespace, if it is alive."""
        return _holder(self._directory)

    @property
    def was_made(self) -> bool:
        """Whether there was a holder at any time, dead or alive."""
        return (self._directory / "holder").exists()

    async def wait_made(self) -> None:
        """Wait until the namespace was made, by `ensure` or by a predecessor of this process."""
        if not self.was_made:
            await self._ensured.wait()

    async def ensure(self) -> int:
        """Start a holder if there is none, and return its process id. Raises NodeTrouble."""
        holder = await self._find_or_start_holder()
        self._ensured.set()
        return holder

    async def _find_or_start_holder(self) -> int:
        holder = self.holder
        if holder is not None:
            return holder
        try:
            for directory in (self._directory, self._prefix):
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error
        # In a thread: the tables are as long as users make them.
        await in_thread(self._remember_mounts)
        record = self._directory / "holder"
        unshare = ["unshare", *_unshare_options(self._namespace_options), "--propagation", "slave"]
        # The lock is held by the holder itself, so that two agents cannot both start one;
        # the holder writes its own record, so that none is left behind unknown.
        lock = ["flock", "--nonblock", "--no-fork", f"{record}.lock"]
        arguments = (record, self._prefix, self._hosts or "/nowhere")
        hold = ["sh", "-c", f"{self._prepare_command} && {_RECORD_AND_WAIT}", *map(str, arguments)]
        output = await commands.run(["setsid", "--fork", *lock, *unshare, *hold], merged=True)
        for _ in range(_POLLS):
            holder = self.holder
            if holder is not None:
                return holder
            if output:
                break
            # Nothing yet: another process has the lock, and is about to write the record.
            await asyncio.sleep(_POLL_INTERVAL)
        raise NodeTrouble(
            f"the mount namespace of {self._directory.name} could not be made: {output.strip()}"
        )

    async def nsenter_command(self) -> list[str]:
        """Return the words to put before a command that is to run in the namespace."""
        return nsenter_command(await self.ensure())

    @property
    def root(self) -> Path | None:
        """Where the node's files are seen from here, mount points included; None if not held."""
        holder = self.holder
        return None if holder is None else Path(f"/proc/{holder}/root")

    def mounts_below_prefix(self) -> set[str]:
        """Return what is mounted below `prefix`, as `mount_points_below` says. Raises OSError."""
        root = self.root
        if root is None:
            return set()
        found = mountpoints.mount_points_below(f"{root}{self._prefix}")
        return {each.removeprefix(str(root)) for each in found}

    async def drop_unmounted(self, machine_mounts: Collection[str]) -> None:
        """Unmount what the machine had mounted when the namespace was made, and has no more.

        `machine_mounts` are all mount points that it has. Raises NodeTrouble.
        """
        holder = self.holder
        unmounted = self._remembered_mounts().difference(machine_mounts)
        if holder is None or not unmounted:
            return
        try:
            stale_mounts = await in_thread(_mounts_at, holder, unmounted)
        except OSError as error:
            raise NodeTrouble(f"its mounts are not known: {error.strerror}") from error
        for mount in stale_mounts:
            # By its id: a user who owns its directory may have another mount at its path by now.
            program = [sys.executable, "-P", "-m", "warren.node.detaching"]
            await commands.run(
                [*await self.nsenter_command(), *program, str(mount.id), mount.point]
            )

    def _remember_mounts(self) -> None:
        """Write down what the machine has mounted, whole or not at all.

        If that is not known, it is nothing, and what is unmounted later the node keeps.
        """
        try:
            points = mount_points(os.getpid())
        except OSError as error:
            log.warning("mounts of the machine are not known", node=str(self), why=error.strerror)
            points = set()
        # With a name of our own: another process or thread may be at the same.
        unfinished = self._directory / f"mounts.{os.getpid()}.{threading.get_ident()}"
        try:
            unfinished.write_text(json.dumps(sorted(points)))
            unfinished.rename(self._directory / "mounts")
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error

    def _remembered_mounts(self) -> set[str]:
        with suppress(OSError, ValueError):
            prefix = f"{self._prefix}/"
            remembered = json.loads((self._directory / "mounts").read_text())
            return {point for point in remembered if not f"{point}/".startswith(prefix)}
        return set()

    def __str__(self) -> str:
        return self._directory.name

    def mount_id(self, path: str) -> int | None:
        """Return the id of what is mounted at a path of the namespace, on top; None if nothing is.

        Raises OSError.
        """
        root = self.root
        return None if root is None else mountpoints.mount_id(f"{root}{path}")

    def end(self) -> None:
        """Kill the holder, and so unmount everything that no process uses any more."""
        holder = self.holder
        if holder is not None:
            with suppress(ProcessLookupError):
                os.kill(holder, signal.SIGKILL)


def pids_in(namespaces: Iterable[HeldMountNamespace]) -> list[int]:
    """Return the living processes in namespaces, but for their holders, by one look at /proc.

    Those that do not answer where they are count as elsewhere.
    """
    holders = {holder for each in namespaces if (holder := each.holder) is not None}
    if not holders:
        return []
    namespace_numbers = {mount_namespace(holder) for holder in holders} - {0}
    candidates = sorted(set(pids()) - holders)
    answers = call_in_child(mount_namespace, candidates)
    return [
        each
        for each, number in zip(candidates, answers, strict=True)
        if number in namespace_numbers
    ]


def nsenter_command(holder: int) -> list[str]:
    """Return the words to put before a command that is to run in the namespace of a holder."""
    target = f"--target={holder}"
    if os.geteuid() == 0:
        return ["nsenter", target, "--mount"]
    return ["nsenter", target, "--user", "--mount", "--preserve-credentials"]


def mount_points(pid: int) -> set[str]:
    """Return the mount points that a process sees; none if it has ended.

    Raises OSError where they are not known: to take them for none would have all unmounted.
    """
    return {mount.point for mount in _mount_table(pid)}


def _mounts_at(pid: int, points: Collection[str]) -> list[Mount]:
    """Return what a process sees mounted at some points, what is on top first. Raises OSError."""
    mounts = [mount for mount in _mount_table(pid) if mount.point in points]
    # Of several at one point the last is on top.
    return sorted(reversed(mounts), key=lambda each: each.point, reverse=True)


def _mount_table(pid: int) -> list[Mount]:
    try:
        return mountinfo.read(Path(f"/proc/{pid}"))
    except OSError as error:
        if error.errno in mountinfo.ENDED:
            return []
        raise


def _holder(directory: Path) -> int | None:
    """Read the record, and believe it only if that process still is a holder of this node."""
    try:
        pid = int((directory / "holder").read_text())
        # Nothing else is asked of another user's that has got the number: it need not answer.
        userids = set(process_status(Path(f"/proc/{pid}"))["Uid"].split())
        if userids != {str(os.geteuid())}:
            return None
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, KeyError, ValueError):
        return None
    if command != b"sleep\0infinity\0":
        return None
    return pid if _holds_lock(pid, directory / "holder.lock") else None


def _holds_lock(pid: int, lock: Path) -> bool:
    """Return whether a process has the lock file open, which a recycled process id has not."""
    try:
        lock_status = lock.stat()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                status = entry.stat()
                if (status.st_dev, status.st_ino) == (lock_status.st_dev, lock_status.st_ino):
                    return True
    except OSError:
        return False
    return False


class HolderEnded(OSError):
    """A process that was taken for the holder of a namespace has just ended."""


def join(holder: int | None, host: str) -> None:
    """Move this process, which must be single-threaded, onto a node.

    It joins the namespaces of the node's holder, if there is one. Its host name becomes
    `host`, where the kernel lets it have one of its own. An ordinary user keeps its own user
    id: a user namespace maps it back, and takes away the power over the mounts that the
    node's own has. Raises OSError; one that is HolderEnded leaves this process where it was.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    userid, groupid = os.geteuid(), os.getegid()
    if holder is None:
        # Both at once: an ordinary user with the one alone would be changed for nothing.
        user_flag = _CLONE_NEWUSER if userid != 0 else 0
        if libc.unshare(_CLONE_NEWUTS | user_flag) == 0:
            _set_host_name(host)
            if userid != 0:
                _map_ids(f"{userid} {userid} 1", f"{groupid} {groupid} 1")
        return
    clone_flags = (
        {"mnt": _CLONE_NEWNS} if userid == 0 else {"user": _CLONE_NEWUSER, "mnt": _CLONE_NEWNS}
    )
    with ExitStack() as stack:
        # All of them first: a holder that has ended is found out before anything is changed.
        namespace_fds = {name: _open_namespace(holder, name, stack) for name in clone_flags}
        for name, clone_flag in clone_flags.items():
            if libc.setns(namespace_fds[name], clone_flag) != 0:
                raise OSError(ctypes.get_errno(), f"setns {name}")
    if libc.unshare(_CLONE_NEWUTS) == 0:
        _set_host_name(host)
    if userid != 0:
        if libc.unshare(_CLONE_NEWUSER) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        _map_ids(f"{userid} 0 1", f"{groupid} 0 1")


def _set_host_name(host: str) -> None:
    with suppress(OSError):  # the kernel's names have 64 bytes, a node's may have more
        socket.sethostname(host)


def _map_ids(uid_map: str, gid_map: str) -> None:
    """Map ids of this process's user namespace to those of the one above (user_namespaces(7))."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(uid_map)
    Path("/proc/self/gid_map").write_text(gid_map)


def _open_namespace(pid: int, name: str, stack: ExitStack) -> int:
    try:
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise HolderEnded(error.errno, f"process {pid} has ended") from error
    stack.callback(os.close, descriptor)
    return descriptor


async def why_unavailable() -> str | None:
    """Return why nodes cannot have mount namespaces of their own here; None if they can."""
    try:
        await commands.run(["unshare", *_unshare_options(), "mount", "-t", "tmpfs", "none", "/tmp"])
    except NodeTrouble as trouble:
        return str(trouble)
    return None


def _unshare_options(kinds: Sequence[str] = ("--mount",)) -> list[str]:
    return [*kinds] if os.geteuid() == 0 else ["--user", "--map-root-user", *kinds]
