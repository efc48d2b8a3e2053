"""The embedded API server on this machine: its port, its keys, and the kubeconfigs it writes."""

import asyncio
import secrets
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final

import msgspec

from warren.base.clock import Clock, SystemClock
from warren.base.errors import UserMistake
from warren.base.objects import Key, Remove, key_of
from warren.base.times import parse_rfc3339
from warren.controllers.batchjobs import BatchJobController
from warren.controllers.nodelifecycle import NodeLifecycleController
from warren.daemons import clusterobjects, roles, users
from warren.daemons.clustershape import ClusterShape
from warren.daemons.containerlogs import ContainerLogs
from warren.daemons.foreground import until_stopped
from warren.daemons.profileadmission import ProfileAdmission
from warren.daemons.rungroup import RunGroup, runnables_after_sync
from warren.daemons.statedir import StateDir
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds
from warren.dws.pods import jobpods
from warren.journal import Journal
from warren.journal.sqlite import RESERVE_BYTES, SqliteJournal
from warren.kube import kubeconfig
from warren.kube.admission import User
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informer, Informers
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler
from warren.kube.server.access import authorization, tls
from warren.kube.server.access.authentication import Authenticator
from warren.kube.server.access.authorization import MASTERS
from warren.kube.server.builtin import NAMESPACE
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.local import LocalClient
from warren.kube.server.logs import PodLogSource
from warren.kube.server.rest.app import ApiServer

HOST: Final = "127.0.0.1"
ADMIN: Final = "admin"
_EVENT_TTL: Final = 3600.0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The address of one API server, and its users."""

    listener: socket.socket
    tls: ssl.SSLContext
    component_users: frozenset[str]
    """The users that are parts of the cluster."""
    admin_access: ClusterAccess
    """The access of the owner of the state directory; `STATEDIR/kubeconfig` says the same."""
    logs: PodLogSource
    """What the pods of this machine print."""

    async def serve(self, embedded: EmbeddedApi, clock: Clock) -> None:
        """Serve until cancelled."""
        users = {self.admin_access.token: User(ADMIN, frozenset({MASTERS}))}
        server = ApiServer(
            embedded.store,
            clock,
            Authenticator(users),
            embedded.authorizer,
            self.component_users,
            pod_logs=self.logs,
        )
        await server.run(self.listener, self.tls)


def build(journal: Journal, clock: Clock, *, plain: bool = False) -> EmbeddedApi:
    """Build the API of one cluster, with the rules of its kinds unless it is plain."""
    if plain:
        return EmbeddedApi(journal, clock)
    admission = WorkflowAdmission()
    embedded = EmbeddedApi(journal, clock, [admission, ProfileAdmission()])
    admission.read_rules_from(lambda kind: list(embedded.store.objects_of(kind)))
    return embedded


async def run(
    state_dir: StateDir,
    endpoint: Endpoint,
    establish: Callable[[Client], Awaitable[None]],
    on_ready: Callable[[], None] = lambda: None,
    *,
    plain: bool = False,
) -> None:
    """Run an API server until cancelled: `establish` makes what is to be there from the start."""
    clock = SystemClock()
    with SqliteJournal(state_dir.objects_journal, RESERVE_BYTES) as journal:
        embedded = build(journal, clock, plain=plain)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(embedded.run(), name="api")
            await embedded.create_defaults()
            await establish(LocalClient(embedded.store))
            tasks.create_task(endpoint.serve(embedded, clock), name="api server")
            tasks.create_task(expire_events(LocalClient(embedded.store), clock), name="events")
            if not plain:
                tasks.create_task(
                    run_job_controller(LocalClient(embedded.store), clock), name="jobs"
                )
                tasks.create_task(
                    run_node_lifecycle_controller(LocalClient(embedded.store), clock), name="nodes"
                )
            on_ready()


async def run_job_controller(client: Client, clock: Clock) -> None:
    """Make the pods of batch Jobs, until cancelled."""
    informers = Informers(client, indexes={"job": jobpods.job_of})
    controller = BatchJobController(client, informers, clock)
    runnables = {
        "informers": informers.run,
        **runnables_after_sync(informers, [controller.reconciler]),
    }
    await RunGroup(runnables=runnables).run()


async def run_node_lifecycle_controller(client: Client, clock: Clock) -> None:
    """Set Nodes to Unknown whose agents are not heard of, until cancelled."""
    informers = Informers(client)
    controller = NodeLifecycleController(client, informers, clock)
    runnables = {
        "informers": informers.run,
        **runnables_after_sync(informers, [controller.reconciler]),
    }
    await RunGroup(runnables=runnables).run()


async def expire_events(client: Client, clock: Clock) -> None:
    """Remove Events an hour after they were last seen, as Kubernetes does, until cancelled."""
    events = Informer(client, kinds.EVENT)

    async def reconcile(key: Key) -> float | None:
        event = events.get(key)
        if event is None:
            return None
        metadata = event["metadata"]
        last_seen = max(filter(None, (event.get("lastTimestamp"), metadata["creationTimestamp"])))
        seconds_left = parse_rfc3339(last_seen) + _EVENT_TTL - clock.now()
        if seconds_left > 0:
            return seconds_left
        await perform(client, [Remove(kind=kinds.EVENT, key=key)])
        return None

    reconciler: Reconciler[Key] = Reconciler("event expiry", reconcile, workers=1)
    events.listen(lambda obj: reconciler.add(key_of(obj)))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(events.run())
        tasks.create_task(reconciler.run())


async def serve_until_stopped(
    state_dir: StateDir,
    endpoint: Endpoint,
    establish: Callable[[Client], Awaitable[None]],
    on_ready: Callable[[], None],
    *,
    plain: bool,
) -> None:
    """Run an API server until SIGTERM or SIGINT."""
    await until_stopped(run(state_dir, endpoint, establish, on_ready, plain=plain), signal.SIGHUP)


async def establish(client: Client, shape: ClusterShape, daemons: Collection[str] = ()) -> None:
    """Bring what is a cluster's own to what it should be. May be repeated at any time.

    `daemons` are those that directives may name with `requires`.
    """
    await clusterobjects.establish(client, shape, daemons)
    by_name = {kind.name: kind for kind in (NAMESPACE, *authorization.KINDS)}
    for obj in roles.revoked_objects(shape):
        with suppress(NotFound):
            await client.delete(Remove(kind=by_name[obj["kind"]], key=key_of(obj)))
    await clusterobjects.apply_all(
        client, ((by_name[obj["kind"]], obj) for obj in roles.objects(shape))
    )


def component_users(shape: ClusterShape) -> list[str]:
    """Return the users that a cluster's own components are."""
    chassis = shape.chassis()
    nodes = [name for each in chassis for name in (each.rabbit, *each.hosts)]
    own_users = [users.CONTROLLERS, users.CONDUCTOR, users.INSTANCE, users.OFFLOAD]
    return [*own_users, *map(users.node_user, nodes)]


def open_endpoint(
    state_dir: StateDir, port: int | None, user_names: Collection[str] = ()
) -> Endpoint:
    """Take the port, make the keys, and write a kubeconfig for the admin and each of `user_names`.

    Raises UserMistake where the port cannot be had.
    """
    listener = _listen(state_dir, port)
    context = tls.server_context(state_dir.pki)
    url = f"https://{HOST}:{listener.getsockname()[1]}"
    authority = tls.authority(state_dir.pki)
    admin_access = ClusterAccess(server=url, authority=authority, token=_token(state_dir))
    for name in user_names:
        certificate, key = tls.issue(state_dir.pki, name)
        access = ClusterAccess(server=url, authority=authority, certificate=certificate, key=key)
        kubeconfig.write(state_dir.user_kubeconfig(name), access, user=name)
    # Last: a process that finds it may expect the others.
    kubeconfig.write(state_dir.kubeconfig, admin_access, user=ADMIN)
    return Endpoint(
        listener=listener,
        tls=context,
        component_users=frozenset(user_names),
        admin_access=admin_access,
        logs=ContainerLogs(state_dir.pods),
    )


def _token(state_dir: StateDir) -> str:
    """Return the admin's token: the one that it had before, if it had one."""
    try:
        return kubeconfig.load(state_dir.kubeconfig).token or secrets.token_urlsafe(32)
    except UserMistake:
        return secrets.token_urlsafe(32)


def check_port_free(port: int) -> None:
    """Raise UserMistake where a port cannot be had."""
    _bind(port).close()


def _listen(state_dir: StateDir, port: int | None) -> socket.socket:
    """Take the port that is asked for, or the last one if it is free, or any."""
    if port is not None:
        return _bind(port)
    try:
        return _bind(_last_port(state_dir) or 0)
    except UserMistake:
        return _bind(0)


def _bind(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        raise UserMistake(
            f"Port {port} of {HOST} cannot be taken: {error.strerror}. Choose another with "
            "--port, or any with --port 0."
        ) from error
    return listener


def _last_port(state_dir: StateDir) -> int | None:
    try:
        return int(kubeconfig.load(state_dir.kubeconfig).server.rsplit(":", 1)[1])
    except (UserMistake, ValueError):
        return None
