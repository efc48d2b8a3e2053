"""The conductor of a broker of Flux, in place of flux-coral2's service."""

import asyncio
import base64
import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import orjson
from msgspec.structs import replace

from warren.base import log
from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.conductor.conductor import Conductor, Settings
from warren.conductor.systemstatus import SystemStatusReporter
from warren.daemons import compose
from warren.daemons.conductor import ConnectedInstance, InstanceConnection, InstanceConnector
from warren.daemons.rungroup import Runnable
from warren.dws import kinds
from warren.dws.binding import Phase
from warren.dws.rabbits.nodedrains import DrainPolicy
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.kube.client import Client, LogReader
from warren.kube.informer import Informers
from warren.rpc import brokerclient
from warren.rpc.bus import Methods
from warren.rpc.message import Payload, RpcError
from warren.wlm import health, storagequeries
from warren.wlm.codec import BINDING
from warren.wlm.flux import graph, tables
from warren.wlm.flux.drainer import Drainer
from warren.wlm.flux.fluxion import Fluxion
from warren.wlm.flux.graph import FlashGraph
from warren.wlm.flux.siterules import SiteRules
from warren.wlm.jobs import FluxJobs
from warren.wlm.nodes import hosts_with_properties
from warren.wlm.online import FluxNodes
from warren.wlm.tokens import WorkflowTokens

MIN_ALLOCATION_GIB: Final = 4
"""GiB of the least allocation, unless an admin says otherwise (coral2-spec section 1)."""

_RELOAD_INTERVAL: Final = 30.0
"""Seconds after which the broker's configuration is read again: it has no word for a change."""

_PHASES_WITH_RESOURCES: Final = (Phase.STARTING, Phase.RUNNING, Phase.ENDING)
"""Where a job has its resources."""


def broker_connector(
    *, min_allocation: int, use_fluxion: bool = True, drain_queues: Sequence[str] = ()
) -> InstanceConnector:
    """Return how brokers of Flux are connected to.

    Allocations have `min_allocation` bytes at least. `use_fluxion` is whether Fluxion may give jobs
    their flash, where it has a graph with some. Only nodes of `drain_queues` are drained, where
    some are named.
    """
    inspect = partial(
        _build_connected,
        min_allocation=min_allocation,
        use_fluxion=use_fluxion,
        drain_queues=drain_queues,
    )
    return InstanceConnector(connect=brokerclient.connect, inspect=inspect)


async def _build_connected(
    handle: InstanceConnection,
    *,
    min_allocation: int,
    use_fluxion: bool,
    drain_queues: Sequence[str],
) -> ConnectedInstance:
    configuration = await handle.rpc("config.get")
    rabbit_table = tables.read(configuration)
    for key in tables.unknown_keys(configuration):
        log.warning("misconfiguration: unrecognized key", key=f"rabbit.{key}")
    flash_graph = await _read_graph(handle) if use_fluxion else None
    drainable = await _drainable_nodes(
        handle, configuration, drain_queues or rabbit_table.drain_queues
    )

    def build(
        client: Client,
        informers: Informers,
        on_built: Callable[[Conductor], None],
        reader: LogReader,
    ) -> tuple[Methods, dict[str, Runnable]]:
        broker_conductor = _BrokerConductor(
            handle, client, informers, rabbit_table, flash_graph, drainable, min_allocation, reader
        )
        on_built(broker_conductor.conductor)
        return broker_conductor.methods(), broker_conductor.runnables()

    return ConnectedInstance(rabbit_table=rabbit_table, build=build)


async def _drainable_nodes(
    handle: InstanceConnection, configuration: Payload, queues: Sequence[str]
) -> frozenset[str] | None:
    """Return the nodes that may be drained; None for all. Raises UserMistake."""
    if not queues:
        return None
    properties = tables.properties_of(configuration, queues)
    hosts = hosts_with_properties(await handle.rpc("resource.status"), properties)
    if not hosts:
        raise UserMistake(
            f"No resources found associated with queues {', '.join(queues)}: correct "
            "--drain-queues."
        )
    return hosts


async def _read_graph(handle: InstanceConnection) -> FlashGraph | None:
    """Return the graph that Fluxion goes by; None where it has no flash, or there is no Fluxion."""
    request = {"key": "resource.R", "namespace": "primary", "flags": 0}
    try:
        reply = await handle.rpc("kvs.lookup", request)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise
        return None
    r = orjson.loads(base64.b64decode(reply["val"]["data"]))
    flash_graph = graph.read(r["scheduling"]) if "scheduling" in r else None
    if flash_graph is None or not flash_graph.ssds_by_rabbit:
        log.warning(
            "the broker's R has no rabbits: jobs get their nodes, and flash as far as there is any"
        )
        return None
    return flash_graph


def settings_of(rabbit_table: RabbitTable, *, scheduler_places_flash: bool) -> Settings:
    """Return the settings of a conductor for a real Flux, of its table `rabbit`."""
    settings = compose.conductor_settings(Config(rabbit=rabbit_table))
    placement_policy = replace(
        settings.placement_policy,
        scheduler_places_flash=scheduler_places_flash,
        max_gib_per_node={
            str(file_system): gib for file_system, gib in rabbit_table.policy.maximums.items()
        },
    )
    # Which daemons a site has, its Flux says in the properties of nodes.
    return replace(settings, placement_policy=placement_policy, daemons=None)


class _BrokerConductor:
    """The parts of a broker's conductor."""

    def __init__(
        self,
        handle: InstanceConnection,
        client: Client,
        informers: Informers,
        rabbit_table: RabbitTable,
        flash_graph: FlashGraph | None,
        drainable: frozenset[str] | None,
        min_allocation: int,
        reader: LogReader,
    ) -> None:
        owner = os.geteuid()
        self._handle = handle
        self._client = client
        self._rabbit_table = rabbit_table
        self._drainable = drainable
        self._scheduler_places_flash = flash_graph is not None
        self._rules = SiteRules(rabbit_table, owner)
        self._jobs = FluxJobs(handle, owner, self._rules)
        self._fluxion = Fluxion(
            handle,
            flash_graph or FlashGraph(ssds_by_rabbit={}, path_by_host={}),
            self._has_resources,
        )
        self._jobs.listen(self._fluxion.job_changed)
        self._storages = informers.of(kinds.STORAGE)
        self._nnf_storages = informers.of(kinds.NNF_STORAGE)
        self._policy_listeners: list[Callable[[], None]] = []
        settings = self._settings(rabbit_table)
        clock = SystemClock()
        self.conductor = Conductor(
            client, informers, self._jobs, clock, min_allocation, settings, reader
        )

    def methods(self) -> Methods:
        queries = storagequeries.methods(
            self._jobs.job, self.conductor.wait_reasons, self.conductor.storage
        )
        tokens = WorkflowTokens(self._client, self._userid_of)
        return {**self._jobs.methods(), **queries, **tokens.methods()}

    def runnables(self) -> dict[str, Runnable]:
        return {
            "jobs": self._jobs.run,
            "conductor": self.conductor.run,
            "system status": SystemStatusReporter(self._client, FluxNodes(self._handle)).run,
            "flash": self._follow_flash,
            "configuration": self._follow_configuration,
        }

    def _settings(self, rabbit_table: RabbitTable) -> Settings:
        return settings_of(rabbit_table, scheduler_places_flash=self._scheduler_places_flash)

    def _userid_of(self, job_id: int) -> int:
        job = self._jobs.job(job_id)
        if job is None:
            raise RpcError(errno.ENOENT, "there is no such job with storage")
        return job.userid

    def _has_resources(self, job_id: int) -> bool:
        job = self._jobs.job(job_id)
        return job is not None and job.phase in _PHASES_WITH_RESOURCES

    async def _follow_flash(self) -> None:
        await self._jobs.wait_synced()  # whose resources count for their storage
        await self._nnf_storages.wait_synced()
        await self._storages.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            following = health.follow_health(
                self._storages,
                self._nnf_storages,
                BINDING,
                self._fluxion,
                Drainer(self._handle),
                self._drain_policy,
                self._policy_listeners.append,
            )
            tasks.create_task(following)
            # Second: Fluxion is told of no rabbit before it is known what is to be of it.
            tasks.create_task(self._fluxion.run())

    def _drain_policy(self) -> DrainPolicy:
        return DrainPolicy(
            drain_compute_nodes=self._rabbit_table.drain_compute_nodes,
            soft_drain=self._rabbit_table.soft_drain,
            drainable=self._drainable,
        )

    async def _follow_configuration(self) -> None:
        """Apply changes of the broker's configuration, until cancelled."""
        while True:
            await asyncio.sleep(_RELOAD_INTERVAL)
            with suppress(RpcError):  # the broker has gone away: others see to that
                self._configure(await self._handle.rpc("config.get"))

    def _configure(self, configuration: Payload) -> None:
        try:
            rabbit_table = tables.read(configuration)
        except UserMistake as mistake:
            log.warning("the configuration is as it was", reason=str(mistake))
            return
        if rabbit_table == self._rabbit_table:
            return
        self._rabbit_table = rabbit_table
        self._rules.configure(rabbit_table)
        self.conductor.configure(self._settings(rabbit_table))
        for listener in self._policy_listeners:
            listener()
