"""One part of an emulated cluster as a process of its own: `python -m warren.daemons.part`.

Each speaks to the API over HTTPS as its own user, and may do there what that user's
role allows.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from warren.base.clock import SystemClock
from warren.daemons import apiserver, clustershape, compose, diskspace, users
from warren.daemons import conductor as conductors
from warren.daemons import controllers as controller_manager
from warren.daemons import offload as offloads
from warren.daemons.child import run_child
from warren.daemons.clustershape import ClusterShape
from warren.daemons.instance import InstanceDependencies
from warren.daemons.rungroup import INDEXES, RunGroup
from warren.daemons.statedir import StateDir
from warren.instance import config
from warren.instance.config import Config
from warren.instance.exec.commands import ProcessCommands
from warren.instance.exec.execution import Launcher
from warren.instance.exec.launcher import RemoteLauncher
from warren.instance.users import user_exists
from warren.journal import Journal, files
from warren.journal.sqlite import RESERVE_BYTES, SqliteJournal
from warren.kube import http, kubeconfig
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.node.namespaces import HeldMountNamespace, nsenter_command
from warren.rpc import server
from warren.rpc.bus import Bus
from warren.rpc.message import Handle
from warren.rpc.server import AccessPolicy


async def run_apiserver(state_dir: StateDir, shape: ClusterShape, port: int | None = None) -> None:
    """Run the API server, on a port that is asked for, or the last one."""
    endpoint = apiserver.open_endpoint(state_dir, port, apiserver.component_users(shape))

    async def establish(client: Client) -> None:
        await apiserver.establish(client, shape, config.load(state_dir.config_file).daemons)

    await apiserver.run(state_dir, endpoint, establish)


async def run_controllers(state_dir: StateDir, shape: ClusterShape) -> None:
    """Run the controllers of the storage side."""
    access = kubeconfig.load(state_dir.user_kubeconfig(users.CONTROLLERS))
    max_lifetime = config.load(state_dir.config_file).storage.max_lifetime
    settings = controller_manager.Settings(
        access=access, mount_prefix=str(state_dir.mounts), max_lifetime=max_lifetime
    )
    await controller_manager.run(settings)


async def run_conductor(state_dir: StateDir, shape: ClusterShape) -> None:
    """Run the conductor."""
    access = kubeconfig.load(state_dir.user_kubeconfig(users.CONDUCTOR))
    await conductors.run(conductors.Settings(access=access, instance_socket=state_dir.socket))


async def run_copy_offload(state_dir: StateDir, shape: ClusterShape) -> None:
    """Be the service that running jobs ask for copies."""
    access = kubeconfig.load(state_dir.user_kubeconfig(users.OFFLOAD))
    await offloads.run(offloads.Settings(access=access, endpoint=offloads.open_endpoint(state_dir)))


async def run_instance(state_dir: StateDir, shape: ClusterShape) -> None:
    """Run the instance."""
    async with http.connect(
        kubeconfig.load(state_dir.user_kubeconfig(users.INSTANCE)), component="instance"
    ) as client:
        with SqliteJournal(state_dir.jobs_journal, RESERVE_BYTES) as jobs_journal:
            informers = Informers(client, indexes=INDEXES)
            dependencies = instance_dependencies(state_dir, jobs_journal)
            embedded_instance = compose.build_instance(shape, dependencies, informers, client)
            access = access_policy(dependencies.config)
            run_group = RunGroup(
                outer_runnables={"kvs": embedded_instance.kvs.run, "informers": informers.run},
                prepare=informers.wait_synced,
                runnables={
                    **embedded_instance.runnables,
                    "bus": lambda: server.serve(embedded_instance.bus, state_dir.socket, access),
                },
            )
            await run_group.run()


def instance_dependencies(state_dir: StateDir, jobs_journal: Journal) -> InstanceDependencies:
    """Return what the cluster's instance is built on."""
    return InstanceDependencies(
        clock=SystemClock(),
        kvs_journal=jobs_journal,
        launcher=remote_launcher,
        commands=ProcessCommands(
            state_dir.process_mark,
            lambda node: _nsenter_command(state_dir, node),
            state_dir.uri,
        ),
        owner=os.geteuid(),
        config=config.load(state_dir.config_file),
        free_bytes=lambda: diskspace.free_bytes(state_dir.path),
        save_config=lambda text: asyncio.to_thread(
            files.replace, state_dir.config_file, text.encode()
        ),
    )


def _nsenter_command(state_dir: StateDir, node: str) -> Sequence[str]:
    """Return the words to put before a command that is to run among the mounts of a node.

    There are none where it has no mount namespace: nothing is mounted there then.
    """
    holder = HeldMountNamespace(state_dir.nodes / node, state_dir.mounts).holder
    return () if holder is None else nsenter_command(holder)


def access_policy(settings: Config) -> AccessPolicy:
    """Return the users that may connect to the socket."""
    access = settings.access
    return AccessPolicy(
        allow_guests=access.allow_guest_user,
        root_is_owner=access.allow_root_owner,
        is_user=user_exists,
    )


def remote_launcher(bus: Bus, handle: Handle) -> Launcher:
    """Return the launcher that has a process of its own, and serves over the bus."""
    launcher = RemoteLauncher(handle, bus.owner)
    bus.register("job-exec", launcher.methods())
    return launcher


PARTS: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "apiserver": run_apiserver,
    "controllers": run_controllers,
    "instance": run_instance,
    "conductor": run_conductor,
    "copy-offload": run_copy_offload,
}


async def main(state_dir: StateDir, name: str, *ports: int) -> None:
    """Run a part until cancelled."""
    shape = clustershape.load(state_dir.shape_file)
    assert shape is not None
    await PARTS[name](state_dir, shape, *ports)


if __name__ == "__main__":
    run_child(main(StateDir(Path(sys.argv[1])), sys.argv[2], *map(int, sys.argv[3:])))
