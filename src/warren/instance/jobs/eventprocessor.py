"""Processes the events of active jobs: each is applied in its turn, and its actions are taken.

Whatever posts it, one event is applied at a time, to one job; what others may see of it waits in
the commits until it is durable.
"""

import errno
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.jobs import subset
from warren.instance.jobs.callbacks import PluginStack
from warren.instance.jobs.commits import Commits
from warren.instance.jobs.eventjournal import EventJournal
from warren.instance.jobs.jobtap import UNAVAILABLE, Priority, Rejected
from warren.instance.jobs.known import ActiveJob
from warren.instance.protocols import Execution, Message, Scheduler
from warren.lifecycle import urgency
from warren.lifecycle.actions import (
    Action,
    Execute,
    Free,
    OutstandingRequests,
    PartialFree,
    Post,
    Prioritize,
    RequestAllocation,
    WithdrawAllocation,
    decide,
)
from warren.lifecycle.job import Job, update
from warren.lifecycle.states import State
from warren.rfc import idset
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.jobflags import DEBUG
from warren.rpc.message import RpcError

DURATION_KEY: Final = "attributes.system.duration"
"""Under which an update of a jobspec has the duration."""

_STATE_TOPICS: Final = {state: f"job.state.{state.lower()}" for state in State}

_DEBUG_EVENTS: Final[Mapping[type[Action], str]] = {
    RequestAllocation: "debug.alloc-request",
    Execute: "debug.start-request",
    Free: "debug.free-request",
}
"""Actions of which the log tells where a job has the flag `debug`."""


class EventProcessor:
    """Applies events to jobs. `retire` takes a job that is over."""

    def __init__(
        self,
        clock: Clock,
        commits: Commits,
        journal: EventJournal,
        retire: Callable[[ActiveJob], None],
    ) -> None:
        self._clock = clock
        self._commits = commits
        self._journal = journal
        self._retire = retire
        self.stack = PluginStack(self._on_plugin_failure)
        self.is_eligible: Callable[[Mapping[str, Any]], bool] = lambda jobspec: True
        """Returns whether the queue of a jobspec is started now."""
        self._ready: deque[ActiveJob] = deque()
        self._busy = False
        self._scheduler: Scheduler
        self._execution: Execution

    def connect(self, scheduler: Scheduler, execution: Execution) -> None:
        """Set the scheduler and the execution service."""
        self._scheduler = scheduler
        self._execution = execution

    # Posting

    def post(
        self, active_job: ActiveJob, name: str, context: Mapping[str, Any] | None = None
    ) -> None:
        """Post an event. One that the job's state does not allow when its turn comes is lost."""
        self._enqueue(active_job, name, context or {})
        self.process(active_job)

    def check(self, active_job: ActiveJob, name: str, context: Mapping[str, Any]) -> None:
        """Raise RpcError(EINVAL) for an event that would be lost if it were posted now."""
        event = Event(self._clock.now(), name, context)
        try:
            update(active_job.with_pending_events(), event)
            keys.append_event(active_job.job.id, event)
            if name == "jobspec-update":
                jobspecs.check(updated_jobspec(active_job.jobspec, context))
        except UserMistake as error:
            raise RpcError(errno.EINVAL, str(error)) from None

    def post_volatile(self, active_job: ActiveJob, name: str, context: Mapping[str, Any]) -> None:
        """Post an event that no restart survives. Raises RpcError(EINVAL)."""
        event = Event(self._clock.now(), name, context)
        try:
            keys.append_event(active_job.job.id, event)  # what cannot be written cannot be told
            active_job.job = update(active_job.job, event)
            active_job.forget_foreseen()
        except UserMistake as error:
            raise RpcError(errno.EINVAL, str(error)) from None
        # Not at once: a client must hear of the job itself before it hears of this.
        self._commits.when_durable(partial(self._journal.publish, active_job, event))

    def process(self, active_job: ActiveJob) -> None:
        """Apply the events that are queued. Those that callbacks and actions post wait their turn.

        Also where it is another job's: one that ends may end thousands that depend on it.
        """
        self._ready.append(active_job)
        if self._busy:
            return
        self._busy = True
        try:
            while self._ready:
                ready = self._ready.popleft()
                while ready.pending_events and not ready.paused:
                    self._apply(ready, ready.next_pending_event())
        finally:
            self._busy = False

    def advance(self, active_job: ActiveJob) -> None:
        """Take the actions that the job's state asks for and that are not taken yet."""
        self._act(active_job)
        self.process(active_job)

    def publish(self, active_job: ActiveJob, event: Event) -> None:
        """Tell the readers of the journal of an event, which is durable."""
        active_job.durable_count += 1
        self._journal.publish(active_job, event)

    # Applying

    def _enqueue(self, active_job: ActiveJob, name: str, context: Mapping[str, Any]) -> None:
        active_job.pending_events.append(Event(self._clock.now(), name, context))

    def _apply(self, active_job: ActiveJob, event: Event) -> None:
        before = active_job.job
        try:
            after = update(before, event)
            operation = keys.append_event(after.id, event)
            if event.name == "jobspec-update":
                active_job.jobspec = updated_jobspec(active_job.jobspec, event.context)
        except UserMistake as error:
            log.error("event refused", job=before.id, event_name=event.name, reason=str(error))
            active_job.forget_foreseen()
            return
        active_job.job = after
        active_job.events.append(event)
        self._commits.add(operation)
        self._commits.when_durable(partial(self.publish, active_job, event))
        self._act_on_event(active_job, event, before)
        self.stack.call(f"job.event.{event.name}", active_job)
        if active_job.subscribers:
            self.stack.call_subscribers(active_job, event)
        if event.name == "jobspec-update":
            self.stack.call("job.update", active_job)
        if after.state is not before.state:
            active_job.previous_state = before.state
            self.stack.call(_STATE_TOPICS[after.state], active_job)
        self._act(active_job)
        if after.state is State.INACTIVE:
            self._retire(active_job)

    def _act_on_event(self, active_job: ActiveJob, event: Event, before: Job) -> None:
        """Take the actions that an event asks for, besides those of the state."""
        job = active_job.job
        match event.name:
            case "exception" if job.fatal_exception is not None and active_job.executing:
                self._commits.when_durable(
                    partial(self._execution.on_exception, job.id, job.fatal_exception.type)
                )
            case "priority" if (
                before.state is State.SCHED and active_job.allocating and job.priority
            ):
                self._commits.when_durable(
                    partial(self._scheduler.prioritize, [(job.id, job.priority)])
                )
            case "jobspec-update" if job.state is State.RUN and DURATION_KEY in event.context:
                moment = expiration(active_job.r or {}, event.context[DURATION_KEY])
                self._enqueue(active_job, "resource-update", {"expiration": moment})
            case "resource-update" if job.expiration is not None and active_job.r is not None:
                active_job.r = subset.with_expiration(active_job.r, job.expiration)
                if not job.alloc_bypass:
                    self._commits.when_durable(
                        partial(self._scheduler.set_expiration, job.id, job.expiration)
                    )
                self._commits.when_durable(
                    partial(self._execution.set_expiration, job.id, job.expiration)
                )

    def _act(self, active_job: ActiveJob) -> None:
        outstanding = OutstandingRequests(
            alloc=active_job.allocating,
            execution=active_job.executing,
            may_have_old_shells=active_job.may_have_old_shells,
            events=frozenset(event.name for event in active_job.pending_events),
            queue_eligible=active_job.job.state is not State.SCHED
            or self.is_eligible(active_job.jobspec),
        )
        for action in decide(active_job.job, outstanding):
            self._perform(active_job, action)

    def _perform(self, active_job: ActiveJob, action: Action) -> None:
        job = active_job.job
        if job.flags & DEBUG and type(action) in _DEBUG_EVENTS:
            self._enqueue(active_job, _DEBUG_EVENTS[type(action)], {})
        match action:
            case Post():
                self._enqueue(active_job, action.name, action.context)
            case Prioritize():
                priority = self.priority(active_job)
                if priority is not UNAVAILABLE:
                    self._enqueue(active_job, "priority", {"priority": priority})
            case RequestAllocation():
                active_job.allocating = True
                request = {
                    "id": job.id,
                    "priority": job.priority,
                    "userid": job.userid,
                    "t_submit": job.times[State.NEW],
                    "jobspec": active_job.jobspec,
                }
                self._commits.when_durable(partial(self._scheduler.alloc, request))
            case WithdrawAllocation():
                active_job.withdrawn = True
                self._commits.when_durable(partial(self._scheduler.cancel, job.id))
            case Execute():
                active_job.executing = True
                start_request = {
                    "id": job.id,
                    "userid": job.userid,
                    "jobspec": active_job.jobspec,
                    "R": active_job.r,
                    "reattach": action.reattach,
                }
                self._commits.when_durable(partial(self._start, active_job, start_request))
            case PartialFree():
                self._free_ranks(active_job, action.ranks)
            case Free():
                self._free_rest(active_job)

    def _start(self, active_job: ActiveJob, start_request: Message) -> None:
        self._execution.start(start_request)
        fatal = active_job.job.fatal_exception
        if fatal is not None:
            # It came while the request was waiting for the disk, or before a restart.
            self._execution.on_exception(active_job.job.id, fatal.type)

    def _on_plugin_failure(self, active_job: ActiveJob, failure: str) -> None:
        """End a job that a plugin has failed: what the plugin is there for has not been done."""
        if (
            active_job.job.state in (State.INACTIVE, State.CLEANUP)
            or active_job.job.fatal_exception is not None
        ):
            return  # it ends anyway, and must not be kept from it
        note = f"{failure}: the instance's log says why"
        self.post(active_job, "exception", {"type": "plugin", "severity": 0, "note": note})

    # Releasing resources

    def release(self, active_job: ActiveJob, ranks: Collection[int]) -> None:
        """Release nodes of a job whose only epilog is done with them.

        Raises RpcError(EINVAL) for other nodes than the job's, and outside of CLEANUP.
        """
        job = active_job.with_pending_events()
        job_ranks = subset.ranks(active_job.r) if active_job.r is not None else frozenset()
        if job.state is not State.CLEANUP or not job_ranks.issuperset(ranks):
            raise RpcError(errno.EINVAL, "only nodes of a job in CLEANUP can be given back")
        to_free = frozenset(ranks) - job.freed_ranks
        is_held = active_job.may_have_shells or bool(job.prologs) or len(job.epilogs) > 1
        if to_free and job.allocated and not is_held:
            self._free_ranks(active_job, to_free)
            self.post(active_job, "partial-free", {"ranks": idset.encode(to_free)})

    def _free_ranks(self, active_job: ActiveJob, ranks: Collection[int]) -> None:
        """Give some ranks back, and not yet the rest."""
        assert active_job.r is not None
        self._free(active_job, subset.only_ranks(active_job.r, ranks), final=False)

    def _free_rest(self, active_job: ActiveJob) -> None:
        """Give back what is left of a job's resources."""
        assert active_job.r is not None
        r = subset.without_freed(active_job.r, active_job.job.freed_ranks)
        self._free(active_job, r, final=True)

    def _free(self, active_job: ActiveJob, r: Mapping[str, Any], *, final: bool) -> None:
        if not active_job.job.alloc_bypass:
            self._commits.when_durable(partial(self._scheduler.free, active_job.job.id, r, final))

    # Priorities

    def priority(self, active_job: ActiveJob) -> Priority:
        """Return the priority that a job is to have, if that can be said now."""
        job_urgency = active_job.job.urgency
        is_fixed = job_urgency in (urgency.HOLD, urgency.EXPEDITE)
        if is_fixed or not self.stack.has_callback("job.priority.get"):
            return urgency.priority(job_urgency, None)
        try:
            answers = list(self.stack.collect("job.priority.get", active_job))
        except Rejected:
            answers = []  # a plugin has failed, which is in the log by now
        answer = next((each for each in answers if each is not None), None)
        return answer if answer is UNAVAILABLE else urgency.priority(job_urgency, answer)

    def reprioritize(self, active_job: ActiveJob) -> None:
        """Ask again what priority a job has, if it waits for resources."""
        if active_job.job.state is State.PRIORITY:
            self.advance(active_job)
        elif active_job.job.state is State.SCHED:
            priority = self.priority(active_job)
            if priority is not UNAVAILABLE and priority != active_job.job.priority:
                self.post(active_job, "priority", {"priority": priority})


def updated_jobspec(jobspec: Mapping[str, Any], updates: Mapping[str, Any]) -> Mapping[str, Any]:
    """Apply an update to a jobspec. Raises BadFormat where what comes of it is none."""
    try:
        spec = jobspecs.update(jobspec, updates)
        jobspecs.system(spec).keys()
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BadFormat(f"the jobspec cannot be changed so: {error}") from None
    return spec


def expiration(r: Mapping[str, Any], duration: float) -> float:
    """Return when the time is up of a job that has R `r`; 0 for never."""
    start: float = r.get("execution", {}).get("starttime", 0.0)
    return start + duration if duration else 0.0
