"""Real processes: `warren` as people run it, on clusters of the tests' own."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from warren.base.clock import SystemClock
from warren.base.objects import Kind, Object
from warren.base.processes import send_signal
from warren.daemons import clustershape
from warren.daemons.clustershape import ClusterShape
from warren.daemons.down import leftovers
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, lock_holder
from warren.dws import kinds
from warren.journal.sqlite import SqliteJournal
from warren.kube import http, kubeconfig
from warren.kube.admission import AdmitAll
from warren.kube.server.store import Store
from warren.rfc import eventlog, fluid
from warren.rpc import client as rpc
from warren.rpc.message import RpcError

SECONDS = 120.0
"""How long is waited for anything, on a machine that has much else to do."""


class Cluster:
    """A cluster that `warren up` runs, and the command line that talks to it."""

    def __init__(self, root: Path, *options: str) -> None:
        self.state = StateDir(root / "state")
        self.shared = root / "global"
        self.shared.mkdir(exist_ok=True, parents=True)
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Start it, or start it again, and wait until it is ready."""
        self.launch()
        wait_for(self.is_ready)

    def launch(self) -> None:
        """Start it, or start it again."""
        self.launch_with("--global", str(self.shared), *self.options)

    def launch_with(self, *options: str) -> None:
        """Start it with no other options of `warren up` than these."""
        self.state.prepare()
        with (self.state.logs / "up.out").open("w") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "warren",
                    "up",
                    "--statedir",
                    str(self.state.path),
                    *options,
                ],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            pytest.fail(f"the cluster has not started: {(self.state.logs / 'up.out').read_text()}")
        return self.state.status() is not None

    def down(self) -> None:
        """Stop it, if it runs, with all that it has started."""
        self("down")
        if self.process is not None:
            self.process.wait(SECONDS)

    def kill(self) -> None:
        """Kill the control process alone, as a bug or the kernel would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_everything(self) -> None:
        """Kill every process of the cluster, as a power cut would."""
        self.kill()
        wait_for(self._kill_one_and_all)
        for loop in self.nodes().loops():
            subprocess.run(["losetup", "--detach", loop.device], check=True)

    def _kill_one_and_all(self) -> bool:
        """Kill every process that is there; return whether there was none."""
        return not send_signal(self.processes, signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """Return what it says of itself. It runs."""
        status = self.state.status()
        assert status is not None
        return status

    def shape(self) -> ClusterShape:
        """Return what the cluster was made as."""
        shape = clustershape.load(self.state.shape_file)
        assert shape is not None
        return shape

    def nodes(self) -> Nodes:
        """Return what is on the machine for the cluster, whether it runs or not."""
        return Nodes(self.state, self.shape(), isolated=True)

    def written(self, name: str) -> list[Path]:
        """Return the files of a name in what jobs have mounted on compute nodes, now."""
        nodes = self.nodes()
        hosts = [host for chassis in self.shape().chassis() for host in chassis.hosts]
        roots = [nodes.namespace(host).root for host in hosts]
        below = f"{self.state.mounts}/*/{name}".lstrip("/")
        return [path for root in roots if root is not None for path in root.glob(below)]

    def stored(self, kind: Kind) -> list[Object]:
        """Return the objects of a kind as they stand on disk, whether the cluster runs or not."""
        with SqliteJournal(self.state.objects_journal) as journal:
            return list(Store(journal, SystemClock(), AdmitAll()).objects_of(kind))

    def processes(self) -> list[int]:
        """Return the processes of this cluster: those that name its directory, and its tasks."""
        wanted = str(self.state.path).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                    if state != "Z" and wanted in told:
                        found.append(int(entry.name))
        return found

    def agents(self) -> dict[str, int]:
        """Return the agents' processes by the first node that each has."""
        found = {}
        for process in self.processes():
            with suppress(OSError):  # it may just have ended
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if b"warren.daemons.emulatedagents" in words:
                    found[words[words.index(b"warren.daemons.emulatedagents") + 3].decode()] = (
                        process
                    )
        return found

    def copiers(self) -> list[int]:
        """Return the copiers that are at work."""
        found = []
        for process in self.processes():
            with suppress(OSError):  # it may just have ended
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if b"warren.node.copying" in words and b"nsenter" not in words[0]:
                    found.append(process)
        return found

    def taken(self) -> dict[str, int]:
        """Return the bytes of each rabbit that are taken, as its disk tells."""
        flash = self.nodes()._flash
        rabbits = [chassis.rabbit for chassis in self.shape().chassis()]
        return {name: sum(flash.volumes(name).values()) for name in rabbits}

    def parts(self) -> set[str]:
        """Return the parts that have a process each."""
        found = set()
        for process in self.processes():
            with suppress(OSError):
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
                if b"warren.daemons.part" in words:
                    found.add(words[words.index(b"warren.daemons.part") + 2].decode())
        return found

    def __call__(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a `warren` command."""
        return subprocess.run(
            [sys.executable, "-m", "warren", *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=self.environment(environment),
        )

    def started(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a `warren` command whose output is not wanted."""
        return subprocess.Popen(
            [sys.executable, "-m", "warren", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self.environment(environment),
        )

    def environment(self, more: Mapping[str, str] = {}) -> dict[str, str]:
        return {**os.environ, "WARREN_STATEDIR": str(self.state.path), **more}

    def script(self, name: str, body: str, *directives: str) -> str:
        """Write a batch script with directives, and return its path."""
        path = self.shared.parent / name
        path.write_text("\n".join(["#!/bin/sh", *directives, body, ""]))
        path.chmod(0o755)
        return str(path)

    def submit(self, *arguments: str, **environment: str) -> str:
        """Submit a job that is accepted, and return its id."""
        done = self("submit", *arguments, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def jobs(self) -> list[dict[str, Any]]:
        """Return the attributes of all jobs. The cluster runs."""
        asked = {"max_entries": 0, "attrs": ["all"]}
        found: list[dict[str, Any]] = self._asked("job-list.list", asked)["jobs"]
        return found

    def job(self, job: str) -> dict[str, Any]:
        """Return a job's attributes. The cluster runs."""
        return next(each for each in self.jobs() if each["id"] == fluid.parse(job))

    def _asked(self, topic: str, request: Mapping[str, Any]) -> Any:
        """Return the instance's answer: a command would be a process of its own for it."""

        async def asking() -> Any:
            async with asyncio.timeout(SECONDS), rpc.connect(self.state.socket) as handle:
                return await handle.rpc(topic, request)

        return asyncio.run(asking())

    def events(self, job: str) -> list[str]:
        """Return the names of a job's events so far; none while the instance does not answer.

        Not by a command, for this is asked again and again while a test waits.
        """
        asked = {"id": fluid.parse(job), "keys": ["eventlog"], "flags": 0}
        try:
            log = str(self._asked("job-info.lookup", asked)["eventlog"])
            return [event.name for event in eventlog.decode(log)]
        except (OSError, RpcError):
            return []

    def wait_event(self, job: str, name: str) -> None:
        """Wait until a job has an event."""
        wait_for(lambda: name in self.events(job))

    def workflows(self) -> list[Object]:
        """Return the Workflows that there are. The cluster runs."""
        return self.objects(kinds.WORKFLOW)

    def objects(self, kind: Kind) -> list[Object]:
        """Return the objects of a kind that there are. The cluster runs."""

        async def listing() -> list[Object]:
            async with http.connect(kubeconfig.load(self.state.kubeconfig)) as client:
                return (await client.list(kind)).items

        return asyncio.run(listing())

    def wait_clean(self) -> None:
        """Wait until no Workflow is left, and assert that nothing else is."""
        wait_for(lambda: self.workflows() == [])
        assert leftovers(self.state) == []


def wait_for(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two rabbits with four compute nodes each, shared by a module's tests."""
    yield from running(Cluster(tmp_path_factory.mktemp("cluster")))


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that a test may break."""
    yield from running(Cluster(tmp_path))


def running(cluster: Cluster) -> Iterator[Cluster]:
    """Run a cluster for a test, and assert that it leaves nothing behind."""
    cluster.up()
    try:
        yield cluster
    finally:
        cluster.down()
    assert leftovers(cluster.state) == []
    wait_for(lambda: cluster.processes() == [])
    assert lock_holder(cluster.state.lock) is None
    assert str(cluster.state.path) not in Path("/proc/mounts").read_text()
