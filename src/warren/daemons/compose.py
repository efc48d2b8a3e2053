"""The whole, built from parts. No other module knows all of them.

Everything that is outside of a process comes in as a port: clock, journals,
launcher, machines. A test gives others, and has the same system in its hands.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from warren.base.clock import Clock
from warren.conductor.conductor import Conductor, Settings
from warren.conductor.systemstatus import SystemStatusReporter
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.events import EventRecorder
from warren.controllers.filesystemtypes import is_made_by_some_only, why_not_made
from warren.controllers.globalfs import GlobalFileSystemController
from warren.controllers.localnode import LocalNode
from warren.controllers.lustremgts import LustreMgtController
from warren.controllers.persistent import PersistentController
from warren.controllers.ports import PortController
from warren.controllers.rabbits import SystemController
from warren.controllers.shutdowns import ShutdownController
from warren.controllers.storage import StorageController
from warren.controllers.systemstorage import SystemStorageController
from warren.controllers.workflow import WorkflowController
from warren.daemons import apiserver
from warren.daemons.agentreconcilers import build_agent
from warren.daemons.clustershape import ClusterShape
from warren.daemons.instance import Instance, InstanceDependencies, assemble
from warren.daemons.rungroup import INDEXES, RunGroup, Runnable, runnables_after_sync
from warren.directives import rules as directive_rules
from warren.dws import kinds
from warren.dws.containers import containerprofiles
from warren.dws.containers.containerprofiles import ContainerProfile
from warren.dws.jobs.placement import PlacementPolicy
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.jobs.unsavedresults import UnsavedPolicy
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import Storage
from warren.dws.offload import copyservice
from warren.dws.pods.pod import why_no_node_runs_pods
from warren.dws.rabbits.nodedrains import DrainPolicy
from warren.instance import config, rabbittable, storagetables
from warren.instance.ingest import Validator
from warren.instance.resource import Resources
from warren.journal import Journal
from warren.kube.client import Client, LogReader
from warren.kube.informer import Informer, Informers
from warren.kube.runtime import Reconciler
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.local import LocalClient
from warren.kube.server.logs import PodLogSource
from warren.rfc.fluid import JobId
from warren.rpc.bus import Methods
from warren.rpc.message import Handle, RpcError
from warren.scheduling.graph import Graph
from warren.wlm import health, jobdirectives, storagequeries
from warren.wlm.codec import BINDING
from warren.wlm.embedded.jobdaemons import DaemonCommands
from warren.wlm.embedded.persistentservice import PersistentService
from warren.wlm.embedded.plugin import DwsPlugin
from warren.wlm.embedded.storageinstances import StorageInstances
from warren.wlm.embedded.validator import StorageValidator
from warren.wlm.jobs import FluxJobs
from warren.wlm.online import FluxNodes
from warren.wlm.presets import Presets
from warren.wlm.tokens import WorkflowTokens

if TYPE_CHECKING:
    from warren.daemons.controlmetrics import ControlMetrics
    from warren.daemons.offload import Endpoint as OffloadEndpoint

MIN_ALLOCATION = 0
"""The least size of an allocation in bytes. Real rabbits have a reason for one; this has none."""


ClientWrapper = Callable[[Client], Client]
"""Stands between a component and the API: a test sees every write there."""


class ControlDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What the control process is built on."""

    objects_journal: Journal
    """The API server's journal."""
    instance: InstanceDependencies
    mount_prefix: str
    wrap_client: ClientWrapper = lambda client: client
    """Wraps the client of each component."""
    container_logs: PodLogSource | None = None
    """What the pods of this machine print, if it runs any."""
    offload: "OffloadEndpoint | None" = None
    """Where running jobs ask for copies, if anywhere."""
    metrics: "ControlMetrics | None" = None
    """Where what it does is counted, if anywhere."""

    @property
    def clock(self) -> Clock:
        return self.instance.clock


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The control process: API server, controllers, conductor, instance, service for copies."""

    run_group: RunGroup
    api: EmbeddedApi
    instance: Instance


def build_instance(
    shape: ClusterShape, dependencies: InstanceDependencies, informers: Informers, client: Client
) -> Instance:
    """Build the instance, which reads what it knows of the storage side in the API.

    What users change there through it, it writes by `client`.
    """

    def directives_of(job: int, userid: int) -> Sequence[str]:
        with suppress(RpcError):
            active_job = built.manager.active_job(JobId(job))
            return (
                jobdirectives.directives(active_job.jobspec) or ()
                if active_job.job.userid == userid
                else ()
            )
        return ()

    rabbit_table = dependencies.config.rabbit
    configured_validators: list[_ConfiguredValidator] = []

    def validators(graph: Graph) -> Sequence[Validator]:
        build = partial(_build_validator, informers, graph, dependencies, directives_of)
        configured_validators.append(_ConfiguredValidator(build, dependencies.config))
        return configured_validators

    plugin = DwsPlugin(
        dependencies.clock, dependencies.owner, rabbit_table.seconds("epilog_timeout")
    )
    presets = Presets(rabbit_table.directives)
    built = assemble(
        shape.resource_set(dependencies.config.storage.quantum_gib),
        dependencies,
        plugins=[plugin],
        perilogs=[DaemonCommands(dependencies.config.daemons)],
        validators=validators,
        frobnicators=[presets],
    )
    health.mark_all_down((chassis.rabbit for chassis in shape.chassis()), built.scheduler)
    storage_table = dependencies.config.storage
    built.bus.register(
        "persistent",
        PersistentService(
            client, informers, dependencies.clock, storage_table.max_lifetime
        ).methods(),
    )
    tokens = WorkflowTokens(client, lambda job: built.manager.active_job(JobId(job)).job.userid)
    built.bus.register(tokens.name, tokens.methods())
    storages, nnf_storages = informers.of(kinds.STORAGE), informers.of(kinds.NNF_STORAGE)
    live_drain_policy = _LiveDrainPolicy(rabbit_table, built.resources)

    def configure(new_config: config.Config) -> None:
        plugin.configure(new_config.rabbit.seconds("epilog_timeout"))
        presets.configure(new_config.rabbit.directives)
        live_drain_policy.configure(new_config.rabbit)
        for validator in configured_validators:
            validator.configure(new_config)

    built.configuration.listen(configure)
    return replace(
        built,
        runnables={
            **built.runnables,
            "flash": lambda: health.follow_health(
                storages,
                nnf_storages,
                BINDING,
                built.scheduler,
                built.resources,
                lambda: live_drain_policy.current,
                live_drain_policy.listeners.append,
            ),
        },
    )


class _ConfiguredValidator:
    """Judges the storage part of jobspecs, as it is configured now."""

    def __init__(
        self, build: Callable[[config.Config], StorageValidator], settings: config.Config
    ) -> None:
        self._build = build
        self._validator = build(settings)

    def configure(self, settings: config.Config) -> None:
        self._validator = self._build(settings)

    def __call__(self, spec: Mapping[str, Any], userid: int) -> Mapping[str, Any]:
        return self._validator(spec, userid)


class _LiveDrainPolicy:
    """What a site wants of nodes that have lost their rabbit, as it is configured now."""

    def __init__(self, rabbit_table: rabbittable.RabbitTable, resources: Resources) -> None:
        self._resources = resources
        self.current = drain_policy(rabbit_table, resources)
        self.listeners: list[Callable[[], None]] = []

    def configure(self, rabbit_table: rabbittable.RabbitTable) -> None:
        previous, self.current = self.current, drain_policy(rabbit_table, self._resources)
        for listener in self.listeners if self.current != previous else ():
            listener()


def drain_policy(rabbit_table: rabbittable.RabbitTable, resources: Resources) -> DrainPolicy:
    """Return what a site wants of nodes that have lost their rabbit."""
    queues = rabbit_table.drain_queues
    return DrainPolicy(
        drain_compute_nodes=rabbit_table.drain_compute_nodes,
        soft_drain=rabbit_table.soft_drain,
        drainable=resources.hosts_of_queues(queues) if queues else None,
    )


def placement_policy(storage: storagetables.StorageTable) -> PlacementPolicy:
    """Return what a site wants of how storage is placed."""
    return PlacementPolicy(
        scale=storage.scale,
        max_allocations=storage.most_allocations,
        allow_any_rabbit=storage.placement == "any",
    )


def timeouts(rabbit_table: rabbittable.RabbitTable) -> Timeouts:
    """Return for how long a site lets Workflows be in each state."""
    return Timeouts(
        transient=rabbit_table.seconds("tc_timeout"),
        setup=rabbit_table.seconds("setup_timeout"),
        prerun=rabbit_table.seconds("prerun_timeout"),
        postrun=rabbit_table.seconds("postrun_timeout"),
        teardown_after=rabbit_table.seconds("teardown_after"),
        teardown_latest=rabbit_table.seconds("teardown_latest"),
    )


def _build_validator(
    informers: Informers,
    graph: Graph,
    dependencies: InstanceDependencies,
    directives_of: Callable[[int, int], Sequence[str]],
    settings: config.Config,
) -> StorageValidator:
    rules, profiles = informers.of(kinds.DIRECTIVE_RULE), informers.of(kinds.NNF_STORAGE_PROFILE)
    file_systems, rabbits = informers.of(kinds.LUSTRE_FILE_SYSTEM), informers.of(kinds.STORAGE)
    kubernetes_nodes, container_profiles = (
        informers.of(kinds.NODE),
        informers.of(kinds.CONTAINER_PROFILE),
    )
    copy_profiles = informers.of(kinds.COPY_PROFILE)
    configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
    instances = StorageInstances(informers)
    storage, clock = settings.storage, dependencies.clock
    rabbit_table = settings.rabbit
    return StorageValidator(
        rules=lambda: directive_rules.rules_of(rules.all()),
        file_systems=lambda: [read(obj, LustreFileSystem) for obj in file_systems.all()],
        profiles=lambda: [
            read(obj, NnfStorageProfile)
            for obj in profiles.by_index("profiles", kinds.PROFILES_NAMESPACE)
        ],
        rabbits=lambda: [read(obj, Storage) for obj in rabbits.all()],
        find_refusal=graph.infeasibility,
        largest_rabbit_gib=lambda: graph.largest_chassis_gib,
        policy=placement_policy(storage),
        min_allocation=MIN_ALLOCATION,
        now=clock.now,
        max_lifetime=storage.max_lifetime,
        persistent=instances,
        nodes=instances.nodes,
        directives_of=directives_of,
        max_gib_per_node={str(kind): most for kind, most in rabbit_table.policy.maximums.items()},
        creator=dependencies.owner if rabbit_table.restricts_persistent else None,
        unsaved_choices=rabbit_table.unsaved_results,
        containers=lambda: _container_profiles(kubernetes_nodes, container_profiles),
        copy_profiles=lambda: frozenset(
            obj["metadata"]["name"]
            for obj in copy_profiles.by_index("profiles", kinds.PROFILES_NAMESPACE)
        ),
        why_not_made=partial(why_not_made, rabbits),
        only_some_rabbits_make=partial(is_made_by_some_only, rabbits),
        offload=lambda: (
            copyservice.service_of_configuration(configurations.get(kinds.CONFIGURATION_KEY))
            is not None
        ),
    )


def _container_profiles(
    kubernetes_nodes: Informer, container_profiles: Informer
) -> dict[str, ContainerProfile] | str:
    """Return the profiles of containers that jobs choose from, or why no rabbit runs any."""
    reason = why_no_node_runs_pods(kubernetes_nodes.values())
    if reason is not None:
        return reason
    return containerprofiles.by_name(
        container_profiles.by_index("profiles", kinds.PROFILES_NAMESPACE)
    )


def build_controllers(
    client: Callable[[], Client],
    informers: Informers,
    clock: Clock,
    mount_prefix: str,
    max_lifetime: float | None = None,
) -> list[Reconciler[Any]]:
    """Build the controllers of the storage side, each with a client from `client`.

    `max_lifetime` is for how many seconds persistent storage is kept at most.
    """
    return [
        WorkflowController(client(), informers, clock, mount_prefix).reconciler,
        BreakdownController(client(), informers).reconciler,
        PersistentController(client(), informers, clock, max_lifetime).reconciler,
        StorageController(client(), informers, clock).reconciler,
        AccessController(client(), informers).reconciler,
        SystemController(client(), informers).reconciler,
        PortController(client(), informers, clock).reconciler,
        ShutdownController(client(), informers).reconciler,
        SystemStorageController(client(), informers).reconciler,
        GlobalFileSystemController(client(), informers).reconciler,
        LustreMgtController(client(), informers).reconciler,
        EventRecorder(client(), informers, clock).reconciler,
    ]


def build_conductor(
    client: Client,
    informers: Informers,
    clock: Clock,
    handle: Handle,
    settings: config.Config,
    owner: int,
    on_built: Callable[[Conductor], None] = lambda conductor: None,
    reader: LogReader | None = None,
) -> tuple[Methods, dict[str, Runnable]]:
    """Build the conductor of an owner's instance, and the service that it is to offer as `dws`.

    `on_built` is called with the conductor, so that metrics can count what it does. `reader` reads
    logs of containers.
    """
    jobs = FluxJobs(handle, owner)
    built = Conductor(
        client, informers, jobs, clock, MIN_ALLOCATION, conductor_settings(settings), reader
    )
    on_built(built)
    methods = {
        **jobs.methods(),
        **storagequeries.methods(jobs.job, built.wait_reasons, built.storage),
    }
    status_reporter = SystemStatusReporter(client, FluxNodes(handle))
    runnables: dict[str, Runnable] = {
        "jobs": jobs.run,
        "conductor": built.run,
        "system status": status_reporter.run,
        "conductor's settings": lambda: _follow_settings(handle, built),
    }
    return methods, runnables


def conductor_settings(settings: config.Config) -> Settings:
    """Return what a conductor takes of a configuration."""
    rabbit_table = settings.rabbit
    return Settings(
        placement_policy=placement_policy(settings.storage),
        timeouts=timeouts(rabbit_table),
        unsaved_policy=UnsavedPolicy(rabbit_table.unsaved_results[0]),
        daemons=settings.daemons,
        # Which nodes a site lets be drained, by queues, is the instance's to know.
        drains=rabbit_table.drain_compute_nodes and not rabbit_table.drain_queues,
        return_to_service=rabbit_table.return_to_service,
        max_recorded_movements=rabbit_table.save_datamovements,
    )


async def _follow_settings(handle: Handle, conductor: Conductor) -> None:
    """Apply changes of the instance's configuration to its conductor, until cancelled."""
    with suppress(RpcError):  # the instance has gone away: others see to that
        async with aclosing(handle.stream("config.watch")) as updates:  # type: ignore[type-var]
            async for each in updates:
                conductor.configure(conductor_settings(config.from_builtins(each)))
    await asyncio.Event().wait()


def build_control(shape: ClusterShape, dependencies: ControlDependencies) -> Control:
    """Build the control process: all but the nodes' agents, over the local client."""
    embedded = apiserver.build(dependencies.objects_journal, dependencies.clock)
    local = LocalClient(embedded.store)
    informers = Informers(dependencies.wrap_client(local), indexes=INDEXES)
    instance = build_instance(
        shape, dependencies.instance, informers, dependencies.wrap_client(local)
    )
    reconcilers = build_controllers(
        lambda: dependencies.wrap_client(local),
        informers,
        dependencies.clock,
        dependencies.mount_prefix,
        dependencies.instance.config.storage.max_lifetime,
    )
    if dependencies.metrics is not None:
        dependencies.metrics.register_controllers(informers, reconcilers)
    methods, conductor_runnables = build_conductor(
        dependencies.wrap_client(local),
        informers,
        dependencies.clock,
        instance.handle,
        dependencies.instance.config,
        dependencies.instance.owner,
        dependencies.metrics.register_conductor
        if dependencies.metrics is not None
        else lambda conductor: None,
        LocalClient(embedded.store, dependencies.container_logs),
    )
    instance.bus.register("dws", methods)

    endpoint = dependencies.offload
    offload_runnables: dict[str, Runnable] = {}
    if endpoint is not None:
        offload_runnables["copy offload"] = partial(
            endpoint.serve, dependencies.wrap_client(local), informers
        )

    async def establish() -> None:
        await embedded.create_defaults()
        await apiserver.establish(local, shape, dependencies.instance.config.daemons)
        if endpoint is not None:
            await endpoint.announce(local)

    run_group = RunGroup(
        outer_runnables={"api": embedded.run, "kvs": instance.kvs.run},
        prepare=establish,
        wait_ready=informers.wait_synced,
        runnables={
            "informers": informers.run,
            **runnables_after_sync(informers, reconcilers),
            "jobs of the API": lambda: apiserver.run_job_controller(local, dependencies.clock),
            "event expiry": lambda: apiserver.expire_events(local, dependencies.clock),
            **instance.runnables,
            **conductor_runnables,
            **offload_runnables,
        },
    )
    return Control(run_group=run_group, api=embedded, instance=instance)


def build_single_process(
    shape: ClusterShape, dependencies: ControlDependencies, local_nodes: Mapping[str, LocalNode]
) -> tuple[Control, RunGroup]:
    """Build everything into one process: the control process, and an agent for each node."""
    built = build_control(shape, dependencies)
    rabbits = {chassis.rabbit for chassis in shape.chassis()}
    run_group = replace(built.run_group, runnables=dict(built.run_group.runnables))
    for node, local_node in local_nodes.items():
        client = dependencies.wrap_client(LocalClient(built.api.store))
        agent = build_agent(client, dependencies.clock, node, local_node, is_rabbit=node in rabbits)
        run_group.runnables.update(agent.runnables)
    return built, run_group
