"""The pods of one rabbit: each a process, and a directory that remembers it.

A pod outlives the agent that has started it. Its directory has its plan before its process
begins, and how its containers are from then on; what it is found to be after a crash, or after a
power cut, follows from those two and from the lock that a living process holds.
"""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import warren
from warren.base import userlimits
from warren.base.objects import Object
from warren.dws.node import NodeTrouble
from warren.dws.pods.plans import Image
from warren.dws.pods.pod import PodState
from warren.journal.files import replace
from warren.node import podmemory
from warren.node.images import Images
from warren.node.namespaces import HeldMountNamespace
from warren.node.pidfds import wait_process_ended
from warren.node.podmemory import PodMemory
from warren.node.podnetwork import PodNetwork, free_address
from warren.node.podprocess.podfiles import HOSTS
from warren.node.threads import in_thread

_PROGRAMS: Final = {
    "bwrap": "bubblewrap",
    "umoci": "umoci",
    "ip": "iproute2",
    "setpriv": "util-linux",
}
"""What pods take, and the packages of Debian that it is in."""

_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from warren.node.podprocess import program; program.main(sys.argv[2])"
)
"""What a pod's process runs: an import, which finds it compiled. To compile it takes 15 ms."""

_OWN_LOG: Final = ".process.log"
"""What a pod's process says of itself: no container has such a name."""

_REMOVED: Final = ".old-"
"""What the directory of a pod that was removed has before its name."""

_START_TIMEOUT: Final = 30.0
"""Seconds that are waited for a pod's process to say how its containers are."""

_CHANGE_BYTES: Final = 4096
"""Bytes that are read at once: each says no more than that the state has changed."""

_KILL_TIMEOUT: Final = 10.0
"""Seconds that a killed process may take to be gone."""


def process_command(directory: Path) -> list[str]:
    """Return the command of the process of the pod that has a directory."""
    source_root = str(Path(warren.__file__).parent.parent)
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, source_root, str(directory)]


class Pods:
    """The pods of one rabbit: a `PodRunner`. Everything raises NodeTrouble where it fails."""

    def __init__(
        self,
        directory: Path,
        rabbit_index: int,
        network: PodNetwork,
        namespace: HeldMountNamespace | None,
        images: Images,
        host_address: str = "127.0.0.1",
        memory: PodMemory | None = None,
        *,
        start_timeout: float = _START_TIMEOUT,
    ) -> None:
        """`rabbit_index` is the rabbit's among those of this machine; `namespace` has its mounts.

        Ports of the node are those of `host_address`. Without `memory` containers take any amount.
        """
        self.host_address = host_address
        self._start_timeout = start_timeout
        self._images = images
        self._memory = memory
        self._directory = directory
        self._rabbit_index = rabbit_index
        self._network = network
        self._namespace = namespace
        self._address_lock = asyncio.Lock()
        """No two living pods have one: it is chosen and written down before the next one."""

    async def why_unavailable(self) -> str | None:
        """Return why no pods can be run here; None if they can."""
        if self._namespace is None:
            return "nodes have no mount namespaces: the kernel forbids them to this user"
        for program, package in _PROGRAMS.items():
            if shutil.which(program) is None:
                return f"{package} is not installed"
        try:
            await self._network.ensure()
        except NodeTrouble as trouble:
            return str(trouble)
        return None

    async def ensure_image(self, reference: str) -> Image:
        """Return an image, fetched and unpacked if it must be."""
        return await self._images.ensure(reference)

    def uids(self) -> list[str]:
        """Return the uids of the pods that there are, alive or not."""
        with suppress(FileNotFoundError):
            return sorted(
                each.name for each in self._directory.iterdir() if not each.name.startswith(".")
            )
        return []

    def state(self, uid: str) -> PodState | None:
        """Return how a pod is; None for one that has not begun."""
        directory = self._pod_directory(uid)
        # In this order: how it is when it has ended is read when it has.
        alive = _lock_holder(directory / "lock") is not None
        try:
            text = (directory / "state.json").read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error
        return _decode_state(text, alive=alive)

    def address(self, uid: str) -> str | None:
        """Return the address of a pod that there is."""
        address = _read_address(self._pod_directory(uid))
        return None if address is None else address.partition("/")[0]

    async def start(self, uid: str, make_plan: Callable[[str], Object]) -> None:
        """Begin a pod, unless it has begun. `make_plan` makes its plan, for the address it has."""
        # Callers see to it that two of them are never at work on one pod.
        if self.state(uid) is not None:
            return
        network_pid = await self._network.ensure()
        namespace_pid = None if self._namespace is None else await self._namespace.ensure()
        directory = self._pod_directory(uid)
        if _lock_holder(directory / "lock") is not None:
            raise NodeTrouble("the pod takes long to begin: it is waited for")
        # A pod of that uid that was removed has had the same cgroups: they are this one's now.
        await in_thread(shutil.rmtree, self._removed_directory(uid), ignore_errors=True)
        await in_thread(self._forget_removed)
        async with self._address_lock:
            await in_thread(self._prepare_plan, directory, make_plan)
        containers = await in_thread(_planned_containers, directory)
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise NodeTrouble("bwrap cannot be run: it is not there")
        machine = {
            "network": network_pid,
            "rabbit": namespace_pid,
            "bwrap": bwrap,
            "oomScoreAdj": userlimits.OOM_SCORE_ADJ,
            "processes": userlimits.process_limits(),
            "cgroups": self._cgroups(uid, containers),
        }
        # Before they are made: what is not written down here is not removed with the pod.
        await in_thread(_write, directory, "machine.json", json.dumps(machine))
        await in_thread(self._make_cgroups, uid, containers)
        await self._start_process(uid)

    def _prepare_plan(self, directory: Path, make_plan: Callable[[str], Object]) -> None:
        """Write a pod's address and plan into its directory, unless they are there."""
        address = _read_address(directory)
        if address is not None and _is_json(directory / "plan.json"):
            return
        if address is None:
            other_directories = (self._pod_directory(each) for each in self.uids())
            used_addresses = [
                _read_address(each) or "" for each in other_directories if not _has_ended(each)
            ]
            address = free_address(self._rabbit_index, used_addresses)
            # Before the plan, in which it is too: it is the pod's from then on.
            _write(directory, "address", address)
        plan = {**make_plan(address.partition("/")[0]), "address": address}
        _write(directory, "plan.json", json.dumps(plan))

    def _cgroups(self, uid: str, containers: list[Object]) -> list[str]:
        """Return the cgroups of a pod's containers, in their order; none where none are made."""
        if self._memory is None:
            return []
        return [
            str(self._memory.path(uid, number, each["userid"]))
            for number, each in enumerate(containers)
        ]

    def _make_cgroups(self, uid: str, containers: list[Object]) -> None:
        if self._memory is None:
            return
        try:
            for number, each in enumerate(containers):
                # A plan that an older agent has written limits no memory.
                self._memory.make(uid, number, each["userid"], each.get("memory"))
        except OSError as error:
            why = f"the cgroup of a container cannot be made: {error.filename}: {error.strerror}"
            raise NodeTrouble(why) from error

    async def _start_process(self, uid: str) -> None:
        directory = self._pod_directory(uid)
        # By a process that ends at once: the pod is no child of an agent that it outlives.
        log = os.open(directory / _OWN_LOG, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        read_end, write_end = os.pipe()
        try:
            try:
                process = await asyncio.create_subprocess_exec(
                    *("setsid", "--fork", *process_command(directory)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=log,
                )
            finally:
                os.close(write_end)
                os.close(log)
            async with asyncio.timeout(self._start_timeout):
                await _wait_closed(read_end)  # when it has begun, or will not
                await process.wait()
        except TimeoutError:
            # It is left alone: on a busy machine another one would take as long.
            why = f"the pod has not begun within {self._start_timeout:g} s: it is waited for"
            raise NodeTrouble(why) from None
        finally:
            os.close(read_end)
        if self.state(uid) is None:
            message = (directory / _OWN_LOG).read_text(errors="replace")[-1000:].strip()
            raise NodeTrouble(f"the process of the pod has ended: {message}")

    async def follow(self, uid: str) -> AsyncIterator[PodState]:
        """Return how a pod is, and again each time that it changes, until its process has ended."""
        with suppress(OSError):  # it has ended
            reader, writer = await self._connect(uid)
            try:
                while await reader.read(_CHANGE_BYTES):
                    if (state := self.state(uid)) is not None:
                        yield state
            finally:
                writer.close()
        # The end of the connection comes before that of the process, by a moment.
        await self._wait_ended(uid)
        state = self.state(uid)
        if state is not None:
            yield state

    async def _connect(self, uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        # The path may be longer than a socket's name: it is found through a descriptor.
        directory_fd = os.open(
            self._pod_directory(uid), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        )
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{directory_fd}/socket")
        finally:
            os.close(directory_fd)

    def stop(self, uid: str) -> None:
        """Ask a pod's containers to end, and have them killed when their time for that is over."""
        pid = _lock_holder(self._pod_directory(uid) / "lock")
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    async def remove(self, uid: str) -> None:
        """End a pod at once, if it is alive, and forget it, with what it has printed."""
        pid = _lock_holder(self._pod_directory(uid) / "lock")
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await self._wait_ended(uid)
        removed = self._removed_directory(uid)
        with suppress(FileNotFoundError):
            self._pod_directory(uid).rename(removed)
        # Its containers end with its process, but a moment later.
        await podmemory.remove_of_killed(partial(_forget, removed))
        await in_thread(self._forget_removed)

    def _forget_removed(self) -> None:
        """Forget the pods that were removed when something yet ran in their cgroups."""
        for removed in self._directory.glob(f"{_REMOVED}*"):
            _forget(removed)

    async def _wait_ended(self, uid: str) -> None:
        lock = self._pod_directory(uid) / "lock"
        pid = _lock_holder(lock)
        if pid is None:
            return
        try:
            async with asyncio.timeout(_KILL_TIMEOUT):
                await wait_process_ended(pid, lambda: _lock_holder(lock) == pid)
        except TimeoutError:
            # One whose containers are traced has ended all that it does, and is not gone.
            if _lock_holder(lock) == pid:
                raise NodeTrouble(f"the process of the pod {uid} does not end") from None

    def tell_hosts(self, uid: str, text: str) -> None:
        """Have a living pod's containers know hosts by what /etc/hosts says."""
        lock = self._pod_directory(uid) / "lock"
        pid = _lock_holder(lock)
        if pid is None:
            return
        try:
            _replace_text(Path(f"/proc/{pid}/root{HOSTS}"), text)
        except OSError as error:
            if _lock_holder(lock) == pid:  # or it has just ended
                why = f"/etc/hosts of the pod {uid} cannot be written: {error.strerror}"
                raise NodeTrouble(why) from error

    def _removed_directory(self, uid: str) -> Path:
        return self._directory / f"{_REMOVED}{uid}"

    def _pod_directory(self, uid: str) -> Path:
        if not uid or "/" in uid or uid.startswith("."):
            raise NodeTrouble(f"{uid!r} is no uid of a pod", fatal=True)
        return self._directory / uid


def _forget(removed: Path) -> bool:
    """Remove what is left of a pod, if nothing runs in its cgroups; return whether all is gone."""
    cgroups: list[str] = []
    with suppress(OSError, ValueError):  # one that had not begun has no such record
        cgroups = json.loads((removed / "machine.json").read_bytes()).get("cgroups", [])
    if not podmemory.remove(cgroups):
        return False
    shutil.rmtree(removed, ignore_errors=True)
    return True


def _planned_containers(directory: Path) -> list[Object]:
    """Return the containers of a pod's plan, in the order in which the pod's process has them."""
    try:
        plan = json.loads((directory / "plan.json").read_bytes())
    except OSError as error:
        raise NodeTrouble(f"{error.filename}: {error.strerror}") from error
    return [*plan["init"], *plan["containers"]]


def _read_address(directory: Path) -> str | None:
    """Return the address of a pod, with its network; None for one that has none yet."""
    try:
        return (directory / "address").read_text() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NodeTrouble(f"{error.filename}: {error.strerror}") from error


def _has_ended(directory: Path) -> bool:
    """Return whether a pod has begun and ended: its address may be another's."""
    # In this order: one that has said how its containers are has its lock, while it lives.
    return (directory / "state.json").exists() and _lock_holder(directory / "lock") is None


def _is_json(file: Path) -> bool:
    with suppress(OSError, ValueError):
        json.loads(file.read_bytes())
        return True
    return False


async def _wait_closed(pipe: int) -> None:
    """Return when a pipe, into which nothing is written, is closed at its other end."""
    loop = asyncio.get_running_loop()
    closed = asyncio.Event()
    loop.add_reader(pipe, closed.set)
    try:
        await closed.wait()
    finally:
        loop.remove_reader(pipe)


def _write(directory: Path, name: str, text: str) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(directory / name, text.encode())
    except OSError as error:
        raise NodeTrouble(f"{error.filename}: {error.strerror}") from error


def _replace_text(file: Path, text: str) -> None:
    """Change a file that is mounted in places, and so cannot be another one."""
    data = text.encode()
    with file.open("r+b") as opened_file:
        if opened_file.read() != data:
            # It is cut off last: what cannot be written leaves what was there.
            opened_file.seek(0)
            opened_file.write(data)
            opened_file.truncate()


def _decode_state(text: bytes, *, alive: bool) -> PodState:
    try:
        state = json.loads(text)
        return PodState(
            alive=alive,
            init=tuple(state["init"]),
            containers=tuple(state["containers"]),
            stopped=state["stopped"],
            error=state.get("error", ""),
        )
    except (ValueError, LookupError, TypeError):
        why = "how the pod was is lost: what its node has written of it cannot be read"
        return PodState(alive=alive, init=(), containers=(), error=why)


_FLOCK_FORMAT: Final = "hhqqi"
"""The kernel's `struct flock`: type, whence, start, length and process."""


def _lock_holder(lock: Path) -> int | None:
    """Return the process that has locked a file; None if there is none (fcntl(2), F_GETLK)."""
    request = struct.pack(_FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with lock.open("rb") as file:
            lock_type, *_, pid = struct.unpack(
                _FLOCK_FORMAT, fcntl.fcntl(file, fcntl.F_GETLK, request)
            )
    except FileNotFoundError:
        return None
    return None if lock_type == fcntl.F_UNLCK else int(pid)
