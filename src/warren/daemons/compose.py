"""The whole, built from parts. Nothing else in the house knows everybody.

Everything that is outside of a process comes in as a port: clock, journals,
launcher, machines. A test gives others, and has the same system in its hands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from warren.base.clock import Clock
from warren.conductor.conductor import Conductor
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.machine import Machine
from warren.controllers.mounts import MountReconciler
from warren.controllers.movement import MovementReconciler
from warren.controllers.rabbit import RabbitReconciler
from warren.controllers.storage import StorageController
from warren.controllers.system import SystemController
from warren.controllers.workflow import WorkflowController
from warren.daemons import cluster
from warren.daemons.admission import WorkflowAdmission
from warren.daemons.site import Site
from warren.directives import rules as directive_rules
from warren.dws import kinds, labels
from warren.dws.objects import LustreFileSystem, NnfStorageProfile, read
from warren.instance.barrier import Barriers
from warren.instance.execution import JobExec, Launcher
from warren.instance.ingest import Ingest
from warren.instance.jobinfo import JobInfo, JobList
from warren.instance.kvs import Kvs
from warren.instance.manager import JobManager
from warren.instance.resource import Resources
from warren.instance.scheduler import FirstCome
from warren.instance.service import JobManagerService
from warren.journal import Journal
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.local import LocalClient
from warren.kube.server.store import Store
from warren.rpc.bus import Bus
from warren.rpc.message import Handle
from warren.scheduling.graph import Graph
from warren.wlm.embedded.manager import EmbeddedJobs
from warren.wlm.embedded.plugin import DwsPlugin
from warren.wlm.embedded.validator import StorageValidator

INDEXES = {"workflow": labels.workflow_of, "owner": labels.owner_of}

FLOOR = 0
"""The least size of an allocation in bytes. Real rabbits have a reason for one; this has none."""

Part = Callable[[], Awaitable[None]]
"""Something that lives until it is cancelled."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """What the control process stands on."""

    clock: Clock
    objects: Journal
    """The API server's journal."""
    jobs: Journal
    """The KVS's journal."""
    launcher: Callable[[Bus, Handle], Launcher]
    """Makes the launcher, which may offer services on the bus."""
    owner: int
    mount_prefix: str
    client: Callable[[Client], Client] = lambda client: client
    """Wraps the client of each component: a test sees every write there."""


@dataclass(kw_only=True)
class System:
    """Parts that live together. If one of them dies, all do."""

    parts: dict[str, Part] = field(default_factory=dict)
    before: Part | None = None
    """What is to be done before they start, while `first` run already."""
    first: dict[str, Part] = field(default_factory=dict)
    settled: Part | None = None
    """Returns when what has started is ready to be used."""

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Live until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, part in self.first.items():
                tasks.create_task(_living(part), name=name)
            if self.before is not None:
                await self.before()
            for name, part in self.parts.items():
                tasks.create_task(_living(part), name=name)
            if self.settled is not None:
                await self.settled()
            if ready is not None:
                ready.set()


async def _living(part: Part) -> None:
    await part()


@dataclass(frozen=True, kw_only=True)
class Control:
    """The control process: API server's store, controllers, conductor, instance."""

    system: System
    store: Store
    bus: Bus
    kvs: Kvs
    manager: JobManager


def control(site: Site, ports: Ports) -> Control:
    """Build the control process."""
    admission = WorkflowAdmission()
    store = Store(ports.objects, ports.clock, admission)
    admission.connect(lambda kind: list(store.everything(kind)))
    local = LocalClient(store)
    informers = Informers(local, indexes=INDEXES)

    r = site.r()
    graph = Graph(r)
    bus = Bus(ports.owner)
    handle = bus.handle()
    kvs = Kvs(ports.jobs, ports.owner)
    barriers = Barriers()
    manager = JobManager(kvs, ports.clock, handle)
    scheduler = FirstCome(kvs, ports.clock, graph, manager.allocated)
    resources = Resources(kvs, ports.clock, r, graph, scheduler.set_drained)
    launcher = ports.launcher(bus, handle)
    execution = JobExec(kvs, ports.clock, launcher, barriers, manager.executed)
    manager.connect(scheduler, execution)
    manager.load(DwsPlugin())
    validator = StorageValidator(
        rules=lambda: directive_rules.rules_of(informers.of(kinds.RULE).all()),
        file_systems=lambda: [
            read(obj, LustreFileSystem) for obj in informers.of(kinds.LUSTRE).all()
        ],
        profiles=lambda: [
            read(obj, NnfStorageProfile)
            for obj in informers.of(kinds.NNF_STORAGE_PROFILE).all()
            if obj["metadata"]["namespace"] == kinds.PROFILES_NAMESPACE
        ],
        feasible=graph.feasible,
        floor=FLOOR,
    )
    jobs = EmbeddedJobs(handle)
    bus.register("kvs", kvs.methods())
    bus.register("barrier", barriers.methods())
    bus.register("job-manager", JobManagerService(manager, execution).methods())
    bus.register("job-ingest", Ingest(manager, ports.clock, [validator]).methods())
    bus.register("job-info", JobInfo(kvs, manager).methods())
    bus.register("job-list", JobList(manager).methods())
    bus.register("resource", resources.methods())
    bus.register("dws", jobs.methods())

    client, clock = ports.client, ports.clock
    reconcilers = [
        WorkflowController(client(local), informers, clock, ports.mount_prefix).reconciler,
        BreakdownController(client(local), informers).reconciler,
        StorageController(client(local), informers).reconciler,
        AccessController(client(local), informers).reconciler,
        SystemController(client(local), informers).reconciler,
    ]
    conductor = Conductor(ports.client(local), informers, jobs, ports.clock, FLOOR)
    informers.of(kinds.RULE)
    system = System(
        first={"store": store.run, "kvs": kvs.run},
        before=lambda: cluster.establish(ports.client(local), site),
        settled=informers.wait_synced,
        parts={
            "informers": informers.run,
            **{each.name: _synced(informers, each.run) for each in reconcilers},
            "job manager": manager.run,
            "scheduler": scheduler.run,
            "resources": resources.run,
            "execution": execution.run,
            "jobs": jobs.run,
            "conductor": conductor.run,
        },
    )
    return Control(system=system, store=store, bus=bus, kvs=kvs, manager=manager)


def agent(client: Client, clock: Clock, node: str, machine: Machine, *, rabbit: bool) -> System:
    """Build the agent of one node, which watches that node's namespace and nothing else."""
    informers = Informers(client, namespace=node, indexes=INDEXES)
    reconcilers = [MountReconciler(client, informers, machine).reconciler]
    if rabbit:
        own = RabbitReconciler(client, informers, machine, node)
        movements = MovementReconciler(client, informers, machine, clock)
        reconcilers += [own.reconciler, own.announcer, movements.reconciler]
    return System(
        parts={
            f"{node} informers": informers.run,
            **{f"{node} {each.name}": _synced(informers, each.run) for each in reconcilers},
        }
    )


def compose(site: Site, ports: Ports, machines: Mapping[str, Machine]) -> tuple[Control, System]:
    """Build everything into one process: the control process, and an agent for each machine."""
    built = control(site, ports)
    rabbits = {chassis.rabbit for chassis in site.chassis()}
    system = replace(built.system, parts=dict(built.system.parts))
    for node, machine in machines.items():
        client = ports.client(LocalClient(built.store))
        one = agent(client, ports.clock, node, machine, rabbit=node in rabbits)
        system.parts.update(one.parts)
    return built, system


def _synced(informers: Informers, part: Part) -> Part:
    """Start a part once everything that it looks at is known."""

    async def run() -> None:
        await informers.wait_synced()
        await part()

    return run
