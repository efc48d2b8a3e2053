"""The callers that wait for the end of waitable jobs, each of which is given once."""

import asyncio
import errno

from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError


class WaitableJobs:
    """The waitable jobs, and the callers that wait for one of them or for any."""

    def __init__(self) -> None:
        self._active: set[JobId] = set()
        """Jobs that have not ended."""
        self._ended: dict[JobId, None] = {}
        """Jobs that have ended and were not yet waited for, in the order in which they ended."""
        self._callers_for_one: dict[JobId, asyncio.Future[JobId]] = {}
        self._callers_for_any: list[asyncio.Future[JobId]] = []

    def add(self, job: JobId) -> None:
        """Add a job that may be waited for."""
        self._active.add(job)

    def mark_ended(self, job: JobId) -> None:
        """Note that it has ended."""
        self._active.discard(job)
        self._ended[job] = None
        self._serve(job)

    def forget(self, job: JobId) -> None:
        """Remove a job that was purged, or rejected."""
        self._active.discard(job)
        self._ended.pop(job, None)

    async def wait(self, job: JobId | None) -> JobId:
        """Wait for a job, or for any, and take it: no other caller gets it.

        Raises RpcError(ECHILD) where there is none left for this request.
        """
        if job is None:
            callers = len(self._callers_for_one) + len(self._callers_for_any)
            if callers >= len(self._active) + len(self._ended):
                raise RpcError(errno.ECHILD, "there are no more waitable jobs")
        elif job in self._callers_for_one or not (job in self._active or job in self._ended):
            raise RpcError(errno.ECHILD, "the job cannot be waited for, or not any more")
        answer: asyncio.Future[JobId] = asyncio.get_running_loop().create_future()
        if job is None:
            self._callers_for_any.append(answer)
        else:
            self._callers_for_one[job] = answer
        try:
            for each in [job] if job is not None else list(self._ended):
                self._serve(each)
            return await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():
                self.mark_ended(answer.result())  # its caller is gone, and the next one gets it
            raise
        finally:
            if job is None:
                self._callers_for_any.remove(answer)
            else:
                del self._callers_for_one[job]

    def _serve(self, job: JobId) -> None:
        if job not in self._ended:
            return
        for answer in (self._callers_for_one.get(job), *self._callers_for_any):
            if answer is not None and not answer.done():
                del self._ended[job]
                answer.set_result(job)
                return
