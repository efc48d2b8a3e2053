"""The jobtap interface as one plugin has it."""

import errno
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from warren.base.errors import UserMistake
from warren.instance.jobs.jobtap import Arguments, ResponseHandler
from warren.instance.jobs.known import ActiveJob
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import resource_set
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, RpcError

if TYPE_CHECKING:  # the manager makes a tap for each plugin that it loads
    from warren.instance.jobs.manager import JobManager


class Tap:
    """A `Jobtap`."""

    def __init__(self, manager: "JobManager", plugin: str) -> None:
        self._manager = manager
        self._processor = manager.processor
        self._plugin = plugin

    # What is known

    def lookup(self, job: JobId) -> Arguments:
        active_job = self._manager.active_job(job)
        known = active_job.job
        return Arguments(
            id=job,
            userid=known.userid,
            urgency=known.urgency,
            priority=known.priority,
            t_submit=known.times[State.NEW],
            state=known.state,
            prev_state=active_job.previous_state,
            jobspec=active_job.jobspec,
            r=self.resources(job),
            entry=active_job.events[-1],
            end_event=next(filter(_is_end_event, active_job.events), None),
        )

    def job(self, job: JobId) -> Job | None:
        found = self._manager.find(job)
        try:
            return None if found is None else found.job
        except UserMistake:
            return None  # it could not be read, and is gone

    def jobspec(self, job: JobId) -> Mapping[str, Any]:
        found = self._manager.find(job)
        return found.jobspec if found is not None else {}

    def resources(self, job: JobId) -> Mapping[str, Any] | None:
        found = self._manager.find(job)
        r = None if found is None else found.r
        return None if r is None else resource_set.without_scheduling(r)

    def with_pending_events(self, job: JobId) -> Job | None:
        found = self._manager.find(job)
        return found.with_pending_events() if isinstance(found, ActiveJob) else None

    def executing(self, job: JobId) -> bool:
        found = self._manager.find(job)
        return isinstance(found, ActiveJob) and found.may_have_shells

    def event_posted(self, job: JobId, name: str) -> bool:
        active_job = self._manager.active_job(job)
        return any(event.name == name for event in (*active_job.events, *active_job.pending_events))

    def result(self, job: JobId) -> Result:
        found = self.job(job)
        if found is None:
            raise RpcError(errno.ENOENT, "unknown job id")
        if found.state not in (State.CLEANUP, State.INACTIVE):
            raise RpcError(errno.EINVAL, f"a job in state {found.state} has no result yet")
        return found.outcome

    # Holding and letting go

    def dependency_add(self, job: JobId, description: str) -> None:
        active_job = self._manager.active_job(job)
        context = {"description": description}
        self._processor.check(active_job, "dependency-add", context)
        pending = active_job.with_pending_events()
        if description in pending.dependencies:
            return
        if description in pending.ever_dependencies:
            if self._manager.restarting:
                return  # its plugin has forgotten that it let go
            raise RpcError(errno.EEXIST, f"dependency {description} has held the job before")
        self._processor.post(active_job, "dependency-add", context)

    def dependency_remove(self, job: JobId, description: str) -> None:
        if description not in self._manager.active_job(job).with_pending_events().dependencies:
            raise RpcError(errno.ENOENT, f"there is no dependency {description}")
        self.post(job, "dependency-remove", {"description": description})

    def prolog_start(self, job: JobId, description: str) -> None:
        if self.executing(job):
            raise RpcError(errno.EINVAL, "the job's tasks are being started")
        self.post(job, "prolog-start", {"description": description})

    def prolog_finish(self, job: JobId, description: str, status: int) -> None:
        self.post(job, "prolog-finish", {"description": description, "status": status})

    def epilog_start(self, job: JobId, description: str) -> None:
        self.post(job, "epilog-start", {"description": description})

    def epilog_finish(self, job: JobId, description: str, status: int) -> None:
        self.post(job, "epilog-finish", {"description": description, "status": status})

    def release(self, job: JobId, ranks: Collection[int]) -> None:
        self._processor.release(self._manager.active_job(job), ranks)

    # Events and changes

    def raise_exception(self, job: JobId, type: str, severity: int, note: str) -> None:
        self.post(job, "exception", {"type": type, "severity": severity, "note": note})

    def post(self, job: JobId, name: str, context: Mapping[str, Any]) -> None:
        active_job = self._manager.active_job(job)
        self._processor.check(active_job, name, context)
        self._processor.post(active_job, name, context)

    def set_flag(self, job: JobId, flag: str) -> None:
        self.post(job, "set-flags", {"flags": [flag]})

    def update_jobspec(self, job: JobId, updates: Mapping[str, Any]) -> None:
        active_job = self._manager.active_job(job)
        if (
            self._processor.stack.current is not active_job
            and active_job.with_pending_events().state is State.RUN
        ):
            raise RpcError(errno.EINVAL, "the job has its resources already")
        self.post(job, "jobspec-update", updates)

    def allocate(self, job: JobId, r: Mapping[str, Any]) -> None:
        self._manager.allocate(self._manager.active_job(job), r)

    def reprioritize_job(self, job: JobId, priority: int) -> None:
        active_job = self._manager.active_job(job)
        pending = active_job.with_pending_events()
        if pending.state is not State.SCHED or pending.priority != priority:
            self.post(job, "priority", {"priority": priority})

    def reprioritize_all(self) -> None:
        self._manager.reprioritize()

    # What is kept for the plugin

    def subscribe(self, job: JobId) -> None:
        self._manager.active_job(job).subscribers.add(self._plugin)

    def unsubscribe(self, job: JobId) -> None:
        self._manager.active_job(job).subscribers.discard(self._plugin)

    def aux_set(self, job: JobId, name: str, value: Any) -> None:
        self._manager.active_job(job).aux[self._plugin, name] = value

    def aux_get(self, job: JobId, name: str) -> Any:
        return self._manager.active_job(job).aux.get((self._plugin, name))

    # Others

    def call(self, job: JobId, topic: str, *arguments: Any) -> list[Any]:
        return list(self._processor.stack.collect(topic, self._manager.active_job(job), *arguments))

    def register(self, methods: Methods) -> None:
        self.register_ex({name: _owner_only(method) for name, method in methods.items()})

    def register_ex(self, methods: Methods) -> None:
        self._manager.add_methods(self._plugin, methods)

    def rpc(self, topic: str, payload: Payload, then: ResponseHandler) -> None:
        self._manager.spawn_rpc(topic, payload, then)

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        return self._manager.call_at(moment, action)


def _owner_only(method: Method | StreamingMethod) -> Method | StreamingMethod:
    return replace(method, guest=False)


def _is_end_event(event: Event) -> bool:
    """Return whether an event has brought a job to CLEANUP, as the first of its kind does."""
    return event.name == "finish" or (
        event.name == "exception" and event.context.get("severity") == 0
    )
