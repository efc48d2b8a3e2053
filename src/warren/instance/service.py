"""The `job-manager` service: what users and other parts may ask of the job manager."""

import errno
from collections.abc import AsyncIterator
from typing import Any

from warren.instance.manager import Entry, JobManager
from warren.instance.ports import Execution
from warren.lifecycle.states import State
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError


class JobManagerService:
    """Checks who asks and what, then passes on."""

    def __init__(self, manager: JobManager, execution: Execution) -> None:
        self._manager = manager
        self._execution = execution

    def methods(self) -> Methods:
        return {
            "raise": Method(self._raise, guest=True),
            "kill": Method(self._kill, guest=True),
            "memo": Method(self._memo, guest=True),
            "events-journal": StreamingMethod(self._journal),
            **self._manager.methods(),
        }

    async def _raise(self, request: Request) -> Payload:
        entry = self._own(request)
        type_ = request.payload.get("type", "cancel")
        severity = request.payload.get("severity", 0)
        if not isinstance(type_, str) or not type_ or set(type_) & set(" \t\n="):
            raise RpcError(errno.EPROTO, "an exception type has no blanks and no '='")
        if not isinstance(severity, int) or not 0 <= severity <= 7:
            raise RpcError(errno.EPROTO, "a severity is a number from 0 to 7")
        context: dict[str, Any] = {
            "type": type_,
            "severity": severity,
            "note": str(request.payload.get("note", "")),
            "userid": request.cred.userid,
        }
        self._manager.post(entry.job.id, "exception", context)
        await self._manager.committed()
        return {}

    async def _kill(self, request: Request) -> Payload:
        entry = self._own(request)
        signum = request.payload.get("signum")
        if not isinstance(signum, int) or not 0 < signum < 65:
            raise RpcError(errno.EPROTO, "a signal is a number from 1 to 64")
        if entry.job.state is not State.RUN:
            raise RpcError(errno.EINVAL, "job is not running")
        self._execution.kill(entry.job.id, signum)
        return {}

    async def _memo(self, request: Request) -> Payload:
        entry = self._own(request)
        memo = request.payload.get("memo")
        if not isinstance(memo, dict) or not memo:
            raise RpcError(errno.EPROTO, "a memo is an object")
        self._manager.post(entry.job.id, "memo", memo)
        await self._manager.committed()
        return {}

    async def _journal(self, request: Request) -> AsyncIterator[Payload]:
        async for told in self._manager.journal():
            yield told

    def _own(self, request: Request) -> Entry:
        """Find the active job that a request is about, if the user may act on it."""
        job = request.payload.get("id")
        found = self._manager.find(JobId(job)) if isinstance(job, int) else None
        if found is None:
            raise RpcError(errno.ENOENT, "unknown job id")
        if not request.cred.owner and found.job.userid != request.cred.userid:
            raise RpcError(errno.EPERM, "the job is another user's")
        if not isinstance(found, Entry):
            raise RpcError(errno.ENOENT, "job is inactive")
        return found
