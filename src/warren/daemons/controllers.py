"""The controllers of the storage side as a process of its own, for any cluster."""

import asyncio
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warren.base.clock import Clock, SystemClock
from warren.base.objects import Key
from warren.daemons import compose, exposed
from warren.daemons.together import INDEXES, Part, System, synced
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds
from warren.kube import http, versions, webhook
from warren.kube.admission import Admission
from warren.kube.client import Client
from warren.kube.informer import Informer, Informers
from warren.kube.kubeconfig import Access
from warren.kube.leader import lead

_START: Final = 60.0
"""Seconds for which a server that lets nobody in is asked what it serves."""

LEASE: Final = Key("warren-system", "warren-controllers")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the controllers are told."""

    access: Access
    mount_prefix: str
    """Where jobs find their storage on compute nodes."""
    identity: str | None = None
    """Who this process is among its replicas, of which one leads; None has no replicas."""
    exposed: socket.socket | None = None
    """Where health and metrics are served, if anywhere."""
    webhook: "Webhook | None" = None
    """Where the API is answered who asks about Workflows, if anywhere."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook's place, and the files of its certificate, which may be replaced at any time."""

    listener: socket.socket
    certificate: Path
    key: Path

    def serve(self, admission: Admission) -> Part:
        """Return the part that answers by some rules."""
        tls = webhook.rotating(self.certificate, self.key)
        return lambda: webhook.serve(self.listener, tls, admission)


async def run(wanted: Wanted) -> None:
    """Be the controllers until cancelled.

    Raises NotSpoken where the cluster does not have our kinds, LeaseLost where another
    replica may lead now.
    """
    async with http.connect(wanted.access, component="controllers") as plain:
        client = plain.speaking(await versions.chosen(plain, kinds.VERSIONS, seconds=_START))
        await _system(wanted, client, SystemClock()).run()


async def run_until_stopped(wanted: Wanted) -> None:
    """Be the controllers until SIGTERM or SIGINT. What is under way comes to its end."""
    running = asyncio.ensure_future(run(wanted))
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, running.cancel)
    await asyncio.wait({running})
    if not running.cancelled():
        running.result()


def _system(wanted: Wanted, client: Client, clock: Clock) -> System:
    # Every replica answers the API, whichever of them leads.
    system = _controlling(wanted, client, clock)
    if wanted.webhook is not None:
        rules = Informer(client, kinds.RULE)
        admission = WorkflowAdmission()
        admission.connect(lambda kind: rules.all())
        serve = wanted.webhook.serve(admission)
        system.first["rules"] = rules.run
        system.before = rules.wait_synced
        system.parts["webhook"] = serve
    return system


def _controlling(wanted: Wanted, client: Client, clock: Clock) -> System:
    if wanted.exposed is None:
        return System(parts={"controllers": _Controllers(wanted, client, clock).run})
    # Loaded by those alone who want metrics.
    from prometheus_client import CollectorRegistry

    from warren.kube.metrics import Metrics, exposition

    registry, listener = CollectorRegistry(), wanted.exposed
    metrics = Metrics(registry)
    controllers = _Controllers(wanted, metrics.client(client), clock)
    metrics.informers(controllers.informers)
    for each in controllers.reconcilers:
        metrics.reconciler(each)
    if wanted.identity is not None:
        controllers.told = metrics.leading(LEASE)
    return System(
        parts={
            "controllers": controllers.run,
            "exposed": lambda: exposed.serve(
                listener, lambda: exposition(registry), lambda: controllers.ready
            ),
        }
    )


class _Controllers:
    """The controllers of one process, which work while it leads."""

    def __init__(self, wanted: Wanted, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._identity = wanted.identity
        self._works = False
        self.told: Callable[[bool], None] = lambda leads: None
        """Told when this process begins to lead, and when it has ended."""
        self.informers = Informers(client, indexes=INDEXES)
        self.reconcilers = compose.controllers(
            lambda: client, self.informers, clock, wanted.mount_prefix
        )

    @property
    def ready(self) -> bool:
        """Whether it does what it is there for: works with all that it must know, or waits."""
        return not self._works or all(each.sync_state().synced for each in self.informers.known())

    async def run(self) -> None:
        if self._identity is None:
            await self._work()
        else:
            await lead(self._client, self._clock, LEASE, self._identity, self._work, told=self.told)

    async def _work(self) -> None:
        self._works = True
        try:
            parts = {"informers": self.informers.run, **synced(self.informers, self.reconcilers)}
            await System(parts=parts).run()
        finally:
            self._works = False
