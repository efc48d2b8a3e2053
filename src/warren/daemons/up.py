"""A cluster on this machine: the control process, and the processes that it looks after."""

import asyncio
import errno
import gc
import os
import secrets
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Final, Literal

import msgspec
import structlog

from warren.base.bytesize import human
from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.daemons import site as sites
from warren.daemons import supervisor
from warren.daemons.compose import Ports, control
from warren.daemons.site import Site
from warren.daemons.statedir import StateDir, held, holder
from warren.daemons.supervisor import Child
from warren.daemons.sweep import sweep
from warren.dws import kinds
from warren.instance.execution import Launcher
from warren.instance.launcher import RemoteLauncher
from warren.journal.sqlite import SqliteJournal
from warren.kube import kubeconfig
from warren.kube.kubeconfig import Access
from warren.kube.server import tls
from warren.kube.server.app import ApiServer
from warren.kube.server.store import Store
from warren.node import loops, namespaces
from warren.rpc import server
from warren.rpc.bus import Bus
from warren.rpc.message import Handle

log = structlog.get_logger()

HOST: Final = "127.0.0.1"
_RABBITS_SECONDS: Final = 15.0


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


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster that is ready."""

    site: Site
    server: str
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
    site, why_no_images = _settled(state, wanted, isolated=isolated)
    listener = _listen(state, wanted.port)
    access, context = _secured(state, listener)
    cluster = Cluster(
        site=site,
        server=access.server,
        isolated=isolated,
        why_not_isolated=None if isolated else why_not or "--no-namespaces was given",
        why_no_images=why_no_images,
    )
    stopped = _stop_signal()
    try:
        with SqliteJournal(state.objects) as objects, SqliteJournal(state.jobs) as jobs:
            await _live(state, cluster, objects, jobs, listener, access, context, ready, stopped)
    finally:
        state.running.unlink(missing_ok=True)
        await sweep(state)


async def _live(
    state: StateDir,
    cluster: Cluster,
    objects: SqliteJournal,
    jobs: SqliteJournal,
    listener: socket.socket,
    access: Access,
    context: ssl.SSLContext,
    ready: Callable[[Cluster], None],
    stopped: asyncio.Event,
) -> None:
    clock = SystemClock()
    ports = Ports(
        clock=clock,
        objects=objects,
        jobs=jobs,
        launcher=_launcher,
        owner=os.geteuid(),
        mount_prefix=str(state.mounts),
    )
    built = control(cluster.site, ports)
    api = ApiServer(built.store, clock, {access.token: "admin"})
    built.system.parts["api server"] = lambda: api.run(listener, context)
    built.system.parts["bus"] = lambda: server.serve(built.bus, state.socket)
    is_ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(built.system.run(is_ready), name="control")
        await is_ready.wait()
        gc.freeze()  # what is there now stays, the whole graph too: it need not be gone over again
        children = [tasks.create_task(child) for child in _children(state, cluster)]
        await _rabbits_ready(built.store, cluster.site.rabbits)
        state.announce(
            pid=os.getpid(),
            server=access.server,
            isolated=cluster.isolated,
            flash=cluster.site.flash,
            why_no_images=cluster.why_no_images,
        )
        ready(cluster)
        await stopped.wait()
        state.running.unlink(missing_ok=True)
        for child in children:
            child.cancel()
        await asyncio.wait(children)
        running.cancel()


async def _rabbits_ready(store: Store, count: int) -> None:
    """Wait until every rabbit has said that it is there; not for ever, for one may be broken."""
    listing = store.list(kinds.STORAGE)
    known = {obj["metadata"]["name"]: obj for obj in listing.items}
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(_RABBITS_SECONDS),
            aclosing(store.watch(kinds.STORAGE, listing.version)) as events,  # type: ignore[type-var]
        ):
            while [*map(_status, known.values())].count("Ready") < count:
                event = await anext(events)
                known[event.object["metadata"]["name"]] = event.object


def _status(storage: Object) -> str:
    return str(storage.get("status", {}).get("status", ""))


def _children(state: StateDir, cluster: Cluster) -> Iterator[Coroutine[None, None, None]]:
    """Give what keeps the other processes running: agents, and the parent of the shells."""
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


def _launcher(bus: Bus, handle: Handle) -> Launcher:
    launcher = RemoteLauncher(handle)
    bus.register("job-exec", launcher.methods())
    return launcher


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


def _listen(state: StateDir, port: int | None) -> socket.socket:
    """Take the port that is asked for, or the last one if it is free, or any."""
    last = _last_port(state) if port is None else None
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for candidate in [port] if port is not None else [last or 0, 0]:
        try:
            listener.bind((HOST, candidate))
        except OSError as error:
            if port is None and error.errno == errno.EADDRINUSE:
                continue
            raise UserMistake(
                f"Port {port} of {HOST} cannot be taken: {error.strerror}. Choose another with "
                "--port, or leave it out."
            ) from error
        return listener
    raise UserMistake(f"No port of {HOST} is free.")


def _last_port(state: StateDir) -> int | None:
    try:
        return int(kubeconfig.load(state.kubeconfig).server.rsplit(":", 1)[1])
    except (UserMistake, ValueError):
        return None


def _secured(state: StateDir, listener: socket.socket) -> tuple[Access, ssl.SSLContext]:
    """Make the certificates and the kubeconfig, with the token that it had before."""
    context = tls.ensure(state.pki)
    try:
        token = kubeconfig.load(state.kubeconfig).token
    except UserMistake:
        token = secrets.token_urlsafe(32)
    access = Access(
        server=f"https://{HOST}:{listener.getsockname()[1]}",
        authority=tls.authority(state.pki),
        token=token,
    )
    kubeconfig.write(state.kubeconfig, access)
    return access, context


def _stop_signal() -> asyncio.Event:
    stopped = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, stopped.set)
    return stopped
