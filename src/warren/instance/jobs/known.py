"""The jobs that are known: all active ones, and the summaries of inactive ones."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from sys import intern
from typing import Any, TypeVar

import msgspec

from warren.base.errors import UserMistake
from warren.instance.jobs import summary
from warren.instance.jobs.stored import StoredJobs
from warren.instance.jobs.summary import Summary
from warren.lifecycle.job import Job, update
from warren.lifecycle.states import State
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

T = TypeVar("T")


class ActiveJob(msgspec.Struct):
    """One active job."""

    job: Job
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any] | None = None
    events: list[Event] = msgspec.field(default_factory=list)
    durable_count: int = 0
    """How many of the events are on disk."""
    pending_events: deque[Event] = msgspec.field(default_factory=deque)
    _foreseen: Job | None = None
    _foreseen_count: int = 0
    """How many of the pending events are applied in `_foreseen`."""
    paused: bool = False
    """Whether its pending events have to wait: the job is being taken in, or an event applied."""
    allocating: bool = False
    """Whether the scheduler was asked for resources, and has not answered."""
    withdrawn: bool = False
    """Whether the request for resources was withdrawn, and is not answered yet."""
    executing: bool = False
    """Whether execution was asked to run the job, and has not let go of it."""
    may_have_old_shells: bool = False
    """Whether it was in an earlier life, and may have shells of which it has not let go yet."""
    previous_state: State | None = None
    """The state before the present one, where it was entered in this life."""
    subscribers: set[str] = msgspec.field(default_factory=set)
    """Plugins that want to hear of every event."""
    aux: dict[tuple[str, str], Any] = msgspec.field(default_factory=dict)
    """What plugins keep with the job, by plugin and name."""

    @property
    def may_have_shells(self) -> bool:
        """Whether tasks may be on the job's nodes, for all that execution has said."""
        return self.executing or self.may_have_old_shells

    def with_pending_events(self) -> Job:
        """Return the job with its pending events applied, each of them once for all who ask.

        A job with a thousand dependencies has as many pending events, and is asked for with each.
        """
        if not self.pending_events:
            return self.job
        job = self.job if self._foreseen is None else self._foreseen
        for event in islice(self.pending_events, self._foreseen_count, None):
            with suppress(UserMistake):
                job = update(job, event)
        self._foreseen, self._foreseen_count = job, len(self.pending_events)
        return job

    def next_pending_event(self) -> Event:
        """Take the first pending event off, which is to be applied to `job` before anything else.

        Where that fails, or another event is applied, `forget_foreseen` is to be called.
        """
        if self._foreseen_count > 1:
            self._foreseen_count -= 1
        else:
            self.forget_foreseen()
        return self.pending_events.popleft()

    def forget_foreseen(self) -> None:
        """Have pending events applied anew: the job has become another than was foreseen."""
        self._foreseen, self._foreseen_count = None, 0


class InactiveJob:
    """A job that is over. What its summary does not have is read on demand.

    What cannot be read then raises BadFormat: a job without a jobspec, R or log is still one
    that was there. One whose life cannot be read is moved to lost+found at that moment, and
    is not found from then on.
    """

    __slots__ = (
        "_on_damage",
        "_stored",
        "_summary_bytes",
        "ended_at",
        "id",
        "queue",
        "quota_bytes",
        "result",
        "userid",
    )

    def __init__(
        self,
        job: JobId,
        summary_bytes: bytes,
        stored: StoredJobs,
        on_damage: Callable[[JobId, str, bool], None],
    ) -> None:
        """`summary_bytes` is a summary that can be read.

        `on_damage` is called with the job, the reason, and whether the job is lost.
        """
        fields = summary.decode(summary_bytes)
        assert fields is not None
        self.id = job
        self.userid = fields.userid
        self.ended_at = fields.ended_at
        self.quota_bytes = fields.quota_bytes
        self.result = fields.result
        # One string for all of a queue's jobs, of which there are very many.
        self.queue = None if fields.queue is None else intern(fields.queue)
        self._summary_bytes = summary_bytes
        self._stored = stored
        self._on_damage = on_damage

    @property
    def summary(self) -> Summary:
        """What listings choose and sort by."""
        fields = summary.decode(self._summary_bytes)
        assert fields is not None
        return fields

    @property
    def job(self) -> Job:
        return self._read(lambda: summary.job_of(self.summary, self.id), vital=True)

    @property
    def jobspec(self) -> Mapping[str, Any]:
        return self._read(lambda: self._stored.jobspec(self.job))

    @property
    def r(self) -> Mapping[str, Any] | None:
        return self._read(lambda: self._stored.r(self.job))

    def events(self) -> list[Event]:
        """Return the whole log."""
        return self._read(lambda: self._stored.events(self.id))

    def without_waitable(self) -> bytes:
        """Return the summary by which the job may not be waited for any more."""
        return summary.without_waitable(self._summary_bytes)

    def _read(self, read: Callable[[], T], *, vital: bool = False) -> T:
        try:
            return read()
        except UserMistake as error:
            self._on_damage(self.id, str(error), vital)
            raise


class KnownJobs:
    """All jobs by id."""

    def __init__(self) -> None:
        self.active: dict[JobId, ActiveJob] = {}
        self.leaving: dict[JobId, ActiveJob] = {}
        """Jobs that are over, until the last of their events is durable."""
        self.inactive: dict[JobId, InactiveJob] = {}
        """In the order in which they ended."""

    def all(self) -> Iterator[ActiveJob | InactiveJob]:
        yield from self.active.values()
        yield from self.inactive.values()

    def find(self, job: JobId) -> ActiveJob | InactiveJob | None:
        return self.active.get(job) or self.inactive.get(job)
