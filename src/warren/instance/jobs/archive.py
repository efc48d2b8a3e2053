"""The archive: a file that jobs are written to before they are purged, a line of JSON each."""

import asyncio
import errno
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import orjson

from warren.instance.jobs.stored import StoredJobs
from warren.journal import files
from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId

_JOBS_PER_WRITE: Final = 100
"""Jobs that are written together."""


class NotArchived(Exception):
    """The archive cannot be written: which, and why. `errnum` is the errno."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or error
        super().__init__(f"nothing is purged: the archive {path} cannot be written: {reason}")
        self.errnum = error.errno or errno.EIO


class Archive:
    """Appends jobs to a file, which may be renamed at any time."""

    def __init__(self, path: Path, stored: StoredJobs) -> None:
        self.path = path
        self._stored = stored
        self._lock = threading.Lock()

    async def add(self, jobs: Sequence[JobId]) -> None:
        """Return once the jobs are on the disk. Raises NotArchived; some may be there then.

        A job that was not purged after all comes again: its lines are equal.
        """
        for first in range(0, len(jobs), _JOBS_PER_WRITE):
            batch = jobs[first : first + _JOBS_PER_WRITE]
            lines = [encode_job(job, self._stored.archived_values(job)) for job in batch]
            try:
                await asyncio.to_thread(self._append, b"".join(lines))
            except OSError as error:
                raise NotArchived(self.path, error) from None

    def _append(self, lines: bytes) -> None:
        with self._lock:
            files.append(self.path, lines)


def encode_job(job: JobId, values: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a job's line: an object with `id`, and what its directory in the KVS holds (RFC 16).

    An eventlog is the array of its events, JSON is what it says, anything else is text.
    """
    raw_values = {key: msgspec.Raw(_to_json(key, value)) for key, value in values}
    return msgspec.json.encode({"id": job, **raw_values}) + b"\n"


def _to_json(key: str, value: bytes) -> bytes:
    """Return a value as JSON; as text what cannot be read, or not be written again.

    Users have their part in most of it: nothing of theirs may stop the purge of all others' jobs.
    """
    text = value.decode(errors="replace")
    # Not orjson, which writes no integers of over 64 bits, and fewer levels than it reads.
    with suppress(BadFormat, ValueError, RecursionError):
        if key.endswith("eventlog"):
            return msgspec.json.encode(eventlog.decode(text))
        return msgspec.json.encode(orjson.loads(text))
    return msgspec.json.encode(text)
