"""A real Flux on the nodes of an emulated cluster, for no longer than a block.

It has a broker on each node, Warren's plugins and Warren's conductor. What is started here ends
with its starter, however that ends.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import orjson

import warren
from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.daemons import clustershape
from warren.daemons.clustershape import ClusterShape
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.rfc import resource_set
from warren.rpc import brokerclient
from warren.rpc.message import Payload, RpcError
from warren.scheduling import rabbitgraph

_TIMEOUT: Final = 120.0
"""Seconds that building, starting and ending may take, each."""

_POLL_INTERVAL: Final = 0.1
_SSD_BYTES: Final = 4 * GIB
"""Bytes of each ssd of a rabbit in the graph."""
_LOG_LINES: Final = 5
"""Lines of a log that are told of what does not start."""

_JOBTAP: Final = "dws-jobtap.so"
_FLUXION: Final = "sched-fluxion-resource.so"

_CONFIGURATION: Final = """\
[resource]
noverify = true
path = "{r}"
[sched-fluxion-resource]
match-policy = "first"
match-format = "rv1"
prune-filters = "ALL:core,ALL:ssd"
"""


class RunningFlux(NamedTuple):
    """A running Flux."""

    socket: Path
    """Of the broker of rank 0."""
    userrc: Path
    """What job shells load the plugin by: option `userrc`."""
    scheduler: str
    version: str
    """Of flux-core."""


def why_unavailable() -> str | None:
    """Return what this machine lacks for it, and what to do; None if all is there."""
    for program in ("flux", "make", "cc", "pkg-config"):
        if shutil.which(program) is None:
            return f"{program} is not on the PATH: install it"
    for library in ("flux-core", "jansson"):
        if subprocess.run(["pkg-config", "--exists", library]).returncode != 0:
            return f"pkg-config does not find {library}: install its development files"
    if not _sources().is_dir():
        return f"the plugins' sources are not in {_sources()}: run it from a copy of the repository"
    return None


@contextmanager
def running(directory: Path, state_dir: StateDir) -> Iterator[RunningFlux]:
    """Have a Flux on the nodes of a cluster that runs. Its files are in `directory`.

    Raises UserMistake where it does not start.
    """
    shape = clustershape.load(state_dir.shape_file)
    assert shape is not None
    directory.mkdir(mode=0o700)
    plugins = _build_plugins(directory / "plugins")
    userrc = directory / "userrc.lua"
    userrc.write_text(f'plugin.load {{ file = "{plugins}/dws_environment.so" }}\n')
    with_fluxion = has_fluxion()
    with _brokers(directory, state_dir, shape) as socket:
        _rpc(socket, "job-manager.jobtap", {"load": str(plugins / _JOBTAP), "conf": {}})
        with _conductor(directory, state_dir, socket, with_fluxion=with_fluxion):
            scheduler = "Fluxion" if with_fluxion else "sched-simple"
            yield RunningFlux(socket, userrc, scheduler, _flux_output("version").split()[-1])


def _sources() -> Path:
    return Path(warren.__file__).parents[2] / "plugins" / "flux"


def _build_plugins(directory: Path) -> Path:
    """Build the plugins, for the flux-core that is there."""
    directory.mkdir()
    for each in (*_sources().glob("*.c"), _sources() / "Makefile"):
        shutil.copy(each, directory)
    log = directory / "make.log"
    with log.open("wb") as output:
        result = subprocess.run(
            ["make", "-s", "-C", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=_TIMEOUT,
        )
    if result.returncode != 0:
        raise UserMistake(f"the plugins for Flux cannot be built:\n{_last_lines(log)}")
    return directory


def has_fluxion() -> bool:
    """Return whether Fluxion is installed with the flux-core that is there."""
    directories = _flux_output("config", "builtin", "module_path").split(":")
    return any((Path(each) / _FLUXION).exists() for each in directories)


def _flux_output(*command: str) -> str:
    result = subprocess.run(
        ["flux", *command], capture_output=True, text=True, timeout=_TIMEOUT, check=True
    )
    # The version of flux-core is told first, and of others below.
    return (
        result.stdout.strip().splitlines()[0] if command == ("version",) else result.stdout.strip()
    )


@contextmanager
def _brokers(directory: Path, state_dir: StateDir, shape: ClusterShape) -> Iterator[Path]:
    hosts = [host for each in shape.chassis() for host in each.hosts]
    asyncio.run(_make_namespaces(Nodes(state_dir, shape, isolated=True), hosts))
    r = resource_set.without_scheduling(dict(shape.resource_set()))
    ssds = shape.capacity // _SSD_BYTES
    graph = rabbitgraph.encode_graph(
        "warren", shape.chassis(), resource_set.decode_all(r), ssd_count=ssds
    )
    r_path = directory / "R.json"
    r_path.write_bytes(orjson.dumps({**r, "scheduling": orjson.loads(graph)}))
    configuration = directory / "conf"
    configuration.mkdir()
    (configuration / "flux.toml").write_text(_CONFIGURATION.format(r=r_path))
    wrapper = (sys.executable, "-P", "-m", "warren.daemons.onnode", str(state_dir.path))
    command = ["flux", "start", f"--test-size={len(hosts)}", f"--test-hosts={','.join(hosts)}"]
    command += [f"--test-rundir={directory}", f"--config-path={configuration}"]
    # Its shell ends when this process has, and the brokers with it.
    command += [f"--wrap={','.join(wrapper)}", "sh", "-c", "read end"]
    socket, log = directory / "local-0", directory / "brokers.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**_environment_without_flux(), "TMPDIR": str(directory)},
            start_new_session=True,
        )
    try:
        _wait_for(process, log, "the brokers of Flux", lambda: _is_up(socket, len(hosts)))
        yield socket
    finally:
        _end(process)


async def _make_namespaces(nodes: Nodes, hosts: list[str]) -> None:
    # A broker stays in the namespace that it finds.
    for host in hosts:
        await nodes.namespace(host).ensure()


def _is_up(socket: Path, size: int) -> bool:
    try:
        status = _rpc(socket, "resource.status", {})
        # The scheduler is loaded after the resources are known.
        _rpc(socket, "sched.resource-status", {})
    except RpcError:
        return False
    return not status["offline"] and status["online"] in (f"0-{size - 1}", f"[0-{size - 1}]")


@contextmanager
def _conductor(
    directory: Path, state_dir: StateDir, socket: Path, *, with_fluxion: bool
) -> Iterator[None]:
    log = directory / "conductor.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            # It does not outlive this process.
            ["setpriv", "--pdeathsig", "TERM", sys.executable, "-P", "-m", "warren", "conductor",
             "flux", "--kubeconfig", str(state_dir.kubeconfig),
             *(() if with_fluxion else ("--disable-fluxion",))],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**_environment_without_flux(), "FLUX_URI": f"local://{socket}"},
            start_new_session=True,
        )  # fmt: skip
    try:
        _wait_for(process, log, "the conductor", lambda: _has_conductor(socket))
        yield
    finally:
        process.terminate()
        _end(process)


def _has_conductor(socket: Path) -> bool:
    try:
        _rpc(socket, "dws.status", {})
    except RpcError:
        return False
    return True


def _rpc(socket: Path, topic: str, payload: Payload) -> Payload:
    async def request() -> Payload:
        async with asyncio.timeout(_TIMEOUT), brokerclient.connect(socket) as handle:
            return await handle.rpc(topic, payload)

    return asyncio.run(request())


def _wait_for(
    process: "subprocess.Popen[bytes]", log: Path, description: str, is_up: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + _TIMEOUT
    while not is_up():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UserMistake(f"{description} did not start:\n{_last_lines(log)}")
        time.sleep(_POLL_INTERVAL)


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _environment_without_flux() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("FLUX_")}
