"""The conductor alone: how soon it goes on when a state is ready, beside a thousand held Workflows.

Its jobs are in memory, and its drivers take no time: what is measured is the conductor and the API
server between them, in this process or as `warren apiserver` over HTTPS. CPU is that of this
process, drivers included.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from tests.conductor.jobs import Jobs
from tests.dws.builders import BINDING, JOBDW, need
from tests.kube.clusters import alongside

from benchmarks.measure import Result, percentile
from warren.base.bytesize import GIB
from warren.base.clock import SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.conductor.conductor import Conductor
from warren.daemons import apiserver
from warren.daemons.clustershape import ClusterShape
from warren.daemons.rungroup import INDEXES
from warren.daemons.statedir import StateDir
from warren.dws import kinds, labels
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.journal.sqlite import SqliteJournal
from warren.kube import http, kubeconfig
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.kube.server.local import LocalClient

HELD: Final = 1000
"""How many jobs run all the time."""
RATE: Final = 40
"""Lives that begin in a second."""
LIVES: Final = 400
SITE: Final = ClusterShape(rabbits=4)
NODES: Final = tuple(SITE.chassis()[0].hosts[:2])
JOB: Final = Job(
    id=0,
    phase=Phase.HELD,
    binding=BINDING,
    formatted_id="f1",
    userid=1001,
    groupid=1002,
    directives=(JOBDW,),
    resources=[{"type": "node", "count": 2, "with": []}],
)
MEASURED_STATES: Final = ("Setup", "DataIn", "PostRun", "DataOut")
"""The states of which the end is all that the conductor waits for."""


class Drivers:
    """What makes every state of every Workflow ready at once, and notes when the next is asked."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self.client = client
        self.delays: list[float] = []
        """Seconds from when a state was made ready until the next was seen to be asked for."""
        self.pauses = False
        self.asked: dict[str, float] = {}
        """When the last state of a Workflow was seen to be asked for."""
        self._ready: dict[str, tuple[str, float]] = {}
        self._known = informers.of(kinds.WORKFLOW)
        self.reconciler: Reconciler[Key] = Reconciler("drivers", self._reconcile, workers=32)
        self._known.listen(self._changed)

    def _changed(self, workflow: Object) -> None:
        now = time.perf_counter()
        name, desired = workflow["metadata"]["name"], workflow["spec"]["desiredState"]
        state, since = self._ready.get(name, ("", 0.0))
        if desired != state:
            self.asked[name] = now
            if state in MEASURED_STATES:
                self.delays.append(now - since)
            self._ready.pop(name, None)
        if not self.pauses:
            self.reconciler.add(Key(workflow["metadata"]["namespace"], name))

    async def _reconcile(self, key: Key) -> None:
        workflow = self._known.get(key)
        if workflow is None:
            return
        desired, status = workflow["spec"]["desiredState"], workflow["status"]
        if status.get("state") == desired and status.get("ready"):
            return
        if status.get("state") != desired:
            await self._write(key, {"state": desired, "ready": False, "status": "DriverWait"})
        if desired == "Proposal":
            await self._propose(workflow)
        if desired == "Teardown":
            for kind in (kinds.SERVERS, kinds.BREAKDOWN):
                await self.client.delete(Remove(kind=kind, key=Key(key.namespace, f"{key.name}-0")))
            await self.client.delete(Remove(kind=kinds.COMPUTES, key=key))
        drivers = [
            {**each, "completed": True, "status": "Completed"}
            if each["watchState"] == desired
            else each
            for each in status.get("drivers", ())
        ]
        # Before the write: the next state may be asked for before the write is answered.
        self._ready[key.name] = (desired, time.perf_counter())
        await self._write(key, {"ready": True, "status": "Completed", "drivers": drivers})

    async def _write(self, key: Key, status: Object) -> None:
        patch = {"status": status}
        await self.client.patch(Change(kind=kinds.WORKFLOW, key=key, patch=patch, status=True))

    async def _propose(self, workflow: Object) -> None:
        meta = workflow["metadata"]
        own = {
            labels.WORKFLOW_NAME: meta["name"],
            labels.WORKFLOW_NAMESPACE: meta["namespace"],
            labels.WORKFLOW_UID: meta["uid"],
        }
        name = f"{meta['name']}-0"
        needs = msgspec.to_builtins(need("xfs", GIB, "AllocatePerCompute"))

        async def make(kind: Kind, name: str, **rest: Any) -> None:
            metadata = {"name": name, "namespace": meta["namespace"], "labels": own}
            await self.client.create(kind, {"metadata": metadata, **rest})

        await make(kinds.COMPUTES, meta["name"], data=[])
        await make(kinds.SERVERS, name, spec={})
        await make(kinds.BREAKDOWN, name, spec={"directive": JOBDW, "userID": 1001})
        reference = {"kind": "Servers", "name": name, "namespace": meta["namespace"]}
        storage = {"reference": reference, "lifetime": "job", "allocationSets": [needs]}
        status = {"status": {"ready": True, "storage": storage}}
        key = Key(meta["namespace"], name)
        await self.client.patch(Change(kind=kinds.BREAKDOWN, key=key, patch=status, status=True))


class Manager(Jobs):
    """The jobs: they get nodes at once, and some end as soon as they run."""

    def __init__(self, ends: Callable[[int], bool]) -> None:
        super().__init__()
        self._ends = ends
        self.running: set[int] = set()
        self.over: set[int] = set()

    def put(self, job: Job) -> None:
        super().put(job)
        if job.phase is Phase.QUEUED:
            super().put(replace(job, phase=Phase.STARTING, nodes=NODES))
        elif job.phase is Phase.RUNNING:
            self.running.add(job.id)
            if self._ends(job.id):
                super().put(replace(job, phase=Phase.ENDING))
        elif job.phase is Phase.OVER:
            self.over.add(job.id)


def in_one_process() -> Iterator[Result]:
    """With the API server in the conductor's process, as in `warren up`."""
    yield from asyncio.run(_measured("local", _embedded))


def over_https() -> Iterator[Result]:
    """With the API server in a process of its own."""
    yield from asyncio.run(_measured("HTTPS", _over_https))


async def _measured(
    where: str, opened: Callable[[Path], AbstractAsyncContextManager[Client]]
) -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        async with opened(Path(directory)) as client:
            informers = Informers(client, indexes=INDEXES)
            manager = Manager(lambda job: job > HELD)
            conductor = Conductor(client, informers, manager, SystemClock(), GIB)
            drivers = Drivers(client, informers)
            async with (
                alongside(informers.run()),
                alongside(conductor.run()),
                alongside(drivers.reconciler.run()),
            ):
                await informers.wait_synced()
                return await _run_lives(where, manager, drivers)


async def _run_lives(where: str, manager: Manager, drivers: Drivers) -> list[Result]:
    for number in range(1, HELD + 1):
        manager.put(replace(JOB, id=number))
    await _wait_until(lambda: len(manager.running) == HELD)
    drivers.delays.clear()
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(LIVES):
        manager.put(replace(JOB, id=HELD + 1 + number))
        await asyncio.sleep(max(0.0, began + (number + 1) / RATE - time.perf_counter()))
    await _wait_until(lambda: len(manager.over) == LIVES)
    rate = LIVES / (time.perf_counter() - began)
    cpu = (time.process_time() - cpu) * 1000 / LIVES
    delays = [each * 1000 for each in drivers.delays]
    drained = await _burst(manager, drivers)
    return [
        Result(name=f"lives beside 1,000 held, {where}", value=rate, unit="1/s"),
        Result(name=f"lives beside 1,000 held, {where}, CPU of each", value=cpu, unit="ms"),
        Result(name=f"ready to next desiredState, {where}, p50", value=percentile(delays, 0.5),
               unit="ms"),
        Result(name=f"ready to next desiredState, {where}, p99", value=percentile(delays, 0.99),
               unit="ms", budget=25),
        Result(name=f"a burst of 1,000, {where}", value=drained, unit="s", budget=2),
    ]  # fmt: skip


async def _burst(manager: Manager, drivers: Drivers) -> float:
    """End all jobs that are held; return the seconds until their Workflows were asked to go on."""
    drivers.pauses = True
    drivers.asked.clear()
    began = time.perf_counter()
    for number in range(1, HELD + 1):
        manager.put(replace(manager.known[number], phase=Phase.ENDING))
    await _wait_until(lambda: len(drivers.asked) == HELD)
    return max(drivers.asked.values()) - began


async def _wait_until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.01)


@asynccontextmanager
async def _embedded(directory: Path) -> AsyncIterator[Client]:
    with SqliteJournal(directory / "objects.db") as journal:
        embedded = apiserver.build(journal, SystemClock())
        async with alongside(embedded.run()):
            await embedded.create_defaults()
            client = LocalClient(embedded.store)
            await apiserver.establish(client, SITE)
            yield client


@asynccontextmanager
async def _over_https(directory: Path) -> AsyncIterator[Client]:
    state = StateDir(directory / "state")
    process = subprocess.Popen(  # noqa: ASYNC220 - it is over at once
        [sys.executable, "-m", "warren", "apiserver", "--statedir",
         str(state.path)],
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says where it serves
        async with http.connect(kubeconfig.load(state.kubeconfig)) as client:
            await apiserver.establish(client, SITE)
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


ALL = {"conductor beside 1,000 held": in_one_process, "conductor over HTTPS": over_https}
