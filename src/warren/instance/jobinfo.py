"""What users may read of their jobs: `job-info` (RFC 41) and `job-list` (RFC 43)."""

import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from warren.instance import keys
from warren.instance.kvs import Kvs
from warren.instance.manager import Entry, Inactive, JobManager
from warren.lifecycle.states import PENDING, State
from warren.rfc import eventlog, resource_set, stdio
from warren.rfc import jobspec as jobspecs
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError

_LAST: Final = {"eventlog": "clean", "guest.exec.eventlog": "done"}
"""The event with which a log ends."""


class JobInfo:
    """The `job-info` service: the owner reads everything, a user its own jobs."""

    def __init__(self, kvs: Kvs, manager: JobManager) -> None:
        self._kvs = kvs
        self._manager = manager

    def methods(self) -> Methods:
        return {
            "lookup": Method(self._lookup, guest=True),
            "eventlog-watch": StreamingMethod(self._watch, guest=True),
        }

    async def _lookup(self, request: Request) -> Payload:
        job = self._permitted(request)
        found: dict[str, Any] = {"id": job}
        for key in request.payload.get("keys") or ():
            found[key] = self._kvs.lookup(keys.of(job, str(key))).decode(errors="replace")
        return found

    async def _watch(self, request: Request) -> AsyncIterator[Payload]:
        job = self._permitted(request)
        path = str(request.payload.get("path", "eventlog"))
        end = _End(path)
        left = ""
        chunks = self._kvs.follow(
            keys.of(job, path),
            # A log whose writer has died has no last entry, but ends with its job.
            final=lambda: self._over(job),
            also=keys.of(job, "eventlog"),
        )
        async with aclosing(chunks) as following:  # type: ignore[type-var]
            async for chunk in following:
                *lines, left = (left + chunk.decode()).split("\n")
                for line in lines:
                    yield {"event": f"{line}\n"}
                    if end.comes_with(eventlog.decode_line(line)):
                        return

    def _over(self, job: JobId) -> bool:
        """Tell whether the last event of a job is durable: it is known a moment before that."""
        text = self._kvs.get(keys.of(job, "eventlog"))
        if not text or not isinstance(self._manager.find(job), Inactive):
            return False
        last = text[text.rfind(b"\n", 0, -1) + 1 :].decode()
        return eventlog.decode_line(last).name == _LAST["eventlog"]

    def _permitted(self, request: Request) -> JobId:
        job = request.payload.get("id")
        found = self._manager.find(JobId(job)) if isinstance(job, int) else None
        if found is None:
            raise RpcError(errno.ENOENT, "unknown job id")
        if not request.cred.owner and found.job.userid != request.cred.userid:
            raise RpcError(errno.EPERM, "the job is another user's")
        return found.job.id


class _End:
    """Sees the end of a log in its events."""

    def __init__(self, path: str) -> None:
        self._last = _LAST.get(path)
        self._opened = self._closed = 0

    def comes_with(self, event: Event) -> bool:
        """Tell whether a log ends with this event: by its name, or as the last stream to close."""
        if self._last is not None:
            return event.name == self._last
        opened, closed = stdio.streams([event])
        self._opened += opened
        self._closed += closed
        return 0 < self._opened == self._closed


class JobList:
    """The `job-list` service."""

    def __init__(self, manager: JobManager) -> None:
        self._manager = manager

    def methods(self) -> Methods:
        return {
            "list": Method(self._list, guest=True),
            "list-id": Method(self._list_one, guest=True),
        }

    async def _list(self, request: Request) -> Payload:
        wanted = request.payload.get("states")
        most = int(request.payload.get("max_entries", 0))
        found = [
            each
            for each in self._manager.jobs()
            if (not isinstance(wanted, int) or each.job.state.bit & wanted)
            and (request.cred.owner or each.job.userid == request.cred.userid)
        ]
        found.sort(key=_order)
        return {"jobs": [described(each) for each in (found[:most] if most else found)]}

    async def _list_one(self, request: Request) -> Payload:
        job = request.payload.get("id")
        found = self._manager.find(JobId(job)) if isinstance(job, int) else None
        visible = found is not None and (
            request.cred.owner or found.job.userid == request.cred.userid
        )
        if found is None or not visible:
            raise RpcError(errno.ENOENT, "unknown job id")
        return {"job": described(found)}


def _order(each: Entry | Inactive) -> tuple[int, float, int]:
    """Pending by priority, then running and inactive by their time, the latest first."""
    job = each.job
    if job.state in PENDING or job.state is State.NEW:
        return (0, -(job.priority or 0), job.id)
    if job.state is not State.INACTIVE:
        return (1, -job.times.get(State.RUN, 0.0), job.id)
    return (2, -job.times[State.INACTIVE], job.id)


def described(each: Entry | Inactive) -> Mapping[str, Any]:
    """Give a job's attributes as job-list names them. What is not known is left out."""
    job = each.job
    times = {f"t_{state.lower()}": moment for state, moment in job.times.items()}
    times["t_submit"] = times.pop("t_new")
    counted = jobspecs.summary(each.jobspec)
    gravest = min(job.problems, key=lambda each: each.severity, default=None)
    found: dict[str, Any] = {
        "id": job.id,
        "userid": job.userid,
        "urgency": job.urgency,
        "priority": job.priority,
        **times,
        "state": job.state.bit,
        "name": jobspecs.name(each.jobspec),
        "ntasks": counted.tasks,
        "nnodes": counted.nodes,
        "duration": jobspecs.system(each.jobspec).get("duration"),
        "dependencies": sorted(job.dependencies) or None,
        "exception_occurred": gravest is not None,
        "annotations": {**job.annotations, **({"user": job.memo} if job.memo else {})} or None,
    }
    if each.r is not None:
        found["nodelist"] = ",".join(each.r["execution"]["nodelist"])
        found["ranks"] = resource_set.ranks_text(resource_set.decode(each.r))
        found["nnodes"] = len(resource_set.nodelist(each.r))
    if gravest is not None:
        found["exception_type"] = gravest.type
        found["exception_severity"] = gravest.severity
        found["exception_note"] = gravest.note
    if job.result is not None:
        found["result"] = job.result.bit
        found["success"] = job.result.value == "COMPLETED"
        found["waitstatus"] = job.status
    return {name: value for name, value in found.items() if value is not None}
