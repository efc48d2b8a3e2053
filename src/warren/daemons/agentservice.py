"""An agent as a service: that of one rabbit or of one compute node, on the machine that it is.

It keeps nothing in memory that a next one needs: what it has made stands on disk and in the mount
table, and what it is to make in the API.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from warren.base import log, systemd
from warren.base.clock import Clock, SystemClock
from warren.base.errors import UserMistake
from warren.controllers.localnode import LocalNode
from warren.controllers.mounts import WORKERS
from warren.daemons import agentconfig, monitoring
from warren.daemons.agentconfig import AgentNode, Config
from warren.daemons.agentreconcilers import build_agent
from warren.daemons.foreground import until_stopped
from warren.daemons.rungroup import RunGroup
from warren.daemons.statedir import hold_lock, lock_holder
from warren.dws import kinds
from warren.dws.node import NodeTrouble
from warren.journal import files
from warren.kube import http, versions
from warren.kube.client import Client
from warren.kube.kubeconfig import ClusterAccess
from warren.node import behaviour, holders, hostmounts, threads
from warren.node.faulty import FaultyNode
from warren.node.nvmehost import NvmeHost

if TYPE_CHECKING:
    from warren.daemons.controlmetrics import ControlMetrics


_VERSIONS_TIMEOUT: Final = 60.0
"""Seconds for which a server that refuses all requests is asked for its API versions."""


class AgentStateDir:
    """What an agent keeps besides flash: the paths below one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def lock(self) -> Path:
        """Held by the agent, with its process id in it."""
        return self.path / "lock"

    @property
    def process_mark(self) -> tuple[str, str]:
        """What all processes of the agent have in their environment: a name and its value.

        It is a secret, since the doctor ends what has it. Raises OSError where there was none.
        """
        return "WARREN_AGENT", f"{self.path}#{(self.path / 'secret').read_text()}"

    @property
    def node(self) -> str | None:
        """The node whose agent was here last; None where none was."""
        try:
            return (self.path / "node").read_text()
        except OSError:
            return None

    def prepare(self) -> None:
        """Make the directory, for its owner alone. Raises UserMistake where that cannot be."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (self.path / "secret").exists():
                files.replace(self.path / "secret", secrets.token_hex().encode())
        except OSError as error:
            raise UserMistake(
                f"{error.filename} cannot be made: {error.strerror}. Choose another with "
                "--statedir."
            ) from error


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an agent's process."""

    access: ClusterAccess
    config: Config
    state_dir: AgentStateDir
    is_rabbit: bool
    """Whether it is a rabbit's, and not a compute node's."""
    metrics_socket: socket.socket | None = None
    """Where health and metrics are served, if anywhere."""


@contextmanager
def hold_state_directory(state_dir: AgentStateDir) -> Iterator[None]:
    """Hold an agent's state directory for the length of a block. Raises UserMistake."""
    state_dir.prepare()
    try:
        with hold_lock(state_dir.lock):
            yield
    except BlockingIOError:
        raise UserMistake(
            f"The state directory {state_dir.path} is in use by process "
            f"{lock_holder(state_dir.lock)}: each agent has its own, by --statedir."
        ) from None
    except PermissionError as error:
        raise UserMistake(f"{error.filename} is not yours: choose another --statedir.") from error


async def run(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Run an agent until cancelled; `on_ready` is called when it knows what it is to do."""
    threads.set_thread_pool_size(WORKERS)
    files.replace(settings.state_dir.path / "node", settings.config.node_name.encode())
    name, value = settings.state_dir.process_mark
    os.environ[name] = value
    _make_prefix(settings.config)
    network = settings.config.network
    if network is not None and network.secret is None:
        log.warning(
            "network.secret is not set: processes that reach rabbits may say to be any node's"
        )
    node = agentconfig.build_node(
        settings.config, settings.state_dir.path, is_rabbit=settings.is_rabbit
    )
    if node.nvme_host is not None:
        await _disconnect_unused(node.nvme_host)
    async with http.connect(settings.access, component="agent") as unversioned:
        client = unversioned.with_versions(
            await versions.choose_when_allowed(
                unversioned, kinds.VERSIONS, seconds=_VERSIONS_TIMEOUT
            )
        )
        await _build_run_group(settings, node, client, SystemClock(), on_ready).run()


async def run_until_stopped(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Run an agent until SIGTERM or SIGINT. What is mounted stays."""
    await until_stopped(run(settings, on_ready))


async def _disconnect_unused(host: NvmeHost) -> None:
    """Disconnect volumes that an agent connected to and did not mount before it was killed."""
    try:
        await host.disconnect_unused()
    except NodeTrouble as trouble:
        log.warning("volumes stay connected that nothing uses", reason=str(trouble))


def _build_run_group(
    settings: Settings, node: AgentNode, client: Client, clock: Clock, on_ready: Callable[[], None]
) -> RunGroup:
    config = settings.config
    is_synced = asyncio.Event()
    metrics: ControlMetrics | None = None
    if settings.metrics_socket is not None:
        # Imported only where metrics are served.
        from warren.daemons import controlmetrics

        metrics = controlmetrics.ControlMetrics()
        client = metrics.counting_client(client)
    flash = config.flash
    local_node: LocalNode = node.local_node
    if flash.kind == "simulated":
        local_node = FaultyNode(config.node_name, node.local_node, behaviour.parse(flash.faults))
    agent = build_agent(
        client,
        clock,
        config.node_name,
        local_node,
        is_rabbit=settings.is_rabbit,
        exports=node.exports,
        disconnect_volume=node.nvme_host.disconnect if node.nvme_host is not None else None,
        probe=node.nvme_host.why_unreached if node.nvme_host is not None else None,
        link_policy=config.network.link_policy() if config.network is not None else None,
    )
    runnables = {**agent.runnables, "watchdog": systemd.watchdog}
    if metrics is not None and settings.metrics_socket is not None:
        listener = settings.metrics_socket
        metrics.register_controllers(agent.informers, agent.reconcilers)
        exposition = metrics.exposition
        runnables["monitoring"] = lambda: monitoring.serve(listener, exposition, is_synced.is_set)
    if node.own_mount_namespace is not None:
        runnables["holder"] = partial(
            holders.keep_running, node.own_mount_namespace, agent.mount_again
        )
        runnables["host mounts"] = partial(hostmounts.follow_unmounts, [node.own_mount_namespace])

    async def report_ready() -> None:
        await agent.informers.wait_synced()
        is_synced.set()
        on_ready()

    return RunGroup(runnables=runnables, wait_ready=report_ready)


def _make_prefix(config: Config) -> None:
    try:
        # Passed by all users, listed by none: what is mounted is its owner's alone.
        config.mount_prefix.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as error:
        raise UserMistake(
            f"mounts: {error.filename} cannot be made: {error.strerror}. Choose another in the "
            "agent's configuration."
        ) from error


async def check_possible(config: Config, *, is_rabbit: bool, name: str) -> None:
    """Raise UserMistake, with the `name` of the configuration, where it cannot be."""
    try:
        why_not = agentconfig.refusal(
            config, is_rabbit=is_rabbit
        ) or await agentconfig.volume_group_refusal(config)
    except NodeTrouble as trouble:
        why_not = f"flash.volume-group: {trouble}"
    if why_not is not None:
        raise UserMistake(f"{name}: {why_not}.")
