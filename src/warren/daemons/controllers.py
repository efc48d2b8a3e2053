"""The controller manager: the storage controllers as one process, for any cluster."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from warren.base.clock import Clock, SystemClock
from warren.base.objects import Key
from warren.daemons import compose, monitoring
from warren.daemons.foreground import until_stopped
from warren.daemons.profileadmission import ProfileAdmission
from warren.daemons.rungroup import INDEXES, RunGroup, Runnable, runnables_after_sync
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds
from warren.kube import http, versions, webhook
from warren.kube.admission import Admission, AdmissionChain
from warren.kube.client import Client
from warren.kube.informer import Informer, Informers
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.leader import lead

_VERSIONS_TIMEOUT: Final = 60.0
"""Seconds for which a server that refuses all requests is asked for its API versions."""

LEASE: Final = Key("warren-system", "warren-controllers")
"""The Lease by which replicas elect their leader."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the controllers' process."""

    access: ClusterAccess
    max_lifetime: float | None = None
    """For how many seconds persistent storage is kept at most."""
    mount_prefix: str
    """Where jobs find their storage on compute nodes."""
    identity: str | None = None
    """The identity for leader election among the replicas; None is no leader election."""
    metrics_socket: socket.socket | None = None
    """Where health and metrics are served, if anywhere."""
    webhook: "Webhook | None" = None
    """The admission webhook for Workflows and profiles, if it is served here."""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook's socket, and the files of its certificate, which may be replaced at any time."""

    listener: socket.socket
    certificate: Path
    key: Path

    def serve(self, admission: Admission) -> Runnable:
        """Return what serves an `Admission` until it is cancelled."""
        tls = webhook.rotating_context(self.certificate, self.key)
        return lambda: webhook.serve(self.listener, tls, admission)


async def run(settings: Settings) -> None:
    """Run the controllers until cancelled.

    Raises UnsupportedVersions where the cluster does not have our kinds, LeaseLost where another
    replica may lead now.
    """
    async with http.connect(settings.access, component="controllers") as unversioned:
        client = unversioned.with_versions(
            await versions.choose_when_allowed(
                unversioned, kinds.VERSIONS, seconds=_VERSIONS_TIMEOUT
            )
        )
        await _build_run_group(settings, client, SystemClock()).run()


async def run_until_stopped(settings: Settings) -> None:
    """Run the controllers until SIGTERM or SIGINT. What is under way comes to its end."""
    await until_stopped(run(settings))


def _build_run_group(settings: Settings, client: Client, clock: Clock) -> RunGroup:
    # Every replica serves the webhook, whichever of them leads.
    run_group = _build_controllers_run_group(settings, client, clock)
    if settings.webhook is not None:
        rules = Informer(client, kinds.DIRECTIVE_RULE)
        admission = WorkflowAdmission()
        admission.read_rules_from(lambda kind: rules.all())
        serve = settings.webhook.serve(AdmissionChain([admission, ProfileAdmission()]))
        run_group.outer_runnables["rules"] = rules.run
        run_group.prepare = rules.wait_synced
        run_group.runnables["webhook"] = serve
    return run_group


def _build_controllers_run_group(settings: Settings, client: Client, clock: Clock) -> RunGroup:
    if settings.metrics_socket is None:
        return RunGroup(runnables={"controllers": _Controllers(settings, client, clock).run})
    # Imported only where metrics are served.
    from prometheus_client import CollectorRegistry

    from warren.kube.metrics import Metrics, exposition

    registry, listener = CollectorRegistry(), settings.metrics_socket
    metrics = Metrics(registry)
    controllers = _Controllers(settings, metrics.counting_client(client), clock)
    metrics.register_informers(controllers.informers)
    for each in controllers.reconcilers:
        metrics.register_reconciler(each)
    if settings.identity is not None:
        controllers.on_change = metrics.leading_callback(LEASE)
    return RunGroup(
        runnables={
            "controllers": controllers.run,
            "monitoring": lambda: monitoring.serve(
                listener, lambda: exposition(registry), lambda: controllers.is_ready
            ),
        }
    )


class _Controllers:
    """The controllers of one process, which work while it leads."""

    def __init__(self, settings: Settings, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._identity = settings.identity
        self._is_working = False
        self.on_change: Callable[[bool], None] = lambda leads: None
        """Called when this process becomes the leader, and when it is not any more."""
        self.informers = Informers(client, indexes=INDEXES)
        self.reconcilers = compose.build_controllers(
            lambda: client, self.informers, clock, settings.mount_prefix, settings.max_lifetime
        )

    @property
    def is_ready(self) -> bool:
        """Whether it waits to lead, or leads with all its informers synced."""
        return not self._is_working or all(
            each.sync_state().synced for each in self.informers.all()
        )

    async def run(self) -> None:
        if self._identity is None:
            await self._work()
        else:
            await lead(
                self._client,
                self._clock,
                LEASE,
                self._identity,
                self._work,
                on_change=self.on_change,
            )

    async def _work(self) -> None:
        self._is_working = True
        try:
            runnables = {
                "informers": self.informers.run,
                **runnables_after_sync(self.informers, self.reconcilers),
            }
            await RunGroup(runnables=runnables).run()
        finally:
            self._is_working = False
