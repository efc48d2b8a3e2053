"""Reconcile loops: keys that events bring up, one reconcile at a time for each.

A reconcile looks at the whole state of its key, so it does not matter which event
woke it, nor how often. What it has written itself does not wake it (ADR 095).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from enum import StrEnum
from typing import Final, Generic, Protocol, TypeVar

from warren.base import log
from warren.base.errors import Retryable
from warren.base.objects import Object
from warren.kube.client import Conflict, Forbidden
from warren.kube.queue import MAX_DELAY, Load, QueueClosed, WorkQueue
from warren.kube.refusallog import RefusalLog

K = TypeVar("K", bound=Hashable)

RECONCILE_SECONDS: Final = 60.0
"""The longest that one reconcile may take."""

GRACE_SECONDS: Final = 3.0
"""How long a reconcile may go on when its reconciler is stopped. Less than what supervisors give
a process, and less than what is left of a lease when its leader lets go."""

_BUG_DELAY: Final = 30.0

_Version = tuple[str, str]
"""The uid and the version of an object."""

_NO_VERSION: Final = ("", "")

_MAX_NOTED_KEYS: Final = 1024
"""Of how many keys it is known what they have written. Each that is forgotten costs a reconcile."""


class Outcome(StrEnum):
    """How a reconcile has ended, in the words of controller-runtime."""

    SUCCESS = "success"
    REQUEUE_AFTER = "requeue_after"
    """It has asked for another one."""
    REQUEUE = "requeue"
    """It is put off: what was in its way may heal."""
    ERROR = "error"


class Observer(Protocol):
    """Is told of reconciles."""

    def waited(self, seconds: float) -> None:
        """A reconcile begins, for which its key has waited so long."""
        ...

    def reconciled(self, outcome: Outcome, seconds: float) -> None:
        """A reconcile has ended, after so long."""
        ...


class Reconciler(Generic[K]):
    """Reconciles keys with a few workers. `add` may be called at any time."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 4,
        timeout: float | None = RECONCILE_SECONDS,
        queue: WorkQueue[K] | None = None,
        user: Callable[[K], Hashable] | None = None,
        max_retry_delay: float = MAX_DELAY,
    ) -> None:
        """`reconcile` returns the seconds to the next time; None waits for an event.

        `user` says whose a key is, where users are to take turns. One has `workers` at most then,
        and there are as many again for the others. What has failed is tried again after
        `max_retry_delay` seconds at most. A given `queue` has users and delays of its own.
        """
        self.name = name
        # Twice as many, not half for each: a user alone has as many as without the others, who
        # still find a free worker, however long that user's reconciles take.
        self.workers = workers if user is None else 2 * workers
        self._reconcile = reconcile
        self._timeout = timeout
        # What may take hours is not waited for: it must bear to be cut off.
        self._grace_seconds = GRACE_SECONDS if timeout is not None else 0.0
        self._queue = queue or (
            WorkQueue(max_delay=max_retry_delay)
            if user is None
            else WorkQueue(max_delay=max_retry_delay, user=user, workers=self.workers)
        )
        self._refusals = RefusalLog()
        self._observer: Observer | None = None
        self._written_by_key: OrderedDict[K, frozenset[_Version]] = OrderedDict()
        """What the last reconcile of a key has written, until the next one begins."""
        self._changes_meanwhile: dict[K, set[_Version]] = {}
        """What came while a key is reconciled. It may have been written by that very reconcile."""

    def add(self, key: K, changed: Object | None = None) -> None:
        """Have `key` reconciled. `changed` is the object whose change asks for it, if one does.

        An object as the last reconcile of `key` has written it asks for nothing.
        """
        if changed is None:
            self._queue.add(key)
        elif key in self._changes_meanwhile:
            self._changes_meanwhile[key].add(_version_of(changed))
        elif _version_of(changed) not in self._written_by_key.get(key, ()):
            self._queue.add(key)

    def note_written(self, key: K, objects: Iterable[Object]) -> None:
        """Note the objects that the running reconcile of `key` wrote over what it had seen.

        With these objects as they are now, and all else as it was, there must be nothing to
        decide.
        """
        # A reconcile that begins before they are seen may decide on what was there before them:
        # it forgets this, and is followed by another one when they are seen.
        self._written_by_key[key] = frozenset(map(_version_of, objects)) - {_NO_VERSION}
        self._written_by_key.move_to_end(key)
        if len(self._written_by_key) > _MAX_NOTED_KEYS:
            self._written_by_key.popitem(last=False)

    def observe(self, observer: Observer) -> None:
        """Call `observer` for every reconcile from now on."""
        self._observer = observer
        self._queue.observe(observer.waited)

    def load(self) -> Load:
        """Return what there is to do, as of now."""
        return self._queue.load()

    async def run(self) -> None:
        """Work until cancelled. Reconciles that are under way then have a moment to end.

        A second cancellation cuts them off.
        """
        self._queue.open()
        try:
            async with asyncio.TaskGroup() as group:
                workers = [
                    group.create_task(self._work(), name=f"{self.name} {number}")
                    for number in range(self.workers)
                ]
                try:
                    await asyncio.wait(workers)
                except asyncio.CancelledError:
                    self._queue.close()
                    await asyncio.wait(workers, timeout=self._grace_seconds)
                    raise
        finally:
            self._queue.close()

    async def _work(self) -> None:
        # A worker is a task, and what is bound here is bound in its own context.
        log.bind(reconciler=self.name)
        while True:
            try:
                key = await self._queue.take()
            except QueueClosed:
                return
            self._written_by_key.pop(key, None)
            self._changes_meanwhile[key] = set()
            log.bind(key=str(key))
            try:
                if self._observer is None:
                    await self._reconcile_once(key)
                else:
                    await self._reconcile_observed(key, self._observer)
            finally:
                if self._changes_meanwhile.pop(key) - self._written_by_key.get(key, frozenset()):
                    self._queue.add(key)
                self._queue.done(key)

    async def _reconcile_observed(self, key: K, observer: Observer) -> None:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        outcome = await self._reconcile_once(key)
        observer.reconciled(outcome, loop.time() - started_at)

    async def _reconcile_once(self, key: K) -> Outcome:
        """Reconcile once, and see to it that another follows if one must."""
        try:
            async with asyncio.timeout(self._timeout) as timeout:
                delay = await self._reconcile(key)
        except Forbidden as error:
            self._refusals.note_refusal(key, str(error))
            self._queue.retry(key, error.delay)
            return Outcome.REQUEUE
        except Retryable as error:
            is_first_failure = not self._queue.failure_count(key)
            # The first time it is most likely a view that was a moment old.
            say = log.debug if is_first_failure else log.info
            say("reconcile put off", reason=str(error))
            self._queue.retry(
                key, error.delay, unbudgeted=is_first_failure and isinstance(error, Conflict)
            )
            return Outcome.REQUEUE
        except Exception:  # a bug may cost one key, not all
            if timeout.expired():
                log.exception("reconcile took too long", seconds=self._timeout)
            else:
                log.exception("reconcile failed")
            self._queue.retry(key, _BUG_DELAY)
            return Outcome.ERROR
        self._queue.forget_failures(key)
        self._refusals.note_success(key)
        if delay is None:
            return Outcome.SUCCESS
        self._queue.add_after(key, delay)
        return Outcome.REQUEUE_AFTER


def _version_of(obj: Object) -> _Version:
    """Return what no two states of any object have in common."""
    metadata = obj["metadata"]
    return metadata.get("uid", ""), metadata.get("resourceVersion", "")
