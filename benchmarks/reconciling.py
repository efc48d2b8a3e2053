"""What one rabbit job asks of the API server, and how often its reconcilers decide nothing."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final

from tests.harness.world import World

from benchmarks.jobs import XFS, run_simulated, wait_clean, wait_rabbits_ready
from benchmarks.measure import Result
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.conductor.conductor import Conductor
from warren.daemons.compose import Control
from warren.kube.client import Client, Listing, WatchEvent
from warren.kube.informer import Informers
from warren.kube.runtime import Outcome, Reconciler
from warren.rpc.message import Handle, Payload

JOBS: Final = 20
RABBITS: Final = 4
SHOWN: Final = ("workflow", "conductor", "storage", "access")
_LOOKS: Final = frozenset({"job-info.lookup", "resource.status"})
"""Requests to the instance that only ask."""

_CURRENT: ContextVar[list[str]] = ContextVar("what the reconcile that goes on has done")


class Tally:
    """What all reconciles do. It stands where a process has its `ControlMetrics`."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """To the API server, by verb and kind."""
        self.reconciles: Counter[str] = Counter()
        self.idle: Counter[str] = Counter()
        """Those that have written nothing, and told the instance nothing."""

    def clear(self) -> None:
        for each in (self.requests, self.reconciles, self.idle):
            each.clear()

    def register_controllers(
        self, informers: Informers, reconcilers: Iterable[Reconciler[Any]]
    ) -> None:
        for each in reconcilers:
            each.observe(PassObserver(self, each.name))

    def register_conductor(self, conductor: Conductor) -> None:
        conductor.reconciler.observe(PassObserver(self, conductor.reconciler.name))
        jobs: Any = conductor._wlm
        jobs._handle = CountingHandle(jobs._handle)
        record = jobs.answer_requests

        def answered(job: Any, mistake: str | None) -> None:
            if jobs._requests_answered_by(job):
                note_action("answer")
            record(job, mistake)

        jobs.answer_requests = answered

    def client(self, client: Client) -> Client:
        return CountingClient(client, self)


def note_action(what: str) -> None:
    """Note that the reconcile that goes on, if any, has done something."""
    _CURRENT.get([]).append(what)


class PassObserver:
    """The reconciles of one reconciler. What each does is told by its context."""

    def __init__(self, tally: Tally, name: str) -> None:
        self._tally = tally
        self._name = name

    def waited(self, seconds: float) -> None:
        _CURRENT.set([])

    def reconciled(self, outcome: Outcome, seconds: float) -> None:
        self._tally.reconciles[self._name] += 1
        if not _CURRENT.get():
            self._tally.idle[self._name] += 1


class CountingClient:
    """A client of which each request is counted."""

    def __init__(self, client: Client, tally: Tally) -> None:
        self._client = client
        self._tally = tally

    def _count(self, verb: str, kind: Kind) -> None:
        self._tally.requests[f"{verb} {kind.name}"] += 1
        if verb not in ("get", "list"):
            note_action(f"{verb} {kind.name}")

    async def get(self, kind: Kind, key: Key) -> Object:
        self._count("get", kind)
        return await self._client.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        self._count("list", kind)
        return await self._client.list(kind, namespace, labels)

    def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        return self._client.watch(kind, since, namespace)

    async def create(self, kind: Kind, obj: Object) -> Object:
        self._count("create", kind)
        return await self._client.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        self._count("patch", change.kind)
        return await self._client.patch(change)

    async def delete(self, remove: Remove) -> None:
        self._count("delete", remove.kind)
        await self._client.delete(remove)


class CountingHandle:
    """The instance, as the conductor tells it things."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.stream = handle.stream

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic not in _LOOKS:
            note_action(topic)
        return await self._handle.rpc(topic, payload)


def reconciles() -> Iterator[Result]:
    """Count over the lives of rabbit jobs, one after the other."""
    yield from count_requests(Tally())


def count_requests(tally: Tally, begun: Callable[[], None] = lambda: None) -> list[Result]:
    """Count; `begun` is called when what is done once only is over."""

    async def action(world: World, control: Control) -> list[Result]:
        await wait_rabbits_ready(control, RABBITS)
        await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))
        tally.clear()
        begun()
        for _ in range(JOBS):
            await wait_clean(control, await world.submit(control, nodes=1, attributes=XFS))
        requests = tally.requests.total() / JOBS
        return [
            Result(name="rabbit job, requests to the API", value=requests, unit=""),
            *(row for each in SHOWN for row in _rows(tally, each)),
        ]

    return run_simulated(action, rabbits=RABBITS, metrics=tally)


def _rows(tally: Tally, name: str) -> list[Result]:
    made = {"reconciles": tally.reconciles, "idle": tally.idle}
    return [
        Result(name=f"rabbit job, {what}: {name}", value=count[name] / JOBS, unit="")
        for what, count in made.items()
    ]


ALL = {"reconciles of a rabbit job": reconciles}
