"""What the runtime tells Prometheus, under the names that dashboards of controllers know.

Nothing else knows prometheus-client: a process that is not asked for metrics
neither loads it nor counts. What can be looked up on request is looked
up then; only reconciles, waits and requests are counted as they happen.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.client import (
    AlreadyExists,
    Client,
    Conflict,
    Expired,
    Forbidden,
    Listing,
    NotFound,
    Refused,
    Unavailable,
    WatchEvent,
)
from warren.kube.informer import Informer, Informers
from warren.kube.queue import Load
from warren.kube.runtime import Outcome, Reconciler

_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_CODE_BY_ERROR: Final[Mapping[type[Exception], str]] = {
    NotFound: "404",
    AlreadyExists: "409",
    Conflict: "409",
    Expired: "410",
    Forbidden: "403",
    Refused: "4xx",
    Unavailable: "<error>",
}
"""What each of the port's errors is on the wire, as far as the port tells."""


def exposition(registry: CollectorRegistry) -> bytes:
    """Write all metrics down, in Prometheus's text format."""
    return generate_latest(registry)


class Metrics:
    """The metrics of one process, in a registry that is given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._scraped = _ScrapedMetrics()
        registry.register(self._scraped)
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited for a worker.",
            ["name"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total",
            "Reconciles, by how they ended.",
            ["controller", "result"],
            registry=registry,
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total",
            "Reconciles that failed with an unexpected error.",
            ["controller"],
            registry=registry,
        )
        self._durations = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long reconciles took.",
            ["controller"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Requests to the API, by method and by the status of the answer.",
            ["code", "method"],
            registry=registry,
        )
        self._latencies = Histogram(
            "rest_client_request_duration_seconds",
            "How long the API took to answer; watches are not counted.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._leading = Gauge(
            "leader_election_master_status",
            "Whether this process leads.",
            ["name"],
            registry=registry,
        )

    def register_reconciler(self, reconciler: Reconciler[Any]) -> None:
        """Register a reconciler and its queue."""
        name = reconciler.name
        self._scraped.reconcilers.append(reconciler)
        reconciler.observe(
            _ReconcileObserver(
                self._waits.labels(name),
                {outcome: self._reconciles.labels(name, outcome) for outcome in Outcome},
                self._errors.labels(name),
                self._durations.labels(name),
            )
        )

    def register_informers(self, informers: Informers) -> None:
        """Register all informers of a client, those that are yet to come included."""
        self._scraped.informers.append(informers)

    def leading_callback(self, lease: Key) -> Callable[[bool], None]:
        """Return what `leader.lead` is to tell about a Lease."""
        gauge = self._leading.labels(str(lease))
        gauge.set(0)
        return lambda leads: gauge.set(leads)

    def counting_client(self, client: Client) -> Client:
        """Return a client that does what `client` does, and counts it."""
        return _CountingClient(client, self._requests, self._latencies)


class _ReconcileObserver:
    """Counts the reconciles of one reconciler."""

    def __init__(
        self,
        waits: Histogram,
        results: Mapping[Outcome, Counter],
        errors: Counter,
        durations: Histogram,
    ) -> None:
        self._results = results
        self._errors = errors
        self._durations = durations
        self.waited: Callable[[float], None] = waits.observe

    def reconciled(self, outcome: Outcome, seconds: float) -> None:
        self._results[outcome].inc()
        self._durations.observe(seconds)
        if outcome is Outcome.ERROR:
            self._errors.inc()


_QUEUE_GAUGES: Final[Mapping[str, tuple[str, Callable[[Load], float]]]] = {
    "workqueue_depth": (
        "Keys that wait for a worker.",
        lambda load: load.depth,
    ),
    "workqueue_longest_wait_seconds": (
        "How long the first key in the queue has waited.",
        lambda load: load.longest_wait,
    ),
    "workqueue_longest_running_processor_seconds": (
        "How long the longest reconcile has been running.",
        lambda load: load.longest_work,
    ),
    "workqueue_delayed": (
        "Keys that are put off.",
        lambda load: load.delayed,
    ),
}


class _ScrapedMetrics(Collector):
    """Metrics that are looked up at each scrape."""

    def __init__(self) -> None:
        self.reconcilers: list[Reconciler[Any]] = []
        self.informers: list[Informers] = []

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queues()
        yield from self._informers(
            [informer for informers in self.informers for informer in informers.all()]
        )

    def _queues(self) -> Iterator[Metric]:
        loads = [(each, each.load()) for each in self.reconcilers]
        for name, (meaning, value) in _QUEUE_GAUGES.items():
            gauge = GaugeMetricFamily(name, meaning, labels=["name"])
            for each, load in loads:
                gauge.add_metric([each.name], value(load))
            yield gauge
        adds = CounterMetricFamily(
            "workqueue_adds", "Keys that were added to the queue.", labels=["name"]
        )
        retries = CounterMetricFamily(
            "workqueue_retries",
            "Keys that were added to the queue because they had failed.",
            labels=["name"],
        )
        active = GaugeMetricFamily(
            "controller_runtime_active_workers",
            "Reconciles that are running.",
            labels=["controller"],
        )
        max_active = GaugeMetricFamily(
            "controller_runtime_max_concurrent_reconciles",
            "Reconciles that may run at a time.",
            labels=["controller"],
        )
        for each, load in loads:
            adds.add_metric([each.name], load.adds)
            retries.add_metric([each.name], load.retries)
            active.add_metric([each.name], load.working)
            max_active.add_metric([each.name], each.workers)
        yield from (adds, retries, active, max_active)

    def _informers(self, informers: Iterable[Informer]) -> Iterator[Metric]:
        labels = ["name", "namespace"]
        synced = GaugeMetricFamily(
            "informer_synced", "Whether the first list is complete.", labels=labels
        )
        silence = GaugeMetricFamily(
            "informer_silence_seconds",
            "Time since the last list, event or bookmark.",
            labels=labels,
        )
        version = GaugeMetricFamily(
            "reflector_last_resource_version",
            "The newest version that was heard of.",
            labels=labels,
        )
        lists = CounterMetricFamily("reflector_lists", "Lists that were made.", labels=labels)
        watches = CounterMetricFamily(
            "reflector_watches", "Watches that were begun.", labels=labels
        )
        for each in informers:
            sync_state = each.sync_state()
            label_values = [str(each.kind), each.namespace]
            synced.add_metric(label_values, sync_state.synced)
            silence.add_metric(label_values, sync_state.silence)
            lists.add_metric(label_values, sync_state.list_count)
            watches.add_metric(label_values, sync_state.watch_count)
            if sync_state.resource_version.isdecimal():
                version.add_metric(label_values, int(sync_state.resource_version))
        yield from (synced, silence, version, lists, watches)


class _CountingClient:
    """A `Client` that counts what another one is asked."""

    def __init__(self, client: Client, requests: Counter, latencies: Histogram) -> None:
        self._client = client
        self._requests = requests
        self._latencies = latencies

    async def get(self, kind: Kind, key: Key) -> Object:
        with self._timed("GET"), self._counted("GET"):
            return await self._client.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        with self._timed("LIST"), self._counted("GET"):
            return await self._client.list(kind, namespace, labels)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        watch = self._client.watch(kind, since, namespace)
        with self._counted("GET"):
            async with aclosing(watch) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def create(self, kind: Kind, obj: Object) -> Object:
        with self._timed("POST"), self._counted("POST", "201"):
            return await self._client.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        with self._timed("PATCH"), self._counted("PATCH"):
            return await self._client.patch(change)

    async def delete(self, remove: Remove) -> None:
        with self._timed("DELETE"), self._counted("DELETE"):
            await self._client.delete(remove)

    @contextmanager
    def _timed(self, verb: str) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        try:
            yield
        finally:
            self._latencies.labels(verb).observe(loop.time() - started_at)

    @contextmanager
    def _counted(self, method: str, code: str = "200") -> Iterator[None]:
        """Count a request once it is answered, also by an error. One that is given up is not."""
        try:
            yield
        except GeneratorExit:
            # The reader of a watch has gone away.
            self._requests.labels(code, method).inc()
            raise
        except tuple(_CODE_BY_ERROR) as error:
            self._requests.labels(_code_of(error), method).inc()
            raise
        self._requests.labels(code, method).inc()


def _code_of(error: Exception) -> str:
    return next(code for type_, code in _CODE_BY_ERROR.items() if isinstance(error, type_))
