"""The embedded instance, built from its parts: the cluster's own, and those of batch jobs."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from warren.base.clock import Clock
from warren.daemons.rungroup import Runnable
from warren.instance.barrier import Barriers
from warren.instance.config import Config
from warren.instance.configservice import LiveConfig
from warren.instance.content import Content
from warren.instance.exec.draining import drainer
from warren.instance.exec.execution import JobExec, Launcher
from warren.instance.exec.perilog import Commands, Perilog, PerilogSteps, SitePerilogSteps
from warren.instance.ingest import Frobnicator, Ingest, Validator
from warren.instance.jobinfo import JobInfo
from warren.instance.joblist import JobList
from warren.instance.jobs.jobtap import Plugin
from warren.instance.jobs.manager import JobManager
from warren.instance.jobs.plugins import builtin
from warren.instance.jobs.service import JobManagerService
from warren.instance.kvs import Kvs, Quota
from warren.instance.kvs.service import KvsService
from warren.instance.kvs.watchservice import KvsWatch
from warren.instance.queues import Queues
from warren.instance.resource import Resources, configured_graph
from warren.instance.scheduler import JobScheduler
from warren.instance.shell import imp
from warren.journal import Journal
from warren.lifecycle import policy
from warren.rpc import munge
from warren.rpc.bus import Bus
from warren.rpc.message import Handle
from warren.scheduling.graph import Graph

LauncherFactory = Callable[[Bus, Handle], Launcher]
"""Makes a launcher, which may offer services on the bus."""


async def _discard(text: str) -> None:
    """Keep nothing: what is in memory alone is not started again."""


def _guest_refusal(userid: int, munge_socket: str | None) -> str | None:
    return imp.refusal(userid) or munge.refusal(munge_socket)


class InstanceDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What an instance is built on."""

    clock: Clock
    kvs_journal: Journal
    """The KVS's journal."""
    launcher: LauncherFactory
    commands: Commands
    """Runs the commands of prologs and epilogs."""
    owner: int
    """The user id of the owner."""
    config: Config = msgspec.field(default_factory=Config)
    free_bytes: Callable[[], float] = lambda: math.inf
    """Returns how many bytes the disk of that journal has left."""
    save_config: Callable[[str], Awaitable[None]] = _discard
    """Keeps a configuration file's text for the next start."""
    guest_refusal: Callable[[int, str | None], str | None] = _guest_refusal
    """Returns why the launcher cannot run the jobs of a user; None if it can.

    The other argument is where munged listens, if not at its usual place.
    """


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """The embedded Flux instance."""

    bus: Bus
    handle: Handle
    kvs: Kvs
    manager: JobManager
    scheduler: JobScheduler
    resources: Resources
    configuration: LiveConfig
    runnables: dict[str, Runnable]


def assemble(
    r: Mapping[str, Any],
    dependencies: InstanceDependencies,
    *,
    plugins: Sequence[Plugin] = (),
    perilogs: Sequence[PerilogSteps] = (),
    validators: Callable[[Graph], Sequence[Validator]] = lambda graph: (),
    frobnicators: Sequence[Frobnicator] = (),
) -> Instance:
    """Build the instance of a system, with plugins, validators and frobnicators of others.

    The commands of `perilogs` are run besides the site's own.
    """
    clock, config, owner = dependencies.clock, dependencies.config, dependencies.owner
    configuration = LiveConfig(config, dependencies.save_config)
    graph = configured_graph(r, config)
    queue_limits = policy.queue_limits(config.queues, config.policy)
    bus = Bus(owner)
    handle = bus.handle()
    quota = Quota(config.kvs.user_limit, dependencies.free_bytes)
    kvs = Kvs(dependencies.kvs_journal, owner, config.content.hash, quota=quota)
    barriers = Barriers()
    manager = JobManager(kvs, clock, handle, config)
    scheduler = JobScheduler(kvs, clock, graph, manager.alloc_response, config.sched)
    resources = Resources(kvs, clock, r, graph, scheduler, queue_limits)
    drain = drainer(handle)
    launcher = dependencies.launcher(bus, handle)
    execution = JobExec(kvs, clock, launcher, barriers, manager.start_response, drain, config.exec)
    manager.connect(scheduler, execution)
    perilog_plugins = {
        each.name: Perilog(each, dependencies.commands, drain, manager.wait_committed)
        for each in (SitePerilogSteps(config.job_manager), *perilogs)
    }
    queues = Queues(kvs, manager, config)
    site_perilog = perilog_plugins[SitePerilogSteps.name]
    other_perilogs = [each for each in perilog_plugins.values() if each is not site_perilog]
    for plugin in (*builtin(clock, owner), *other_perilogs, *plugins, site_perilog):
        manager.load(plugin)
    service = JobManagerService(manager, execution, queues.resolve_updates)
    ingest = Ingest(
        kvs,
        manager,
        clock,
        config,
        queues,
        validators(graph),
        frobnicators,
        guest_refusal=dependencies.guest_refusal,
    )
    listing = JobList(manager, count_by_queue=bool(config.queues), private=config.job_list.private)
    configuration.listen(ingest.configure)
    configuration.listen(queues.configure)
    configuration.listen(lambda new_config: scheduler.configure(new_config.sched))
    configuration.listen(lambda new_config: listing.configure(new_config.job_list))
    for name, methods in {
        "content": Content(kvs).methods(),
        "kvs": KvsService(kvs, config.kvs.guest_limit).methods(),
        "kvs-watch": KvsWatch(kvs).methods(),
        "barrier": barriers.methods(),
        "job-manager": {**service.methods(), **queues.methods()},
        "job-ingest": ingest.methods(),
        "job-info": JobInfo(kvs, manager).methods(),
        "job-list": listing.methods(),
        "config": configuration.methods(),
        "sched": scheduler.methods(),
        "feasibility": scheduler.feasibility(),
        # The scheduler knows what is given out, and is asked under both names.
        "resource": {
            **resources.methods(),
            "sched-status": scheduler.methods()["resource-status"],
        },
        "groups": resources.groups(),
    }.items():
        bus.register(name, methods)
    return Instance(
        bus=bus,
        handle=handle,
        kvs=kvs,
        manager=manager,
        scheduler=scheduler,
        resources=resources,
        configuration=configuration,
        runnables={
            "job manager": manager.run,
            "scheduler": scheduler.run,
            "resources": resources.run,
            "execution": execution.run,
            **{name: each.run for name, each in perilog_plugins.items()},
        },
    )
