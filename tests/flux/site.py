"""A site: a broker of Flux with the plugins, Warren's cluster, and the conductor between them."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.journeys.conftest import SECONDS, Cluster, wait_for
from warren.rfc import eventlog, fluid
from warren.rfc.eventlog import Event
from warren.rpc import brokerclient
from warren.rpc.message import Payload, RpcError

PLUGIN = "dws-jobtap.so"

_SIMPLE = """
[modules.alternatives]
sched = "sched-simple"
feasibility = "sched-simple"
[resource]
noverify = true
[[resource.config]]
hosts = "{hosts}"
cores = "0-3"
"""

_FLUXION = """
[sched-fluxion-resource]
match-policy = "first"
match-format = "rv1"
prune-filters = "ALL:core,ALL:ssd"
[resource]
noverify = true
path = "{r}"
"""

CORES = 4
"""Of each node: as emulated nodes have no cores of their own, any number will do."""


def graph(chassis: Mapping[str, list[str]], ssds: int, gib: int) -> dict[str, Any]:
    """Make an R with the graph that `flux dws2jgf` makes of a system."""
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, str]] = []

    def add(parent: str | None, kind: str, path: str, **more: Any) -> str:
        number = str(len(nodes))
        metadata = {"type": kind, "paths": {"containment": path}, **more}
        nodes.append({"id": number, "metadata": metadata})
        if parent is not None:
            edges.append({"source": parent, "target": number})
        return number

    root = add(None, "cluster", "/c", name="c")
    hosts: list[str] = []
    for index, (rabbit, computes) in enumerate(chassis.items()):
        path = f"/c/chassis{index}"
        properties = {"rabbit": rabbit, "ssdcount": str(ssds)}
        one = add(root, "chassis", path, id=index, properties=properties)
        for ssd in range(ssds):
            ssd_path = f"{path}/ssd{ssd}"
            add(one, "ssd", ssd_path, id=ssd, unit="GiB", size=gib, status=1)
        for host in computes:
            rank = len(hosts)
            node = add(one, "node", f"{path}/{host}", name=host, id=rank, rank=rank)
            for core in range(CORES):
                add(node, "core", f"{path}/{host}/core{core}", id=core, rank=rank)
            hosts.append(host)
    return {
        "version": 1,
        "execution": {
            "R_lite": [{"rank": f"0-{len(hosts) - 1}", "children": {"core": f"0-{CORES - 1}"}}],
            "starttime": 0.0,
            "expiration": 0.0,
            "nodelist": hosts,
        },
        "scheduling": {"graph": {"nodes": nodes, "edges": edges}},
    }


class Site:
    """All of it, as long as the block of `opened` lasts."""

    def __init__(self, home: Path, plugins: Path, cluster: Cluster) -> None:
        self.home = home
        self.plugins = plugins
        self.cluster = cluster
        self.conductor: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.home / "local-0"

    def flux(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `flux` command."""
        return subprocess.run(
            ["flux", *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=self.environment(),
        )

    def environment(self) -> dict[str, str]:
        return {**_without_flux(), "FLUX_URI": f"local://{self.socket}"}

    def rpc(self, topic: str, payload: Payload) -> Payload:
        """Ask the broker. Raises RpcError."""

        async def asking() -> Payload:
            async with asyncio.timeout(SECONDS), brokerclient.connect(self.socket) as handle:
                return await handle.rpc(topic, payload)

        return asyncio.run(asking())

    def load(self, **conf: Any) -> None:
        """Load the plugin, anew where it is loaded."""
        with suppress(RpcError):
            self.rpc("job-manager.jobtap", {"remove": PLUGIN})
        path = str(self.plugins / PLUGIN)
        self.rpc("job-manager.jobtap", {"load": path, "conf": {"retry-interval": 0.5, **conf}})

    def lead(self, *options: str) -> None:
        """Start the conductor, and wait until it leads."""
        with (self.home / "conductor").open("ab") as output:
            self.conductor = subprocess.Popen(
                [sys.executable, "-m", "warren", "conductor", "flux", *options],
                stdout=output,
                stderr=output,
                env={**self.environment(), "KUBECONFIG": str(self.cluster.state.kubeconfig)},
            )
        begun = (self.home / "conductor").stat().st_size
        wait_for(lambda: b"is ready" in self.said()[begun:])

    def said(self) -> bytes:
        """Return what the conductors have said."""
        return (self.home / "conductor").read_bytes()

    def leave(self, signum: int = signal.SIGTERM) -> None:
        """End the conductor."""
        if self.conductor is not None:
            self.conductor.send_signal(signum)
            self.conductor.wait(SECONDS)
            self.conductor = None

    def submit(self, *arguments: str) -> str:
        """Submit a job that is accepted, and return its id."""
        done = self.flux("submit", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def info(self, job: str, key: str) -> str:
        """Return a value of a job's record."""
        request = {"id": fluid.parse(job), "keys": [key], "flags": 0}
        return str(self.rpc("job-info.lookup", request)[key])

    def events(self, job: str) -> list[Event]:
        return list(eventlog.decode(self.info(job, "eventlog")))

    def names(self, job: str) -> list[str]:
        return [event.name for event in self.events(job)]

    def until(self, job: str, name: str) -> list[Event]:
        """Wait until a job has an event, and return all that it has then."""
        wait_for(lambda: name in self.names(job))
        return self.events(job)

    def over(self, job: str) -> list[Event]:
        """Wait until nothing is left of a job, and return its events."""
        found = self.until(job, "clean")
        self.cluster.wait_clean()
        return found


@contextmanager
def opened(
    root: Path, plugins: Path, *options: str, fluxion: bool, tables: str = ""
) -> Iterator[Site]:
    """Have a site of two rabbits with two compute nodes each, for the length of a block."""
    shape = ("--rabbits", "2", "--computes", "2", "--separate", "--no-conductor")
    cluster = Cluster(root, *shape, *options)
    # Not where pytest keeps files: the names of sockets may not be long.
    home = Path(tempfile.mkdtemp(prefix="flux-", dir="/tmp"))
    site = Site(home, plugins, cluster)
    cluster.up()
    try:
        with _broker(site, fluxion=fluxion, tables=tables):
            site.load()
            site.lead()
            try:
                yield site
            finally:
                site.leave()
    finally:
        cluster.down()
        shutil.rmtree(home)


@contextmanager
def _broker(site: Site, *, fluxion: bool, tables: str) -> Iterator[None]:
    chassis = {each.rabbit: list(each.hosts) for each in site.cluster.shape().chassis()}
    hosts = [host for computes in chassis.values() for host in computes]
    r = site.home / "R.json"
    r.write_text(json.dumps(graph(chassis, ssds=36, gib=4)))
    about = _FLUXION.format(r=r) if fluxion else _SIMPLE.format(hosts=",".join(hosts))
    configuration = site.home / "conf"
    configuration.mkdir()
    (configuration / "site.toml").write_text(about + tables)
    command = ["flux", "start", f"--test-size={len(hosts)}", f"--test-hosts={','.join(hosts)}"]
    command += [f"--test-rundir={site.home}", f"--config-path={configuration}"]
    with (site.home / "broker").open("w") as output:
        process = subprocess.Popen(
            # Its shell ends when the test has: nothing of the broker is left then.
            [*command, "sh", "-c", "read end"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**_without_flux(), "TMPDIR": str(site.home)},
            start_new_session=True,
        )
    try:
        wait_for(lambda: _is_up(site, process, len(hosts)))
        yield
    finally:
        try:
            process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _is_up(site: Site, process: "subprocess.Popen[bytes]", size: int) -> bool:
    assert process.poll() is None, (site.home / "broker").read_text()
    try:
        status = site.rpc("resource.status", {})
        # The scheduler is loaded after the resources are known.
        site.rpc("sched.resource-status", {})
    except RpcError:
        return False
    return not status["offline"] and status["online"] in (f"0-{size - 1}", f"[0-{size - 1}]")


def _without_flux() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
