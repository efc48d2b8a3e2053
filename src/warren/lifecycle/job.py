"""A job as its event log tells it: `update` is one step, `replay` the whole story.

Replaying a job's event log gives the same value as having lived through it, so
nothing else needs to survive a restart (RFC 21).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from warren.base.errors import UserMistake
from warren.lifecycle.states import ACTIVE, ALLOWED, FATAL, TRANSITIONS, Result, State
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId


class IllegalEvent(UserMistake):
    """An event that a job's state does not allow. Nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An exception event."""

    type: str
    severity: int
    note: str
    wait_status: int | None = None
    during_epilog: bool = False
    """Whether it came after an epilog had begun."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is known of a job after some of its events."""

    id: JobId
    userid: int
    urgency: int
    flags: int = 0
    state: State = State.NEW
    priority: int | None = None
    dependencies: frozenset[str] = frozenset()
    ever_depended: frozenset[str] = frozenset()
    prologs: frozenset[str] = frozenset()
    ever_prologs: frozenset[str] = frozenset()
    epilogs: frozenset[str] = frozenset()
    ever_epilogs: frozenset[str] = frozenset()
    allocated: bool = False
    started: bool = False
    released: bool = False
    """Whether execution has said its last word."""
    status: int | None = None
    """Wait status, once the tasks have ended."""
    problems: tuple[Problem, ...] = ()
    memo: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    updates: Mapping[str, Any] = field(default_factory=dict)
    """Dotted jobspec paths and the values they were given since submission."""
    times: Mapping[State, float] = field(default_factory=dict)
    """When each state was last entered, in seconds since the epoch."""

    @property
    def fatal(self) -> Problem | None:
        """The first exception that ends the job; it is the cause of all that follow."""
        return next((each for each in self.problems if each.severity == 0), None)

    @property
    def result(self) -> Result | None:
        """How the job ended; None while it is active."""
        if self.state is not State.INACTIVE:
            return None
        fatal = self.fatal
        if fatal is None:
            return Result.COMPLETED if self.status == 0 else Result.FAILED
        if self.started and self.status == 0:
            # An exception that came after the tasks had succeeded took nothing from them.
            return Result.COMPLETED
        if fatal.type == "cancel":
            return Result.CANCELED
        return Result.TIMEOUT if fatal.type == "timeout" else Result.FAILED


def begin(job: JobId, event: Event) -> Job:
    """Make the job that a `submit` event tells of. Raises IllegalEvent for any other event."""
    context = event.context
    if event.name != "submit":
        raise IllegalEvent(f"a job begins with 'submit', not {event.name!r}")
    if context.get("version", 1) != 1:
        raise IllegalEvent(f"'submit' of version {context['version']} is not understood")
    try:
        return Job(
            id=job,
            userid=context["userid"],
            urgency=context["urgency"],
            flags=context.get("flags", 0),
            times={State.NEW: event.timestamp},
        )
    except KeyError as missing:
        raise BadFormat(f"'submit' lacks {missing}") from None


def update(job: Job, event: Event) -> Job:
    """Apply one event. Raises IllegalEvent, and changes nothing, where the state forbids it."""
    if job.state not in ALLOWED.get(event.name, ACTIVE):
        raise IllegalEvent(f"'{event.name}' does not come in state {job.state}")
    try:
        changed = _changed(job, event)
    except (KeyError, TypeError) as error:
        raise BadFormat(f"event {event.name!r} has a bad context: {error!r}") from None
    following = _next(job, event)
    if following is job.state:
        return changed
    return replace(changed, state=following, times={**changed.times, following: event.timestamp})


def replay(job: JobId, events: Iterable[Event]) -> Job:
    """Give the job that these events, the first of which is `submit`, have made."""
    remaining = iter(events)
    first = next(remaining, None)
    if first is None:
        raise BadFormat("the eventlog is empty")
    known = begin(job, first)
    for event in remaining:
        known = update(known, event)
    return known


def _next(job: Job, event: Event) -> State:
    if event.name == "exception":
        if event.context["severity"] == 0:
            return FATAL.get(job.state, job.state)
        return job.state
    if event.name == "depend" and job.dependencies:
        raise IllegalEvent(f"'depend' with dependencies outstanding: {sorted(job.dependencies)}")
    return TRANSITIONS.get((job.state, event.name), job.state)


def _changed(job: Job, event: Event) -> Job:
    context = event.context
    match event.name:
        case "dependency-add":
            name = context["description"]
            if name in job.ever_depended:
                # Said twice: whether it still holds the job back was settled the first time.
                return job
            return replace(
                job,
                dependencies=job.dependencies | {name},
                ever_depended=job.ever_depended | {name},
            )
        case "dependency-remove":
            return replace(job, dependencies=_without(job.dependencies, context["description"]))
        case "priority":
            return replace(job, priority=context["priority"])
        case "urgency":
            return replace(job, urgency=context["urgency"])
        case "jobspec-update":
            return replace(job, updates={**job.updates, **context})
        case "alloc":
            annotations = _without_nulls({**job.annotations, **context.get("annotations", {})})
            return replace(job, allocated=True, annotations=annotations)
        case "prolog-start":
            name = context["description"]
            return replace(
                job, prologs=job.prologs | {name}, ever_prologs=job.ever_prologs | {name}
            )
        case "prolog-finish":
            return replace(job, prologs=_without(job.prologs, context["description"]))
        case "epilog-start":
            name = context["description"]
            return replace(
                job, epilogs=job.epilogs | {name}, ever_epilogs=job.ever_epilogs | {name}
            )
        case "epilog-finish":
            return replace(job, epilogs=_without(job.epilogs, context["description"]))
        case "start":
            return replace(job, started=True)
        case "finish":
            return replace(job, status=context["status"])
        case "release":
            return replace(job, released=job.released or bool(context["final"]))
        case "free":
            return replace(job, allocated=False)
        case "exception":
            problem = Problem(
                type=context["type"],
                severity=context["severity"],
                note=context.get("note", ""),
                wait_status=context.get("wait_status"),
                during_epilog=bool(job.ever_epilogs),
            )
            return replace(job, problems=(*job.problems, problem))
        case "annotations":
            annotations = _without_nulls({**job.annotations, **(context["annotations"] or {})})
            return replace(job, annotations=annotations)
        case "memo":
            return replace(job, memo=_without_nulls({**job.memo, **context}))
        case _:
            return job


def _without(names: frozenset[str], name: str) -> frozenset[str]:
    if name not in names:
        raise IllegalEvent(f"{name!r} is not outstanding")
    return names - {name}


def _without_nulls(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
