"""A cluster on this machine: the control process, and the processes that it looks after."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
import structlog

from warren.base.bytesize import human
from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.daemons import apiserver, supervisor
from warren.daemons import site as sites
from warren.daemons.compose import Ports, control
from warren.daemons.part import PARTS, entrances, founded
from warren.daemons.site import Site
from warren.daemons.statedir import StateDir, held, holder, privately
from warren.daemons.supervisor import Child
from warren.daemons.sweep import sweep
from warren.dws import kinds
from warren.instance import config
from warren.journal.sqlite import SqliteJournal
from warren.kube import http, kubeconfig
from warren.kube.client import Client, NotFound, Unavailable
from warren.kube.kubeconfig import Access
from warren.kube.local import LocalClient
from warren.node import loops, namespaces
from warren.rpc import client as rpc_client
from warren.rpc import server
from warren.rpc.client import Patient

log = structlog.get_logger()

_RABBITS_SECONDS: Final = 15.0
_API_SECONDS: Final = 30.0
_LOOK: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `warren up` was told."""

    site: Site
    flash: Literal["directory", "image"] | None = None
    """None takes what the state directory has, or images where the machine allows them."""
    port: int | None = None
    """Of the API server; None takes the last one again if it is free, or any."""
    isolated: bool | None = None
    """Whether nodes have mount namespaces; None has them where the kernel allows it."""
    separate: bool = False
    """Whether API server, controllers, instance and conductor have a process each."""
    config: Path | None = None
    """The instance's configuration; None takes the one that the state directory has, if any."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster that is ready."""

    site: Site
    isolated: bool
    why_not_isolated: str | None
    why_no_images: str | None
    """Why the flash is directories."""


async def up(state: StateDir, wanted: Wanted, ready: Callable[[Cluster], None]) -> None:
    """Run a cluster until SIGTERM or SIGINT. Raises UserMistake where it cannot be."""
    state.prepare()
    try:
        with held(state.lock):
            await _run(state, wanted, ready)
    except BlockingIOError:
        raise UserMistake(
            f"The state directory {state.path} is in use by process {holder(state.lock)}: "
            f"stop it with 'warren down --statedir {state.path}', or choose another directory."
        ) from None


async def _run(state: StateDir, wanted: Wanted, ready: Callable[[Cluster], None]) -> None:
    state.running.unlink(missing_ok=True)
    why_not = None if wanted.isolated else await namespaces.available()
    isolated = why_not is None if wanted.isolated is None else wanted.isolated
    with privately():
        site, why_no_images = _settled(state, wanted, isolated=isolated)
        if wanted.config is not None:
            config.keep(wanted.config, state.config)
    state.admit(guests=config.load(state.config).access.allow_guest_user)
    cluster = Cluster(
        site=site,
        isolated=isolated,
        why_not_isolated=None if isolated else why_not or "--no-namespaces was given",
        why_no_images=why_no_images,
    )
    stopped = _stop_signal()
    try:
        if wanted.separate:
            await _live_separate(state, cluster, wanted.port, ready, stopped)
        else:
            await _live_together(state, cluster, wanted.port, ready, stopped)
    finally:
        state.running.unlink(missing_ok=True)
        await sweep(state)


async def _live_together(
    state: StateDir,
    cluster: Cluster,
    port: int | None,
    ready: Callable[[Cluster], None],
    stopped: asyncio.Event,
) -> None:
    """Be all parts but the nodes' agents and the shells."""
    entrance = apiserver.opened(state, port, apiserver.components(cluster.site))
    with SqliteJournal(state.objects) as objects, SqliteJournal(state.jobs) as jobs:
        # All that is read from the journals stays: to look for garbage in it takes half as
        # long again as to read it.
        gc.disable()
        foundation = founded(state, jobs)
        ports = Ports(objects=objects, instance=foundation, mount_prefix=str(state.mounts))
        built = control(cluster.site, ports)
        built.system.parts["api server"] = lambda: entrance.serve(built.api, ports.clock)
        doors = entrances(foundation.config)
        built.system.parts["bus"] = lambda: server.serve(built.instance.bus, state.socket, doors)
        is_ready = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(built.system.run(is_ready), name="control")
            await is_ready.wait()
            # The whole graph stays, too: none of it need be gone over again.
            gc.freeze()
            gc.enable()
            async with _children(_agents(state, cluster)):
                await _rabbits_ready(LocalClient(built.api.store), cluster.site.rabbits)
                await _announced(state, cluster, entrance.admin.server, ready, stopped)
            running.cancel()


async def _live_separate(
    state: StateDir,
    cluster: Cluster,
    port: int | None,
    ready: Callable[[Cluster], None],
    stopped: asyncio.Event,
) -> None:
    """Look after one process for each part, and be none."""
    for stale in state.user("").parent.glob("*.kubeconfig"):
        stale.unlink()
    async with _children([supervisor.keep(_part(state, "apiserver", port))]):
        access = await _answering(state)
        others = [supervisor.keep(_part(state, name)) for name in PARTS if name != "apiserver"]
        async with _children([*others, *_agents(state, cluster)]):
            async with http.connect(access) as client:
                await _rabbits_ready(client, cluster.site.rabbits)
            await _instance_ready(state)
            await _announced(state, cluster, access.server, ready, stopped)


async def _announced(
    state: StateDir,
    cluster: Cluster,
    url: str,
    ready: Callable[[Cluster], None],
    stopped: asyncio.Event,
) -> None:
    """Say that the cluster is ready, until it is to stop."""
    state.announce(
        pid=os.getpid(),
        server=url,
        isolated=cluster.isolated,
        flash=cluster.site.flash,
        why_no_images=cluster.why_no_images,
    )
    ready(cluster)
    await stopped.wait()
    state.running.unlink(missing_ok=True)


@asynccontextmanager
async def _children(keeping: Iterable[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Keep processes running for the length of a block, and end them."""
    children = [asyncio.ensure_future(each) for each in keeping]
    try:
        yield
    finally:
        for child in children:
            child.cancel()
        await asyncio.wait(children)


async def _answering(state: StateDir) -> Access:
    """Wait until the API server has written who may come in, and answers."""
    try:
        async with asyncio.timeout(_API_SECONDS):
            while True:
                await asyncio.sleep(_LOOK)
                with suppress(UserMistake, Unavailable, NotFound):
                    # Written last, and what an earlier start has written leads nowhere.
                    access = kubeconfig.load(state.kubeconfig)
                    async with http.connect(access) as client:
                        if (await client.list(kinds.SYSTEM_CONFIGURATION)).items:
                            return access
    except TimeoutError:
        raise UserMistake(
            f"The API server does not answer: see {state.logs / 'apiserver.log'}."
        ) from None


async def _instance_ready(state: StateDir) -> None:
    """Wait until instance and conductor answer; not for ever, for one may be broken."""
    patient = Patient(lambda: rpc_client.connect(state.socket))
    connecting = asyncio.ensure_future(patient.run())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_RABBITS_SECONDS):
                await patient.rpc("dws.status")
    finally:
        connecting.cancel()
        await asyncio.wait({connecting})


async def _rabbits_ready(client: Client, count: int) -> None:
    """Wait until every rabbit has said that it is there; not for ever, for one may be broken."""
    listing = await client.list(kinds.STORAGE)
    known = {obj["metadata"]["name"]: obj for obj in listing.items}
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(_RABBITS_SECONDS),
            aclosing(client.watch(kinds.STORAGE, listing.version)) as events,  # type: ignore[type-var]
        ):
            while [*map(_status, known.values())].count("Ready") < count:
                event = await anext(events)
                known[event.object["metadata"]["name"]] = event.object


def _status(storage: Object) -> str:
    return str(storage.get("status", {}).get("status", ""))


def _part(state: StateDir, name: str, port: int | None = None) -> Child:
    """Give one part of the cluster, as a process of its own."""
    return Child(
        name=name,
        module="warren.daemons.part",
        arguments=[str(state.path), name, *([str(port)] if port is not None else [])],
        log_file=state.logs / f"{name}.log",
        environment=dict([state.mark]),
    )


def _agents(state: StateDir, cluster: Cluster) -> Iterator[Coroutine[None, None, None]]:
    """Give what keeps the nodes' agents running, and the parent of the shells."""
    how = "isolated" if cluster.isolated else "linked"

    def child(name: str, module: str, *nodes: str) -> Child:
        return Child(
            name=name,
            module=module,
            arguments=[str(state.path), how, *nodes],
            log_file=state.logs / f"{name}.log",
            environment=dict([state.mark]),
        )

    for chassis in cluster.site.chassis():
        for name, nodes in (
            (chassis.rabbit, [chassis.rabbit]),
            (f"{chassis.rabbit}-computes", list(chassis.hosts)),
        ):
            yield supervisor.keep(child(name, "warren.daemons.agent", *nodes))
    yield supervisor.keep_detached(child("shells", "warren.daemons.shells"), state.shells_lock)


def _settled(state: StateDir, wanted: Wanted, *, isolated: bool) -> tuple[Site, str | None]:
    """Give the site that the state directory was made for, with the file systems of today.

    With it comes why its flash is not images, if it is not. Raises UserMistake.
    """
    known = sites.load(state.site)
    why_not = loops.available() if isolated else "nodes have no mount namespaces"
    flash = wanted.flash or (known.flash if known is not None else None)
    if flash == "image" and why_not is not None:
        raise UserMistake(f"Flash cannot be disk images with loop devices here: {why_not}.")
    if flash is None:
        flash = "image" if why_not is None else "directory"
    site = msgspec.structs.replace(wanted.site, flash=flash)
    if known is not None:
        paths = known.global_file_systems
        if msgspec.structs.replace(site, global_file_systems=paths) != known:
            raise UserMistake(
                f"The state directory {state.path} holds a cluster of {known.rabbits} rabbits with "
                f"{human(known.capacity)} of flash ({known.flash}) and "
                f"{known.computes_per_rabbit} compute nodes each: ask for the same, or choose "
                "another directory."
            )
    sites.save(state.site, site)
    if flash == "image":
        return site, None
    return site, why_not or "--flash directory was given"


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    return stopped
