"""What users ask of their jobs' storage: `dws.waits`, for what jobs wait, and `dws.storage`."""

import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from warren.dws.jobs.jobsnapshot import Job
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Cred, Payload, Request, RpcError

_MOST = 1000
"""Jobs of one request."""


def methods(
    job: Callable[[int], Job | None],
    waiting: Callable[[Iterable[int]], Mapping[int, str]],
    storage: Callable[[int], Awaitable[Mapping[str, Any] | None]],
) -> Methods:
    """Return the topics. Users are told of their own jobs, the owner of all."""

    def may_know(asker: Cred, number: int) -> bool:
        return asker.owner or ((found := job(number)) is not None and found.userid == asker.userid)

    async def waits(request: Request) -> Payload:
        ids = request.payload.get("ids")
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise RpcError(errno.EPROTO, "dws.waits takes ids")
        own = [number for number in ids[:_MOST] if may_know(request.cred, number)]
        return {"waits": {str(number): reason for number, reason in waiting(own).items()}}

    async def of_job(request: Request) -> Payload:
        number = request.payload.get("id")
        if type(number) is not int:
            raise RpcError(errno.EPROTO, "dws.storage takes id")
        found = await storage(number) if may_know(request.cred, number) else None
        if found is None:
            raise RpcError(errno.ENOENT, "the job has no Workflow")
        return found

    return {"waits": Method(waits, guest=True), "storage": Method(of_job, guest=True)}
