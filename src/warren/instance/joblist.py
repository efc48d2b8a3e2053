"""The `job-list` service (RFC 43): what is known of all jobs.

Any user may list the jobs of any other, as with Flux, unless the instance is private. Of a
job's data the listing has only what its author has named, but all users see which job waits
for which.
"""

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import msgspec

from warren.instance.jobs.jobtap import Jobtap
from warren.instance.jobs.manager import JobManager
from warren.instance.servicetables import JobListTable
from warren.lifecycle import attributes
from warren.lifecycle.attributes import CachedJob, ListedJob
from warren.lifecycle.job import Job
from warren.lifecycle.selection import MAX_COMPARISONS, Selection, TooManyComparisons
from warren.lifecycle.states import PENDING, RUNNING, Result, State
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, MethodHandler, Methods, StreamHandler, StreamingMethod
from warren.rpc.message import Cred, Payload, Request, RpcError

_WAITING: Final = PENDING | {State.NEW}
_JOBS_PER_TURN: Final = 20
"""Jobs that are looked at before other requests have their turn."""
_COMPARISONS_PER_TURN: Final = 20_000
"""Comparisons that are made before other requests have their turn."""
_JOBS_PER_ANSWER: Final = 500
"""Jobs in one answer of a stream."""
_BYTES_PER_ANSWER: Final = 2**20
"""Bytes of jobs after which an answer of a stream is sent, however few these are."""
_MAX_STREAMS: Final = 100
"""Streams of one guest that are under way at a time: each goes through a list of its own."""
MOST_BYTES: Final = 48 * 2**20
"""Bytes of jobs in one answer that is no stream: clients of Flux read no more of one message."""
_QUEUE_AND_RESULT: Final = attrgetter("queue", "result")


@dataclass(frozen=True, kw_only=True)
class _OptionalStream(Method, StreamingMethod):
    """A topic that has one answer, or several where the request asks for a stream."""

    answer: MethodHandler
    answers: StreamHandler
    guest: bool = False


class _Query(msgspec.Struct, frozen=True, kw_only=True):
    """What `job-list.list` is asked."""

    max_entries: int
    names: list[str]
    since: float
    selection: Selection


class _Listings:
    """One guest's listings under way. One at a time collects jobs, which are in memory."""

    def __init__(self) -> None:
        self.collecting_lock = asyncio.Lock()
        self._streams = 0

    @contextmanager
    def count_stream(self) -> Iterator[None]:
        """Count one more stream under way for the length of a block.

        Raises RpcError(EAGAIN) if that is too many.
        """
        if self._streams >= _MAX_STREAMS:
            message = (
                f"you have {_MAX_STREAMS} streams of jobs under way: read or close some, try again"
            )
            raise RpcError(errno.EAGAIN, message)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


class JobList:
    """The `job-list` service. It hears from the job manager, as a plugin, what changes."""

    name = "job-list"

    def __init__(
        self,
        manager: JobManager,
        *,
        count_by_queue: bool = False,
        private: bool = False,
        max_comparisons: int = MAX_COMPARISONS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """Hide other users' jobs from guests if `private`; count by queue if `count_by_queue`.

        A search that compares more often than `max_comparisons` is refused, and an answer of over
        `most_bytes` that is no stream.
        """
        self._most_bytes = most_bytes
        self._max_comparisons = max_comparisons
        self._manager = manager
        self._count_by_queue = count_by_queue
        self._private = private
        self._purged_count = 0
        self._state_waiters: dict[JobId, list[asyncio.Event]] = {}
        self._listings_by_guest: dict[int, _Listings] = {}
        manager.load(self)

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        return {
            **{f"job.state.{state.lower()}": self._on_state for state in State},
            "job.inactive-remove": self._on_removed,
        }

    def configure(self, table: JobListTable) -> None:
        """Hide other users' jobs from guests, or show them."""
        self._private = table.private

    def methods(self) -> Methods:
        return {
            "list": _OptionalStream(answer=self._list, answers=self._stream, guest=True),
            "list-id": Method(self._list_one, guest=True),
            "list-attrs": Method(self._list_attributes, guest=True),
            "job-stats": Method(self._stats, guest=True),
        }

    def _on_state(self, job: Job) -> None:
        for changed in self._state_waiters.get(job.id, ()):
            changed.set()

    def _on_removed(self, job: Job) -> None:
        self._purged_count += 1

    # Lists

    async def _list(self, request: Request) -> Payload:
        query = _query(request, self._max_comparisons)
        descriptions, size = [], 0
        async with (
            self._listings(request.cred).collecting_lock,
            aclosing(self._selected_jobs(query, request.cred)) as jobs,  # type: ignore[type-var]
        ):
            async for each in jobs:
                size += _size(each)
                if size > self._most_bytes:
                    max_bytes = self._most_bytes
                    message = (
                        f"they have over {max_bytes} bytes: ask for a stream, or for less of them"
                    )
                    raise RpcError(errno.EFBIG, message)
                descriptions.append(each)
        return {"jobs": descriptions}

    async def _stream(self, request: Request) -> AsyncIterator[Payload]:
        query = _query(request, self._max_comparisons)
        listings = self._listings(request.cred)
        head: dict[str, Any] = {"version": 1}
        selected = self._selected_jobs(query, request.cred)
        with listings.count_stream():
            async with aclosing(selected) as jobs:  # type: ignore[type-var]
                while True:
                    # Not while it is sent: a reader may be slow. Nor is the batch kept then.
                    async with listings.collecting_lock:
                        batches = [await _batch(jobs)]
                    if not (batches[0] or head):
                        return
                    yield {**head, "jobs": batches.pop()}
                    head = {}

    async def _selected_jobs(self, query: _Query, cred: Cred) -> AsyncIterator[dict[str, Any]]:
        """Describe the selected jobs: waiting ones, then running ones, then those that are over."""
        entries_left = query.max_entries
        comparisons_left = query.selection.comparisons_left
        for number, each in enumerate(map(CachedJob, self._candidates(query)), 1):
            is_turn_over = (
                comparisons_left - query.selection.comparisons_left > _COMPARISONS_PER_TURN
            )
            if is_turn_over or number % _JOBS_PER_TURN == 0:
                comparisons_left = query.selection.comparisons_left
                await asyncio.sleep(0)
            try:
                if not self._is_visible(each, cred) or not query.selection.selects(each):
                    continue
                described = attributes.job_attributes(each, query.names)
            except TooManyComparisons as error:
                raise RpcError(errno.EINVAL, str(error)) from None
            except BadFormat:
                continue  # nothing of its life can be read, and it was put aside just now
            yield described
            entries_left -= 1
            if entries_left == 0:
                return

    def _candidates(self, query: _Query) -> Iterator[ListedJob]:
        """Return the jobs that may be selected, in order, and look at no more than are taken."""
        state_bits = query.selection.states
        active = self._manager.active()
        if any(state.bit & state_bits for state in _WAITING):
            waiting = [each for each in active if each.job.state in _WAITING]
            yield from sorted(waiting, key=lambda each: (-(each.job.priority or 0), each.job.id))
        if any(state.bit & state_bits for state in RUNNING):
            running = [each for each in active if each.job.state in RUNNING]
            yield from sorted(
                running, key=lambda each: (-each.job.times.get(State.RUN, 0.0), each.job.id)
            )
        if State.INACTIVE.bit & state_bits:
            yield from self._inactive(query.since)

    def _inactive(self, since: float) -> Iterator[ListedJob]:
        # What ends or is purged while others have their turn does not disturb it.
        for each in reversed(self._manager.inactive()):
            if each.ended_at > since and self._manager.find(each.id) is not None:
                yield each

    def _listings(self, cred: Cred) -> "_Listings":
        if cred.is_owner:
            return _Listings()
        return self._listings_by_guest.setdefault(cred.userid, _Listings())

    # One job

    async def _list_one(self, request: Request) -> Payload:
        """Return a job; where a state is named, once it has been in that, or is over."""
        job = request.payload.get("id")
        if type(job) is not int:
            raise RpcError(errno.EPROTO, "job-list.list-id takes the id of a job")
        names = _names(request)
        state = request.payload.get("state")
        if state is not None and state not in [each.bit for each in State]:
            raise RpcError(errno.EPROTO, f"{state!r} is not the bit of a state")
        try:
            found = self._find_visible(job, request.cred)
            if state is not None:
                await self._wait_state(found.job.id, state)
                # What is answered now is to be durable.
                await self._manager.wait_committed()
                found = self._find_visible(job, request.cred)
            return {"job": attributes.job_attributes(CachedJob(found), names)}
        except BadFormat as error:
            message = f"the job's records are damaged, and were put aside: {error}"
            raise RpcError(errno.ENOENT, message) from None

    def _find_visible(self, job: Any, cred: Cred) -> ListedJob:
        found = self._manager.find(JobId(job)) if isinstance(job, int) else None
        if found is None or not self._is_visible(found, cred):
            raise RpcError(errno.ENOENT, "unknown job id")
        return found

    async def _wait_state(self, job: JobId, bit: int) -> None:
        changed = asyncio.Event()
        self._state_waiters.setdefault(job, []).append(changed)
        try:
            while (found := self._manager.find(job)) is not None:
                if _is_active(found) and not any(state.bit == bit for state in found.job.times):
                    await changed.wait()
                    changed.clear()
                else:
                    return
        finally:
            self._state_waiters[job].remove(changed)
            if not self._state_waiters[job]:
                del self._state_waiters[job]

    def _is_visible(self, listed: ListedJob, cred: Cred) -> bool:
        return not self._private or cred.is_owner or listed.job.userid == cred.userid

    async def _list_attributes(self, request: Request) -> Payload:
        return {"attrs": ["id", *attributes.ATTRIBUTES, attributes.ALL]}

    # Counts

    async def _stats(self, request: Request) -> Payload:
        active_counts: Counter[tuple[str | None, State]] = Counter()
        for each in self._manager.active():
            active_counts[attributes.queue(each), each.job.state] += 1
        inactive_counts = Counter(map(_QUEUE_AND_RESULT, self._manager.inactive()))
        stats = {
            **_count(active_counts, inactive_counts),
            "inactive_purged": self._purged_count,
            "queues": [],
        }
        if self._count_by_queue:
            names = sorted(
                {queue for queue, _ in (*active_counts, *inactive_counts) if queue is not None}
            )
            stats["queues"] = [
                {"name": name, **_count(active_counts, inactive_counts, name)} for name in names
            ]
        return stats


async def _batch(jobs: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the next jobs, as many as fit one answer of a stream."""
    batch: list[dict[str, Any]] = []
    size = 0
    async for each in jobs:
        batch.append(each)
        size += _size(each)
        if len(batch) == _JOBS_PER_ANSWER or size > _BYTES_PER_ANSWER:
            break
    return batch


def _size(described: Mapping[str, Any]) -> int:
    """Return how many bytes a job takes in an answer: its user says how long some of it is."""
    return len(msgspec.json.encode(described))


def _is_active(listed: ListedJob) -> bool:
    return listed.job.state is not State.INACTIVE


def _count(
    active: Mapping[tuple[str | None, State], int],
    ended: Mapping[tuple[str | None, Result], int],
    only_queue: str | None = None,
) -> dict[str, Any]:
    """Count jobs by state and result, of one queue or of all; canceled ones have failed, too."""

    def with_result(*results: Result) -> int:
        return sum(
            count for (queue, result), count in ended.items()
            if result in results and only_queue in (None, queue)
        )  # fmt: skip

    states = {
        state.lower(): sum(
            count for (queue, each), count in active.items()
            if each is state and only_queue in (None, queue)
        )
        for state in islice(State, 1, None)
    }  # fmt: skip
    states["inactive"] = with_result(*Result)
    return {
        "job_states": {**states, "total": sum(states.values())},
        "successful": with_result(Result.COMPLETED),
        "failed": with_result(Result.FAILED, Result.CANCELED, Result.TIMEOUT),
        "canceled": with_result(Result.CANCELED),
        "timeout": with_result(Result.TIMEOUT),
    }


def _query(request: Request, max_comparisons: int) -> _Query:
    payload = request.payload
    max_entries, since = payload.get("max_entries", 0), payload.get("since", 0.0)
    if type(max_entries) is not int or max_entries < 0:
        raise RpcError(errno.EPROTO, "max_entries is a number of jobs; 0 is no limit")
    if isinstance(since, bool) or not isinstance(since, int | float):
        raise RpcError(errno.EPROTO, "since is a moment in seconds")
    try:
        selection = Selection(payload.get("constraint"), max_comparisons)
    except BadFormat as error:
        raise RpcError(errno.EPROTO, str(error)) from None
    return _Query(max_entries=max_entries, names=_names(request), since=since, selection=selection)


def _names(request: Request) -> list[str]:
    """Return the attributes that are asked for; all of them where nothing is said."""
    names = request.payload.get("attrs", [attributes.ALL])
    if not isinstance(names, list):
        raise RpcError(errno.EPROTO, "attrs is a list of attributes")
    try:
        return attributes.attribute_names(each for each in names if each != "id")
    except BadFormat as error:
        raise RpcError(errno.EINVAL, str(error)) from None
