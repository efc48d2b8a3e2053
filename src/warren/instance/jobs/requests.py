"""What the job manager is asked, as it stands on the wire, and which users may ask it."""

import errno
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec

from warren.instance.jobs.manager import ActiveJob, InactiveJob, JobManager
from warren.lifecycle.job import SCHEDULER_RESTART, check_depth, update
from warren.lifecycle.states import ACTIVE
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import Request, RpcError, quota_size

ANY: Final = frozenset({-1, 2**32 - 1, 2**64 - 1})
"""Spellings of any job and of any user."""

_MOST_EVENTS: Final = 1000
"""Events of a job after which its user adds none but its end."""
_LARGEST_REQUEST: Final = 2**13
"""Bytes of what a user adds to a job's log at once.

The whole log and the longest jobspec are one message to the readers of the journal.
"""
_LONGEST_MEMO: Final = 2**16
"""Bytes of a job's whole memo: every user has it in every list of jobs."""

Id = Annotated[int, msgspec.Meta(ge=-1)]
Userid = Annotated[int, msgspec.Meta(ge=-1, lt=2**32)]
_GREATEST_SIGNAL: Final = 31
"""Those above are for the instance and its shells."""
Severity = Annotated[int, msgspec.Meta(ge=0, le=7)]
ExceptionType = Annotated[str, msgspec.Meta(pattern=r"^[^\s=]+\Z", max_length=256)]


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """`wait`, of which any number is well-formed: there may be no such job."""

    id: int


class OneJob(msgspec.Struct, frozen=True, kw_only=True):
    """`purge-id`, and what all requests about one job have."""

    id: Id


class Raise(OneJob, frozen=True, kw_only=True):
    type: ExceptionType = "cancel"
    severity: Severity = 0
    note: str | None = None
    wait_status: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    """How the job has ended, where the exception knows better than its tasks."""


class Kill(OneJob, frozen=True, kw_only=True):
    signum: int


class Urgency(OneJob, frozen=True, kw_only=True):
    urgency: int


class JobspecUpdate(OneJob, frozen=True, kw_only=True):
    updates: dict[str, Any]


class Memo(OneJob, frozen=True, kw_only=True):
    memo: dict[str, Any]
    volatile: bool = False
    """Told and shown, and gone with the next restart."""


class Purge(OneJob, frozen=True, kw_only=True):
    force: bool = False
    """Without it, it is only said what would be done."""


class ManyJobs(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests about many jobs have."""

    dry_run: bool = False
    """Only say how many there are."""
    userid: Userid | None = None
    """Whose jobs; by default those of the user who asks."""


class RaiseAll(ManyJobs, frozen=True, kw_only=True):
    states: Annotated[int, msgspec.Meta(ge=1)] = sum(state.bit for state in ACTIVE)
    type: ExceptionType
    severity: Severity = 7
    note: str | None = None


class KillAll(ManyJobs, frozen=True, kw_only=True):
    signum: int


class PurgeAll(msgspec.Struct, frozen=True, kw_only=True):
    age_limit: float | None = None
    """Seconds; less than nothing is no limit."""
    num_limit: int | None = None
    """Less than nothing is no limit."""
    batch: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    force: bool = False


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    full: bool = False
    allow: dict[str, int] | None = None
    deny: dict[str, int] | None = None


class GetAttr(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class Jobtap(msgspec.Struct, frozen=True, kw_only=True):
    query: bool = False
    query_only: bool = False
    load: Any = None
    remove: Any = None


T = TypeVar("T", bound=msgspec.Struct)


def read(request: Request, payload_type: type[T]) -> T:
    """Read a request's payload. Raises RpcError(EPROTO) with the place of the mistake."""
    try:
        return msgspec.convert(request.payload, payload_type)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RpcError(errno.EPROTO, f"{request.topic}: {_path_first(str(error))}") from None


def permitted_job(manager: JobManager, request: Request) -> ActiveJob | InactiveJob:
    """Return the job that a request is about, if the user may act on it.

    Raises RpcError: ENOENT, also for what is no id, or EPERM.
    """
    job = request.payload.get("id")
    found = manager.find(JobId(job)) if type(job) is int else None
    if found is None:
        raise RpcError(errno.ENOENT, "unknown job id")
    userid = found.job.userid if isinstance(found, ActiveJob) else found.userid
    if not request.cred.is_owner and userid != request.cred.userid:
        raise RpcError(errno.EPERM, "the job is another user's")
    return found


def own_active_job(
    manager: JobManager, request: Request, inactive_errnum: int = errno.ENOENT
) -> ActiveJob:
    """Return the active job that a request is about.

    Raises RpcError: ENOENT, EPERM, or `inactive_errnum`, which is Flux's for the topic.
    """
    found = permitted_job(manager, request)
    if not isinstance(found, ActiveJob):
        raise RpcError(inactive_errnum, "job is inactive")
    return found


def charge_own_job(
    manager: JobManager, request: Request, inactive_errnum: int = errno.ENOENT
) -> ActiveJob:
    """Return the active job that a request is about, and count what it adds to the job's log.

    Raises RpcError as `own_active_job` and `charge_quota` do.
    """
    active_job = own_active_job(manager, request, inactive_errnum)
    charge_quota(manager, active_job, request)
    return active_job


def charge_quota(manager: JobManager, active_job: ActiveJob, request: Request) -> None:
    """Count what a guest adds to a log in its quota.

    Raises RpcError, ENOSPC or EFBIG, for more than may be in a log, which is in memory, and read
    again with every restart; and ENOSPC for more than may be in all of its jobs.
    """
    if not request.cred.is_owner and is_log_full(active_job):
        raise RpcError(errno.ENOSPC, f"the job's log has {_MOST_EVENTS} events: no more fit")
    size = check_size(request)
    if not request.cred.is_owner:
        manager.charge(active_job, size)


def check_size(request: Request) -> int:
    """Return how many bytes to count for a request in a quota.

    Raises RpcError(EFBIG) for more than is kept of a guest's.
    """
    text = msgspec.json.encode(request.payload)
    if not request.cred.is_owner and len(text) > _LARGEST_REQUEST:
        raise RpcError(errno.EFBIG, f"{request.topic} takes up to {_LARGEST_REQUEST} bytes")
    return quota_size(text)


def check_memo_depth(memo: Mapping[str, Any]) -> None:
    """Raise RpcError(EINVAL) where a memo is nested deeper than clients read in lists of jobs."""
    try:
        check_depth(memo)
    except ValueError as error:
        raise RpcError(errno.EINVAL, f"memo: {error}") from None


def check_memo_size(active_job: ActiveJob, memo: Mapping[str, Any]) -> None:
    """Raise RpcError(EFBIG) where a memo would be longer than is shown of a guest's job."""
    updated = update(active_job.with_pending_events(), Event(0.0, "memo", memo))
    size = len(msgspec.json.encode(updated.memo))
    if size > _LONGEST_MEMO:
        message = f"the job's memo would have {size} bytes, and {_LONGEST_MEMO} at most"
        raise RpcError(errno.EFBIG, message)


def check_exception_type(type_: str) -> None:
    """Raise RpcError(EINVAL) for the type of exception that the instance alone raises.

    By hand it would say in the job's log what is not so, also the owner's hand.
    """
    if type_ == SCHEDULER_RESTART:
        message = f"only the instance raises {SCHEDULER_RESTART}: raise another type, as cancel"
        raise RpcError(errno.EINVAL, message)


def is_log_full(active_job: ActiveJob) -> bool:
    """Return whether a job's log is as long as its user may make it."""
    return len(active_job.events) + len(active_job.pending_events) >= _MOST_EVENTS


def own_changeable_job(manager: JobManager, request: Request) -> ActiveJob:
    """Return the active job that is to change its course. Raises RpcError: EINVAL, or EPERM."""
    try:
        return own_active_job(manager, request, errno.EINVAL)
    except RpcError as error:
        if error.errnum == errno.ENOENT:
            raise RpcError(errno.EINVAL, str(error)) from None
        raise


def check_signal(signum: int) -> int:
    """Return a signal that there is. Raises RpcError(EINVAL)."""
    if not 1 <= signum <= _GREATEST_SIGNAL:
        raise RpcError(errno.EINVAL, f"{signum} is no signal: they are 1 to {_GREATEST_SIGNAL}")
    return signum


def selected_jobs(manager: JobManager, request: Request, many: ManyJobs) -> list[ActiveJob]:
    """Return the active jobs of the user that a request names. Raises RpcError(EPERM)."""
    userid = request.cred.userid if many.userid is None else many.userid
    if userid != request.cred.userid and not request.cred.is_owner:
        raise RpcError(errno.EPERM, "guests can only act on their own jobs")
    return [
        active_job
        for active_job in manager.active()
        if userid in ANY or active_job.job.userid == userid
    ]


def _path_first(message: str) -> str:
    """Put the path, which msgspec names last and with a `$`, where one looks for it."""
    problem, _, path = message.partition(" - at `$.")
    return f"{path.removesuffix('`')}: {problem}" if path else message
