"""Reasons for which jobs are pending, as asked from scheduler, queues and conductor."""

import asyncio
import errno
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from warren.lifecycle.states import State
from warren.wlm.codec import DEPENDENCY

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Attributes = Mapping[str, Any]

_STORAGE_STATES: Final = (State.DEPEND.bit, State.RUN.bit, State.CLEANUP.bit)
_TIMEOUT: Final = 2.0
_NO_CONDUCTOR: Final = "waits for its storage, whose conductor does not answer"


async def reasons(
    handle: "Handle", jobs: Iterable[Attributes], seconds: float = _TIMEOUT
) -> dict[int, str]:
    """Return what jobs wait for, by their ids; jobs without a reason are left out.

    A conductor that does not answer within `seconds` is what they wait for.
    """
    job_list = list(jobs)
    return {
        **await _scheduling_reasons(handle, job_list),
        **await _storage_reasons(handle, job_list, seconds),
    }


async def _storage_reasons(
    handle: "Handle", jobs: Iterable[Attributes], seconds: float
) -> dict[int, str]:
    from warren.rpc.message import RpcError

    ids = [
        job["id"]
        for job in jobs
        if job["state"] in _STORAGE_STATES
        and (
            DEPENDENCY in (job.get("dependencies") or ())
            or "rabbit_workflow" in job.get("annotations", {}).get("user", {})
        )
    ]
    if not ids:
        return {}
    try:
        async with asyncio.timeout(seconds):
            answer = await handle.rpc("dws.waits", {"ids": ids})
    except TimeoutError:
        return dict.fromkeys(ids, _NO_CONDUCTOR)
    except RpcError as error:
        if error.errnum == errno.EPERM:
            return {}  # a conductor of its own process answers the owner alone
        return dict.fromkeys(ids, _NO_CONDUCTOR)
    return {int(job): reason for job, reason in answer["waits"].items()}


async def _scheduling_reasons(handle: "Handle", jobs: Iterable[Attributes]) -> dict[int, str]:
    from warren.rpc.message import RpcError

    waiting_jobs = [job for job in jobs if job["state"] == State.SCHED.bit and job.get("priority")]
    if not waiting_jobs:
        return {}
    queues = {job.get("queue", "") for job in waiting_jobs}
    queue_reasons = {queue: await stop_reason(handle, queue) for queue in queues}
    stop_reason_by_job = {job["id"]: queue_reasons[job.get("queue", "")] for job in waiting_jobs}
    reasons = {job: reason for job, reason in stop_reason_by_job.items() if reason is not None}
    # So many are told at once: first those that have no reason in their annotations, which is
    # all that the first job of each kind has.
    without_reason = [job for job in waiting_jobs if job["id"] not in reasons]
    if without_reason:
        ids = [job["id"] for job in sorted(without_reason, key=_has_annotated_reason)]
        with suppress(RpcError):  # another scheduler may have no such topic
            answer = await handle.rpc("sched.waits", {"ids": ids})
            reasons.update((int(job), reason) for job, reason in answer["waits"].items())
    return reasons


def _has_annotated_reason(job: Attributes) -> bool:
    sched = job.get("annotations", {}).get("sched") or {}
    return bool(sched.get("reason_pending") or sched.get("t_estimate"))


async def stop_reason(handle: "Handle", queue: str) -> str | None:
    """Return why no job of a queue starts, if so."""
    from warren.rpc.message import RpcError

    try:
        status = await handle.rpc("job-manager.queue-status", {"name": queue} if queue else {})
    except RpcError:
        # It is not configured any more.
        return f"waits for queue {queue}, which is not configured any more" if queue else None
    return None if status["start"] else _stop_text(queue, status)


def _stop_text(queue: str, status: Attributes) -> str:
    queue_text = f"queue {queue}" if queue else "the queue"
    if status.get("blocked") == "parent":
        queue_text += f"'s parent {status['parent']}"
    why = status.get("stop_reason")
    return f"{queue_text} is stopped" + (f": {why}" if why else "")
