"""The journal of all jobs' events: what has happened, a sentinel, and what happens from then on.

What a reader may rely on (`job-manager.events-journal`): its journal begins at one moment,
some time between its request and the sentinel. Of each job that is not over at that moment, it
is told every durable event, each once and in order: those so far before the sentinel, in one
entry, the others after it, one by one. Of jobs that are over by then it is told nothing, unless
it asks for `full`, and then everything, before the sentinel.

So a reader that waits for the ends of jobs which it submits itself has read the sentinel before
it submits the first of them, or asks for `full`: what ends before that moment is never told.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.instance.jobs.known import ActiveJob, InactiveJob, KnownJobs
from warren.rfc import resource_set
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import Payload, RpcError

SENTINEL: Final = -1
"""The job id of the journal entry that ends the backlog."""

_MOST_BEHIND: Final = 10_000
"""Entries that a reader of the journal may fall behind."""


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The events that a reader is to get, by name: only those in `allow`, and none in `deny`."""

    full: bool = False
    """Whether jobs that are over are told of, too."""
    allow: frozenset[str] | None = None
    deny: frozenset[str] = frozenset()

    def select(self, events: Iterable[Event]) -> list[Event]:
        if self.allow is None and not self.deny:
            return list(events)
        return [event for event in events if self.allows(event)]

    def allows(self, event: Event) -> bool:
        return event.name not in self.deny and (self.allow is None or event.name in self.allow)


class _Reader:
    """One reader of the journal."""

    def __init__(self, event_filter: EventFilter, most_behind: int) -> None:
        self.event_filter = event_filter
        self.queue: asyncio.Queue[Payload] = asyncio.Queue(most_behind)
        self.overrun = False

    def offer(self, entry: Payload) -> None:
        if self.queue.full():
            self.overrun = True
        else:
            self.queue.put_nowait(entry)


class EventJournal:
    """The readers of the journal, and what is sent to each."""

    def __init__(self, known: KnownJobs, most_behind: int = _MOST_BEHIND) -> None:
        """`most_behind` is how many entries a reader may fall behind."""
        self._known = known
        self._most_behind = most_behind
        self._readers: list[_Reader] = []

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    def publish(self, active_job: ActiveJob, event: Event) -> None:
        """Send an event to all readers that want it."""
        entry: dict[str, Any] | None = None
        for reader in self._readers:
            if not reader.event_filter.allows(event):
                continue
            if entry is None:
                entry = {"id": active_job.job.id, "events": [_to_dict(event)]}
                if event.name == "submit":
                    entry["jobspec"] = active_job.jobspec
                if event.name == "alloc" and active_job.r is not None:
                    entry["R"] = resource_set.without_scheduling(active_job.r)
            reader.offer(entry)

    async def follow(self, event_filter: EventFilter) -> AsyncIterator[Payload]:
        """Return what a reader wants: of jobs that are over, of active ones, and from now on.

        What the module promises. A job whose log cannot be read any more is left out. Ends
        with EOVERFLOW for a reader that does not keep up.
        """
        reader = _Reader(event_filter, self._most_behind)
        # What is there now is noted now, and written out when its turn comes: the logs that are
        # in memory only grow, and those on disk are done with.
        backlog = [*self._inactive_backlog(event_filter), *self._active_backlog(event_filter)]
        self._readers.append(reader)
        try:
            for make_entry in backlog:
                entry = make_entry()
                if entry is not None:
                    yield entry
            yield {"id": SENTINEL, "events": []}
            while not reader.overrun:
                yield await reader.queue.get()
        finally:
            self._readers.remove(reader)
        raise RpcError(errno.EOVERFLOW, "the reader of the journal did not keep up")

    def _inactive_backlog(
        self, event_filter: EventFilter
    ) -> Iterator[Callable[[], Payload | None]]:
        if event_filter.full:
            for each in self._known.inactive.values():
                if each.id not in self._known.leaving:
                    yield partial(_inactive_entry, each, event_filter)

    def _active_backlog(self, event_filter: EventFilter) -> Iterator[Callable[[], Payload | None]]:
        for active_job in (*self._known.active.values(), *self._known.leaving.values()):
            if active_job.durable_count:
                durable_count = active_job.durable_count
                spec, r = active_job.jobspec, active_job.r
                yield partial(
                    _entry,
                    active_job.job.id,
                    active_job.events,
                    durable_count,
                    spec,
                    r,
                    event_filter,
                )


def _inactive_entry(inactive: InactiveJob, event_filter: EventFilter) -> Payload | None:
    try:
        events = inactive.events()
        return _entry(inactive.id, events, len(events), inactive.jobspec, inactive.r, event_filter)
    except UserMistake:
        return None  # it was put aside, or purged in the meantime


def _entry(
    job: JobId,
    events: list[Event],
    durable_count: int,
    spec: Mapping[str, Any],
    r: Mapping[str, Any] | None,
    event_filter: EventFilter,
) -> Payload | None:
    selected = event_filter.select(events[:durable_count])
    if not selected:
        return None
    entry: dict[str, Any] = {
        "id": job,
        "events": [_to_dict(event) for event in selected],
        "jobspec": spec,
    }
    if r is not None:
        entry["R"] = resource_set.without_scheduling(r)
    return entry


def _to_dict(event: Event) -> dict[str, Any]:
    record: dict[str, Any] = {"timestamp": event.timestamp, "name": event.name}
    if event.context:
        record["context"] = event.context
    return record
