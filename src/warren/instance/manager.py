"""The job manager: events in, states out, and the work that states ask for.

Each event is applied to the job, told to the plugins, and answered with work
(`lifecycle`). What the rest of the world may see of it, such as a message to the
scheduler, an entry of the journal or an answer to a user, waits until the event is durable.
"""

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.jobtap import Answered, Plugin, Rejected
from warren.instance.kvs import Kvs, Operation, graft, put, unlink
from warren.instance.ports import ANNOTATE, CANCEL, DENY, SUCCESS, Execution, Message, Scheduler
from warren.lifecycle.job import Job, begin, replay, update
from warren.lifecycle.states import State
from warren.lifecycle.work import (
    Execute,
    Free,
    Post,
    RequestAllocation,
    UnderWay,
    WithdrawAllocation,
    Work,
    act,
)
from warren.rfc import eventlog, fluid, resource_set
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Handle, Payload, RpcError

log = structlog.get_logger()

SENTINEL: Final = -1
"""The job id of the journal entry that ends the backlog."""

_JOURNAL_BACKLOG: Final = 10_000
"""Entries that a reader of the journal may fall behind."""

_LOST: Final = "job-lost+found.job"
"""Where jobs are kept that cannot be replayed."""


@dataclass
class Entry:
    """One active job."""

    job: Job
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any] | None = None
    events: list[Event] = field(default_factory=list)
    durable: int = 0
    """How many of the events are on disk."""
    queue: deque[Event] = field(default_factory=deque)
    draining: bool = False
    allocating: bool = False
    executing: bool = False

    def foreseen(self) -> Job:
        """Give the job as it will be when all queued events are applied."""
        job = self.job
        for event in self.queue:
            with suppress(UserMistake):
                job = update(job, event)
        return job


@dataclass(frozen=True)
class Inactive:
    """What is kept in memory of a job that is over."""

    job: Job
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any] | None


class _Reader:
    """One reader of the journal."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Payload] = asyncio.Queue(_JOURNAL_BACKLOG)
        self.overrun = False

    def offer(self, entry: Payload) -> None:
        if self.queue.full():
            self.overrun = True
        else:
            self.queue.put_nowait(entry)


class JobManager:
    """All jobs. `run` must be running for anything to become durable."""

    def __init__(self, kvs: Kvs, clock: Clock, handle: Handle) -> None:
        self._kvs = kvs
        self._clock = clock
        self._handle = handle
        self._active: dict[JobId, Entry] = {}
        self._inactive: dict[JobId, Inactive] = {}
        self._leaving: dict[JobId, Entry] = {}
        """Jobs that are over, until the last of their events is durable."""
        self._callbacks: dict[str, list[Callable[[Job], None]]] = {}
        self._methods: dict[str, Method | StreamingMethod] = {}
        self._operations: list[Operation] = []
        self._outputs: list[Callable[[], None]] = []
        self._dirty = asyncio.Event()
        self._readers: list[_Reader] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._eligible: Callable[[Mapping[str, Any]], bool] = lambda jobspec: True
        self._scheduler: Scheduler
        self._execution: Execution

    def connect(self, scheduler: Scheduler, execution: Execution) -> None:
        """Say who schedules and who executes."""
        self._scheduler = scheduler
        self._execution = execution

    def govern(self, eligible: Callable[[Mapping[str, Any]], bool]) -> None:
        """Let `eligible` say which jobspecs' queues give jobs to the scheduler now."""
        self._eligible = eligible

    def reconsider(self) -> None:
        """Ask again which jobs are for the scheduler: a queue was started, or stopped."""
        for entry in list(self._active.values()):
            if entry.job.state is State.SCHED:
                self._work(entry)
                self._drain(entry)

    def load(self, plugin: Plugin) -> None:
        """Load a plugin, before the jobs."""
        for topic, callback in plugin.load(_Tap(self, plugin.name)).items():
            self._callbacks.setdefault(topic, []).append(callback)

    async def run(self) -> None:
        """Replay the jobs, then live until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._restart()
            tasks.create_task(self._flush(), name="job manager flush")

    # What others see

    def jobs(self) -> Iterator[Entry | Inactive]:
        """Give all jobs that are known, the active ones first."""
        yield from self._active.values()
        yield from self._inactive.values()

    def find(self, job: JobId) -> Entry | Inactive | None:
        """Find a job."""
        return self._active.get(job) or self._inactive.get(job)

    def latest(self) -> JobId:
        """Give the greatest id that there ever was; 0 if there were none."""
        lost = map(fluid.parse, self._kvs.names(_LOST))
        return max((*self._active, *self._inactive, *lost), default=JobId(0))

    # Submission

    async def submit(
        self,
        job: JobId,
        submitted: Mapping[str, Any],
        jobspec: Mapping[str, Any],
        operations: Sequence[Operation],
    ) -> None:
        """Accept a job, with what else of it is to be stored. Returns when it is durable.

        Raises RpcError(EINVAL) with a plugin's words where one refuses it.
        """
        event = Event(self._clock.now(), "submit", submitted)
        # Draining: what plugins post now comes after the submit, or not at all.
        entry = Entry(job=begin(job, event), jobspec=jobspec, events=[event], draining=True)
        self._active[job] = entry
        try:
            self._call("job.create", entry)
            self._call("job.validate", entry)
        except Rejected as error:
            del self._active[job]
            raise RpcError(errno.EINVAL, str(error)) from None
        self._operations.extend([*operations, keys.log_event(job, event)])
        self._output(lambda: self._publish(entry, event))
        self._call("job.new", entry)
        entry.draining = False
        self._post(entry, "validate")
        await self.committed()

    # Events

    def post(self, job: JobId, name: str, context: Mapping[str, Any] | None = None) -> None:
        """Post an event to an active job. Raises RpcError(ENOENT) for any other."""
        self._post(self._found(job), name, context)

    def _found(self, job: JobId) -> Entry:
        entry = self._active.get(job)
        if entry is None:
            known = "job is inactive" if job in self._inactive else "unknown job id"
            raise RpcError(errno.ENOENT, known)
        return entry

    def _post(self, entry: Entry, name: str, context: Mapping[str, Any] | None = None) -> None:
        entry.queue.append(Event(self._clock.now(), name, context or {}))
        self._drain(entry)

    def _drain(self, entry: Entry) -> None:
        """Apply what is queued. What callbacks and work post in the meantime waits its turn."""
        if entry.draining:
            return
        entry.draining = True
        try:
            while entry.queue:
                self._step(entry, entry.queue.popleft())
        finally:
            entry.draining = False

    def _step(self, entry: Entry, event: Event) -> None:
        before = entry.job.state
        try:
            entry.job = update(entry.job, event)
        except UserMistake as error:
            log.error("event refused", job=entry.job.id, event_name=event.name, reason=str(error))
            return
        entry.events.append(event)
        self._operations.append(keys.log_event(entry.job.id, event))
        self._output(lambda: self._publish(entry, event))
        if event.name == "jobspec-update":
            entry.jobspec = jobspecs.updated(entry.jobspec, event.context)
        if event.name == "exception" and entry.job.fatal and entry.executing:
            fatal = entry.job.fatal
            self._output(lambda: self._execution.exception(entry.job.id, fatal.type))
        self._call(f"job.event.{event.name}", entry)
        if entry.job.state is not before:
            self._call(f"job.state.{entry.job.state.lower()}", entry)
        self._work(entry)
        if entry.job.state is State.INACTIVE:
            self._retire(entry)

    def _work(self, entry: Entry) -> None:
        under_way = UnderWay(
            alloc=entry.allocating,
            execution=entry.executing,
            events=frozenset(event.name for event in entry.queue),
            eligible=entry.job.state is not State.SCHED or self._eligible(entry.jobspec),
        )
        for work in act(entry.job, under_way):
            self._do(entry, work)

    def _do(self, entry: Entry, work: Work) -> None:
        job = entry.job
        match work:
            case Post():
                entry.queue.append(Event(self._clock.now(), work.name, work.context))
            case RequestAllocation():
                entry.allocating = True
                request = {
                    "id": job.id,
                    "priority": job.priority,
                    "userid": job.userid,
                    "t_submit": job.times[State.NEW],
                    "jobspec": entry.jobspec,
                }
                self._output(lambda: self._scheduler.alloc(request))
            case WithdrawAllocation():
                self._output(lambda: self._scheduler.cancel(job.id))
            case Execute():
                entry.executing = True
                start = {
                    "id": job.id,
                    "userid": job.userid,
                    "jobspec": entry.jobspec,
                    "R": entry.r,
                    "reattach": work.reattach,
                }
                self._output(lambda: self._start(entry, start))
            case Free():
                r = entry.r
                assert r is not None
                self._output(lambda: self._scheduler.free(job.id, r, True))

    def _start(self, entry: Entry, start: Message) -> None:
        self._execution.start(start)
        fatal = entry.job.fatal
        if fatal is not None:
            # It came while the request was waiting for the disk, or before a restart.
            self._execution.exception(entry.job.id, fatal.type)

    def _retire(self, entry: Entry) -> None:
        self._call("job.destroy", entry)
        job = entry.job.id
        self._leaving[job] = self._active.pop(job)
        self._inactive[job] = Inactive(entry.job, entry.jobspec, entry.r)
        self._output(lambda: self._leave(job))

    def _leave(self, job: JobId) -> None:
        del self._leaving[job]

    def _call(self, topic: str, entry: Entry) -> None:
        for callback in self._callbacks.get(topic, ()):
            callback(entry.job)

    # Commits, and what waits for them

    def _output(self, deed: Callable[[], None]) -> None:
        self._outputs.append(deed)
        self._dirty.set()

    async def committed(self) -> None:
        """Wait until everything that has been posted is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._output(lambda: None if done.done() else done.set_result(None))
        await done

    async def _flush(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            operations, self._operations = self._operations, []
            outputs, self._outputs = self._outputs, []
            if operations:
                await self._kvs.commit(operations)
            for deed in outputs:
                deed()

    def _publish(self, entry: Entry, event: Event) -> None:
        entry.durable += 1
        told: dict[str, Any] = {"id": entry.job.id, "events": [_plain(event)]}
        if event.name == "submit":
            told["jobspec"] = entry.jobspec
        if event.name == "alloc" and entry.r is not None:
            told["R"] = resource_set.without_scheduling(entry.r)
        for reader in self._readers:
            reader.offer(told)

    # Answers of the scheduler and of execution

    def allocated(self, message: Message) -> None:
        """Take a scheduler's answer."""
        entry = self._active.get(message["id"])
        wanted = entry is not None and entry.allocating
        if message["type"] == SUCCESS and (
            entry is None or not wanted or entry.job.state is not State.SCHED
        ):
            self._scheduler.free(message["id"], message["R"], True)
        if entry is None or not wanted:
            return
        match message["type"]:
            case code if code == SUCCESS:
                entry.allocating = False
                if entry.job.state is State.SCHED:
                    entry.r = message["R"]
                    annotations = message.get("annotations")
                    self._post(entry, "alloc", {"annotations": annotations or {}})
                else:
                    self._work(entry)
                    self._drain(entry)
            case code if code == DENY:
                entry.allocating = False
                note = message.get("note", "")
                exception = {"type": "alloc", "severity": 0, "note": note}
                self._post(entry, "exception", exception)
            case code if code == CANCEL:
                entry.allocating = False
                self._work(entry)
                self._drain(entry)
            case code if code == ANNOTATE:
                self._annotate(entry, message["annotations"])

    def _annotate(self, entry: Entry, annotations: Mapping[str, Any]) -> None:
        told = Event(self._clock.now(), "annotations", {"annotations": annotations})
        entry.job = update(entry.job, told)
        for reader in self._readers:
            reader.offer({"id": entry.job.id, "events": [_plain(told)]})

    def executed(self, message: Message) -> None:
        """Take an answer of execution."""
        entry = self._active.get(message["id"])
        if entry is None:
            return
        data = message.get("data") or {}
        match message["type"]:
            case "start":
                if not entry.job.started:
                    self._post(entry, "start")
            case "finish":
                if entry.job.status is None:
                    self._post(entry, "finish", {"status": data["status"]})
            case "exception":
                self._post(entry, "exception", data)
            case "release":
                if data["final"]:
                    entry.executing = False
                if not entry.job.released:
                    self._post(entry, "release", data)

    # Restarting

    def _restart(self) -> None:
        for job in self._stored():
            self._restore(job)
        for entry in list(self._active.values()):
            if entry.job.allocated and entry.r is not None:
                self._scheduler.hello(entry.job.id, entry.r, ())
        for entry in list(self._active.values()):
            self._call("job.restart", entry)
            if entry.job.state is State.SCHED:
                self._post(entry, "flux-restart")
            else:
                self._work(entry)
                self._drain(entry)
        self._output(self._execution.restarted)

    def _stored(self) -> Iterator[JobId]:
        """Give the ids of all jobs in the KVS, in order."""
        groups = ["job"]
        for _ in range(4):
            groups = [f"{group}.{name}" for group in groups for name in self._kvs.names(group)]
        for group in groups:
            try:
                yield fluid.parse(group)
            except BadFormat:
                log.error("no job has such a key", key=group)

    def _restore(self, job: JobId) -> None:
        log_text = self._kvs.get(keys.of(job, "eventlog"))
        spec_text = self._kvs.get(keys.of(job, "jobspec"))
        try:
            if log_text is None or spec_text is None:
                raise BadFormat("the eventlog or the jobspec is missing")
            events = eventlog.decode(log_text.decode())
            known = replay(job, events)
            if known.state is State.NEW:
                raise BadFormat("it was never validated")
            spec = jobspecs.updated(orjson.loads(spec_text), known.updates)
            # One that is there before the job was given it is an answer that nobody heard.
            given = any(event.name == "alloc" for event in events)
            r_text = self._kvs.get(keys.of(job, "R")) if given else None
            r = orjson.loads(r_text) if r_text is not None else None
        except (UserMistake, TypeError, ValueError) as error:
            log.error("job cannot be replayed", job=fluid.f58(job), reason=str(error))
            self._operations.extend(self._lost(job))
            self._dirty.set()
            return
        if known.state is State.INACTIVE:
            self._inactive[job] = Inactive(known, spec, r)
        else:
            self._active[job] = Entry(
                job=known, jobspec=spec, r=r, events=events, durable=len(events)
            )

    def _lost(self, job: JobId) -> Iterator[Operation]:
        """Move a job that cannot be replayed to lost+found, with what it has printed."""
        place = f"{_LOST}.{fluid.f58plain(job)}"
        yield from self._copied(fluid.kvs(job), place)
        yield graft(f"{place}.guest", keys.guest(job))
        yield unlink(fluid.kvs(job))

    def _copied(self, key: str, place: str) -> Iterator[Operation]:
        value = self._kvs.get(key)
        if value is not None:
            yield put(place, value)
        for name in self._kvs.names(key):
            yield from self._copied(f"{key}.{name}", f"{place}.{name}")

    # Serving

    async def journal(self) -> AsyncIterator[Payload]:
        """Give all events of active jobs, a sentinel, and every event from then on.

        Only durable events are told. Ends with EOVERFLOW for a reader that does not keep up.
        """
        reader = _Reader()
        backlog: list[Payload] = []
        for entry in (*self._active.values(), *self._leaving.values()):
            if entry.durable:
                told: dict[str, Any] = {
                    "id": entry.job.id,
                    "events": [_plain(event) for event in entry.events[: entry.durable]],
                    "jobspec": entry.jobspec,
                }
                if entry.r is not None:
                    told["R"] = resource_set.without_scheduling(entry.r)
                backlog.append(told)
        backlog.append({"id": SENTINEL, "events": []})
        self._readers.append(reader)
        try:
            for entry_told in backlog:
                yield entry_told
            while not reader.overrun:
                yield await reader.queue.get()
        finally:
            self._readers.remove(reader)
        raise RpcError(errno.EOVERFLOW, "the reader of the journal did not keep up")

    def spawn_rpc(self, topic: str, payload: Payload, then: Answered) -> None:
        """Ask a service once everything posted so far is durable; `then` hears the answer."""

        async def ask() -> None:
            answer: Payload | RpcError
            try:
                answer = await self._handle.rpc(topic, payload)
            except RpcError as error:
                answer = error
            then(answer)

        def begin_asking() -> None:
            assert self._tasks is not None
            self._tasks.create_task(ask(), name=topic)

        self._output(begin_asking)

    def methods(self) -> Methods:
        """Give the methods that plugins have registered."""
        return self._methods

    def add_methods(self, plugin: str, methods: Methods) -> None:
        """Serve a plugin's methods under its name."""
        self._methods.update({f"{plugin}.{name}": method for name, method in methods.items()})


class _Tap:
    """The jobtap interface as one plugin has it."""

    def __init__(self, manager: JobManager, plugin: str) -> None:
        self._manager = manager
        self._plugin = plugin

    def jobspec(self, job: JobId) -> Mapping[str, Any]:
        found = self._manager.find(job)
        return found.jobspec if found is not None else {}

    def resources(self, job: JobId) -> Mapping[str, Any] | None:
        found = self._manager.find(job)
        if found is None or found.r is None:
            return None
        return resource_set.without_scheduling(found.r)

    def foreseen(self, job: JobId) -> Job | None:
        found = self._manager.find(job)
        return found.foreseen() if isinstance(found, Entry) else None

    def executing(self, job: JobId) -> bool:
        found = self._manager.find(job)
        return isinstance(found, Entry) and found.executing

    def dependency_add(self, job: JobId, description: str) -> None:
        self.post(job, "dependency-add", {"description": description})

    def dependency_remove(self, job: JobId, description: str) -> None:
        self.post(job, "dependency-remove", {"description": description})

    def prolog_start(self, job: JobId, description: str) -> None:
        self.post(job, "prolog-start", {"description": description})

    def prolog_finish(self, job: JobId, description: str, status: int) -> None:
        self.post(job, "prolog-finish", {"description": description, "status": status})

    def epilog_start(self, job: JobId, description: str) -> None:
        self.post(job, "epilog-start", {"description": description})

    def epilog_finish(self, job: JobId, description: str, status: int) -> None:
        self.post(job, "epilog-finish", {"description": description, "status": status})

    def raise_exception(self, job: JobId, type: str, severity: int, note: str) -> None:
        self.post(job, "exception", {"type": type, "severity": severity, "note": note})

    def post(self, job: JobId, name: str, context: Mapping[str, Any]) -> None:
        self._manager.post(job, name, context)

    def update_jobspec(self, job: JobId, updates: Mapping[str, Any]) -> None:
        self.post(job, "jobspec-update", updates)

    def register(self, methods: Methods) -> None:
        self._manager.add_methods(self._plugin, methods)

    def rpc(self, topic: str, payload: Payload, then: Answered) -> None:
        self._manager.spawn_rpc(topic, payload, then)


def _plain(event: Event) -> dict[str, Any]:
    told: dict[str, Any] = {"timestamp": event.timestamp, "name": event.name}
    if event.context:
        told["context"] = event.context
    return told
