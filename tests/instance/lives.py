"""Lives of a job manager on a journal, with a scheduler and an execution that are paper."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from tests.harness.virtual import VirtualClock
from tests.instance.parts import OWNER, living, settle, unkept
from warren.base.clock import Clock
from warren.instance import keys, users
from warren.instance.config import Config
from warren.instance.configservice import LiveConfig
from warren.instance.ingest import Frobnicator, Ingest, Validator
from warren.instance.jobinfo import LARGEST_ANSWER, JobInfo
from warren.instance.joblist import MOST_BYTES, JobList
from warren.instance.jobs.jobtap import Jobtap, Plugin
from warren.instance.jobs.manager import JobManager
from warren.instance.jobs.service import JobManagerService
from warren.instance.kvs import Kvs, Quota, put
from warren.instance.kvs.service import KvsService
from warren.instance.protocols import ANNOTATE, CANCEL, DENY, SUCCESS, Message
from warren.instance.queues import Queues
from warren.instance.users import UserLookup
from warren.journal import Journal, MemoryJournal
from warren.lifecycle.job import Job
from warren.lifecycle.selection import MAX_COMPARISONS
from warren.lifecycle.states import State
from warren.rfc import eventlog, jobspec, resource_set, signed_request
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus

PLAIN = [
    *["submit", "validate", "depend", "priority", "alloc"],
    *["start", "finish", "release", "free", "clean"],
]
"""The events of a job of which there is nothing to tell."""

R = resource_set.encode_nodes(
    [resource_set.NodeResources(0, "node0", (0,))], slots=1, scheduling={"graph": {}}
)

Reply = Callable[[Message], None]


class PaperScheduler:
    """A `Scheduler` that has enough for all jobs, and gives it at once if it is generous."""

    def __init__(self, kvs: Kvs, reply: Reply, *, generous: bool) -> None:
        self._kvs = kvs
        self._reply = reply
        self._generous = generous
        self._news: asyncio.Queue[JobId] = asyncio.Queue()
        self.deaf = False
        """Whether cancellations come too late for it."""
        self.asked: list[JobId] = []
        self.waiting: dict[JobId, Message] = {}
        self.given: dict[JobId, Message] = {}
        self.back: dict[JobId, set[int]] = {}
        """Ranks that were given back early."""
        self.prioritized: list[tuple[JobId, int]] = []
        self.expirations: list[tuple[JobId, float]] = []

    async def run(self) -> None:
        while True:
            job = await self._news.get()
            if self._generous:
                await self.give(job)

    def alloc(self, message: Message) -> None:
        assert message["id"] not in self.waiting
        self.asked.append(message["id"])
        self.waiting[message["id"]] = message
        self._news.put_nowait(message["id"])

    def cancel(self, job: JobId) -> None:
        if not self.deaf and self.waiting.pop(job, None) is not None:
            self._reply({"id": job, "type": CANCEL})

    def prioritize(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        self.prioritized += jobs

    def set_expiration(self, job: JobId, expiration: float) -> None:
        self.expirations.append((job, expiration))

    def free(self, job: JobId, r: Message, final: bool) -> None:
        ranks = {rank.rank for rank in resource_set.decode_nodes(r)}
        assert not ranks & self.back.get(job, set()), "a node was given back twice"
        if final:
            given = {rank.rank for rank in resource_set.decode_nodes(self.given.pop(job))}
            assert ranks == given - self.back.pop(job, set())
        else:
            assert "scheduling" not in r
            self.back.setdefault(job, set()).update(ranks)

    def hello(self, job: JobId, r: Message, freed: Collection[int]) -> str | None:
        self.given[job] = r
        self.back[job] = set(freed)
        return None

    def retire(self, job: JobId) -> None:
        assert job not in self.given, "a job that is over was not freed"

    async def give(self, job: JobId) -> None:
        """Answer with resources, once that is written down."""
        if job in self.waiting:
            await self._kvs.commit([put(keys.job_key(job, "R"), orjson.dumps(R))])
            self.say_given(job)

    def say_given(self, job: JobId) -> None:
        if self.waiting.pop(job, None) is not None:
            self.given[job] = R
            self._reply({"id": job, "type": SUCCESS, "R": R, "annotations": {"sched": {"a": 1}}})

    def deny(self, job: JobId, note: str) -> None:
        del self.waiting[job]
        self._reply({"id": job, "type": DENY, "note": note})

    def explain(self, job: JobId, reason: str) -> None:
        annotations = {"sched": {"reason_pending": reason}}
        self._reply({"id": job, "type": ANNOTATE, "annotations": annotations})


class PaperExecution:
    """An `Execution` whose jobs take their time, and end early when they are told to."""

    def __init__(self, kvs: Kvs, reply: Reply, seconds: float) -> None:
        self._kvs = kvs
        self._reply = reply
        self._seconds = seconds
        self._starts: asyncio.Queue[Message] = asyncio.Queue()
        self._ends: dict[JobId, asyncio.Future[int]] = {}
        self.started: list[Message] = []
        self.told: list[tuple[JobId, str]] = []
        self.signals: list[tuple[JobId, int]] = []
        self.expirations: list[tuple[JobId, float]] = []
        self.asked_at_restart: list[JobId] | None = None
        """What was asked for when it was said that everything has been."""

    async def run(self) -> None:
        async with asyncio.TaskGroup() as jobs:
            while True:
                jobs.create_task(self._live(await self._starts.get()))

    def start(self, message: Message) -> None:
        assert message["id"] not in self._ends
        self.started.append(message)
        self._ends[message["id"]] = asyncio.get_running_loop().create_future()
        self._starts.put_nowait(message)

    def on_exception(self, job: JobId, type: str) -> None:
        self.told.append((job, type))
        self._end(job, 15)

    def kill(self, job: JobId, signum: int) -> None:
        self.signals.append((job, signum))
        self._end(job, signum)

    def set_expiration(self, job: JobId, expiration: float) -> None:
        self.expirations.append((job, expiration))

    def may_have_old_shells(self, job: JobId) -> bool:
        return self._kvs.owner(keys.guest_namespace(job)) is not None

    def end_unclaimed_shells(self) -> None:
        self.asked_at_restart = [message["id"] for message in self.started]

    def _end(self, job: JobId, status: int) -> None:
        end = self._ends.get(job)
        if end is not None and not end.done():
            end.set_result(status)

    async def _live(self, message: Message) -> None:
        job = message["id"]
        self._reply({"id": job, "type": "start", "data": {}})
        try:
            async with asyncio.timeout(self._seconds):
                status = await self._ends[job]
        except TimeoutError:
            status = 0
        self._reply({"id": job, "type": "finish", "data": {"status": status}})
        del self._ends[job]
        self._reply({"id": job, "type": "release", "data": {"ranks": "all", "final": True}})


class Perilog:
    """A plugin that holds a job at its dependency, its prolog and its epilog.

    It goes by the job alone, so that it may be restarted. What it holds it lets go at once,
    but for the events that it is told to sit on.
    """

    name = "perilog"

    def __init__(self, *holds: str) -> None:
        self.holds = set(holds)

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        self.tap = tap
        topics = ["job.state.depend", "job.state.run", "job.event.finish", "job.event.exception"]
        return dict.fromkeys([*topics, "job.state.cleanup", "job.restart"], self.step)

    def step(self, job: Job) -> None:
        job = self.tap.with_pending_events(job.id) or job
        if job.state is State.DEPEND:
            if "wait" not in job.ever_dependencies:
                self.tap.dependency_add(job.id, "wait")
                job = self.tap.with_pending_events(job.id) or job
            if "wait" in job.dependencies and "dependency" not in self.holds:
                self.tap.dependency_remove(job.id, "wait")
        if job.state is State.RUN:
            if "before" not in job.ever_prologs:
                self.tap.prolog_start(job.id, "before")
            self._finish(job.id)
        if job.state is State.CLEANUP:
            self._finish(job.id)
            tasks_gone = job.wait_status is not None or not self.tap.executing(job.id)
            if "after" not in job.ever_epilogs and tasks_gone:
                self.tap.epilog_start(job.id, "after")
            job = self.tap.with_pending_events(job.id) or job
            if "after" in job.epilogs and "epilog" not in self.holds:
                self.tap.epilog_finish(job.id, "after", 0)

    def _finish(self, job_id: JobId) -> None:
        job = self.tap.with_pending_events(job_id)
        if job is not None and "before" in job.prologs and "prolog" not in self.holds:
            self.tap.prolog_finish(job_id, "before", 0)

    def let_go(self, job: JobId) -> None:
        """Let go of everything."""
        self.holds.clear()
        pending = self.tap.with_pending_events(job)
        if pending is not None:
            self.step(pending)


@dataclass(frozen=True)
class Life:
    """A job manager with everything around it."""

    kvs: Kvs
    manager: JobManager
    scheduler: PaperScheduler
    execution: PaperExecution
    bus: Bus
    queues: Queues

    async def submit(self, userid: int = OWNER, **options: Any) -> JobId:
        """Submit a job, as a user would."""
        return await self.submit_spec(spec(**options), userid)

    async def submit_spec(self, jobspec: Any, userid: int = OWNER, **request: Any) -> JobId:
        token = signed_request.wrap(orjson.dumps(jobspec), userid)
        answer = await self.bus.handle(userid).rpc("job-ingest.submit", {"J": token, **request})
        return JobId(answer["id"])

    async def accept(self, job: JobId, userid: int, flags: int = 0, **options: Any) -> JobId:
        """Have the job manager accept a job of any user's, whatever ingest would say."""
        submitted = {"userid": userid, "urgency": 16, "flags": flags, "version": 1}
        kept = spec(**options)
        stored = [put(keys.job_key(job, "jobspec"), orjson.dumps(kept))]
        await self.manager.submit(job, submitted, kept, stored)
        return job

    async def submit_as(self, userid: int, flags: int = 0, **options: Any) -> JobId:
        """Have a user's job accepted, past ingest, which wants a signature."""
        job = JobId(self.manager.max_jobid() + (1 << 24))
        await self.accept(job, userid, flags, **options)
        return job

    def log(self, job: JobId) -> list[Event]:
        """A job's events, as far as they are durable."""
        text = self.kvs.get(keys.job_key(job, "eventlog"))
        return eventlog.decode(text.decode()) if text is not None else []

    def names(self, job: JobId) -> list[str]:
        return [event.name for event in self.log(job)]

    async def until(self, job: JobId, name: str = "clean") -> list[str]:
        """Wait for an event to be durable, and return the names of all."""
        async with asyncio.timeout(3600):
            while name not in self.names(job):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await settle()
        return self.names(job)

    async def cancel(self, job: JobId, type: str = "cancel", severity: int = 0) -> None:
        request = {"id": job, "type": type, "severity": severity, "note": "enough"}
        await self.bus.handle().rpc("job-manager.raise", request)

    def job(self, job: JobId) -> Job:
        found = self.manager.find(job)
        assert found is not None
        return found.job


def spec(**options: Any) -> dict[str, Any]:
    return jobspec.make(**{"command": ["app"], "tasks": 1, **options})


@asynccontextmanager
async def alive(
    journal: Journal | None = None,
    *,
    plugins: Sequence[Plugin] = (),
    validators: Sequence[Validator] = (),
    frobnicators: Sequence[Frobnicator] = (),
    config: Config = Config(),  # noqa: B008 - it is frozen
    look_up_user: UserLookup = users.look_up_user,
    clock: Clock | None = None,
    generous: bool = True,
    seconds: float = 1.0,
    largest_lookup: int = LARGEST_ANSWER,
    max_comparisons: int = MAX_COMPARISONS,
    most_bytes: int = MOST_BYTES,
    guest_refusal: Callable[[int, str | None], str | None] = lambda userid, munge_socket: None,
) -> AsyncIterator[Life]:
    """One life. What it does not leave in the journal, the next one does not know."""
    clock = clock or VirtualClock()
    kvs = Kvs(journal or MemoryJournal(), OWNER, quota=Quota(config.kvs.user_limit))
    bus = Bus(OWNER)
    manager = JobManager(kvs, clock, bus.handle(), config)
    scheduler = PaperScheduler(kvs, manager.alloc_response, generous=generous)
    execution = PaperExecution(kvs, manager.start_response, seconds)
    manager.connect(scheduler, execution)
    for plugin in plugins:
        manager.load(plugin)
    bus.register("kvs", KvsService(kvs).methods())
    queues = Queues(kvs, manager, config, look_up_user)
    service = JobManagerService(manager, execution, queues.resolve_updates)
    ingest = Ingest(
        kvs, manager, clock, config, queues, validators, frobnicators, guest_refusal=guest_refusal
    )
    bus.register("job-manager", {**service.methods(), **queues.methods()})
    bus.register("job-ingest", ingest.methods())
    bus.register("config", LiveConfig(config, unkept).methods())
    bus.register("job-info", JobInfo(kvs, manager, largest_answer=largest_lookup).methods())
    listing = JobList(
        manager,
        count_by_queue=bool(config.queues),
        private=config.job_list.private,
        max_comparisons=max_comparisons,
        most_bytes=most_bytes,
    )
    bus.register("job-list", listing.methods())
    async with living(kvs.run, manager.run, scheduler.run, execution.run):
        await settle()
        yield Life(kvs, manager, scheduler, execution, bus, queues)
