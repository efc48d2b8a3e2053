"""The job manager: jobs come in, are answered for, and go on after a restart.

What an event does to a job, and what its state then asks for, is decided in `lifecycle` and
done in `processor`; this module is where others meet it: ingest, the scheduler, execution, plugins.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.jobs import subset
from warren.instance.jobs.archive import Archive
from warren.instance.jobs.commits import Commits
from warren.instance.jobs.eventjournal import EventFilter, EventJournal
from warren.instance.jobs.eventprocessor import EventProcessor
from warren.instance.jobs.inactive import InactiveJobs
from warren.instance.jobs.jobtap import Plugin, Rejected, ResponseHandler
from warren.instance.jobs.known import ActiveJob, InactiveJob, KnownJobs
from warren.instance.jobs.purging import read_limits
from warren.instance.jobs.stored import StoredJobs
from warren.instance.jobs.tap import Tap
from warren.instance.jobs.timers import Timers
from warren.instance.kvs import Kvs, Operation, put
from warren.instance.protocols import ANNOTATE, CANCEL, DENY, SUCCESS, Execution, Message, Scheduler
from warren.lifecycle.job import SCHEDULER_RESTART, finish_status, from_submit, merge_annotations
from warren.lifecycle.states import State
from warren.rfc import dependency
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Handle, Payload, RpcError

__all__ = ["ActiveJob", "InactiveJob", "JobManager"]


class JobManager:
    """All jobs. `run` must be running for anything to become durable."""

    def __init__(
        self, kvs: Kvs, clock: Clock, handle: Handle, config: Config | None = None
    ) -> None:
        """Raises BadFormat where the configuration's limits cannot be read."""
        self._config = config or Config()
        table = self._config.job_manager
        self._limits = read_limits(table.inactive_age_limit, table.inactive_num_limit)
        self._clock = clock
        self._handle = handle
        self._stored = StoredJobs(kvs)
        self._known = KnownJobs()
        self._commits = Commits(kvs)
        self._journal = EventJournal(self._known)
        self.processor = EventProcessor(clock, self._commits, self._journal, self._retire)
        self._stack = self.processor.stack
        archive = None if table.archive is None else Archive(Path(table.archive), self._stored)
        self.inactive_jobs = InactiveJobs(
            clock, self._stored, self._known, self._commits, archive, self._stack.call_removed
        )
        self._timers = Timers(clock)
        self._methods: dict[str, Method | StreamingMethod] = {}
        self.restarting = False
        """Whether plugins are being told of the jobs that there were before."""
        self._tasks: asyncio.TaskGroup | None = None
        self._scheduler: Scheduler
        self._execution: Execution

    def connect(self, scheduler: Scheduler, execution: Execution) -> None:
        """Set the scheduler and the execution service."""
        self._scheduler = scheduler
        self._execution = execution
        self.processor.connect(scheduler, execution)

    def set_eligibility(self, is_eligible: Callable[[Mapping[str, Any]], bool]) -> None:
        """Set `is_eligible`, which returns whether the queue of a jobspec is started now."""
        self.processor.is_eligible = is_eligible

    def recheck_eligibility(self) -> None:
        """Ask again which jobs are for the scheduler: a queue was started, or stopped."""
        for active_job in self.active():
            if active_job.job.state is State.SCHED:
                self.processor.advance(active_job)

    def load(self, plugin: Plugin) -> None:
        """Load a plugin, before the jobs. Raises ValueError for a second one of one name."""
        self._stack.load(plugin, Tap(self, plugin.name))

    async def run(self) -> None:
        """Replay the jobs, then live until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self._stack.configure(self._config)
            self._restart()
            tasks.create_task(self._commits.run(), name="job manager commits")
            tasks.create_task(self._timers.run(), name="job manager timers")
            tasks.create_task(self.inactive_jobs.write_summaries(), name="job manager summaries")
            tasks.create_task(
                self.inactive_jobs.enforce_limits(self._limits), name="job manager purges"
            )

    # What others see

    def jobs(self) -> Iterator[ActiveJob | InactiveJob]:
        """Return all jobs that are known."""
        return self._known.all()

    def find(self, job: JobId) -> ActiveJob | InactiveJob | None:
        """Find a job."""
        return self._known.find(job)

    def active(self) -> list[ActiveJob]:
        """Return the jobs that are not over."""
        return list(self._known.active.values())

    def inactive(self) -> list[InactiveJob]:
        """Return the jobs that are over, in the order in which they ended."""
        return list(self._known.inactive.values())

    def active_job(self, job: JobId) -> ActiveJob:
        """Return an active job. Raises RpcError(ENOENT) for any other."""
        active_job = self._known.active.get(job)
        if active_job is None:
            problem = "job is inactive" if job in self._known.inactive else "unknown job id"
            raise RpcError(errno.ENOENT, problem)
        return active_job

    def max_jobid(self) -> JobId:
        """Return the greatest id that there ever was; 0 if there were none."""
        return max((*self._known.active, *self._known.inactive, self._stored.max_removed_jobid()))

    def plugin_names(self) -> list[str]:
        """Return the names of the plugins, in the order in which they are asked."""
        return self._stack.plugin_names

    def query(self, plugin: str) -> Any:
        """Return what a plugin tells of itself. Raises RpcError(ENOENT)."""
        if plugin not in self._stack.plugin_names:
            raise RpcError(errno.ENOENT, f"there is no plugin {plugin}")
        return self._stack.query(plugin)

    def counts(self) -> dict[str, Any]:
        """Return how many jobs there are, and readers of the journal, as `stats-get` answers."""
        return {
            "journal": {"listeners": self._journal.reader_count},
            "active_jobs": len(self._known.active),
            "inactive_jobs": len(self._known.inactive),
            "max_jobid": self.max_jobid(),
        }

    def allocations(self) -> dict[str, Any]:
        """Return as R what jobs have of that which the scheduler gives."""
        return subset.union(
            subset.without_freed(active_job.r, active_job.job.freed_ranks)
            for active_job in self._known.active.values()
            if active_job.job.allocated
            and active_job.r is not None
            and not active_job.job.alloc_bypass
        )

    # Submission

    async def submit(
        self,
        job: JobId,
        submit_context: Mapping[str, Any],
        jobspec: Mapping[str, Any],
        operations: Sequence[Operation],
    ) -> None:
        """Accept a job, with what else of it is to be stored. Returns when it is durable.

        Raises RpcError(EINVAL) with a plugin's words where one refuses it.
        """
        event = Event(self._clock.now(), "submit", submit_context)
        # Held: what plugins post now comes after the submit, or not at all.
        active_job = ActiveJob(
            job=from_submit(job, event), jobspec=jobspec, events=[event], paused=True
        )
        accepted = False
        # Before anything that plugins tell of the job.
        self._commits.when_durable(
            lambda: self.processor.publish(active_job, event) if accepted else None
        )
        self._known.active[job] = active_job
        try:
            self._stack.check("job.create", active_job)
            self._stack.check("job.validate", active_job)
            self._add_dependencies(active_job)
            self._stack.check("job.new", active_job)
        except Rejected as error:
            self._stack.call("job.destroy", active_job)
            del self._known.active[job]
            raise RpcError(errno.EINVAL, str(error)) from None
        accepted = True
        self.inactive_jobs.track_waitable(active_job)
        self._commits.add(*operations, keys.append_event(job, event))
        active_job.pending_events.append(Event(self._clock.now(), "validate"))
        active_job.paused = False
        self.processor.process(active_job)
        await self.wait_committed()

    def _add_dependencies(self, active_job: ActiveJob) -> None:
        """Find the plugin of each of the job's dependencies. Raises Rejected."""
        encoded = jobspecs.system(active_job.jobspec).get("dependencies")
        if encoded is None:
            return
        try:
            dependencies = dependency.decode_list(encoded, "attributes.system.dependencies")
        except BadFormat as error:
            raise Rejected(str(error)) from None
        for each in dependencies:
            topic = f"job.dependency.{each.scheme}"
            if not self._stack.has_callback(topic):
                raise Rejected(f'dependency scheme "{each.scheme}" not supported')
            self._stack.check(topic, active_job, each)

    # Events

    def post(self, job: JobId, name: str, context: Mapping[str, Any] | None = None) -> None:
        """Post an event to an active job. Raises RpcError(ENOENT) for any other."""
        self.processor.post(self.active_job(job), name, context)

    def charge(self, active_job: ActiveJob, size: int) -> None:
        """Count bytes that its user adds to a job. Raises RpcError(ENOSPC) for too many."""
        self._stored.quota.charge(
            keys.guest_namespace(active_job.job.id), active_job.job.userid, size
        )

    async def wait_committed(self) -> None:
        """Wait until everything that has been posted is durable."""
        await self._commits.wait_durable()

    def _retire(self, active_job: ActiveJob) -> None:
        self._stack.call("job.inactive-add", active_job)
        self._stack.call("job.destroy", active_job)
        active_job.aux.clear()
        self.inactive_jobs.add(active_job)
        self._commits.when_durable(partial(self._scheduler.retire, active_job.job.id))

    def reprioritize(self) -> None:
        """Ask again what priority each job has that waits for resources."""
        for active_job in self.active():
            self.processor.reprioritize(active_job)

    # Answers of the scheduler and of execution

    def alloc_response(self, message: Message) -> None:
        """Take a scheduler's answer."""
        active_job = self._known.active.get(message["id"])
        if active_job is None or not active_job.allocating:
            if message["type"] == SUCCESS:
                self._scheduler.free(message["id"], message["R"], True)
            return
        # What was decided before the scheduler heard of the withdrawal is about what the job was
        # then: before an update, or before it was held.
        valid = not active_job.withdrawn and active_job.job.state is State.SCHED
        if message["type"] != ANNOTATE:
            active_job.allocating = active_job.withdrawn = False
        match message["type"]:
            case code if code == SUCCESS and valid:
                active_job.r = message["R"]
                annotations = merge_annotations(active_job.job, message.get("annotations") or {})
                self.processor.post(active_job, "alloc", {"annotations": annotations})
            case code if code == SUCCESS:
                self._scheduler.free(message["id"], message["R"], True)
                self.processor.advance(active_job)
            case code if code == DENY and valid:
                note = message.get("note", "")
                context = {"type": "alloc", "severity": 0, "note": note}
                self.processor.post(active_job, "exception", context)
            case code if code in (DENY, CANCEL):
                self.processor.advance(active_job)
            case code if code == ANNOTATE:
                annotations = message["annotations"]
                self.processor.post_volatile(
                    active_job, "annotations", {"annotations": annotations}
                )

    def allocate(self, active_job: ActiveJob, r: Mapping[str, Any]) -> None:
        """Allocate resources to a job without the scheduler. Raises RpcError(EINVAL)."""
        self.processor.check(active_job, "alloc", {"bypass": True})
        if not active_job.with_pending_events().alloc_bypass:
            raise RpcError(errno.EINVAL, "the job's resources come from the scheduler")
        active_job.r = r
        self._commits.add(put(keys.job_key(active_job.job.id, "R"), orjson.dumps(r)))
        self.processor.post(active_job, "alloc", {"bypass": True})

    def start_response(self, message: Message) -> None:
        """Take an answer of execution."""
        active_job = self._known.active.get(message["id"])
        if active_job is None:
            return
        data = message.get("data") or {}
        match message["type"]:
            case "start":
                if not active_job.job.started:
                    self.processor.post(active_job, "start")
            case "finish":
                if active_job.job.wait_status is None:
                    status = finish_status(active_job.job, data["status"])
                    self.processor.post(active_job, "finish", {"status": status})
            case "exception":
                self.processor.post(active_job, "exception", data)
            case "release":
                if data["final"]:
                    active_job.executing = active_job.may_have_old_shells = False
                if not active_job.job.all_released:
                    self.processor.post(active_job, "release", data)

    # Restarting

    def _restart(self) -> None:
        self.restarting = True
        inactive: list[InactiveJob] = []
        lost_reasons: dict[JobId, str] = {}
        """Why the scheduler cannot let jobs keep what they have."""
        for job in self._stored.ids():
            try:
                found = self.inactive_jobs.read(job) or self._replay(job)
            except UserMistake as error:
                self.inactive_jobs.move_to_lost_found(job, str(error))
                continue
            if isinstance(found, ActiveJob):
                self._known.active[job] = found
                self._stored.count_quota(job, found.job.userid)
            else:
                inactive.append(found)
                self._stored.count_quota(job, found.userid, found.quota_bytes)
        self.inactive_jobs.restore(inactive)
        for active_job in self.active():
            if (
                active_job.job.allocated
                and active_job.r is not None
                and not active_job.job.alloc_bypass
            ):
                why = self._scheduler.hello(
                    active_job.job.id, active_job.r, sorted(active_job.job.freed_ranks)
                )
                if why is not None:
                    lost_reasons[active_job.job.id] = why
        for active_job in self.active():
            is_not_released = not active_job.job.all_released
            active_job.may_have_old_shells = (
                is_not_released and self._execution.may_have_old_shells(active_job.job.id)
            )
            self._restart_job(active_job)
            if active_job.job.id in lost_reasons:
                note = lost_reasons[active_job.job.id]
                context = {"type": SCHEDULER_RESTART, "severity": 0, "note": note}
                self.processor.post(active_job, "exception", context)
        # Not before all of them are known: what one waits for may be any other.
        for active_job in self.active():
            self._stack.call("job.restart", active_job)
        for active_job in self.active():
            active_job.paused = False
            if active_job.job.state is State.SCHED:
                self.processor.process(
                    active_job
                )  # which begins with its way back through PRIORITY
            else:
                self.processor.advance(active_job)
        self.restarting = False
        self._commits.when_durable(self._execution.end_unclaimed_shells)

    def _replay(self, job: JobId) -> ActiveJob | InactiveJob:
        replayed, events = self._stored.replay(job)
        active_job = ActiveJob(
            job=replayed,
            jobspec=self._stored.jobspec(replayed),
            r=self._stored.r(replayed),
            events=events,
            durable_count=len(events),
        )
        return (
            active_job
            if replayed.state is not State.INACTIVE
            else self.inactive_jobs.summarize(active_job)
        )

    def _restart_job(self, active_job: ActiveJob) -> None:
        """Call the plugins for a job that is active at a restart. What they post waits for all."""
        self.inactive_jobs.track_waitable(active_job)
        active_job.paused = True
        if active_job.job.state is State.SCHED:
            self.processor.post(active_job, "flux-restart")
        self._stack.call("job.create", active_job)
        if active_job.job.state is State.DEPEND:
            try:
                self._add_dependencies(active_job)
            except Rejected as error:
                note = f"{error}: job may be stuck in DEPEND state"
                context = {"type": "dependency", "severity": 4, "note": note}
                self.processor.post(active_job, "exception", context)
        self._stack.call("job.new", active_job)

    # Serving

    def journal(self, event_filter: EventFilter | None = None) -> AsyncIterator[Payload]:
        """Return all events of active jobs, a sentinel, and every event from then on."""
        return self._journal.follow(event_filter or EventFilter())

    async def rpc(self, topic: str, payload: Payload) -> Payload:
        """Ask a service now. Raises RpcError."""
        return await self._handle.rpc(topic, payload)

    def spawn_rpc(self, topic: str, payload: Payload, then: ResponseHandler) -> None:
        """Ask a service once all that is posted is durable, and call `then` with the answer."""

        async def ask() -> None:
            answer: Payload | RpcError
            try:
                answer = await self._handle.rpc(topic, payload)
            except RpcError as error:
                answer = error
            try:
                then(answer)
            except Exception:  # a bug may cost one answer, not all
                log.exception("answer not taken", topic=topic)

        def begin_asking() -> None:
            assert self._tasks is not None
            self._tasks.create_task(ask(), name=topic)

        self._commits.when_durable(begin_asking)

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Do something when the clock says so. Return what cancels that."""
        return self._timers.call_at(moment, action)

    def methods(self) -> Methods:
        """Return the methods that plugins and others have registered."""
        return self._methods

    def serve(self, methods: Methods) -> None:
        """Serve `job-manager.<method>` for another part of the instance."""
        self._methods.update(methods)

    def add_methods(self, plugin: str, methods: Methods) -> None:
        """Serve a plugin's methods under its name."""
        self.serve({f"{plugin}.{name}": method for name, method in methods.items()})
