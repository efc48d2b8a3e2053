"""A small instance in virtual time: real shells, whose tasks only take time."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from tests.harness.lines import Line
from tests.harness.seam import Seam, SeamCommands, SeamJournal, SeamLauncher, Stopped
from tests.harness.virtual import VirtualClock
from tests.instance.parts import OWNER, living, settle
from warren.instance import jobtables, keys
from warren.instance.barrier import Barriers
from warren.instance.config import Config
from warren.instance.exec.execution import JobExec, Launcher
from warren.instance.exec.perilog import Commands, Perilog, SitePerilogSteps
from warren.instance.ingest import Ingest
from warren.instance.jobinfo import JobInfo
from warren.instance.jobs.manager import JobManager
from warren.instance.jobs.service import JobManagerService
from warren.instance.jobtables import ExecTable
from warren.instance.kvs import Kvs, put
from warren.instance.kvs.service import KvsService
from warren.instance.queues import Queues
from warren.instance.resource import configured_graph
from warren.instance.scheduler import JobScheduler
from warren.instance.shell.plugins import ShellPlugin
from warren.instance.shell.shell import Shell
from warren.instance.shell.tasks import Spawner
from warren.instance.simulated import (
    SimulatedCommands,
    SimulatedLauncher,
    SimulatedSpawner,
    TaskBehavior,
)
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job
from warren.rfc import eventlog, jobspec, resource_set, signed_request, stdio
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.client import ReconnectingHandle
from warren.rpc.message import Handle, RpcError

NODES = [resource_set.NodeResources(rank, f"node{rank}", (0, 1, 2, 3)) for rank in range(4)]

Playwright = Callable[[Sequence[str], Mapping[str, str]], TaskBehavior]


@dataclass(frozen=True)
class Instance:
    """One life of an instance."""

    kvs: Kvs
    manager: JobManager
    execution: JobExec
    bus: Bus
    launcher: Launcher

    async def submit(self, **options: Any) -> JobId:
        spec = jobspec.make(**{"command": ["app"], "nodes": 1, **options})
        token = signed_request.wrap(orjson.dumps(spec), OWNER)
        answer = await self.bus.handle().rpc("job-ingest.submit", {"J": token})
        return JobId(answer["id"])

    async def submit_as(self, userid: int, **options: Any) -> JobId:
        """Have a user's job accepted, past ingest, which wants a signature."""
        job = JobId(self.manager.max_jobid() + (1 << 24))
        spec = jobspec.make(**{"command": ["app"], "nodes": 1, **options})
        submitted = {"userid": userid, "urgency": 16, "flags": 0, "version": 1}
        stored = [put(keys.job_key(job, "jobspec"), orjson.dumps(spec))]
        await self.manager.submit(job, submitted, spec, stored)
        return job

    async def cancel(self, job: JobId) -> None:
        await self.bus.handle().rpc("job-manager.raise", {"id": job})

    def log(self, job: JobId, key: str = "eventlog") -> list[Event]:
        text = self.kvs.get(keys.job_key(job, key))
        return eventlog.decode(text.decode()) if text is not None else []

    def names(self, job: JobId, key: str = "eventlog") -> list[str]:
        return [event.name for event in self.log(job, key)]

    async def until(self, job: JobId, name: str = "clean", key: str = "eventlog") -> float:
        """Wait for an event, and return the moment of it."""
        async with asyncio.timeout(100_000):
            while name not in self.names(job, key):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await settle()
        return next(event.timestamp for event in self.log(job, key) if event.name == name)

    def took(self, job: JobId) -> float:
        """The seconds from a job's start to its end."""
        moments = {event.name: event.timestamp for event in self.log(job)}
        return moments["finish"] - moments["start"]

    def job(self, job: JobId) -> Job:
        found = self.manager.find(job)
        assert found is not None
        return found.job

    def printed(self, job: JobId, stream: str = "stdout") -> dict[str, bytes]:
        """What the tasks have printed, by rank."""
        found: dict[str, bytes] = {}
        for piece in stdio.decode_outputs(self.log(job, "guest.output")):
            if piece.stream == stream:
                found[piece.rank] = found.get(piece.rank, b"") + piece.data
        return found

    def complaints(self, job: JobId) -> list[str]:
        """What the shells have told the job's author."""
        events = self.log(job, "guest.output")
        return [event.context["message"] for event in events if event.name == "log"]

    def failures(self, job: JobId) -> list[tuple[str, str]]:
        """The fatal exceptions, and their notes."""
        problems = self.job(job).exceptions
        return [(each.type, each.note) for each in problems if each.severity == 0]

    async def assert_nothing_left(self) -> None:
        assert dict(await self.launcher.started_jobs()) == {}
        assert self.kvs.namespaces() == ["primary"]


class Machine:
    """What outlives an instance: its journal, and the shells with their tasks."""

    def __init__(self, group: asyncio.TaskGroup, play: Playwright) -> None:
        self.journal: MemoryJournal = MemoryJournal()
        self.clock = VirtualClock()
        self.spawner: Callable[[int], Spawner] = lambda rank: SimulatedSpawner(play)
        """Makes the spawner of a shell."""
        self.plugins: Callable[[int], Sequence[ShellPlugin]] = lambda rank: ()
        self.launcher: Launcher = SimulatedLauncher(group, self._shell)
        self.config = ExecTable()
        self.around = jobtables.JobManagerTable()
        """The site's commands around jobs."""
        self.commands: Commands = SimulatedCommands(lambda argv, environment: TaskBehavior())
        self.nodes = NODES
        self.drained: list[tuple[list[int], str]] = []
        """Ranks that were drained, and why."""
        self._group = group
        self._bus: Bus | None = None
        self._lost = asyncio.Event()

    def power_cut(self) -> None:
        """Lose all shells, and what was known of them."""
        self.launcher = SimulatedLauncher(self._group, self._shell)

    async def lose_shells(self) -> None:
        """Kill all shells, as when their parent dies."""
        for job in await self.launcher.started_jobs():
            await self.launcher.forget(job)

    async def live(self, action: Callable[[Instance], Awaitable[None]], seam: Seam) -> None:
        """Live until something is done, or the seam stops everything."""
        try:
            async with self.instance(seam=seam) as instance:
                await action(instance)
        except BaseExceptionGroup as errors:
            _, others = errors.split(Stopped)
            if others is not None:
                raise others from None

    @asynccontextmanager
    async def instance(
        self,
        launcher: Callable[[Bus], Launcher] | None = None,
        seam: Seam | None = None,
        settings: Config = Config(),  # noqa: B008 - it is frozen
    ) -> AsyncIterator[Instance]:
        """Live once. The shells of one life are those of the next."""
        seam = seam or Seam()
        kvs = Kvs(SeamJournal("jobs", self.journal, seam), OWNER)
        bus, barriers = Bus(OWNER), Barriers()
        manager = JobManager(kvs, self.clock, bus.handle())
        graph = configured_graph(resource_set.encode_nodes(self.nodes), settings)
        scheduler = JobScheduler(kvs, self.clock, graph, manager.alloc_response)
        chosen = launcher(bus) if launcher is not None else SeamLauncher(self.launcher, seam)
        commands = SeamCommands(self.commands, seam)
        execution = JobExec(
            kvs, self.clock, chosen, barriers, manager.start_response, self._drain, self.config
        )
        perilog = Perilog(
            SitePerilogSteps(self.around), commands, self._drain, manager.wait_committed
        )
        manager.connect(scheduler, execution)
        manager.load(perilog)
        bus.register("kvs", KvsService(kvs).methods())
        bus.register("barrier", barriers.methods())
        queues = Queues(kvs, manager, settings)
        service = JobManagerService(manager, execution, queues.resolve_updates)
        ingest = Ingest(kvs, manager, self.clock, settings, queues)
        bus.register("job-manager", {**service.methods(), **queues.methods()})
        bus.register("job-ingest", ingest.methods())
        bus.register("job-info", JobInfo(kvs, manager).methods())
        try:
            async with living(kvs.run, manager.run, scheduler.run, execution.run, perilog.run):
                self._bus = bus
                await settle()
                yield Instance(kvs, manager, execution, bus, chosen)
        finally:
            self._bus = None
            self._lost.set()
            self._lost = asyncio.Event()

    async def _drain(self, ranks: Iterable[int], reason: str) -> None:
        self.drained.append((list(ranks), reason))

    def _shell(self, job: JobId, rank: int, host: str) -> Shell:
        serving = Bus(OWNER)
        patient = ReconnectingHandle(lambda: self._connected(serving), serving)
        connected = self._group.create_task(patient.run())
        shell = Shell(
            handle=patient,
            spawner=self.spawner(rank),
            clock=self.clock,
            plugins=self.plugins(rank),
            job=job,
            rank=rank,
            uri="local://virtual",
        )
        life = shell.run

        async def run() -> int:
            try:
                return await life()
            finally:
                connected.cancel()

        shell.run = run  # type: ignore[method-assign]
        return shell

    @asynccontextmanager
    async def _connected(self, serving: Bus) -> AsyncIterator[Handle]:
        if self._bus is None:
            raise RpcError(errno.ECONNRESET)
        yield Line(self._bus, OWNER, self._lost, serving)


@asynccontextmanager
async def machine(
    play: TaskBehavior | Playwright = lambda command, environment: TaskBehavior(),
) -> AsyncIterator[Machine]:
    """A machine for the length of a block. All tasks do what `play` says."""
    playwright = (lambda command, environment: play) if isinstance(play, TaskBehavior) else play
    async with asyncio.TaskGroup() as group:
        yield Machine(group, playwright)
