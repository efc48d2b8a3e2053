"""The archive: a file that jobs are written to before they are purged, a line of JSON each."""

import asyncio
import errno
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson

from warren.instance.jobs.stored import Stored
from warren.journal import files
from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId

_AT_ONCE: Final = 100
"""Jobs that are written together."""


class NotArchived(Exception):
    """The archive cannot be written: which, and why. `errnum` is the errno."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or error
        super().__init__(f"nothing is purged: the archive {path} cannot be written: {reason}")
        self.errnum = error.errno or errno.EIO


class Archive:
    """Appends jobs to a file, which may be renamed at any time."""

    def __init__(self, path: Path, stored: Stored) -> None:
        self.path = path
        self._stored = stored
        self._lock = threading.Lock()

    async def add(self, jobs: Sequence[JobId]) -> None:
        """Return once the jobs are on the disk. Raises NotArchived; some may be there then.

        A job that was not purged after all comes again: its lines are equal.
        """
        for first in range(0, len(jobs), _AT_ONCE):
            some = jobs[first : first + _AT_ONCE]
            lines = [record(job, self._stored.values(job)) for job in some]
            try:
                await asyncio.to_thread(self._append, b"".join(lines))
            except OSError as error:
                raise NotArchived(self.path, error) from None

    def _append(self, lines: bytes) -> None:
        with self._lock:
            files.append(self.path, lines)


def record(job: JobId, values: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a job's line: an object with `id`, and what its directory in the KVS holds (RFC 16).

    An eventlog is the array of its events, JSON is what it says, anything else is text.
    """
    return orjson.dumps({"id": job, **{key: _read(key, value) for key, value in values}}) + b"\n"


def _read(key: str, value: bytes) -> Any:
    text = value.decode(errors="replace")
    try:
        if key.endswith("eventlog"):
            return [msgspec.to_builtins(event) for event in eventlog.decode(text)]
        return orjson.loads(text)
    except (BadFormat, ValueError):
        return text
