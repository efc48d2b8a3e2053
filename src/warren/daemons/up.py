"""A cluster on this machine: the control process, and the processes that it looks after."""

import asyncio
import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from warren.base import log
from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.controllers import heartbeats
from warren.daemons import apiserver, clustershape, diskspace, logs, monitoring, rundir, supervisor
from warren.daemons import offload as offloads
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import ControlDependencies, build_control
from warren.daemons.down import sweep
from warren.daemons.nodes import Nodes
from warren.daemons.options import ExistingCluster, RequestedOptions, cluster_shape
from warren.daemons.part import PARTS, access_policy, instance_dependencies
from warren.daemons.statedir import StateDir, hold_lock, lock_holder, private_umask
from warren.daemons.supervisor import Child
from warren.dws import kinds
from warren.dws.node import NodeTrouble
from warren.dws.offload import copyservice
from warren.instance import config
from warren.journal.sqlite import RESERVE_BYTES, SqliteJournal
from warren.kube import http, kubeconfig
from warren.kube.client import Client, Expired, NotFound, Unavailable
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.local import LocalClient
from warren.node import loops, namespaces, volumegroup
from warren.rpc import client as rpc_client
from warren.rpc import server
from warren.rpc.client import ReconnectingHandle
from warren.rpc.message import RpcError

_READY_SECONDS: Final = 15.0
"""How long each part may take to be ready: rabbits, the instance, copies on request."""
_API_SECONDS: Final = 120.0
"""How long the API server may take to answer, and the instance to take a configuration."""
_POLL_INTERVAL: Final = 0.05


class RunningCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster that is ready."""

    shape: ClusterShape
    isolated: bool
    why_not_isolated: str | None
    why_no_images: str | None
    """Why the flash is directories."""
    config_file: Path
    """The file that is reloaded."""


async def up(
    state_dir: StateDir,
    requested: RequestedOptions,
    config_file: Path | None,
    on_ready: Callable[[RunningCluster], None],
    metrics_socket: socket.socket | None = None,
) -> None:
    """Run a cluster until SIGTERM or SIGINT. Raises UserMistake where it cannot be.

    What is not asked for, and a `config_file` that is None, is what the directory remembers.
    Metrics are served on `metrics_socket`, where there is one.
    """
    if config_file is not None:
        config.check(config_file)
    state_dir.check_owner()
    if state_dir.is_new:
        await _decide(
            state_dir, None, requested, metrics_socket
        )  # before there is a state directory
    state_dir.prepare()
    logs.configure_file(state_dir.logs / "control.log")
    try:
        with hold_lock(state_dir.lock):
            state_dir.check_complete()
            await diskspace.wait_for_space(
                state_dir.path, (state_dir.objects_journal, state_dir.jobs_journal)
            )
            await _run(state_dir, requested, config_file, on_ready, metrics_socket)
    except BlockingIOError:
        raise UserMistake(
            f"The state directory {state_dir.path} is in use by process "
            f"{lock_holder(state_dir.lock)}: stop it with "
            f"'warren down --statedir {state_dir.path}', or choose another directory."
        ) from None
    except (OSError, BaseExceptionGroup) as error:
        why = _why_unusable(state_dir, error)
        if why is None:
            raise
        raise UserMistake(why) from error


def _why_unusable(state_dir: StateDir, error: BaseException) -> str | None:
    """Return which file of the state directory caused an error; None if it is another cause."""
    if isinstance(error, BaseExceptionGroup):
        return next(
            filter(None, (_why_unusable(state_dir, each) for each in error.exceptions)), None
        )
    if not isinstance(error, OSError):
        return None
    if error.errno in diskspace.FULL_ERRNOS:
        return f"The file system of {state_dir.path} is full: make room there, and start it again."
    file = error.filename2 or error.filename
    if not isinstance(file, str | Path) or not Path(file).is_relative_to(state_dir.path):
        return None
    return (
        f"{file} cannot be used: {error.strerror}. It is the cluster's own: put it right, or "
        "remove it if it is not what it was."
    )


class _Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster is to be, and why it is not more."""

    shape: ClusterShape
    isolated: bool
    why_not_isolated: str | None
    why_no_images: str | None


async def _decide(
    state_dir: StateDir,
    previous: ClusterShape | None,
    requested: RequestedOptions,
    metrics_socket: socket.socket | None,
) -> _Decision:
    """Decide what is to be in place of `previous`. Raises UserMistake, and writes nothing."""
    isolated = (
        requested.isolated
        if requested.isolated is not None or previous is None
        else previous.isolated
    )
    why_unavailable = None if isolated else await namespaces.why_unavailable()
    if isolated is None:
        isolated = why_unavailable is None
    why_no_images = loops.why_unavailable() if isolated else "nodes have no mount namespaces"
    shape = cluster_shape(
        previous,
        requested,
        ExistingCluster(
            count_volumes=lambda: _count_volumes(state_dir, previous),
            shells_alive=lock_holder(state_dir.shells_lock) is not None,
            why_no_images=why_no_images,
        ),
    )
    _check_present(shape)
    if shape.separate and metrics_socket is not None:
        raise UserMistake(
            "--metrics-port: the parts of this cluster are processes of their own, and what each "
            "does is counted there. Start it with --together, or use `warren conductor` and "
            "`warren controllers`, which have this option."
        )
    if shape.port is not None:
        apiserver.check_port_free(shape.port)
    return _Decision(
        shape=shape,
        isolated=isolated,
        why_not_isolated=None if isolated else why_unavailable or "--no-namespaces was given",
        why_no_images=(
            None if shape.flash == "image" else why_no_images or f"--flash {shape.flash} was given"
        ),
    )


async def _run(
    state_dir: StateDir,
    requested: RequestedOptions,
    config_file: Path | None,
    on_ready: Callable[[RunningCluster], None],
    metrics_socket: socket.socket | None,
) -> None:
    state_dir.status_file.unlink(missing_ok=True)
    decision = await _decide(
        state_dir, clustershape.load(state_dir.shape_file), requested, metrics_socket
    )
    shape, isolated = decision.shape, decision.isolated
    # What cannot be is not remembered: all of that was refused before anything is written.
    with private_umask():
        if config_file is not None:
            config.install(config_file, state_dir.config_file)
        clustershape.save(state_dir.shape_file, shape)
    settings = config.load(state_dir.config_file)
    state_dir.set_guest_access(guests=settings.access.allow_guest_user)
    rundir.prepare(state_dir, settings)
    Nodes(state_dir, shape, isolated=isolated).write_hosts()
    cluster = RunningCluster(
        shape=shape,
        isolated=isolated,
        why_not_isolated=decision.why_not_isolated,
        why_no_images=decision.why_no_images,
        config_file=config_file or state_dir.config_file,
    )
    stopping = _stop_event()
    _on_hangup(state_dir, cluster.config_file, stopping)
    refused = False
    try:
        if shape.separate:
            await _run_separate(state_dir, cluster, shape.port, on_ready, stopping)
        else:
            await _run_together(state_dir, cluster, shape.port, on_ready, stopping, metrics_socket)
    except (UserMistake, OSError):
        refused = True
        raise
    finally:
        state_dir.status_file.unlink(missing_ok=True)
        # Jobs that have survived an earlier cluster wait for one that can take them over.
        if not refused:
            await sweep(state_dir)
        elif not rundir.is_in_use(state_dir):
            rundir.release(state_dir)


async def _run_together(
    state_dir: StateDir,
    cluster: RunningCluster,
    port: int | None,
    on_ready: Callable[[RunningCluster], None],
    stopping: asyncio.Event,
    metrics_socket: socket.socket | None,
) -> None:
    """Run all parts in this process but the nodes' agents and the shells."""
    endpoint = apiserver.open_endpoint(state_dir, port, apiserver.component_users(cluster.shape))
    with (
        SqliteJournal(state_dir.objects_journal, RESERVE_BYTES) as objects_journal,
        SqliteJournal(state_dir.jobs_journal, RESERVE_BYTES) as jobs_journal,
    ):
        # All that is read from the journals stays: to look for garbage in it takes half as
        # long again as to read it.
        gc.disable()
        dependencies = instance_dependencies(state_dir, jobs_journal)
        control_dependencies = ControlDependencies(
            objects_journal=objects_journal,
            instance=dependencies,
            mount_prefix=str(state_dir.mounts),
            container_logs=endpoint.logs,
            offload=None
            if copyservice.REQUIRES_WORD in dependencies.config.daemons
            else offloads.open_endpoint(state_dir),
        )
        metrics = None
        if metrics_socket is not None:
            # Imported only where metrics are served.
            from warren.daemons.controlmetrics import ControlMetrics

            metrics = ControlMetrics()
            control_dependencies = replace(
                control_dependencies, wrap_client=metrics.counting_client, metrics=metrics
            )
        built = build_control(cluster.shape, control_dependencies)
        built.run_group.runnables["api server"] = lambda: endpoint.serve(
            built.api, control_dependencies.clock
        )
        access = access_policy(dependencies.config)
        built.run_group.runnables["bus"] = lambda: server.serve(
            built.instance.bus, state_dir.socket, access
        )
        is_ready = asyncio.Event()
        if metrics_socket is not None and metrics is not None:
            built.run_group.runnables["monitoring"] = lambda: monitoring.serve(
                metrics_socket, metrics.exposition, is_ready.is_set
            )
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(built.run_group.run(is_ready), name="control")
            await is_ready.wait()
            # The whole graph stays, too: none of it need be gone over again.
            gc.freeze()
            gc.enable()
            async with _children(
                _supervise_agents(state_dir, cluster, LocalClient(built.api.store))
            ):
                if cluster.shape.agents:
                    await _wait_rabbits_ready(LocalClient(built.api.store), cluster.shape.rabbits)
                await _announce_until_stopped(
                    state_dir, cluster, endpoint.admin_access.server, on_ready, stopping
                )
            running.cancel()


async def _run_separate(
    state_dir: StateDir,
    cluster: RunningCluster,
    port: int | None,
    on_ready: Callable[[RunningCluster], None],
    stopping: asyncio.Event,
) -> None:
    """Run a process for each part, and none in this one (`--separate`)."""
    for stale in state_dir.user_kubeconfig("").parent.glob("*.kubeconfig"):
        stale.unlink()
    async with _children([supervisor.supervise(_part_child(state_dir, "apiserver", port))]):
        access = await _wait_api_ready(state_dir)
        left_out = {"apiserver"} | (set() if cluster.shape.conductor else {"conductor"})
        if copyservice.REQUIRES_WORD in config.load(state_dir.config_file).daemons:
            left_out.add("copy-offload")
        other_parts = [
            supervisor.supervise(_part_child(state_dir, name))
            for name in PARTS
            if name not in left_out
        ]
        async with (
            http.connect(access) as client,
            _children([*other_parts, *_supervise_agents(state_dir, cluster, client)]),
        ):
            if cluster.shape.agents:
                await _wait_rabbits_ready(client, cluster.shape.rabbits)
            await _wait_instance_ready(
                state_dir, "dws.status" if cluster.shape.conductor else "config.get"
            )
            if "copy-offload" not in left_out:
                await _wait_offload_ready(client)
            await _announce_until_stopped(state_dir, cluster, access.server, on_ready, stopping)


async def _announce_until_stopped(
    state_dir: StateDir,
    cluster: RunningCluster,
    url: str,
    on_ready: Callable[[RunningCluster], None],
    stopping: asyncio.Event,
) -> None:
    """Announce that the cluster is ready, until it is to stop."""
    await diskspace.retry_while_full(
        lambda: state_dir.announce(
            pid=os.getpid(),
            server=url,
            isolated=cluster.isolated,
            flash=cluster.shape.flash,
            config=str(cluster.config_file),
            why_no_images=cluster.why_no_images,
        )
    )
    on_ready(cluster)
    await stopping.wait()
    state_dir.status_file.unlink(missing_ok=True)


@asynccontextmanager
async def _children(supervisions: Iterable[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Keep processes running for the length of a block, and end them."""
    children = [asyncio.ensure_future(each) for each in supervisions]
    try:
        yield
    finally:
        for child in children:
            child.cancel()
        await asyncio.wait(children)


async def _wait_api_ready(state_dir: StateDir) -> ClusterAccess:
    """Wait until the API server has written its kubeconfigs, and answers."""
    try:
        async with asyncio.timeout(_API_SECONDS):
            while True:
                await asyncio.sleep(_POLL_INTERVAL)
                with suppress(UserMistake, Unavailable, NotFound):
                    # Written last, and what an earlier start has written leads nowhere.
                    access = kubeconfig.load(state_dir.kubeconfig)
                    async with http.connect(access) as client:
                        if (await client.list(kinds.SYSTEM_CONFIGURATION)).items:
                            return access
    except TimeoutError:
        raise UserMistake(
            f"The API server does not answer: see {state_dir.logs / 'apiserver.log'}."
        ) from None


async def _wait_instance_ready(state_dir: StateDir, topic: str) -> None:
    """Wait until the service of a topic answers; not for ever, for it may be broken."""
    handle = ReconnectingHandle(lambda: rpc_client.connect(state_dir.socket))
    connecting = asyncio.ensure_future(handle.run())
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                await handle.rpc(topic)
    finally:
        connecting.cancel()
        await asyncio.wait({connecting})


async def _wait_offload_ready(client: Client) -> None:
    """Wait until running jobs may ask for copies; not for ever, for that may be broken."""
    with suppress(TimeoutError, Unavailable):
        async with asyncio.timeout(_READY_SECONDS):
            while True:
                system = await client.get(kinds.SYSTEM_CONFIGURATION, kinds.CONFIGURATION_KEY)
                if copyservice.service_of_configuration(system) is not None:
                    return
                await asyncio.sleep(_POLL_INTERVAL)


async def _wait_rabbits_ready(client: Client, count: int) -> None:
    """Wait until every rabbit has said that it is there; not for ever, for one may be broken."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_READY_SECONDS):
            # Again where the API server is away, or has ended the watch.
            while not await _have_become_ready(client, count):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL)


async def _have_become_ready(client: Client, count: int) -> bool:
    """Wait until every rabbit has said that it is there; return whether that was to be seen."""
    try:
        listing = await client.list(kinds.STORAGE)
        rabbits = {obj["metadata"]["name"]: obj for obj in listing.items}
        watch = client.watch(kinds.STORAGE, listing.resource_version)
        async with aclosing(watch) as events:  # type: ignore[type-var]
            while [*map(_status, rabbits.values())].count("Ready") < count:
                event = await anext(events)
                rabbits[event.object["metadata"]["name"]] = event.object
    except (Unavailable, Expired, StopAsyncIteration):
        return False
    return True


def _status(storage: Object) -> str:
    return str(storage.get("status", {}).get("status", ""))


def _part_child(state_dir: StateDir, name: str, port: int | None = None) -> Child:
    """Return one part of the cluster, as a process of its own."""
    return Child(
        name=name,
        module="warren.daemons.part",
        arguments=[str(state_dir.path), name, *([str(port)] if port is not None else [])],
        log_file=state_dir.logs / f"{name}.log",
        environment=dict([state_dir.process_mark]),
    )


def _supervise_agents(
    state_dir: StateDir, cluster: RunningCluster, client: Client
) -> Iterator[Coroutine[None, None, None]]:
    """Return what keeps the nodes' agents running, and the parent of the shells.

    The end of a rabbit's agent is told to the API at once.
    """
    isolation = "isolated" if cluster.isolated else "linked"

    def child(name: str, module: str, *nodes: str) -> Child:
        return Child(
            name=name,
            module=module,
            arguments=[str(state_dir.path), isolation, *nodes],
            log_file=state_dir.logs / f"{name}.log",
            environment=dict([state_dir.process_mark]),
        )

    for chassis in cluster.shape.chassis() if cluster.shape.agents else ():
        rabbit = chassis.rabbit
        yield supervisor.supervise(
            child(rabbit, "warren.daemons.emulatedagents", rabbit),
            partial(heartbeats.release, client, SystemClock(), rabbit),
        )
        computes = f"{rabbit}-computes"
        yield supervisor.supervise(child(computes, "warren.daemons.emulatedagents", *chassis.hosts))
    yield supervisor.supervise_detached(
        child("shells", "warren.daemons.shells"), state_dir.shells_lock
    )


def _count_volumes(state_dir: StateDir, previous: ClusterShape | None) -> Mapping[str, int]:
    """Count the volumes on the rabbits that a state directory was made for."""
    if previous is None:
        return {}
    try:
        volumes = Nodes(state_dir, previous, isolated=True).volumes()
    except NodeTrouble as trouble:
        raise UserMistake(f"It cannot be told what volumes there are: {trouble}.") from trouble
    return Counter(volume.partition("/")[0] for volume in volumes)


def _check_present(shape: ClusterShape) -> None:
    """Refuse to start without what an earlier start was given, and is gone since."""
    for path in shape.global_file_systems:
        if not Path(path).is_dir():
            raise UserMistake(
                f"The global file system {path} is not there: make it, give others with --global, "
                "or none with --no-global."
            )
    for rabbit, device in shape.devices.items():
        if not device.startswith(volumegroup.PREFIX) and not Path(device).is_block_device():
            raise UserMistake(
                f"The flash of {rabbit}, {device}, is not a block device any more: bring it back, "
                f"or give another with --rabbit-device {rabbit}=DEVICE."
            )


def _stop_event() -> asyncio.Event:
    stopping = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stopping.set)
    return stopping


def _on_hangup(state_dir: StateDir, file: Path, stopping: asyncio.Event) -> None:
    """Have SIGHUP reload the configuration; it stops the cluster where its terminal has gone."""
    on_terminal = _has_terminal()
    reloading: set[asyncio.Task[None]] = set()

    def hung_up() -> None:
        if on_terminal and not _has_terminal():
            stopping.set()
        elif not reloading:
            task = asyncio.ensure_future(_reload(state_dir, file))
            reloading.add(task)
            task.add_done_callback(reloading.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


async def _reload(state_dir: StateDir, file: Path) -> None:
    """Have the instance take a configuration file anew. What is wrong with it, the log says."""
    try:
        text = await asyncio.to_thread(file.read_text)
        async with asyncio.timeout(_API_SECONDS), rpc_client.connect(state_dir.socket) as handle:
            await handle.rpc("config.load", {"toml": text, "name": str(file)})
    except (OSError, UnicodeDecodeError, RpcError) as error:
        log.error("configuration is not reloaded", path=str(file), reason=str(error))
