"""Machines that are emulated: each with a mount namespace, a network and a host name of its own.

A machine's mount namespace is the one in which the cluster of `warren up` runs the tasks of that
node. Of the network it has nothing but its own loopback: the API is reached there through a relay,
as behind a load balancer.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.journeys.conftest import SECONDS, Cluster, wait_for
from warren.daemons.users import node_user
from warren.node.namespaces import HeldMountNamespace

_RELAY = """
import os, socket, sys, threading

def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass

def opened(place):
    if place.isdecimal():
        return socket.socket(), ("127.0.0.1", int(place))
    return socket.socket(socket.AF_UNIX), place

listener, place = opened(sys.argv[1])
listener.bind(place)
listener.listen()
print(os.getpid(), flush=True)
while True:
    near, _ = listener.accept()
    far, place = opened(sys.argv[2])
    try:
        far.connect(place)
    except OSError:
        near.close()
        continue
    threading.Thread(target=pump, args=(near, far), daemon=True).start()
    threading.Thread(target=pump, args=(far, near), daemon=True).start()
"""


def why_none() -> str | None:
    """Return why no machines can be emulated here; None if they can."""
    words = ["unshare", *_unshared(), "sh", "-c", "ip link set lo up && hostname some-other"]
    tried = subprocess.run(words, capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no networks of their own here: {tried.stderr}"


def _unshared() -> list[str]:
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return [*user, "--net", "--uts"]


class _Relay:
    """A relay that listens. Below the process that is started, it may be another one."""

    def __init__(self, *words: str) -> None:
        self._started = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._started.stdout is not None
        self.pid = int(self._started.stdout.readline())

    @property
    def outer(self) -> int:
        """The process that was started."""
        return self._started.pid

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._started.wait()
        assert self._started.stdout is not None
        self._started.stdout.close()


@contextmanager
def outlet(path: Path, port: int) -> Iterator[None]:
    """Offer a port of this machine as a unix socket, which networks do not keep apart."""
    relay = _Relay(sys.executable, "-c", _RELAY, str(path), str(port))
    try:
        yield
    finally:
        relay.end()


class Host:
    """One machine, and its agent."""

    def __init__(
        self, cluster: Cluster, node: str, role: str, place: Path, outlet: Path, *, own: bool
    ) -> None:
        """Its agent mounts in a namespace of its `own`, or in that of the machine."""
        self._cluster = cluster
        self.node = node
        self.role = role
        self._own = own
        self.namespace = cluster.state.nodes / node
        self._namespace = HeldMountNamespace(self.namespace, cluster.state.mounts)
        self.statedir = place / f"{node}-agent"
        self.config = place / f"{node}.toml"
        self.log = place / f"{node}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._write_config(place)
        port = cluster.status()["server"].rpartition(":")[2]
        holder = None if own else asyncio.run(self._namespace.ensure())
        enter = [] if holder is None else ["nsenter", f"--target={holder}", "--mount"]
        begin = 'ip link set lo up && hostname "$0" && exec "$@"'
        if os.geteuid() != 0:
            # Who may make a network is root there, and its agents are who they are.
            begin = 'ip link set lo up && hostname "$0" && unshare --user "$@"; :'
        ids = [f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"] * (os.geteuid() != 0)
        relay = [*ids, sys.executable, "-c", _RELAY, port, str(outlet)]
        self._relay = _Relay(*enter, "unshare", *_unshared(), "sh", "-c", begin, node, *relay)

    def _write_config(self, place: Path) -> None:
        kind = "image" if os.geteuid() == 0 else "directory"
        lines = [
            f'node = "{self.node}"',
            f'kubeconfig = "{self._cluster.state.user_kubeconfig(node_user(self.node))}"',
            f'mounts = "{self._cluster.state.mounts}"',
            *([f'namespace = "{self._cluster.state.nodes / self.node}"'] if self._own else []),
            "[flash]",
            f'kind = "{kind}"',
            f'directory = "{place / "flash"}"',
            'capacity = "8GiB"',
        ]
        self.config.write_text("\n".join([*lines, ""]))

    @property
    def pid(self) -> int:
        """A process on this machine."""
        return self._relay.pid

    def command(self, *words: str) -> list[str]:
        """Return what runs a command on this machine."""
        if os.geteuid() == 0:
            mount = [] if self._own else ["--mount"]
            return ["nsenter", f"--target={self._relay.pid}", "--net", "--uts", *mount, *words]
        # Only in the outer one is the network its own.
        user = ["--user", "--preserve-credentials"]
        outer = ["nsenter", f"--target={self._relay.outer}", *user, "--net", "--uts"]
        return [*outer, "nsenter", f"--target={self._relay.pid}", *user, *words]

    def start(self, *more: str, **environment: str) -> None:
        """Start the agent, as a service manager would, and wait until it is ready."""
        words = [sys.executable, "-m", "warren", "agent", self.role, *self.options, *more]
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                self.command(*words),
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
            )
        wait_for(self._is_ready)

    @property
    def options(self) -> list[str]:
        return ["--config", str(self.config), "--statedir", str(self.statedir)]

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return "is ready" in self.log.read_text()

    def warren(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a `warren` command on this machine."""
        command = self.command(sys.executable, "-m", "warren", *words)
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """End the agent by a signal, if it runs, and return its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signum)
        code = self.process.wait(SECONDS)
        self.process = None
        return code

    def kill(self) -> None:
        """Kill the agent alone."""
        self.stop(signal.SIGKILL)

    def mounts(self) -> set[str]:
        """Return what is mounted there below the directory of jobs' storage."""
        return self._namespace.mounts_below_prefix()

    def close(self) -> None:
        """End the machine, with its agent."""
        self.stop()
        self._relay.end()
        self._namespace.end()
