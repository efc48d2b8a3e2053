"""The whole, built from parts. No other module knows all of them.

Everything that is outside of a process comes in as a port: clock, journals,
launcher, machines. A test gives others, and has the same system in its hands.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from warren.base.clock import Clock
from warren.base.objects import Key
from warren.conductor.conductor import Conductor
from warren.conductor.systemstatus import SystemStatus
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.globalfs import GlobalFileSystemController
from warren.controllers.machine import Machine
from warren.controllers.persistent import PersistentController
from warren.controllers.rabbits import SystemController
from warren.controllers.storage import StorageController
from warren.controllers.systemstorage import SystemStorageController
from warren.controllers.workflow import WorkflowController
from warren.daemons import apiserver
from warren.daemons.agents import agent
from warren.daemons.instance import Foundation, Instance, assemble
from warren.daemons.site import Site
from warren.daemons.together import INDEXES, Part, System, synced
from warren.directives import rules as directive_rules
from warren.dws import kinds
from warren.dws.health import Policy as DrainPolicy
from warren.dws.objects import LustreFileSystem, NnfStorageProfile, Storage, read
from warren.dws.placement import Policy
from warren.dws.timeouts import Timeouts
from warren.instance import config
from warren.instance.resource import Resources
from warren.journal import Journal
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.kube.server.embedded import Embedded
from warren.kube.server.local import LocalClient
from warren.rfc.fluid import JobId
from warren.rpc.bus import Methods
from warren.rpc.message import Handle, RpcError
from warren.scheduling.graph import Graph
from warren.wlm import view
from warren.wlm.codec import BINDING
from warren.wlm.embedded import health, waits
from warren.wlm.embedded.daemons import DaemonCommands
from warren.wlm.embedded.instances import Instances
from warren.wlm.embedded.manager import EmbeddedJobs
from warren.wlm.embedded.online import OnlineNodes
from warren.wlm.embedded.persistents import PersistentStorage
from warren.wlm.embedded.plugin import DwsPlugin
from warren.wlm.embedded.presets import Presets
from warren.wlm.embedded.validator import StorageValidator

FLOOR = 0
"""The least size of an allocation in bytes. Real rabbits have a reason for one; this has none."""


Wrap = Callable[[Client], Client]
"""Stands between a component and the API: a test sees every write there."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """What the control process stands on."""

    objects: Journal
    """The API server's journal."""
    instance: Foundation
    mount_prefix: str
    client: Wrap = lambda client: client
    """Wraps the client of each component."""

    @property
    def clock(self) -> Clock:
        return self.instance.clock


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control process: API server, controllers, conductor, instance."""

    system: System
    api: Embedded
    instance: Instance


def instance(site: Site, stands_on: Foundation, informers: Informers, client: Client) -> Instance:
    """Build the instance. What it knows of the storage side, it reads in the API.

    What users change there of their own, it writes by the client.
    """

    def made_by(job: int, userid: int) -> Sequence[str]:
        with suppress(RpcError):
            found = built.manager.found(JobId(job))
            return view.directives(found.jobspec) or () if found.job.userid == userid else ()
        return ()

    rabbit = stands_on.config.rabbit
    built = assemble(
        site.r(stands_on.config.storage.quantum_gib),
        stands_on,
        plugins=[DwsPlugin(stands_on.clock, stands_on.owner, rabbit.seconds("epilog_timeout"))],
        around=[DaemonCommands(stands_on.config.daemons)],
        validators=lambda graph: [_validator(informers, graph, stands_on, made_by)],
        frobnicators=[Presets(rabbit.directives)],
    )
    health.withhold((chassis.rabbit for chassis in site.chassis()), built.scheduler)
    settings = stands_on.config.storage
    built.bus.register(
        "persistent",
        PersistentStorage(client, informers, stands_on.clock, settings.most_lifetime).methods(),
    )
    storages, taken = informers.of(kinds.STORAGE), informers.of(kinds.NNF_STORAGE)
    drains = drain_policy(rabbit, built.resources)
    return replace(
        built,
        parts={
            **built.parts,
            "flash": lambda: health.follow(
                storages, taken, BINDING, built.scheduler, built.resources, lambda: drains
            ),
        },
    )


def drain_policy(rabbit: config.Rabbit, resources: Resources) -> DrainPolicy:
    """Return what a site wants of nodes that have lost their rabbit."""
    queues = rabbit.drain_queues
    return DrainPolicy(
        drain_compute_nodes=rabbit.drain_compute_nodes,
        soft_drain=rabbit.soft_drain,
        drainable=resources.of_queues(queues) if queues else None,
    )


def policy(storage: config.Storage) -> Policy:
    """Return what a site wants of how storage is placed."""
    return Policy(
        scale=storage.scale,
        most=storage.most_allocations,
        anywhere=storage.placement == "any",
    )


def timeouts(rabbit: config.Rabbit) -> Timeouts:
    """Return for how long a site lets Workflows be in each state."""
    return Timeouts(
        transient=rabbit.seconds("tc_timeout"),
        setup=rabbit.seconds("setup_timeout"),
        prerun=rabbit.seconds("prerun_timeout"),
        postrun=rabbit.seconds("postrun_timeout"),
        teardown_after=rabbit.seconds("teardown_after"),
        teardown_latest=rabbit.seconds("teardown_latest"),
    )


def _validator(
    informers: Informers,
    graph: Graph,
    stands_on: Foundation,
    made_by: Callable[[int, int], Sequence[str]],
) -> StorageValidator:
    rules, profiles = informers.of(kinds.RULE), informers.of(kinds.NNF_STORAGE_PROFILE)
    file_systems, rabbits = informers.of(kinds.LUSTRE), informers.of(kinds.STORAGE)
    instances = Instances(informers)
    storage, clock = stands_on.config.storage, stands_on.clock
    rabbit = stands_on.config.rabbit
    return StorageValidator(
        rules=lambda: directive_rules.rules_of(rules.all()),
        file_systems=lambda: [read(obj, LustreFileSystem) for obj in file_systems.all()],
        profiles=lambda: [
            read(obj, NnfStorageProfile)
            for obj in profiles.by("profiles", kinds.PROFILES_NAMESPACE)
        ],
        rabbits=lambda: [read(obj, Storage) for obj in rabbits.all()],
        feasible=graph.feasible,
        largest=lambda: graph.largest,
        policy=policy(storage),
        floor=FLOOR,
        now=clock.now,
        most_lifetime=storage.most_lifetime,
        persistent=instances,
        nodes=instances.nodes,
        made_by=made_by,
        maximums={str(kind): most for kind, most in rabbit.policy.maximums.items()},
        creator=stands_on.owner if rabbit.restricts_persistent else None,
    )


def controllers(
    client: Callable[[], Client],
    informers: Informers,
    clock: Clock,
    mount_prefix: str,
    most_lifetime: float | None = None,
) -> list[Reconciler[Key]]:
    """Build the controllers of the storage side, each with a client from `client`.

    `most_lifetime` is for how many seconds persistent storage is kept at most.
    """
    return [
        WorkflowController(client(), informers, clock, mount_prefix).reconciler,
        BreakdownController(client(), informers).reconciler,
        PersistentController(client(), informers, clock, most_lifetime).reconciler,
        StorageController(client(), informers, clock).reconciler,
        AccessController(client(), informers).reconciler,
        SystemController(client(), informers).reconciler,
        SystemStorageController(client(), informers).reconciler,
        GlobalFileSystemController(client(), informers).reconciler,
    ]


def conductor(
    client: Client,
    informers: Informers,
    clock: Clock,
    handle: Handle,
    settings: config.Config,
    owner: int,
    observe: Callable[[Conductor], None] = lambda conductor: None,
) -> tuple[Methods, dict[str, Part]]:
    """Build the conductor of an owner's instance, and the service that it is to offer as `dws`.

    `observe` may have it counted.
    """
    jobs = EmbeddedJobs(handle, owner)
    leading = Conductor(
        client,
        informers,
        jobs,
        clock,
        FLOOR,
        policy(settings.storage),
        timeouts(settings.rabbit),
        settings.daemons,
        # Which nodes a site lets be drained, by queues, is the instance's to know.
        drains=settings.rabbit.drain_compute_nodes and not settings.rabbit.drain_queues,
        kept_movements=settings.rabbit.save_datamovements,
    )
    observe(leading)
    methods = {**jobs.methods(), **waits.methods(jobs.job, leading.waiting)}
    nodes = SystemStatus(client, OnlineNodes(handle))
    return methods, {"jobs": jobs.run, "conductor": leading.run, "system status": nodes.run}


def control(site: Site, ports: Ports) -> Control:
    """Build the control process: all but the nodes' agents, over the local client."""
    embedded = apiserver.built(ports.objects, ports.clock)
    local = LocalClient(embedded.store)
    informers = Informers(ports.client(local), indexes=INDEXES)
    flux = instance(site, ports.instance, informers, ports.client(local))
    reconcilers = controllers(
        lambda: ports.client(local),
        informers,
        ports.clock,
        ports.mount_prefix,
        ports.instance.config.storage.most_lifetime,
    )
    methods, leading = conductor(
        ports.client(local),
        informers,
        ports.clock,
        flux.handle,
        ports.instance.config,
        ports.instance.owner,
    )
    flux.bus.register("dws", methods)

    async def establish() -> None:
        await embedded.begin()
        await apiserver.establish(local, site, ports.instance.config.daemons)

    system = System(
        first={"api": embedded.run, "kvs": flux.kvs.run},
        before=establish,
        settled=informers.wait_synced,
        parts={
            "informers": informers.run,
            **synced(informers, reconcilers),
            **flux.parts,
            **leading,
        },
    )
    return Control(system=system, api=embedded, instance=flux)


def compose(site: Site, ports: Ports, machines: Mapping[str, Machine]) -> tuple[Control, System]:
    """Build everything into one process: the control process, and an agent for each machine."""
    built = control(site, ports)
    rabbits = {chassis.rabbit for chassis in site.chassis()}
    system = replace(built.system, parts=dict(built.system.parts))
    for node, machine in machines.items():
        client = ports.client(LocalClient(built.api.store))
        one = agent(client, ports.clock, node, machine, rabbit=node in rabbits)
        system.parts.update(one.parts)
    return built, system
