"""A job as its event log tells it: `update` is one step, `replay` the whole story.

Replaying a job's event log gives the same value as having lived through it, so
nothing else needs to survive a restart (RFC 21).
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.errors import UserMistake
from warren.lifecycle.states import ACTIVE, ALLOWED, ON_FATAL_EXCEPTION, TRANSITIONS, Result, State
from warren.lifecycle.urgency import EXPEDITE, MAX_PRIORITY
from warren.rfc import idset
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import DEBUG

SCHEDULER_RESTART: Final = "scheduler-restart"
"""The type of exception of a job whose resources a restarted scheduler cannot let it keep."""

SETTABLE_FLAGS: Final = frozenset({"debug", "alloc-bypass", "immutable"})
"""What `set-flags` may name."""

_MAX_DEPTH: Final = 32
"""Levels of objects and lists in one another, in annotations and memos."""


class IllegalEvent(UserMistake):
    """An event that a job's state does not allow. Nothing was changed."""


class JobException(msgspec.Struct, frozen=True, kw_only=True):
    """An exception event."""

    type: str
    severity: int
    note: str
    wait_status: int | None = None
    userid: int | None = None
    """The user who has raised it; None where the instance itself has."""
    during_epilog: bool = False
    """Whether it came after an epilog had begun."""

    def raised_by_owner(self, owner: int) -> bool:
        """Return whether the instance's owner, or the instance, has raised it, and no guest."""
        return self.userid in (None, owner)

    @property
    def revokes_resources(self) -> bool:
        """Whether the job has lost its resources with it: on the instance's own word alone.

        Users choose types themselves; after an exception of theirs there is all to be freed still.
        """
        return self.type == SCHEDULER_RESTART and self.severity == 0 and self.userid is None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job after some of its events."""

    id: JobId
    userid: int
    urgency: int
    flags: int = 0
    state: State = State.NEW
    priority: int | None = None
    dependencies: frozenset[str] = frozenset()
    ever_dependencies: frozenset[str] = frozenset()
    prologs: frozenset[str] = frozenset()
    ever_prologs: frozenset[str] = frozenset()
    epilogs: frozenset[str] = frozenset()
    ever_epilogs: frozenset[str] = frozenset()
    alloc_bypass: bool = False
    """Whether its resources do not come from the scheduler."""
    immutable: bool = False
    """Whether the instance's owner alone may change its jobspec."""
    allocated: bool = False
    expiration: float | None = None
    """When its time is up, where that was changed since it got its resources; 0 for never."""
    started: bool = False
    released_ranks: frozenset[int] = frozenset()
    """Ranks that execution has released so far, before the `release` that is final."""
    all_released: bool = False
    """Whether execution has released all ranks: its `release` that is final has come."""
    freed_ranks: frozenset[int] = frozenset()
    """Ranks that were given back before the rest."""
    wait_status: int | None = None
    """Wait status, once the tasks have ended."""
    exceptions: tuple[JobException, ...] = ()
    memo: Mapping[str, Any] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, Any] = msgspec.field(default_factory=dict)
    updates: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Dotted jobspec paths and the values they were given since submission."""
    times: Mapping[State, float] = msgspec.field(default_factory=dict)
    """When each state was last entered, in seconds since the epoch."""

    @property
    def fatal_exception(self) -> JobException | None:
        """The first exception that ends the job; it is the cause of all that follow."""
        return next((each for each in self.exceptions if each.severity == 0), None)

    @property
    def result(self) -> Result | None:
        """How the job ended; None while it is active."""
        return self.outcome if self.state is State.INACTIVE else None

    @property
    def outcome(self) -> Result:
        """How the job ends if nothing else happens; it counts once the job is in CLEANUP."""
        fatal_exception = self.fatal_exception
        if fatal_exception is None:
            return Result.COMPLETED if self.wait_status == 0 else Result.FAILED
        # Also where the tasks had succeeded before: what they have written may not be where it
        # was to be copied, and no other job should go on as if it were (RFC 21).
        if fatal_exception.type == "cancel":
            return Result.CANCELED
        return Result.TIMEOUT if fatal_exception.type == "timeout" else Result.FAILED


def from_submit(job_id: JobId, event: Event) -> Job:
    """Make the job that a `submit` event tells of. Raises IllegalEvent for any other event.

    A `submit` without a version is of a time when jobs were validated before it was posted:
    such a job waits for its dependencies already.
    """
    context = event.context
    if event.name != "submit":
        raise IllegalEvent(f"a job begins with 'submit', not {event.name!r}")
    if context.get("version", 1) != 1:
        raise IllegalEvent(f"'submit' of version {context['version']} is not understood")
    times = {State.NEW: event.timestamp}
    if "version" not in context:
        times[State.DEPEND] = event.timestamp
    try:
        return Job(
            id=job_id,
            userid=_whole_number(context["userid"], 2**32 - 1),
            urgency=_whole_number(context["urgency"], EXPEDITE),
            flags=_whole_number(context.get("flags", 0), 2**32 - 1),
            state=State.NEW if "version" in context else State.DEPEND,
            times=times,
        )
    except KeyError as missing:
        raise BadFormat(f"'submit' lacks {missing}") from None
    except ValueError as error:
        raise BadFormat(f"'submit' has a bad context: {error}") from None


def update(job: Job, event: Event) -> Job:
    """Apply one event. Raises IllegalEvent, and changes nothing, where the state forbids it."""
    if job.state not in ALLOWED.get(event.name, ACTIVE):
        raise IllegalEvent(f"'{event.name}' does not come in state {job.state}")
    try:
        changed = _apply(job, event)
    except (KeyError, TypeError, ValueError, AttributeError, BadFormat) as error:
        raise BadFormat(f"event {event.name!r} has a bad context: {error!r}") from None
    following = _next_state(job, event)
    if following is job.state:
        return changed
    return replace(changed, state=following, times={**changed.times, following: event.timestamp})


def replay(job_id: JobId, events: Iterable[Event]) -> Job:
    """Return the job that these events, the first of which is `submit`, have made."""
    remaining = iter(events)
    first = next(remaining, None)
    if first is None:
        raise BadFormat("the eventlog is empty")
    replayed = from_submit(job_id, first)
    for event in remaining:
        replayed = update(replayed, event)
    return replayed


def finish_status(job: Job, wait_status: int) -> int:
    """Return the wait status to finish a job with, whose tasks have ended with `wait_status`.

    The wait status of a fatal exception, if it has one, comes first; a signal becomes the exit
    code that a shell has for it, 128 and the signal. With a fatal exception the job has not
    succeeded, whatever its tasks say.
    """
    fatal_exception = job.fatal_exception
    if fatal_exception is None:
        return wait_status
    if fatal_exception.wait_status is not None:
        signum = fatal_exception.wait_status & 0x7F
        wait_status = (128 + signum) << 8 if signum else fatal_exception.wait_status
    return wait_status or 1 << 8


def _next_state(job: Job, event: Event) -> State:
    if event.name == "exception":
        if event.context["severity"] == 0:
            return ON_FATAL_EXCEPTION.get(job.state, job.state)
        return job.state
    if event.name == "depend" and job.dependencies:
        raise IllegalEvent(f"'depend' with dependencies outstanding: {sorted(job.dependencies)}")
    return TRANSITIONS.get((job.state, event.name), job.state)


def _apply(job: Job, event: Event) -> Job:
    context = event.context
    match event.name:
        case "set-flags":
            return _apply_flags(job, context["flags"])
        case "dependency-add":
            name = _description(context)
            if name in job.ever_dependencies:
                # Said twice: whether it still holds the job back was settled the first time.
                return job
            return replace(
                job,
                dependencies=job.dependencies | {name},
                ever_dependencies=job.ever_dependencies | {name},
            )
        case "dependency-remove":
            return replace(job, dependencies=_without(job.dependencies, _description(context)))
        case "priority":
            return replace(job, priority=_whole_number(context["priority"], MAX_PRIORITY))
        case "urgency":
            return replace(job, urgency=_whole_number(context["urgency"], EXPEDITE))
        case "flux-restart":
            return replace(job, priority=None)
        case "jobspec-update":
            if not context:
                raise ValueError("it changes nothing")
            return replace(job, updates={**job.updates, **context})
        case "resource-update":
            return replace(job, expiration=_time(context["expiration"]))
        case "alloc":
            # All that there are then: what schedulers have said before is no more, unless again.
            annotations = job.annotations
            if "annotations" in context:
                annotations = _merged({}, context["annotations"] or {})
            return replace(job, allocated=True, annotations=annotations)
        case "prolog-start":
            name = _description(context)
            return replace(
                job, prologs=job.prologs | {name}, ever_prologs=job.ever_prologs | {name}
            )
        case "prolog-finish":
            return replace(job, prologs=_without(job.prologs, _description(context)))
        case "epilog-start":
            name = _description(context)
            return replace(
                job, epilogs=job.epilogs | {name}, ever_epilogs=job.ever_epilogs | {name}
            )
        case "epilog-finish":
            return replace(job, epilogs=_without(job.epilogs, _description(context)))
        case "start":
            return replace(job, started=True)
        case "finish":
            return replace(job, wait_status=_whole_number(context["status"], 2**31 - 1))
        case "release":
            return _apply_release(job, context["ranks"], final=context["final"])
        case "partial-free":
            ranks = frozenset(idset.decode(context["ranks"]))
            if ranks & job.freed_ranks:
                raise IllegalEvent(
                    f"ranks {idset.encode(ranks & job.freed_ranks)} were freed before"
                )
            return replace(job, freed_ranks=job.freed_ranks | ranks)
        case "free":
            return replace(job, allocated=False)
        case "exception":
            wait_status, userid = context.get("wait_status"), context.get("userid")
            exception = JobException(
                type=_text(context["type"]),
                severity=_whole_number(context["severity"], 7),
                note=_text(context.get("note", "")),
                wait_status=None if wait_status is None else _whole_number(wait_status, 2**31 - 1),
                userid=None if userid is None else _whole_number(userid, 2**32 - 1),
                during_epilog=bool(job.ever_epilogs),
            )
            exceptions = (*job.exceptions, exception)
            # Its resources are not its own any more: there is nothing to give back.
            allocated = job.allocated and not exception.revokes_resources
            return replace(job, exceptions=exceptions, allocated=allocated)
        case "annotations":
            return replace(job, annotations=_merged(job.annotations, context["annotations"] or {}))
        case "memo":
            return replace(job, memo=_merged(job.memo, context))
        case _:
            return job


def _apply_flags(job: Job, flags: Iterable[str]) -> Job:
    flag_names = set(flags)
    if flag_names - SETTABLE_FLAGS:
        raise ValueError(f"there are no flags {sorted(flag_names - SETTABLE_FLAGS)}")
    return replace(
        job,
        flags=job.flags | DEBUG if "debug" in flag_names else job.flags,
        alloc_bypass=job.alloc_bypass or "alloc-bypass" in flag_names,
        immutable=job.immutable or "immutable" in flag_names,
    )


def _apply_release(job: Job, ranks: str, *, final: bool) -> Job:
    if final:
        return replace(job, all_released=True)
    if ranks == "all":
        return job  # which ranks that are is not known here, and the final one comes
    return replace(job, released_ranks=job.released_ranks | frozenset(idset.decode(ranks)))


def _without(names: frozenset[str], name: str) -> frozenset[str]:
    if name not in names:
        raise IllegalEvent(f"{name!r} is not outstanding")
    return names - {name}


def _merged(old: Mapping[str, Any], new: Mapping[str, Any], depth: int = _MAX_DEPTH) -> Any:
    """Change objects in objects key by key. Null takes a key away, and so does becoming empty."""
    if depth == 0:
        raise _too_deep()
    merged = dict(old)
    for name, value in new.items():
        if isinstance(value, Mapping):
            old_value = merged.get(name)
            value = (
                _merged(old_value if isinstance(old_value, Mapping) else {}, value, depth - 1)
                or None
            )
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def check_depth(value: Any, depth: int = _MAX_DEPTH) -> None:
    """Check how deep objects and lists are in one another, where a user gives them to a job.

    Not where a log is replayed, which may be of a time before lists had a limit. Raises ValueError.
    """
    if not isinstance(value, list | Mapping):
        return
    if depth == 0:
        raise _too_deep()
    for each in value.values() if isinstance(value, Mapping) else value:
        check_depth(each, depth - 1)


def _too_deep() -> ValueError:
    return ValueError(f"objects and lists are nested more than {_MAX_DEPTH} deep")


def merge_annotations(job: Job, new: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a job's annotations with new ones, as a scheduler says them: null takes one away."""
    merged: Mapping[str, Any] = _merged(job.annotations, new)
    return merged


def _description(context: Mapping[str, Any]) -> str:
    return _text(context["description"])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _whole_number(value: Any, max_value: int) -> int:
    if type(value) is not int or not 0 <= value <= max_value:
        raise ValueError(f"{value!r} is not a whole number from 0 to {max_value}")
    return value


def _time(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
        raise ValueError(f"{value!r} is not a time")
    return float(value)
