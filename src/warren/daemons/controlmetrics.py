"""What control, a conductor or an agent counts for Prometheus.

Imported only where metrics are served.
"""

from collections.abc import Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram

from warren.conductor.conductor import Conductor
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.metrics import Metrics, exposition
from warren.kube.runtime import Reconciler

_BUCKETS: Final = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 1800, 3600, 7200, 14400, 43200)
"""Bounds of buckets: a state takes milliseconds, or hours where much is copied."""


class ControlMetrics:
    """One registry, and what is counted in it."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._metrics = Metrics(self._registry)
        self._state_seconds = Histogram(
            "warren_workflow_state_seconds",
            "How long Workflows were in each state until it was ready.",
            ["state"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def counting_client(self, client: Client) -> Client:
        """Return a client that does what `client` does, and is counted."""
        return self._metrics.counting_client(client)

    def register_controllers(
        self, informers: Informers, reconcilers: Iterable[Reconciler[Any]]
    ) -> None:
        """Count what controllers do, and what they know."""
        self._metrics.register_informers(informers)
        for each in reconcilers:
            self._metrics.register_reconciler(each)

    def register_conductor(self, conductor: Conductor) -> None:
        """Count what a conductor does, and how long states take."""
        self._metrics.register_reconciler(conductor.reconciler)
        state_seconds = self._state_seconds
        conductor.on_state_ready = lambda state, seconds: state_seconds.labels(state).observe(
            seconds
        )

    def exposition(self) -> bytes:
        """Return all of it, in Prometheus's text format."""
        return exposition(self._registry)
