"""What the service tells Prometheus."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from warren.atom.sitecommands import JobEvent

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)


class Metrics:
    """Counts, in a registry of their own."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._registry = registry
        self._requests = Histogram(
            "atomd_request_duration_seconds",
            "How long requests took, by what they asked for and how they were answered.",
            ["method", "code"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self._commands = Counter(
            "atomd_commands_total",
            "Commands that have ended, by event and result.",
            ["event", "result"],
            registry=registry,
        )
        self.jobs = Gauge("atomd_jobs", "Jobs that are registered.", registry=registry)
        self.unclean_jobs = Gauge(
            "atomd_unclean_jobs",
            "Jobs whose cleaning up has failed and will be tried again.",
            registry=registry,
        )

    def count_request(self, method: str, code: int, seconds: float) -> None:
        self._requests.labels(method, code).observe(seconds)

    def count_command(self, event: JobEvent, succeeded: bool) -> None:
        self._commands.labels(event, "success" if succeeded else "error").inc()

    def exposition(self) -> bytes:
        """Write all metrics down, in Prometheus's text format."""
        return generate_latest(self._registry)
