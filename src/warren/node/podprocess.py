"""A pod as a process: it has the pod's namespaces, runs its containers and tells how they are.

Run as a program, with a directory that holds `plan.json` (`warren.dws.podplans`) and
`machine.json` (`warren.node.pods`). It knows nothing of Warren, and begins in 50 ms:

1. It takes the volumes out of its rabbit's mount namespace (open_tree(2)), and listens on the
   ports of its node.
2. It leaves for namespaces of its own: mounts, of which none reaches others, processes, of which
   it is the first, and network, with an end on the bridge of all pods. An ordinary user does that
   in the user namespace that has the bridge.
3. Its containers run by bubblewrap(1) as their user, in a user namespace with that one user and no
   capabilities, each on an overlay of its image whose upper layer is in memory and bounded.
4. `state.json` says how they are. Those who connect to `socket` are sent a newline when that
   changes, and told that all is over by the end of the connection: what has ended leaves nothing
   but the directory.

With this process die its containers, and with them its namespaces and all that is mounted. What
their user does to them, in a container or from the machine, changes nothing of that.
"""

import asyncio
import base64
import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, BinaryIO

TOP = "/mnt"
"""Where the pod has its file systems: a directory that every machine has, and users may pass."""

_MEMORY = 128 * 2**20
"""Bytes of memory that what containers write into their images, and into emptyDirs, may take."""

_FILE = 2048
"""Bytes of a file system in memory for each file that it may have."""

_CONNECTIONS = 1024
"""How many connections to ports of the node are joined to the pod's at a time, at most."""

_LOG = 8 * 2**20
"""Bytes of a container's output that are kept at least; no more than twice as much is."""

_TOLD = 2000
"""Bytes of its last words that are told of a container that has failed."""

HOSTS = f"{TOP}/etc/hosts"
"""What containers have as /etc/hosts."""

_AGAIN = 1.0
"""Seconds until what could not be written down is written again."""

_DYING = 2
"""Seconds that a container that was killed is waited for: its user may trace it (ptrace(2))."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_PRIVATE, _MS_REC = 1 << 18, 1 << 14
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_OPEN_TREE_CLONE, _AT_RECURSIVE, _AT_EMPTY_PATH, _AT_FDCWD = 1, 0x8000, 0x1000, -100
_MOVE_MOUNT_F_EMPTY_PATH = 4

_libc = ctypes.CDLL(None, use_errno=True)


class Trouble(Exception):
    """Why the pod cannot be."""


def _check(result: int, what: str) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise Trouble(f"{what}: {os.strerror(error)}")
    return result


# Before the pod has namespaces of its own


def _join(process: int, kind: str, flag: int) -> None:
    opened = os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(opened, flag), f"the {kind} namespace of process {process}")
    finally:
        os.close(opened)


def _tree(path: str, directory: int = _AT_FDCWD) -> int:
    """Return a mount of a file or directory, with all that is mounted below, attached nowhere."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE | (0 if path else _AT_EMPTY_PATH)
    return _check(_libc.syscall(_OPEN_TREE, directory, os.fsencode(path), flags), path)


def _trees(rabbit: int | None, paths: list[str]) -> list[int]:
    """Take mounts out of a rabbit's namespace, by a child that enters it."""
    if not paths:
        return []
    own, others = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            if rabbit is not None:
                if os.geteuid() != 0:
                    _join(rabbit, "user", _CLONE_NEWUSER)
                _join(rabbit, "mnt", _CLONE_NEWNS)
            for path in paths:
                socket.send_fds(others, [b"."], [_tree(path)])
        except (Trouble, OSError) as error:
            others.send(str(error).encode()[:_TOLD])
        finally:
            os._exit(0)
    others.close()
    found: list[int] = []
    with own:
        for _ in paths:
            said, received, _, _ = socket.recv_fds(own, _TOLD, 1)
            if not received:
                raise Trouble(said.decode() or "the volumes cannot be had")
            found += received
    os.waitpid(child, 0)
    return found


def _listening(ports: list[dict[str, Any]]) -> list[tuple[socket.socket, int]]:
    """Listen on the ports of the node, and return each with the port that it leads to."""
    found = []
    for each in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((each["host"], each["port"]))
        except OSError as error:
            raise Trouble(f"port {each['port']} of {each['host']}: {error.strerror}") from error
        listener.listen(128)
        found.append((listener, each["to"]))
    return found


# Its namespaces


def _leave(network: int) -> None:
    """Leave for namespaces of our own, where ours is the power over them."""
    if os.geteuid() != 0:
        _join(network, "user", _CLONE_NEWUSER)
    _check(_libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET), "namespaces")
    _mount("none", "/", "", _MS_REC | _MS_PRIVATE)


def _be_first(directory: str, lock: int) -> None:
    """Go on as the first process of a namespace, with which the kernel ends all others of it."""
    _check(_libc.unshare(_CLONE_NEWPID), "a namespace of processes")
    waiting, leaving = os.pipe()
    if os.fork():
        os.close(lock)  # before the end of the pipe says so
        os._exit(0)
    os.close(leaving)
    os.read(waiting, 1)
    os.close(waiting)
    os.close(lock)
    try:
        _lock(directory)
    except BlockingIOError:
        os._exit(0)  # one that was begun meanwhile is the pod
    # bubblewrap looks for its containers there.
    _mount("proc", "/proc", "proc", _MS_NODEV | _MS_NOSUID | _MS_NOEXEC)


def _lock(directory: str) -> int:
    """Say that we live, by a lock: whoever holds it is the pod of this directory."""
    lock = os.open(f"{directory}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    words = [os.fsencode(each) for each in (source, target, kind, options)]
    _check(_libc.mount(*words[:3], flags, words[3] or None), f"mount of {target}")


def _attach(tree: int, path: str) -> None:
    moved = _libc.syscall(
        _MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(path), _MOVE_MOUNT_F_EMPTY_PATH
    )
    _check(moved, f"mount of {path}")
    os.close(tree)


def _connect(network: int, address: str) -> None:
    """Have an end on the bridge, which is in the network namespace of a process."""
    # Its name is the kernel's to choose: our number may be another's before the pod has gone.
    link = ["link", "add", "up", "master", "pods", "type", "veth"]
    peer = ["peer", "name", "eth0", "netns", str(os.getpid())]
    _run(["nsenter", f"--target={network}", "--net", "ip", *link, *peer])
    ours = [f"addr add {address} dev eth0", "link set eth0 up", "link set lo up"]
    _run(["ip", "-batch", "-"], "\n".join(ours))
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
        file.write("0")


def _run(argv: list[str], text: str = "") -> None:
    done = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=20)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise Trouble(f"{argv[0]}: {words}")


# Its files


def _prepare(plan: dict[str, Any], trees: list[int]) -> None:
    """Make the pod's file systems below `TOP`: its volumes, `hosts`, and room for its roots."""
    _memory(TOP, _MEMORY, "711")
    os.mkdir(f"{TOP}/volumes", 0o711)
    attached = iter(trees)
    for name, volume in plan["volumes"].items():
        place = f"{TOP}/volumes/{name}"
        if "path" in volume:
            tree = next(attached)
            if stat.S_ISDIR(os.fstat(tree).st_mode):
                os.mkdir(place)
            else:
                os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
            _attach(tree, place)
        elif "files" in volume:
            os.mkdir(place, 0o755)
            for file, text in volume["files"].items():
                os.makedirs(os.path.dirname(f"{place}/{file}"), exist_ok=True)
                _write(f"{place}/{file}", base64.b64decode(text))
        else:
            os.mkdir(place)
            if volume["size"] is not None:
                _memory(place, volume["size"])
            os.chmod(place, 0o777)
    os.mkdir(f"{TOP}/shm")
    _memory(f"{TOP}/shm", _MEMORY)
    # Apart from what containers may fill: the names of the hosts have to be told when it is full.
    os.mkdir(os.path.dirname(HOSTS))
    _mount("none", os.path.dirname(HOSTS), "tmpfs", _MS_NODEV | _MS_NOSUID, "size=16m,mode=755")
    _write(HOSTS, plan["hosts"].encode())
    # Libraries of MPI look there for the interfaces of the pod's network. A kernel may refuse.
    with suppress(Trouble):
        os.mkdir(f"{TOP}/sys")
        _mount("none", f"{TOP}/sys", "sysfs", _MS_NODEV | _MS_NOSUID | _MS_RDONLY)


def _memory(place: str, size: int, mode: str = "1777") -> None:
    """Mount a file system in memory, bounded in files, too: the kernel has 1 KiB of each."""
    bounds = f"size={size},nr_inodes={max(1024, size // _FILE)},mode={mode}"
    _mount("none", place, "tmpfs", _MS_NODEV | _MS_NOSUID, bounds)


def _write(path: str, data: bytes) -> None:
    opened = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    try:
        os.write(opened, data)
        os.fchmod(opened, 0o644)
    finally:
        os.close(opened)


def _source(number: int, index: int, mount: dict[str, Any], volumes: dict[str, Any]) -> str:
    """Return what a container has of a volume. What is below it is followed through no link."""
    if mount["volume"] not in volumes:
        raise Trouble(f"there is no volume {mount['volume']}")
    whole = f"{TOP}/volumes/{mount['volume']}"
    if not mount["below"]:
        return whole
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(whole, flags)
    for part in filter(None, mount["below"].split("/")):
        try:
            inner = os.open(part, flags, dir_fd=opened)
        except FileNotFoundError:
            os.mkdir(part, 0o777, dir_fd=opened)
            inner = os.open(part, flags, dir_fd=opened)
        os.close(opened)
        opened = inner
        if stat.S_ISLNK(os.fstat(opened).st_mode):
            raise Trouble(f"{mount['below']} of the volume {mount['volume']} passes a link")
    tree = _tree("", opened)
    is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
    os.close(opened)
    place = f"{TOP}/part-{number}-{index}"
    if is_directory:
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    _attach(tree, place)
    return place


def _root(number: int, container: dict[str, Any], files: dict[str, bool]) -> str:
    """Make the root of a container, with places for what is mounted in it (`files`: not a file?)"""
    own = f"{TOP}/{number}"
    for part in ("", "/upper", "/work", "/root"):
        os.mkdir(f"{own}{part}", 0o755)
    layers = f"lowerdir={container['root']},upperdir={own}/upper,workdir={own}/work"
    if any(character in container["root"] for character in ",:\\"):
        raise Trouble(f"the path of the image {container['root']} cannot be mounted")
    _mount("overlay", f"{own}/root", "overlay", _MS_NODEV | _MS_NOSUID, layers)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # Links of the image lead where they lead in the container.
            os.chroot(f"{own}/root")
            os.chdir("/")
            os.umask(0o022)
            for path, is_directory in files.items():
                os.makedirs(path if is_directory else os.path.dirname(path), exist_ok=True)
                if not is_directory and not os.path.exists(path):
                    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise Trouble(f"container {container['name']}: places to mount at cannot be made")
    return f"{own}/root"


# Its containers


class _Log:
    """What a container prints: the last of it, in a file and the one before.

    What a full disk does not take is left out: that is not the container's fault.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.last = b""
        self.write(b"")  # the file is there from the beginning

    def _opened(self) -> BinaryIO:
        return open(self._path, "ab", buffering=0)

    def write(self, data: bytes) -> None:
        self.last = (self.last + data)[-_TOLD:]
        with suppress(OSError):
            if self._file is not None and self._file.tell() + len(data) > _LOG:
                self.close()
                os.replace(self._path, f"{self._path}.1")
            if self._file is None:
                self._file = self._opened()
            self._file.write(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _Container:
    def __init__(self, pod: "_Pod", number: int, container: dict[str, Any]) -> None:
        self._pod = pod
        self._number = number
        self._container = container
        self.state: dict[str, Any] = {"name": container["name"]}
        self._process: subprocess.Popen[bytes] | None = None
        self._own: int | None = None
        """A handle of the container's first process."""
        self._has_ended = asyncio.Event()

    async def run(self) -> None:
        """Run it to its end, and tell."""
        if self._pod.stopping:
            return self._ended(128 + signal.SIGTERM, "the pod was stopped before it began")
        try:
            argv, options = self._command()
        except (Trouble, OSError) as error:
            return self._ended(128, f"it cannot be: {error}")
        try:
            output, information = self._begin(argv, options)
        except OSError as error:
            return self._ended(128, f"{argv[0]}: {error.strerror}")
        self.state["startedAt"] = time.time()
        self._pod.tell()
        assert self._process is not None
        log = _Log(f"{self._pod.directory}/{self._container['name']}.log")
        knowing = asyncio.ensure_future(self._know_own(information))
        reading = asyncio.ensure_future(_read(output, log))
        try:
            _when_ended(self._process.pid, self._has_ended.set)
            await self._has_ended.wait()
            # What it has left running has died with it; its last words are in the pipe.
            await asyncio.wait({reading}, timeout=2)
            reading.cancel()
            knowing.cancel()
        finally:
            log.close()
        code = self._process.poll()
        if code is None:  # who traces it has not let go of it
            code = -signal.SIGKILL
        words = log.last.decode(errors="replace").strip() if code else ""
        self._ended(code if code >= 0 else 128 - code, words)

    def _begin(self, argv: list[str], options: list[str]) -> tuple[int, int]:
        """Begin it, and return where to read what it prints, and what bubblewrap says of it."""
        with ExitStack() as ours, ExitStack() as others:
            output, written = _pipe(ours, others)
            information, told = _pipe(ours, others)
            arguments = os.memfd_create("arguments", 0)
            others.callback(os.close, arguments)
            os.write(arguments, b"".join(each.encode() + b"\0" for each in options))
            os.lseek(arguments, 0, os.SEEK_SET)
            fixed = ["--args", str(arguments), "--info-fd", str(told), "--"]
            self._process = subprocess.Popen(
                [*argv, *fixed, *self._container["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                env={},
                pass_fds=(arguments, told),
                start_new_session=True,
                preexec_fn=self._bound,
            )
            ours.pop_all()
        return output, information

    def _bound(self) -> None:
        """Leave memory and processes to others: the user may have a container do anything."""
        # An agent that was started before this was installed says neither.
        first = self._pod.plan.get("oomScoreAdj", 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < first:
                file.seek(0)
                file.write(str(first))
        if self._pod.is_root and "processes" in self._pod.plan:
            resource.setrlimit(resource.RLIMIT_NPROC, self._pod.plan["processes"])

    async def _know_own(self, information: int) -> None:
        text = b""
        reader = await _reader(information)
        while chunk := await reader.read(4096):
            text += chunk
        try:
            self._own = os.pidfd_open(json.loads(text)["child-pid"])
        except (ValueError, KeyError, OSError):
            self._own = None  # it has ended
        if self._pod.stopping:
            self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send a signal to its first process."""
        if self._own is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._own, number)
        if number == signal.SIGKILL and self._process is not None:
            # It waits for that one, unless the user has stopped it.
            self._process.kill()
            asyncio.get_running_loop().call_later(_DYING, self._has_ended.set)

    def _ended(self, code: int, words: str) -> None:
        if self._own is not None:
            os.close(self._own)
            self._own = None
        self.state |= {"finishedAt": time.time(), "exitCode": code, "message": words}
        self._pod.tell()

    def _command(self) -> tuple[list[str], list[str]]:
        """Return the command that makes the container, and bubblewrap's options."""
        container, plan = self._container, self._pod.plan
        binds = [
            (HOSTS, "/etc/hosts", True),
            (f"{TOP}/sys", "/sys", True),
            (f"{TOP}/shm", "/dev/shm", False),
        ]
        for index, mount in enumerate(container["mounts"]):
            source = _source(self._number, index, mount, plan["volumes"])
            binds.append((source, os.path.normpath(mount["path"]), mount["readOnly"]))
        # What is mounted below another mount is mounted after it.
        binds.sort(key=lambda each: each[1].count("/"))
        places = {path: os.path.isdir(source) for source, path, _ in binds}
        root = _root(self._number, container, {"/proc": True, "/dev": True, **places})
        userid, groupid = str(container["userid"]), str(container["groupid"])
        options = [
            "--unshare-user", "--uid", userid, "--gid", groupid,
            "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", plan["hostname"],
            "--ro-bind" if container["readOnly"] else "--bind", root, "/",
            "--proc", "/proc", "--dev", "/dev",
        ]  # fmt: skip
        for source, path, read_only in binds:
            options += ["--ro-bind" if read_only else "--bind", source, path]
        # What is mounted at /dev is in memory, too, and has no bounds.
        options += ["--remount-ro", "/dev", "--chdir", container["directory"],
                    "--die-with-parent", "--new-session", "--as-pid-1",
                    "--cap-drop", "ALL", "--clearenv"]  # fmt: skip
        for name, value in container["environment"].items():
            options += ["--setenv", name, value]
        argv = [plan["bwrap"]]
        if self._pod.is_root:
            become = [f"--reuid={userid}", f"--regid={groupid}", "--clear-groups"]
            argv = ["/usr/bin/setpriv", *become, "--inh-caps=-all", "--bounding-set=-all", *argv]
        return argv, options


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


def _when_ended(process: int, call: Callable[[], None]) -> None:
    """Call something when a child has ended."""
    loop = asyncio.get_running_loop()
    handle = os.pidfd_open(process)

    def told() -> None:
        # A pidfd can be read from then on: at once, or the loop would turn without a pause.
        loop.remove_reader(handle)
        os.close(handle)
        call()

    loop.add_reader(handle, told)


async def _reader(opened: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(opened, "rb", buffering=0)
    )
    return reader


async def _read(output: int, log: _Log) -> None:
    reader = await _reader(output)
    while chunk := await reader.read(2**16):
        log.write(chunk)


# The pod


class _Pod:
    def __init__(self, directory: str, plan: dict[str, Any], *, is_root: bool) -> None:
        self.directory = directory
        self.plan = plan
        self.is_root = is_root
        self.stopping = False
        numbered = iter(range(len(plan["init"]) + len(plan["containers"])))
        self._init = [_Container(self, next(numbered), each) for each in plan["init"]]
        self._containers = [_Container(self, next(numbered), each) for each in plan["containers"]]
        self._followers: set[asyncio.StreamWriter] = set()
        self._again: asyncio.TimerHandle | None = None
        self._kept = asyncio.Event()
        """Whether what was told last is written down, or need not be."""

    async def run(self) -> None:
        """Run its containers to their end: those that prepare one after the other, then all."""
        for each in self._init:
            await each.run()
            if each.state["exitCode"] or self.stopping:
                break
        else:
            await asyncio.gather(*(each.run() for each in self._containers))

    def stop(self) -> None:
        """Ask its containers to end, and kill those that do not in time."""
        if not self.stopping:
            self.stopping = True
            self._kept.set()
            self.signal(signal.SIGTERM)
            loop = asyncio.get_running_loop()
            loop.call_later(self.plan["grace"], self.signal, signal.SIGKILL)

    def signal(self, number: int) -> None:
        for each in (*self._init, *self._containers):
            each.signal(number)

    def tell(self) -> None:
        """Write down how the containers are, whole or not at all, and tell those who follow.

        On a full disk that is done when there is room, and is no container's fault.
        """
        states = {
            "init": [each.state for each in self._init],
            "containers": [each.state for each in self._containers],
            "stopped": self.stopping,
        }
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            _keep(self.directory, states)
        except FileNotFoundError:
            self.stop()  # it was removed when nothing was seen of it yet
        except OSError:
            if not self.stopping:
                self._kept.clear()
            self._again = asyncio.get_running_loop().call_later(_AGAIN, self.tell)
        else:
            self._kept.set()
            for each in self._followers:
                each.write(_NEWS)

    async def wait_kept(self) -> None:
        """Return when what was told last is written down, or when the pod is to end."""
        await self._kept.wait()

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell one who follows of each change, until he goes."""
        writer.write(_NEWS)
        self._followers.add(writer)
        try:
            await reader.read()
        finally:
            self._followers.discard(writer)
            writer.close()


_NEWS = b"\n"
"""What followers are told: that there is something to be read."""


def _keep(directory: str, states: dict[str, Any]) -> None:
    unfinished = f"{directory}/state.json.new"
    with open(unfinished, "wb") as file:
        file.write(json.dumps(states).encode())
        file.flush()
        os.fsync(file.fileno())  # or there may be an empty one after a power cut
    os.replace(unfinished, f"{directory}/state.json")


_WAITING = 16
"""Connections to a port that wait to be taken: each takes a file before it has its turn."""


class _Turns:
    """How many connections are joined: any user of the machine makes them."""

    def __init__(self) -> None:
        # Each takes two files, and the pod some of its own.
        self._free = min(_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)

    async def forward(self, address: str, port: int, reader: asyncio.StreamReader,
                      writer: asyncio.StreamWriter) -> None:  # fmt: skip
        """Join a connection to the node with one to the pod; end it where there are too many."""
        if not self._free:
            writer.close()
            return
        self._free -= 1
        try:
            await _join_to(address, port, reader, writer)
        finally:
            self._free += 1


async def _join_to(address: str, port: int, reader: asyncio.StreamReader,
                   writer: asyncio.StreamWriter) -> None:  # fmt: skip
    try:
        inner_reader, inner_writer = await asyncio.open_connection(address, port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
    finally:
        inner_writer.close()
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(2**18):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.close()


def _begun() -> None:
    """Say so: an agent waits for the end of our output."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


async def _live(pod: _Pod, listener: socket.socket, ports: list[tuple[socket.socket, int]]) -> None:
    address = pod.plan["address"].partition("/")[0]
    turns = _Turns()
    for taken, port in ports:
        forward = partial(turns.forward, address, port)
        # So many are accepted at a time before it is seen that there are too many.
        await asyncio.start_server(forward, sock=taken, backlog=_WAITING)
    await asyncio.start_unix_server(pod.follow, sock=listener)
    # An agent that knows of a pod may stop it: the pod has to understand that before it tells, and
    # the first process of a namespace is not ended by a signal that it does not understand.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pod.stop)
    pod.tell()
    await pod.wait_kept()
    _begun()
    await pod.run()
    await pod.wait_kept()


def main(directory: str) -> None:
    """Be a pod."""
    try:
        lock = _lock(directory)
    except BlockingIOError:
        return  # an agent that did not see another begin has begun this one: it was slow
    if os.path.exists(f"{directory}/state.json"):
        return  # the other one has even ended
    with open(f"{directory}/plan.json", "rb") as file:
        plan = json.load(file)
    with open(f"{directory}/machine.json", "rb") as file:
        plan |= json.load(file)
    listener = socket.socket(socket.AF_UNIX)
    # Its own path may be longer than a socket's.
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.path.lexists(f"{directory}/socket"):
        os.unlink(f"{directory}/socket")  # of one that was killed before it began
    listener.bind(f"/proc/self/fd/{opened}/socket")
    listener.listen()
    is_root = os.geteuid() == 0
    try:
        paths = [each["path"] for each in plan["volumes"].values() if "path" in each]
        trees = _trees(plan["rabbit"], paths)
        ports = _listening(plan["ports"])
        _leave(plan["network"])
        _connect(plan["network"], plan["address"])
        _be_first(directory, lock)
        _prepare(plan, trees)
    except (Trouble, OSError, subprocess.SubprocessError) as error:
        names = (
            [{"name": each["name"]} for each in plan["init"]],
            [{"name": each["name"]} for each in plan["containers"]],
        )
        failed = {"init": names[0], "containers": names[1], "stopped": False, "error": str(error)}
        _keep(directory, failed)
        return
    asyncio.run(_live(_Pod(directory, plan, is_root=is_root), listener, ports))


if __name__ == "__main__":
    main(sys.argv[1])
