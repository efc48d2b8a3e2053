"""The `job-manager` service: what users and other parts may ask of the job manager."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from warren.instance.jobs import requests
from warren.instance.jobs.archive import NotArchived
from warren.instance.jobs.eventjournal import EventFilter
from warren.instance.jobs.jobspecupdates import update_jobspec
from warren.instance.jobs.manager import ActiveJob, InactiveJob, JobManager
from warren.instance.jobs.purging import RetentionLimits
from warren.instance.jobs.requests import (
    ANY,
    charge_own_job,
    charge_quota,
    check_exception_type,
    check_memo_depth,
    check_memo_size,
    check_signal,
    check_size,
    is_log_full,
    own_active_job,
    own_changeable_job,
    permitted_job,
    read,
    selected_jobs,
)
from warren.instance.protocols import Execution
from warren.lifecycle import urgency
from warren.lifecycle.states import PENDING, RUNNING, Result, State
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import WAITABLE
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError

_NO_LOADING: Final = "plugins are parts of the instance: none is loaded or removed while it runs"

_JOBS_PER_TURN: Final = 50
"""Jobs that something is done to before other requests have their turn."""


class UpdateResolver(Protocol):
    """Returns what updates of a jobspec come to in its queue. Raises RpcError."""

    async def __call__(
        self, spec: Mapping[str, Any], requested: Mapping[str, Any], userid: int, *, by_owner: bool
    ) -> Mapping[str, Any]: ...


class JobManagerService:
    """Checks requests and their senders, then passes them on."""

    def __init__(
        self,
        manager: JobManager,
        execution: Execution,
        resolve_updates: UpdateResolver | None = None,
    ) -> None:
        """`resolve_updates` returns what updates of a jobspec come to in its queue."""
        self._manager = manager
        self._execution = execution
        self._resolve_updates = resolve_updates

    def methods(self) -> Methods:
        return {
            "raise": Method(self._raise, guest=True),
            "raiseall": Method(self._raise_all, guest=True),
            "kill": Method(self._kill, guest=True),
            "killall": Method(self._kill_all, guest=True),
            "urgency": Method(self._urgency, guest=True),
            "update": Method(self._update, guest=True),
            "memo": Method(self._memo, guest=True),
            "wait": Method(self._wait, guest=True),
            "purge": Method(self._purge),
            "purge-id": Method(self._purge_one),
            "getattr": Method(self._getattr, guest=True),
            "stats-get": Method(self._stats, guest=True),
            "alloc-query": Method(self._alloc_query, guest=True),
            "resource-status": Method(self._resource_status, guest=True),
            "jobtap": Method(self._jobtap),
            "jobtap-query": Method(self._jobtap_query),
            "events-journal": StreamingMethod(self._journal),
            **self._manager.methods(),
        }

    # One job

    async def _raise(self, request: Request) -> Payload:
        active_job = own_active_job(self._manager, request)
        payload = read(request, requests.Raise)
        check_exception_type(payload.type)
        check_size(request)
        if not _ends_job(active_job, payload):
            charge_own_job(self._manager, request)
        context = _exception_context(request, payload)
        if payload.wait_status is not None:
            context["wait_status"] = payload.wait_status
        self._manager.processor.post(active_job, "exception", context)
        await self._manager.wait_committed()
        return {}

    async def _kill(self, request: Request) -> Payload:
        active_job = own_changeable_job(self._manager, request)
        signum = check_signal(read(request, requests.Kill).signum)
        if active_job.job.state is not State.RUN:
            raise RpcError(errno.EINVAL, "job is not running")
        self._execution.kill(active_job.job.id, signum)
        return {}

    async def _urgency(self, request: Request) -> Payload:
        active_job = own_changeable_job(self._manager, request)
        charge_quota(self._manager, active_job, request)
        payload = read(request, requests.Urgency)
        if not urgency.HOLD <= payload.urgency <= urgency.EXPEDITE:
            least, most = urgency.HOLD, urgency.EXPEDITE
            raise RpcError(errno.EINVAL, f"urgency is a number from {least} to {most}")
        before = active_job.job.urgency
        if not request.cred.is_owner and payload.urgency > urgency.DEFAULT:
            raise RpcError(errno.EPERM, f"guests have an urgency of at most {urgency.DEFAULT}")
        if active_job.job.state not in PENDING:
            raise RpcError(errno.EINVAL, "urgency means nothing once a job has its resources")
        context = {"urgency": payload.urgency, "userid": request.cred.userid}
        self._manager.processor.post(active_job, "urgency", context)
        await self._manager.wait_committed()
        return {"old_urgency": before}

    async def _update(self, request: Request) -> Payload:
        active_job = charge_own_job(self._manager, request, errno.EINVAL)
        updates: Mapping[str, Any] = read(request, requests.JobspecUpdate).updates
        if not updates:
            return {}
        if self._resolve_updates is not None:
            cred = request.cred
            updates = await self._resolve_updates(
                active_job.jobspec, updates, cred.userid, by_owner=cred.is_owner
            )
        await update_jobspec(self._manager, active_job, updates, request.cred)
        return {}

    async def _memo(self, request: Request) -> Payload:
        active_job = own_active_job(self._manager, request)
        payload = read(request, requests.Memo)
        if payload.memo:
            check_memo_depth(payload.memo)
            self._manager.processor.check(active_job, "memo", payload.memo)
            if not request.cred.is_owner:
                check_memo_size(active_job, payload.memo)
        charge_quota(self._manager, active_job, request)
        if not payload.memo:
            return {}
        if payload.volatile:
            self._manager.processor.post_volatile(active_job, "memo", payload.memo)
        else:
            self._manager.processor.post(active_job, "memo", payload.memo)
        await self._manager.wait_committed()
        return {}

    async def _wait(self, request: Request) -> Payload:
        job = (await self._wait_inactive(request)).job
        problem = (
            ""
            if job.fatal_exception is None
            else f"{job.fatal_exception.type}: {job.fatal_exception.note}"
        )
        return {
            "id": job.id,
            "success": job.result is Result.COMPLETED,
            "errstr": problem or _describe_status(job.wait_status),
        }

    async def _wait_inactive(self, request: Request) -> InactiveJob:
        requested_id = request.payload.get("id")
        if type(requested_id) is int and requested_id in ANY:
            if not request.cred.is_owner:
                raise RpcError(errno.ECHILD, "guests have no waitable jobs")
            return await self._manager.inactive_jobs.wait(None)
        job_id = read(request, requests.Wait).id
        found = self._manager.find(JobId(job_id))
        if found is None:
            raise RpcError(errno.ECHILD, "unknown job id")
        job = permitted_job(self._manager, request).job
        if not job.flags & WAITABLE:
            raise RpcError(errno.ECHILD, "the job was not submitted to be waited for")
        return await self._manager.inactive_jobs.wait(job.id)

    # Many jobs

    async def _raise_all(self, request: Request) -> Payload:
        payload = read(request, requests.RaiseAll)
        check_exception_type(payload.type)
        size = check_size(request)
        errors = 0

        def is_selected(active_job: ActiveJob) -> bool:
            return bool(active_job.job.state.bit & payload.states) and (
                request.cred.is_owner
                or not is_log_full(active_job)
                or _ends_job(active_job, payload)
            )

        def act(active_job: ActiveJob) -> None:
            nonlocal errors
            # Now, not before the first turn: others may have added to its log, or ended it.
            if self._manager.find(active_job.job.id) is not active_job or not is_selected(
                active_job
            ):
                return
            if not (request.cred.is_owner or _ends_job(active_job, payload)):
                try:
                    self._manager.charge(active_job, size)
                except RpcError:
                    errors += 1  # the next one may have to end, which takes no room
                    return
            self._manager.processor.post(
                active_job, "exception", _exception_context(request, payload)
            )

        active_jobs = [*filter(is_selected, selected_jobs(self._manager, request, payload))]
        if not payload.dry_run:
            await _in_turns(active_jobs, act)
            await self._manager.wait_committed()
        return {"count": len(active_jobs), "errors": errors}

    async def _kill_all(self, request: Request) -> Payload:
        payload = read(request, requests.KillAll)
        signum = check_signal(payload.signum)

        def act(active_job: ActiveJob) -> None:
            if active_job.job.state is State.RUN:  # it may have ended in another turn
                self._execution.kill(active_job.job.id, signum)

        active_jobs = [
            active_job
            for active_job in selected_jobs(self._manager, request, payload)
            if active_job.job.state is State.RUN
        ]
        if not payload.dry_run:
            await _in_turns(active_jobs, act)
        return {"count": len(active_jobs), "errors": 0}

    async def _purge(self, request: Request) -> Payload:
        payload = read(request, requests.PurgeAll)
        age = (
            payload.age_limit if payload.age_limit is not None and payload.age_limit >= 0 else None
        )
        number = (
            payload.num_limit if payload.num_limit is not None and payload.num_limit >= 0 else None
        )
        jobs = self._manager.inactive_jobs.purgeable(RetentionLimits(age, number), payload.batch)
        return {"count": await self._purge_jobs(jobs) if payload.force else len(jobs)}

    async def _purge_one(self, request: Request) -> Payload:
        found = permitted_job(self._manager, request)
        payload = read(request, requests.Purge)
        if isinstance(found, ActiveJob):
            raise RpcError(errno.EINVAL, "the job is active: cancel it first")
        if payload.force:
            await self._purge_jobs([found.id])
        return {}

    async def _purge_jobs(self, jobs: Sequence[JobId]) -> int:
        try:
            return await self._manager.inactive_jobs.purge(jobs)
        except NotArchived as error:
            raise RpcError(error.errnum, str(error)) from None

    # The job manager itself

    async def _getattr(self, request: Request) -> Payload:
        payload = read(request, requests.GetAttr)
        if payload.name != "max_jobid":
            raise RpcError(errno.ENOENT, f"there is no attribute {payload.name!r}")
        return {"value": self._manager.max_jobid()}

    async def _stats(self, request: Request) -> Payload:
        return self._manager.counts()

    async def _alloc_query(self, request: Request) -> Payload:
        active = self._manager.active()
        in_sched = [active_job for active_job in active if active_job.job.state is State.SCHED]
        return {
            "queue_length": sum(not active_job.allocating for active_job in in_sched),
            "alloc_pending": sum(active_job.allocating for active_job in in_sched),
            "running": sum(active_job.job.state in RUNNING for active_job in active),
        }

    async def _resource_status(self, request: Request) -> Payload:
        return {"allocated": self._manager.allocations()}

    async def _jobtap(self, request: Request) -> Payload:
        payload = read(request, requests.Jobtap)
        if payload.load is not None or payload.remove is not None:
            raise RpcError(errno.ENOSYS, _NO_LOADING)
        return {"plugins": self._manager.plugin_names()}

    async def _jobtap_query(self, request: Request) -> Payload:
        payload = read(request, requests.GetAttr)
        return {"name": payload.name, **self._manager.query(payload.name)}

    async def _journal(self, request: Request) -> AsyncIterator[Payload]:
        """Return the events of jobs; from which moment on, `eventjournal` promises."""
        payload = read(request, requests.Journal)
        event_filter = EventFilter(
            full=payload.full,
            allow=None if payload.allow is None else _chosen_names(payload.allow),
            deny=_chosen_names(payload.deny or {}),
        )
        async for entry in self._manager.journal(event_filter):
            yield entry


async def _in_turns(active_jobs: Sequence[ActiveJob], act: Callable[[ActiveJob], None]) -> None:
    """Do something to jobs while others have their turns: to all, though the client hangs up."""
    hung_up = False
    for number, active_job in enumerate(active_jobs, 1):
        act(active_job)
        if number % _JOBS_PER_TURN == 0:
            # No task of its own, which would take more than the user's share of the time.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                hung_up = True
    if hung_up:
        raise asyncio.CancelledError


def _exception_context(
    request: Request, payload: requests.Raise | requests.RaiseAll
) -> dict[str, Any]:
    return {
        "type": payload.type,
        "severity": payload.severity,
        "note": payload.note or "",
        "userid": request.cred.userid,
    }


def _ends_job(active_job: ActiveJob, payload: requests.Raise | requests.RaiseAll) -> bool:
    """Return whether an exception ends a job: that must not fail."""
    return payload.severity == 0 and active_job.job.fatal_exception is None


def _chosen_names(names: dict[str, int]) -> frozenset[str]:
    return frozenset(name for name, chosen in names.items() if chosen)


def _describe_status(status: int | None) -> str:
    if not status:
        return ""
    return f"task(s) exited with exit code {status >> 8}" if status >> 8 else f"signal {status}"
