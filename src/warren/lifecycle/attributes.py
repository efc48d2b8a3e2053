"""What a listing says of a job: attributes by the names of RFC 43, computed when asked for."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Protocol

from warren.lifecycle.job import Job, JobException
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec as jobspecs
from warren.rfc import resource_set
from warren.rfc.errors import BadFormat

ALL: Final = "all"
"""The name that stands for every attribute."""

DAMAGE: Final = "damage"
"""What is told beside the attributes of a job whose records are damaged: what is wrong."""


class ListedJob(Protocol):
    """A job; what it asks for and what it has may have to be read from the disk first."""

    @property
    def job(self) -> Job: ...

    @property
    def jobspec(self) -> Mapping[str, Any]: ...

    @property
    def r(self) -> Mapping[str, Any] | None: ...


class CachedJob:
    """A listed job whose parts are read once, however many attributes are made of them."""

    def __init__(self, listed: ListedJob) -> None:
        self._listed = listed

    @cached_property
    def job(self) -> Job:
        return self._listed.job

    @cached_property
    def jobspec(self) -> Mapping[str, Any]:
        return self._listed.jobspec

    @cached_property
    def r(self) -> Mapping[str, Any] | None:
        return self._listed.r


def attribute_names(names: Iterable[Any]) -> list[str]:
    """Return the attributes that names stand for, each once. Raises BadFormat for a name of none.

    There are no more than all of them, however often they are named: each costs time for each job.
    """
    expanded: dict[str, None] = {}
    for name in names:
        if name == ALL:
            expanded |= dict.fromkeys(ATTRIBUTES)
        elif not isinstance(name, str) or name not in ATTRIBUTES:
            raise BadFormat(f"jobs have no attribute {name!r}")
        else:
            expanded[name] = None
    return list(expanded)


def job_attributes(listed: ListedJob, names: Iterable[str]) -> dict[str, Any]:
    """Return a job's id and attributes. What is not known is left out.

    So is what would come of a record that cannot be read any more; `damage` says why, then.
    """
    described: dict[str, Any] = {"id": listed.job.id}
    for name in names:
        try:
            value = ATTRIBUTES[name](listed)
        except _UNREADABLE as error:
            described.setdefault(DAMAGE, _reason(error))
            continue
        if value is not None:
            described[name] = value
    return described


_UNREADABLE: Final = (BadFormat, LookupError, TypeError, AttributeError)
"""What comes of a jobspec or R that holds something else than it should."""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, BadFormat) else f"a record has no place for {error!r}"


def passes(listed: ListedJob, test: Callable[[ListedJob], bool]) -> bool:
    """Return whether a job passes a test; one whose records cannot be read for it does not."""
    try:
        return test(listed)
    except _UNREADABLE:
        return False


def timestamp(listed: ListedJob, name: str) -> float | None:
    """Return when a job was last in a state, by the attribute's name: `t_run`."""
    return listed.job.times.get(_TIMESTAMPS[name])


def nodes(listed: ListedJob) -> list[str]:
    """Return the names of the nodes that a job has or had."""
    return [] if listed.r is None else resource_set.nodelist(listed.r)


def ranks(listed: ListedJob) -> frozenset[int]:
    """Return the ranks that a job has or had."""
    if listed.r is None:
        return frozenset()
    return frozenset(node.rank for node in resource_set.decode_nodes(listed.r))


def name(listed: ListedJob) -> str:
    """Return a job's name."""
    return jobspecs.name(listed.jobspec)


def queue(listed: ListedJob) -> str | None:
    """Return the queue that a job is in; None where there are no queues."""
    value: str | None = jobspecs.system(listed.jobspec).get("queue")
    return value


def returncode(result: Result, status: int | None) -> int:
    """Return the return code of a job that is over, as Flux computes it.

    The exit code, or minus the signal that ended it. A job that never ran, or whose tasks had
    succeeded when an exception ended it, has -128 if it was canceled, and 1 otherwise.
    """
    if result is not Result.COMPLETED and not status:
        return -128 if result is Result.CANCELED else 1
    status = status or 0
    return -(status & 0x7F) if status & 0x7F else status >> 8


def _system(listed: ListedJob, key: str) -> Any:
    return jobspecs.system(listed.jobspec).get(key)


def _ncores(listed: ListedJob) -> int | None:
    if listed.r is not None:
        return sum(len(node.cores) for node in resource_set.decode_nodes(listed.r))
    counts = jobspecs.resource_counts(listed.jobspec)
    # The cores of whole nodes are not known before they are allocated.
    return None if counts.exclusive else counts.slots * counts.cores_per_slot


def _ntasks(listed: ListedJob) -> int:
    counts = jobspecs.resource_counts(listed.jobspec)
    for_each = jobspecs.per_resource(listed.jobspec)
    if listed.r is None:
        return counts.tasks
    if for_each is not None:
        type_, number = for_each
        return number * (len(nodes(listed)) if type_ == "node" else _ncores(listed) or 1)
    if counts.moldable:
        return jobspecs.tasks_in_slots(
            listed.jobspec, listed.r["execution"].get("nslots", counts.slots)
        )
    return counts.tasks


def _nnodes(listed: ListedJob) -> int | None:
    return (
        len(nodes(listed))
        if listed.r is not None
        else jobspecs.resource_counts(listed.jobspec).nodes
    )


def _expiration(listed: ListedJob) -> float | None:
    return None if listed.r is None else listed.r["execution"].get("expiration", 0.0)


def _gravest_exception(listed: ListedJob) -> JobException | None:
    """The exception of the lowest severity number; of equals, the first."""
    return min(listed.job.exceptions, key=lambda problem: problem.severity, default=None)


def _of_gravest_exception(field_of: Callable[[JobException], Any]) -> Callable[[ListedJob], Any]:
    def attribute(listed: ListedJob) -> Any:
        gravest = _gravest_exception(listed)
        return None if gravest is None else field_of(gravest)

    return attribute


def _success(listed: ListedJob) -> bool | None:
    result = listed.job.result
    return None if result is None else result is Result.COMPLETED


def _result(listed: ListedJob) -> int | None:
    result = listed.job.result
    return None if result is None else result.bit


def _annotations(listed: ListedJob) -> Mapping[str, Any] | None:
    job = listed.job
    return {**job.annotations, **({"user": job.memo} if job.memo else {})} or None


_TIMESTAMPS: Final[Mapping[str, State]] = {
    "t_submit": State.NEW,
    **{f"t_{state.lower()}": state for state in State if state is not State.NEW},
}


def _timestamp_of(name: str) -> Callable[[ListedJob], float | None]:
    return lambda listed: timestamp(listed, name)


ATTRIBUTES: Final[Mapping[str, Callable[[ListedJob], Any]]] = {
    "userid": lambda listed: listed.job.userid,
    "urgency": lambda listed: listed.job.urgency,
    "priority": lambda listed: listed.job.priority,
    **{key: _timestamp_of(key) for key in _TIMESTAMPS},
    "state": lambda listed: listed.job.state.bit,
    "name": name,
    "cwd": lambda listed: _system(listed, "cwd"),
    "queue": queue,
    "project": lambda listed: _system(listed, "project"),
    "bank": lambda listed: _system(listed, "bank"),
    "ntasks": _ntasks,
    "ncores": _ncores,
    "nnodes": _nnodes,
    "ranks": lambda listed: (
        None if listed.r is None else resource_set.ranks_text(resource_set.decode_nodes(listed.r))
    ),
    "nodelist": lambda listed: (
        None if listed.r is None else ",".join(listed.r["execution"]["nodelist"])
    ),
    "duration": lambda listed: _system(listed, "duration"),
    "expiration": _expiration,
    "success": _success,
    "result": _result,
    "waitstatus": lambda listed: listed.job.wait_status,
    "exception_occurred": lambda listed: bool(listed.job.exceptions),
    "exception_type": _of_gravest_exception(lambda problem: problem.type),
    "exception_severity": _of_gravest_exception(lambda problem: problem.severity),
    "exception_note": _of_gravest_exception(lambda problem: problem.note),
    "annotations": _annotations,
    "dependencies": lambda listed: sorted(listed.job.dependencies) or None,
}
"""Every attribute but the id, in the order of RFC 43; None where it is not known."""
