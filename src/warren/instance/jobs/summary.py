"""The summary of a job that is over, so that its log need not be read.

It is written with the job's last event, in one commit, and says what the log says: a summary
that is not there, or of another version, is made again from the log.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.lifecycle.job import Job
from warren.lifecycle.states import Result
from warren.rfc import jobspec as jobspecs
from warren.rfc import resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import WAITABLE

_VERSION: Final = 2
"""Of the summary, and of what `Job` has in it: it changes with either."""

_RENAMED_IN_2: Final = {
    "ever_depended": "ever_dependencies",
    "done": "released_ranks",
    "released": "all_released",
    "freed": "freed_ranks",
    "status": "wait_status",
    "problems": "exceptions",
}
"""Fields of `Job` by their names in version 1."""


class Summary(msgspec.Struct, frozen=True, array_like=True, gc=False, kw_only=True):
    """What listings choose and sort by; the rest of the job is read when it is asked for."""

    version: int
    userid: int
    ended_at: float
    """Seconds since the epoch."""
    result: Result
    waitable: bool
    """Whether it may still be waited for."""
    name: str
    queue: str | None
    hosts: str
    """A hostlist; empty for a job that never had resources."""
    ranks: str
    """An idset."""
    job: bytes
    """All of it, in JSON as its events are: memos may hold integers of more than
    64 bits, which MessagePack cannot."""
    quota_bytes: int = 0
    """Bytes that it is counted for in its user's quota; 0 in summaries of before there was one."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Summary).decode
_encode_job = msgspec.json.Encoder().encode
_decode_job = msgspec.json.Decoder(Job).decode


def encode(
    job: Job, spec: Mapping[str, Any], r: Mapping[str, Any] | None, quota_bytes: int = 0
) -> bytes:
    """Write the summary of a job that is over."""
    result = job.result
    assert result is not None
    return _encode(
        Summary(
            version=_VERSION,
            userid=job.userid,
            ended_at=max(job.times.values()),
            result=result,
            waitable=bool(job.flags & WAITABLE),
            name=_name(spec),
            queue=_queue(spec),
            hosts=",".join(r["execution"]["nodelist"]) if r is not None else "",
            ranks=resource_set.ranks_text(resource_set.decode_nodes(r)) if r is not None else "",
            job=_encode_job(job),
            quota_bytes=quota_bytes,
        )
    )


def _name(spec: Mapping[str, Any]) -> str:
    try:
        return jobspecs.name(spec)
    except (LookupError, TypeError, AttributeError):
        return ""  # accepted without validation


def _queue(spec: Mapping[str, Any]) -> str | None:
    queue = jobspecs.system(spec).get("queue")
    return queue if isinstance(queue, str) else None


def decode(data: bytes) -> Summary | None:
    """Read a summary; None for what is none that can be read now."""
    try:
        summary = _decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return summary if summary.version in (1, _VERSION) else None


def without_waitable(data: bytes) -> bytes:
    """Return the summary of a job that may not be waited for any more."""
    return _encode(msgspec.structs.replace(_decode(data), waitable=False))


def job_of(summary: Summary, job: JobId) -> Job:
    """Return the whole job, whose id is that of its directory. Raises BadFormat."""
    try:
        decoded = _decode_job(summary.job if summary.version > 1 else _in_version_2(summary.job))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadFormat(f"the summary cannot be read: {error}") from None
    return decoded if decoded.id == job else replace(decoded, id=job)


def _in_version_2(job: bytes) -> bytes:
    # Raw values: numbers in memos are to stay as they are written.
    fields = msgspec.json.decode(job, type=dict[str, msgspec.Raw])
    return _encode_job({_RENAMED_IN_2.get(name, name): each for name, each in fields.items()})
