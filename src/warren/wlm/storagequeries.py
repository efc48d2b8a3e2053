"""What users ask of their jobs' storage: `dws.waits`, for what jobs wait, and `dws.storage`."""

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from warren.dws.jobs.jobsnapshot import Job
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Cred, Payload, Request, RpcError

_MAX_IDS = 1000
"""Jobs of one request."""


def methods(
    job: Callable[[int], Job | None],
    wait_reasons: Callable[[Iterable[int]], Mapping[int, str]],
    storage: Callable[[int], Awaitable[Mapping[str, Any] | None]],
) -> Methods:
    """Return the topics. Users are told of their own jobs, the owner of all."""

    def may_see(cred: Cred, jobid: int) -> bool:
        return cred.is_owner or ((found := job(jobid)) is not None and found.userid == cred.userid)

    async def waits(request: Request) -> Payload:
        ids = request.payload.get("ids")
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise RpcError(errno.EPROTO, "dws.waits takes ids")
        visible = [jobid for jobid in ids[:_MAX_IDS] if may_see(request.cred, jobid)]
        return {"waits": {str(jobid): reason for jobid, reason in wait_reasons(visible).items()}}

    async def storage_of_job(request: Request) -> Payload:
        jobid = request.payload.get("id")
        if type(jobid) is not int:
            raise RpcError(errno.EPROTO, "dws.storage takes id")
        summary = await storage(jobid) if may_see(request.cred, jobid) else None
        if summary is None:
            raise RpcError(errno.ENOENT, "the job has no Workflow")
        return summary

    return {"waits": Method(waits, guest=True), "storage": Method(storage_of_job, guest=True)}
