"""Where a job's data is in the KVS (RFC 16)."""

from functools import lru_cache

from warren.instance.kvs import Operation, append
from warren.rfc import eventlog, fluid
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId


def job_key(job: int, key: str) -> str:
    """Return the KVS key of something in a job's directory."""
    return f"{_directory(job)}.{key}"


@lru_cache(maxsize=1024)
def _directory(job: int) -> str:
    """Spell a job's directory, which is asked for at each of its events."""
    return fluid.kvs(job)


def summary_key(job: int) -> str:
    """Return the key of the summary of a job that is over."""
    return job_key(job, "summary")


def guest_namespace(job: int) -> str:
    """Return the name of a job's guest namespace."""
    return f"job-{job}"


def job_of(namespace: str) -> JobId | None:
    """Return the job that a guest namespace belongs to; None for any other namespace."""
    prefix, _, number = namespace.partition("-")
    return JobId(int(number)) if prefix == "job" and number.isdecimal() else None


def append_event(job: int, event: Event) -> Operation:
    """Return what appends an event to a job's primary eventlog."""
    return append(job_key(job, "eventlog"), eventlog.encode(event).encode())


def append_execution_event(job: int, event: Event) -> Operation:
    """Return what appends an event to the eventlog of a job's execution, in its guest namespace."""
    return append("exec.eventlog", eventlog.encode(event).encode(), guest_namespace(job))
