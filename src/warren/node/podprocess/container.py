"""A container: bubblewrap(1) with a root, mounts and a user, and the state that it is in."""

import asyncio
import os
import re
import resource
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from warren.base import memoryfiles
from warren.node.podprocess.kernel import PodTrouble
from warren.node.podprocess.outputlog import OutputLog
from warren.node.podprocess.podfiles import HOSTS, TOP, mount_root, mount_source

if TYPE_CHECKING:
    from warren.node.podprocess.pod import Pod

_KILL_TIMEOUT = 2
"""Seconds that a container that was killed is waited for: its user may trace it (ptrace(2))."""

_MOST_INFO = 4096
"""Bytes that are read of what bubblewrap tells, which is a few hundred."""

_OOM_KILLED = "OOMKilled"
"""The reason of such an end, as Kubernetes has it."""
_OOM_MESSAGE = "it was killed: it took more memory than it may have, or its user's containers did"

_CHILD_PID = re.compile(rb'"child-pid"\s*:\s*(\d{1,9})\D')


class Container:
    """A container of a pod, from its beginning to its end."""

    def __init__(self, pod: "Pod", number: int, container_plan: dict[str, Any]) -> None:
        self._pod = pod
        self._number = number
        self._plan = container_plan
        self.state: dict[str, Any] = {"name": container_plan["name"]}
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        """Of the container's first process."""
        self._end_event = asyncio.Event()

    async def run(self) -> None:
        """Run it to its end, and tell."""
        if self._pod.stopping:
            return self._set_ended(128 + signal.SIGTERM, "the pod was stopped before it began")
        try:
            argv, options = self._command()
        except (PodTrouble, OSError) as error:
            return self._set_ended(128, f"it cannot be: {error}")
        try:
            output_reader, info_reader = self._start(argv, options)
        except OSError as error:
            return self._set_ended(
                128, f"it cannot be started: {error.filename or argv[0]}: {error.strerror}"
            )
        except subprocess.SubprocessError:
            return self._set_ended(128, f"it cannot be put into its cgroup {self._cgroup}")
        self.state["startedAt"] = time.time()
        self._pod.publish_state()
        assert self._process is not None
        log = OutputLog(f"{self._pod.directory}/{self._plan['name']}.log")
        pidfd_task = asyncio.ensure_future(self._open_pidfd(info_reader))
        log_task = asyncio.ensure_future(_log_output(output_reader, log))
        try:
            _call_when_ended(self._process.pid, self._end_event.set)
            await self._end_event.wait()
            # What it has left running has died with it; its last words are in the pipe.
            await asyncio.wait({log_task}, timeout=2)
            log_task.cancel()
            pidfd_task.cancel()
        finally:
            log.close()
        code = self._process.poll()
        if code is None:  # a process that traces it has not let go of it
            code = -signal.SIGKILL
        message = log.last_bytes.decode(errors="replace").strip() if code else ""
        if code and self._was_killed_for_memory():
            self.state["reason"] = _OOM_KILLED
            message = f"{message}\n{_OOM_MESSAGE}".strip()
        self._set_ended(code if code >= 0 else 128 - code, message)

    def _start(self, argv: list[str], options: list[str]) -> tuple[int, int]:
        """Start it; return the descriptors to read its output and bubblewrap's information from."""
        with ExitStack() as pod_ends, ExitStack() as child_ends:
            output_reader, output_writer = _pipe(pod_ends, child_ends)
            info_reader, info_writer = _pipe(pod_ends, child_ends)
            arguments_fd = memoryfiles.create("arguments", 0)
            child_ends.callback(os.close, arguments_fd)
            cgroup_fd = None
            if self._cgroup is not None:
                cgroup_fd = os.open(f"{self._cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
                child_ends.callback(os.close, cgroup_fd)
            os.write(arguments_fd, b"".join(each.encode() + b"\0" for each in options))
            os.lseek(arguments_fd, 0, os.SEEK_SET)
            bwrap_arguments = ["--args", str(arguments_fd), "--info-fd", str(info_writer), "--"]
            self._process = subprocess.Popen(
                [*argv, *bwrap_arguments, *self._plan["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=output_writer,
                stderr=output_writer,
                env={},
                pass_fds=(arguments_fd, info_writer),
                start_new_session=True,
                preexec_fn=partial(self._set_limits, cgroup_fd),
            )
            pod_ends.pop_all()
        return output_reader, info_reader

    @property
    def _cgroup(self) -> str | None:
        """The cgroup that its agent has made for it, if any."""
        cgroups = self._pod.plan.get("cgroups")
        return cgroups[self._number] if cgroups else None

    def _was_killed_for_memory(self) -> bool:
        """Return whether the kernel has killed some of it for the memory that it took."""
        if self._cgroup is None:
            return False
        # Of the two versions of cgroups, each has one of these.
        for name in ("memory.events", "memory.oom_control"):
            with suppress(OSError), open(f"{self._cgroup}/{name}") as file:
                return bool(int(dict(line.split() for line in file).get("oom_kill", 0)))
        return False

    def _set_limits(self, cgroup_fd: int | None) -> None:
        """Limit what this process takes of memory and processes: its commands may be any user's."""
        if cgroup_fd is not None:
            os.write(cgroup_fd, b"0")
        # An older agent, still running when this was installed, writes neither into the plan.
        oom_score_adj = self._pod.plan.get("oomScoreAdj", 0)
        with suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < oom_score_adj:
                file.seek(0)
                file.write(str(oom_score_adj))
        if self._pod.is_root and "processes" in self._pod.plan:
            resource.setrlimit(resource.RLIMIT_NPROC, self._pod.plan["processes"])

    async def _open_pidfd(self, info_reader: int) -> None:
        """Open the pidfd of the first process, whose id bubblewrap tells.

        Bubblewrap runs as the user, whose other processes can take its end of the pipe: what is
        written to it may have no end, and the pipe may never be closed.
        """
        text = b""
        async with _read_pipe(info_reader) as reader:
            while len(text) < _MOST_INFO and (chunk := await reader.read(_MOST_INFO)):
                text += chunk
                told = _CHILD_PID.search(text)
                if told is None or self._pidfd is not None:
                    continue  # to the end: bubblewrap would die of a pipe that nobody reads
                with suppress(OSError):  # it has ended
                    self._pidfd = os.pidfd_open(int(told[1]))
                if self._pod.stopping:
                    self.signal(signal.SIGTERM)

    def signal(self, signum: int) -> None:
        """Send a signal to its first process."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)
        if signum == signal.SIGKILL and self._process is not None:
            # It waits for that one, unless the user has stopped it.
            self._process.kill()
            asyncio.get_running_loop().call_later(_KILL_TIMEOUT, self._end_event.set)

    def _set_ended(self, code: int, message: str) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        self.state |= {"finishedAt": time.time(), "exitCode": code, "message": message}
        self._pod.publish_state()

    def _command(self) -> tuple[list[str], list[str]]:
        """Return the command that makes the container, and bubblewrap's options."""
        container_plan, plan = self._plan, self._pod.plan
        binds = [
            (HOSTS, "/etc/hosts", True),
            (f"{TOP}/sys", "/sys", True),
            (f"{TOP}/shm", "/dev/shm", False),
        ]
        for index, mount in enumerate(container_plan["mounts"]):
            source = mount_source(self._number, index, mount, plan["volumes"])
            binds.append((source, os.path.normpath(mount["path"]), mount["readOnly"]))
        # What is mounted below another mount is mounted after it.
        binds.sort(key=lambda each: each[1].count("/"))
        mount_points = {path: os.path.isdir(source) for source, path, _ in binds}
        root = mount_root(
            self._number, container_plan, {"/proc": True, "/dev": True, **mount_points}
        )
        userid, groupid = str(container_plan["userid"]), str(container_plan["groupid"])
        options = [
            "--unshare-user", "--uid", userid, "--gid", groupid,
            "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", plan["hostname"],
            "--ro-bind" if container_plan["readOnly"] else "--bind", root, "/",
            "--proc", "/proc", "--dev", "/dev",
        ]  # fmt: skip
        for source, path, read_only in binds:
            options += ["--ro-bind" if read_only else "--bind", source, path]
        # What is mounted at /dev is in memory, too, and has no bounds.
        options += ["--remount-ro", "/dev", "--chdir", container_plan["directory"],
                    "--die-with-parent", "--new-session", "--as-pid-1",
                    "--cap-drop", "ALL", "--clearenv"]  # fmt: skip
        for name, value in container_plan["environment"].items():
            options += ["--setenv", name, value]
        argv = [plan["bwrap"]]
        if self._pod.is_root:
            setpriv_options = [f"--reuid={userid}", f"--regid={groupid}", "--clear-groups"]
            argv = [
                "/usr/bin/setpriv",
                *setpriv_options,
                "--inh-caps=-all",
                "--bounding-set=-all",
                *argv,
            ]
        return argv, options


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    readers.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


def _call_when_ended(pid: int, call: Callable[[], None]) -> None:
    """Call something when a child has ended."""
    loop = asyncio.get_running_loop()
    pidfd = os.pidfd_open(pid)

    def on_readable() -> None:
        # A pidfd can be read from then on: at once, or the loop would turn without a pause.
        loop.remove_reader(pidfd)
        os.close(pidfd)
        call()

    loop.add_reader(pidfd, on_readable)


@asynccontextmanager
async def _read_pipe(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """Read from a pipe, which is closed with the block."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()


async def _log_output(output_reader: int, log: OutputLog) -> None:
    async with _read_pipe(output_reader) as reader:
        while chunk := await reader.read(2**16):
            log.write(chunk)
