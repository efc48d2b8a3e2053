"""The conductor's process: it drives the Workflows of the instance that is at a socket."""

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from warren.base import log, systemd
from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.conductor.conductor import Conductor
from warren.daemons import compose, monitoring
from warren.daemons.foreground import until_stopped
from warren.daemons.rungroup import INDEXES, RunGroup, Runnable
from warren.dws import kinds
from warren.instance import config
from warren.instance.rabbittable import RabbitTable
from warren.kube import http, versions
from warren.kube.client import Client, LogReader, Unavailable
from warren.kube.http import HttpClient
from warren.kube.informer import Informers
from warren.kube.kubeconfig import ClusterAccess
from warren.rpc import client as rpc_client
from warren.rpc.bus import Bus, Methods
from warren.rpc.message import Handle, RpcError

if TYPE_CHECKING:
    from warren.daemons.controlmetrics import ControlMetrics


_RETRY_DELAY: Final = 0.2
"""Seconds after which a connection to the instance is tried again."""

_DETECTION_DELAY: Final = 5.0
"""Seconds in which an instance notices that a conductor has died."""

_VERSIONS_TIMEOUT: Final = 30.0
"""Seconds for which a cluster that refuses all requests is asked for its API versions."""


class InstanceConnection(Handle, Protocol):
    """A connection to an instance."""

    async def wait_lost(self) -> None:
        """Wait until the instance is gone, and raise RpcError(ECONNRESET) then."""
        ...


class ConductorBuilder(Protocol):
    """Makes the conductor of an instance, and the service that it offers as `dws`."""

    def __call__(
        self,
        client: Client,
        informers: Informers,
        on_built: Callable[[Conductor], None],
        reader: LogReader,
    ) -> tuple[Methods, dict[str, Runnable]]: ...


class ConnectedInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is connected to: its configuration, and how to build its conductor."""

    rabbit_table: RabbitTable
    """The table `rabbit` of its configuration."""
    build: ConductorBuilder


class InstanceConnector(msgspec.Struct, frozen=True, kw_only=True):
    """How embedded instances, or brokers of Flux, are connected to and read."""

    connect: Callable[[Path, Bus | None], AbstractAsyncContextManager[InstanceConnection]]
    inspect: Callable[[InstanceConnection], Awaitable[ConnectedInstance]]
    """Reads an instance. Raises RpcError, and UserMistake for a wrong configuration."""


async def _inspect(handle: InstanceConnection) -> ConnectedInstance:
    settings = config.from_builtins(await handle.rpc("config.get"))

    def build(
        client: Client,
        informers: Informers,
        on_built: Callable[[Conductor], None],
        reader: LogReader,
    ) -> tuple[Methods, dict[str, Runnable]]:
        owner, clock = os.geteuid(), SystemClock()
        return compose.build_conductor(
            client, informers, clock, handle, settings, owner, on_built, reader
        )

    return ConnectedInstance(rabbit_table=settings.rabbit, build=build)


EMBEDDED_CONNECTOR: Final = InstanceConnector(connect=rpc_client.connect, inspect=_inspect)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the conductor's process."""

    access: ClusterAccess
    instance_socket: Path
    """The instance's socket."""
    instance_connector: InstanceConnector = EMBEDDED_CONNECTOR
    metrics_socket: socket.socket | None = None
    """Where health and metrics are served, if anywhere."""


async def read_rabbit_table(
    instance_socket: Path, instance_connector: InstanceConnector = EMBEDDED_CONNECTOR
) -> RabbitTable:
    """Return table `rabbit` of the instance at a socket; all defaults where none answers."""
    with suppress(RpcError):
        async with instance_connector.connect(instance_socket, None) as handle:
            return (await instance_connector.inspect(handle)).rabbit_table
    return RabbitTable()


async def run(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Run the conductor; when its instance is gone, for the one that follows at the same socket.

    `on_ready` is called whenever it has begun to drive one. Raises UserMistake for an instance
    that has another conductor, or whose owner is another user.
    """
    async with http.connect(settings.access, component="conductor") as client:
        process = _ConductorProcess(
            client, settings.instance_socket, settings.instance_connector, on_ready
        )
        runnables: dict[str, Runnable] = {"conductor": process.run, "watchdog": systemd.watchdog}
        if settings.metrics_socket is not None:
            listener = settings.metrics_socket
            process.has_metrics = True
            runnables["monitoring"] = lambda: monitoring.serve(
                listener, process.exposition, lambda: process.is_driving
            )
        await RunGroup(runnables=runnables).run()


async def run_until_stopped(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Run the conductor until SIGTERM or SIGINT."""
    await until_stopped(run(settings, on_ready))


@dataclass
class _ConductorProcess:
    """Drives one instance after the other at the same socket."""

    client: HttpClient
    socket: Path
    instance_connector: InstanceConnector
    on_ready: Callable[[], None]
    is_driving: bool = False
    has_metrics: bool = False
    """Whether what it does is counted."""
    _metrics: "ControlMetrics | None" = field(default=None, init=False)
    _other_conductor_since: float | None = field(default=None, init=False)
    """Since when the instance has had another conductor."""

    async def run(self) -> None:
        while True:
            bus = Bus(os.geteuid())
            try:
                async with self.instance_connector.connect(self.socket, bus) as handle:
                    await self._drive(bus, handle)
            except RpcError as error:
                if error.errnum == errno.EEXIST:
                    now = asyncio.get_running_loop().time()
                    self._other_conductor_since = self._other_conductor_since or now
                    # One that was killed a moment ago may not have been missed yet.
                    if now - self._other_conductor_since < _DETECTION_DELAY:
                        await asyncio.sleep(_RETRY_DELAY)
                        continue
                    raise UserMistake(
                        f"The instance at {self.socket} has a conductor: stop that one, or run "
                        "the cluster with --separate --no-conductor."
                    ) from error
                if not error.unserved:
                    raise UserMistake(
                        f"The instance at {self.socket} refuses its conductor: {error}. Run it as "
                        "the instance's owner."
                    ) from error
            except Unavailable as error:
                log.info("the cluster does not answer", reason=str(error))
            finally:
                self.is_driving = False
            await asyncio.sleep(_RETRY_DELAY)

    def exposition(self) -> bytes:
        """Return the metrics since it has driven this instance."""
        return self._metrics.exposition() if self._metrics is not None else b""

    async def _drive(self, bus: Bus, handle: InstanceConnection) -> None:
        """Drive an instance until it goes away. Raises RpcError if it is not there."""
        instance = await self.instance_connector.inspect(handle)
        supported = kinds.versions(
            instance.rabbit_table.dws_api_version, instance.rabbit_table.nnf_api_version
        )
        chosen_versions = await versions.choose_when_allowed(
            self.client, supported, seconds=_VERSIONS_TIMEOUT
        )
        run_group = self._build_run_group(
            bus, instance.build, self.client.with_versions(chosen_versions)
        )
        await handle.rpc("service.add", {"service": "dws"})
        driving = asyncio.ensure_future(run_group.run())
        loss = asyncio.ensure_future(handle.wait_lost())
        try:
            await asyncio.wait({driving, loss}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            driving.cancel()
            loss.cancel()
            await asyncio.wait({driving, loss})
        if driving.done() and not driving.cancelled():
            driving.result()
        log.info("the instance has gone away")

    def _build_run_group(self, bus: Bus, build: ConductorBuilder, client: Client) -> RunGroup:
        metered_client, on_built = self._with_metrics(client)
        informers = Informers(metered_client, indexes=INDEXES)
        methods, runnables = build(metered_client, informers, on_built, self.client)
        bus.register("dws", methods)

        async def report_ready() -> None:
            await informers.wait_synced()
            self.is_driving, self._other_conductor_since = True, None
            self.on_ready()

        return RunGroup(
            runnables={"informers": informers.run, **runnables}, wait_ready=report_ready
        )

    def _with_metrics(self, client: Client) -> tuple[Client, Callable[[Conductor], None]]:
        """Return a client that counts requests, and what makes a conductor count, for metrics."""
        if not self.has_metrics:
            return client, lambda conductor: None
        # Imported only where metrics are served.
        from warren.daemons.controlmetrics import ControlMetrics

        # Counters begin anew with each instance, as they do with each process.
        metrics = self._metrics = ControlMetrics()

        def on_built(conductor: Conductor) -> None:
            metrics.register_controllers(conductor.informers, ())
            metrics.register_conductor(conductor)

        return metrics.counting_client(client), on_built
