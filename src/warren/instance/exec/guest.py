"""The guest namespace of a job: made for its shells, and kept with the job after them (RFC 16).

It is the job's user's while the job runs. Its log (RFC 50) tells a later life of the
instance how far an earlier one had come.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from warren.base.clock import Clock
from warren.instance import keys
from warren.instance.kvs import Kvs, create_namespace, graft, link
from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

_GREATEST_STATUS: Final = 2**16 - 1
"""Of the wait statuses that there are."""

_LOG_END_BYTES: Final = 2**16
"""Bytes of either end of a log that are looked at."""

_LINE_PATTERN: Final = re.compile(rb'^\{"timestamp":.{,4000}\}$', re.MULTILINE)
"""What may be an event of execution's: users may write millions of lines that are none."""

LogEntry = tuple[str, Mapping[str, Any]]
"""An event that is to be written: its name and its context."""


class ExecutionHistory(msgspec.Struct, kw_only=True):
    """What the log of a job's execution says."""

    started_at: float | None = None
    """When the shells were about to be started."""
    recoverable: bool = False
    tasks_started: bool = False
    """Whether tasks have started."""
    leader_exited: bool = False
    status: int | None = None
    """What all shells have ended with."""


class GuestNamespace:
    """One job's guest namespace."""

    def __init__(self, kvs: Kvs, clock: Clock, job: JobId, userid: int) -> None:
        self._kvs = kvs
        self._clock = clock
        self._job = job
        self._userid = userid
        self._namespace = keys.guest_namespace(job)

    def history(self) -> ExecutionHistory:
        """Read how far the job had come, in the namespace or in what was kept of it.

        The log is written by shells, which are the job's user: what makes no sense in it is
        passed over, and costs that job what the log would have said. That all shells have ended
        counts once the namespace is closed, which is one step with saying so: before that it is
        the user's word, and nodes would be given to others while tasks are on them.
        """
        history = ExecutionHistory()
        text = self._kvs.get(keys.job_key(self._job, "guest.exec.eventlog")) or b""
        for event in _readable_events(text):
            match event.name:
                case "starting":
                    history.started_at = event.timestamp
                case "recoverable":
                    history.recoverable = True
                case "shell.start":
                    history.tasks_started = True
                case "shell-exit":
                    history.leader_exited = True
                case "complete" if not self.is_open:
                    status = event.context.get("status")
                    if type(status) is int and 0 <= status <= _GREATEST_STATUS:
                        history.status = status
        return history

    @property
    def is_open(self) -> bool:
        """Whether the namespace is there; without it there are no shells yet, or none any more."""
        return self._kvs.owner(self._namespace) is not None

    async def open(self) -> float:
        """Make the namespace, and return the moment. What is started now can be found again."""
        now = self._clock.now()
        first_events = [Event(now, name) for name in ("init", "starting", "recoverable")]
        await self._kvs.commit(
            [
                create_namespace(self._namespace, self._userid),
                *(keys.append_execution_event(self._job, event) for event in first_events),
                link(keys.job_key(self._job, "guest"), self._namespace),
            ]
        )
        return now

    async def log(self, *entries: LogEntry) -> None:
        """Write to the log of execution."""
        now = self._clock.now()
        await self._kvs.commit(
            [keys.append_execution_event(self._job, Event(now, *entry)) for entry in entries]
        )

    async def close(self, *entries: LogEntry) -> None:
        """Write the last entries, keep with the job what there is, and remove the namespace.

        All in one: clients that hear afterwards that the job is over find everything in place.
        What was closed before stays as it is.
        """
        now = self._clock.now()
        await self._kvs.commit(
            [
                *(
                    keys.append_execution_event(self._job, Event(now, *entry))
                    for entry in (*entries, ("done", {}))
                ),
                graft(keys.job_key(self._job, "guest"), self._namespace),
            ]
        )


def _readable_events(log: bytes | bytearray) -> Iterator[Event]:
    """Return the events at both ends of a log, without the lines that are none.

    What is written by execution stands there; between them a user has room for a gigabyte.
    """
    ends = (
        [log] if len(log) <= 2 * _LOG_END_BYTES else [log[:_LOG_END_BYTES], log[-_LOG_END_BYTES:]]
    )
    for line in (each for end in ends for each in _LINE_PATTERN.findall(end)):
        with suppress(BadFormat, UnicodeDecodeError):
            yield eventlog.decode_line(line.decode())
