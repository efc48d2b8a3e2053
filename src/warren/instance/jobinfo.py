"""What users may read of their jobs: the `job-info` service (RFC 41).

Everything below a job's directory, for the owners of the job and of the instance, and nothing
beside it. Guests cannot make links, and a key has no way up, so that what a key is found
under is the job's own: its directory, or its guest namespace while that lives.
"""

import errno
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Final

import orjson

from warren.instance import keys
from warren.instance.jobs.manager import JobManager
from warren.instance.kvs import Kvs
from warren.instance.kvs.spelling import parse_key
from warren.instance.kvs.tree import VALUE_TYPES, split_key
from warren.lifecycle.states import State
from warren.rfc import eventlog, stdio
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError

JSON_DECODE: Final = 1
"""Flag of a lookup: jobspec and R as objects instead of texts."""

CURRENT: Final = 2
"""Flag of a lookup: jobspec and R as they are now, with every update since."""

WAITCREATE: Final = 1
"""Flag of a watch: wait for a log that is not there yet."""

INITIAL_SENTINEL: Final = 2
"""Flag of a watch: say with an answer without event that what was there has been told."""


LARGEST_ANSWER: Final = 12 * 2**20
"""Bytes of all values in one answer, and of a line of a log: a longer log is watched."""

_CHUNK: Final = 2**16
"""Bytes of a log that a watch holds, if its lines are no longer: users have many watches."""


class JobInfo:
    """The `job-info` service: the owner reads everything, a user its own jobs.

    A client that wants no more of a watch closes its stream: nothing else cancels it.
    """

    def __init__(
        self, kvs: Kvs, manager: JobManager, *, largest_answer: int = LARGEST_ANSWER
    ) -> None:
        """A lookup gives no more than `largest_answer` bytes, and a watch no longer line."""
        self._largest_answer = largest_answer
        self._kvs = kvs
        self._manager = manager

    def methods(self) -> Methods:
        return {
            "lookup": Method(self._lookup, guest=True),
            "eventlog-watch": StreamingMethod(self._watch, guest=True),
            "update-lookup": Method(self._lookup_current, guest=True),
            "update-watch": StreamingMethod(self._watch_updates, guest=True),
        }

    # Values

    async def _lookup(self, request: Request) -> Payload:
        """Return values as texts; bytes that are none are replaced."""
        job = self._permitted_job(request)
        requested_keys = request.payload.get("keys")
        if not isinstance(requested_keys, list) or not all(
            isinstance(each, str) for each in requested_keys
        ):
            raise RpcError(errno.EPROTO, "job-info.lookup takes a list of keys")
        flags = _flags(request, JSON_DECODE | CURRENT)
        answer: dict[str, Any] = {"id": job}
        size = 0
        for key in dict.fromkeys(requested_keys):
            size += len(self._stored_value(job, key) or b"")
            if size > self._largest_answer:
                message = (
                    f"with {key} there are over {self._largest_answer} bytes: ask for less, or "
                    "watch a log"
                )
                raise RpcError(errno.EFBIG, message)
            value = self._value(job, key)
            if key in _UPDATES and flags:
                decoded = self._current(job, key) if flags & CURRENT else _parse(value, key)
                answer[key] = decoded if flags & JSON_DECODE else orjson.dumps(decoded).decode()
            else:
                answer[key] = value.decode(errors="replace")
        return answer

    def _stored_value(self, job: JobId, key: str) -> bytes | bytearray | None:
        """Return a value itself, which is not to be changed; None where there is none."""
        node = self._kvs.find(split_key(_key(job, key))).node
        return node if isinstance(node, VALUE_TYPES) else None

    def _value(self, job: JobId, key: str) -> bytes:
        full_key = _key(job, key)
        try:
            return self._kvs.lookup(full_key)
        except RpcError as error:
            if error.errnum != errno.EISDIR:
                raise RpcError(error.errnum, f"the job has no {key}") from None
            names = ", ".join(self._kvs.names(full_key)) or "nothing yet"
            raise RpcError(errno.EISDIR, f"{key} is a directory; it holds {names}") from None

    def _current(self, job: JobId, key: str, log_end: int | None = None) -> Any:
        """Return jobspec or R with the updates that the job's eventlog tells of.

        `log_end` is where in the log those begin that are left out.
        """
        name, apply = _UPDATES[key]
        value = _parse(self._value(job, key), key)
        log = self._kvs.lookup(keys.job_key(job, "eventlog"))[:log_end]
        if name.encode() in log:
            with _refuse_damaged("eventlog"):
                for event in eventlog.decode(log.decode()):
                    if event.name == name:
                        value = apply(value, event.context)
        return value

    async def _lookup_current(self, request: Request) -> Payload:
        job = self._permitted_job(request)
        key = _updated_key(request)
        return {"id": job, key: self._current(job, key)}

    async def _watch_updates(self, request: Request) -> AsyncIterator[Payload]:
        """Send jobspec or R as it is, and again after each update, until the job is over."""
        job = self._permitted_job(request)
        key = _updated_key(request)
        name, _ = _UPDATES[key]
        offset = 0
        sent = False
        async with aclosing(self._lines(job, "eventlog")) as batches:  # type: ignore[type-var]
            async for lines in batches:
                offset += len(lines)
                with _refuse_damaged("eventlog"):
                    updated = any(
                        eventlog.decode_line(line).name == name for line in _split_lines(lines)
                    )
                if updated or not sent:
                    # Made anew each time: a user has many watches, and a jobspec is long.
                    yield {"id": job, key: self._current(job, key, offset)}
                    sent = True

    # Logs

    async def _watch(self, request: Request) -> AsyncIterator[Payload]:
        job = self._permitted_job(request)
        path = request.payload.get("path", "eventlog")
        if not isinstance(path, str):
            raise RpcError(errno.EPROTO, "the path of a log is a key")
        flags = _flags(request, WAITCREATE | INITIAL_SENTINEL, default=WAITCREATE)
        length = self._length(job, path, waits=bool(flags & WAITCREATE))
        is_end = _end_detector(path)
        sentinel_sent = not flags & INITIAL_SENTINEL
        if not sentinel_sent and not length:
            sentinel_sent = True
            yield {}
        sent_bytes = 0
        async with aclosing(self._lines(job, path)) as batches:  # type: ignore[type-var]
            async for lines in batches:
                for line in _split_lines(lines):
                    yield {"event": f"{line}\n"}
                    if _is_last(line, is_end, path):
                        return
                sent_bytes += len(lines)
                if not sentinel_sent and sent_bytes >= length:
                    sentinel_sent = True
                    yield {}

    def _length(self, job: JobId, path: str, *, waits: bool) -> int:
        """Return the bytes of lines that a log has now.

        Raises RpcError where it is not to be watched.
        """
        stored = self._stored_value(job, path)
        if stored is not None:
            return stored.rfind(b"\n", max(0, len(stored) - self._largest_answer)) + 1
        try:
            return len(self._value(job, path))
        except RpcError as error:
            if not waits or error.errnum != errno.ENOENT:
                raise
            return 0

    async def _lines(self, job: JobId, path: str) -> AsyncIterator[bytes]:
        """Return the lines of a log as they come, some at a time, until nothing can come any more.

        What is no whole line stays in the store: a user may have as many watches as requests.
        """

        def part_end(log: bytes | bytearray, offset: int) -> int:
            end = log.rfind(b"\n", offset, offset + _CHUNK) + 1
            if not end:
                end = log.find(b"\n", offset + _CHUNK, offset + self._largest_answer) + 1
            if not end and len(log) - offset > self._largest_answer:
                message = f"{path}: a line of over {self._largest_answer} bytes is none of a log"
                raise RpcError(errno.EFBIG, message)
            return max(offset, end)

        chunks = self._kvs.follow(
            _key(job, path),
            # A log whose writer has died has no last entry, but ends with its job.
            is_final=lambda: self._is_complete(job),
            also_watch=keys.job_key(job, "eventlog"),
            part_end=part_end,
        )
        async with aclosing(chunks) as following:  # type: ignore[type-var]
            async for chunk in following:
                yield chunk

    def _is_complete(self, job: JobId) -> bool:
        """Return whether the last event of a job is durable: it is known a moment before that."""
        found = self._manager.find(job)
        if found is None:
            return True  # purged in the meantime
        text = self._kvs.get(keys.job_key(job, "eventlog"))
        if not text or found.job.state is not State.INACTIVE:
            return False
        try:
            last = text[text.rfind(b"\n", 0, -1) + 1 :].decode()
            return eventlog.decode_line(last).name == _LAST_EVENTS["eventlog"]
        except (BadFormat, UnicodeDecodeError):
            return True  # it is damaged, and nothing comes after it any more

    def _permitted_job(self, request: Request) -> JobId:
        job = request.payload.get("id")
        found = self._manager.find(JobId(job)) if isinstance(job, int) else None
        if found is None:
            raise RpcError(errno.ENOENT, "unknown job id")
        if not request.cred.is_owner and found.job.userid != request.cred.userid:
            raise RpcError(errno.EPERM, "the job is another user's")
        return found.job.id


def _split_lines(lines: bytes) -> Iterator[str]:
    """Return lines one after the other, each without its newline: short ones take more room."""
    begin = 0
    while begin < len(lines):
        end = lines.index(b"\n", begin)
        yield lines[begin:end].decode(errors="replace")
        begin = end + 1


@contextmanager
def _refuse_damaged(key: str) -> Iterator[None]:
    """Raise RpcError(EPROTO) for a record that cannot be read, or makes no sense."""
    try:
        yield
    except (BadFormat, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RpcError(errno.EPROTO, f"the job's {key} is damaged: {error}") from None


def _parse(value: bytes, key: str) -> Any:
    with _refuse_damaged(key):
        return orjson.loads(value)


def _key(job: JobId, key: str) -> str:
    """Return where a key of a job's directory is.

    Raises RpcError: ENOENT for what is no key, or EINVAL for one that is too long or too deep.
    """
    # As long and as deep as what a guest namespace can have: its name comes on top.
    inner_key = key.removeprefix("guest.")
    if ".".join(parse_key(inner_key)) != inner_key or not inner_key:
        raise RpcError(errno.ENOENT, f"{key!r} is no key: names with a dot between them are one")
    return keys.job_key(job, key)


def _flags(request: Request, allowed: int, default: int = 0) -> int:
    flags = request.payload.get("flags", default)
    if not isinstance(flags, int) or flags & ~allowed:
        raise RpcError(errno.EPROTO, f"{request.topic} knows no flags {flags!r}")
    return flags


# Updates

_Object = Mapping[str, Any]


def _update_execution(r: _Object, update: _Object) -> _Object:
    """Apply the context of a `resource-update` event to R."""
    return {**r, "execution": {**r["execution"], **update}}


_UPDATES: Final[Mapping[str, tuple[str, Callable[[_Object, _Object], _Object]]]] = {
    "jobspec": ("jobspec-update", jobspecs.update),
    "R": ("resource-update", _update_execution),
}
"""The event that updates a key, and what applies the event's context to the value."""


def _updated_key(request: Request) -> str:
    key = request.payload.get("key")
    if key not in _UPDATES:
        raise RpcError(errno.EINVAL, f"{request.topic} takes the keys {' and '.join(_UPDATES)}")
    return str(key)


# Ends of logs

_LAST_EVENTS: Final = {"eventlog": "clean", "guest.exec.eventlog": "done"}
"""The event with which a log ends."""

_IsEnd = Callable[[Event], bool]


def _end_detector(path: str) -> _IsEnd | None:
    """Make what sees the end of a log in its events; None for logs that end with their job."""
    if path in _LAST_EVENTS:
        return lambda event: event.name == _LAST_EVENTS[path]
    if path == "guest.input":
        return lambda event: event.name == "data" and event.context.get("eof") is True
    return _AllStreamsClosed() if path == "guest.output" else None


class _AllStreamsClosed:
    """Tells of each event whether all streams that were opened are closed by it."""

    def __init__(self) -> None:
        self._opened = self._closed = 0

    def __call__(self, event: Event) -> bool:
        opened, closed = stdio.count_streams([event])
        self._opened += opened
        self._closed += closed
        return 0 < self._opened == self._closed


def _is_last(line: str, is_end: _IsEnd | None, path: str) -> bool:
    try:
        return is_end is not None and is_end(eventlog.decode_line(line))
    except BadFormat as error:
        raise RpcError(errno.EPROTO, f"{path}: {error}") from None
