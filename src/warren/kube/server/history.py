"""The latest changes: sent to all watches, and kept for those that begin at an older version."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Final

import msgspec
import orjson

from warren.base.objects import Key, Kind, Object, key_of
from warren.kube.client import Expired, WatchEvent

GroupResource = tuple[str, str]
"""A resource: its group and plural."""

_MAX_CHANGES: Final = 8192
"""Changes that are kept: so far behind may a watch begin."""

_MAX_BACKLOG: Final = 8192
"""Changes that may wait for the reader of a watch before it is closed."""

_MAX_SIZE: Final = 256 * 2**20
"""Bytes that all kept changes, and the backlog of each watch, are counted for at most."""

_BYTES_PER_VALUE: Final = 80
"""Bytes that each value in an object is counted for: read, even `{}` is as large as that."""


def estimated_size(record: bytes) -> int:
    """Return about how many bytes of memory an object takes that is read from a record."""
    return len(record) + _BYTES_PER_VALUE * sum(map(record.count, (b",", b"{", b"[")))


class SharedWatchEvent(WatchEvent):
    """An event that all watches in one version of its kind share."""

    @cached_property
    def line(self) -> bytes:
        """The event as a watch sends it; written once, for however many watch."""
        return orjson.dumps({"type": self.type, "object": self.object}) + b"\n"


class ObjectChange(msgspec.Struct):
    """One change of one object."""

    version: int
    """The resourceVersion that the object has by it."""
    group_resource: GroupResource
    type: str
    object: Object
    """After it; a deleted one as it was last."""
    before: Object | None
    size: int = 0
    """Bytes that it is counted for (`estimated_size`)."""
    _events: dict[str, SharedWatchEvent] = msgspec.field(default_factory=dict)

    def event(self, kind: Kind) -> SharedWatchEvent:
        """Return the event as watches of the kind send it, in its version."""
        event = self._events.get(kind.version)
        if event is None:
            event = self._events[kind.version] = SharedWatchEvent(
                self.type, in_version(kind, self.object)
            )
        return event


class Subscription:
    """One open watch: what waits for its reader, and why it ends."""

    def __init__(
        self,
        namespace: str,
        max_backlog: int,
        max_size: int,
        unsubscribe: "Callable[[Subscription], None]",
    ) -> None:
        self._namespace = namespace
        self._max_backlog = max_backlog
        self._max_size = max_size
        self._size = 0
        self._unsubscribe = unsubscribe
        self._waiting: list[ObjectChange] = []
        self._arrived = asyncio.Event()
        self._end_reason = ""

    def offer(self, change: ObjectChange) -> None:
        """Queue a change, unless it is of another namespace or the reader is too far behind."""
        if self._end_reason:
            return
        if self._namespace and change.object["metadata"].get("namespace") != self._namespace:
            return
        self._size += change.size
        is_too_large = bool(self._waiting) and self._size > self._max_size
        if is_too_large:
            self._waiting.clear()  # the reader may never come for it
        if is_too_large or len(self._waiting) >= self._max_backlog:
            self.end("the watcher did not keep up with the changes")
        else:
            self._waiting.append(change)
            self._arrived.set()

    def end(self, why: str) -> None:
        """End it after what waits already, without a gap."""
        self._end_reason = why
        self._arrived.set()

    async def next_batch(self, seconds: float | None = None) -> list[ObjectChange]:
        """Wait for changes, and return all that have come; none where none comes in time.

        Raises Expired where there will be no more.
        """
        if not self._waiting and not self._end_reason:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
        if self._end_reason and not self._waiting:
            raise Expired(self._end_reason)
        changes, self._waiting = self._waiting, []
        self._size = 0
        return changes

    def close(self) -> None:
        """End the watch: no more changes are queued."""
        self._unsubscribe(self)


class History:
    """The last changes of all resources, in order."""

    def __init__(
        self,
        max_changes: int = _MAX_CHANGES,
        max_backlog: int = _MAX_BACKLOG,
        max_size: int = _MAX_SIZE,
    ) -> None:
        """Keep the last `max_changes` changes; `max_backlog` of them may wait for a watch's reader.

        Neither is counted for more than `max_size` bytes, but for the last change.
        """
        self._max_changes = max_changes
        self._max_backlog = max_backlog
        self._max_size = max_size
        self._size = 0
        self._changes: deque[ObjectChange] = deque()
        self._subscriptions: dict[GroupResource, dict[str, list[Subscription]]] = {}
        """By namespace, as each node's agent watches its own; those of all namespaces by ``""``."""
        self.horizon = 0
        """The version after which every change is known."""

    def forget_all(self, horizon: int) -> None:
        """Forget all changes: only those after the version `horizon` will be known."""
        self._changes.clear()
        self._size = 0
        self.horizon = horizon

    def add(self, change: ObjectChange) -> None:
        """Send a durable change to all watches."""
        self._size += change.size
        while self._changes and (
            len(self._changes) >= self._max_changes or self._size > self._max_size
        ):
            oldest = self._changes.popleft()
            self.horizon = oldest.version
            self._size -= oldest.size
        self._changes.append(change)
        by_namespace = self._subscriptions.get(change.group_resource)
        if by_namespace:
            for namespace in {"", change.object["metadata"].get("namespace", "")}:
                for subscription in by_namespace.get(namespace, ()):
                    subscription.offer(change)

    def subscribe(self, kind: Kind, start_version: int, namespace: str) -> Subscription:
        """Watch the changes after a version. Raises Expired where they are not known any more."""
        if start_version < self.horizon:
            raise self._too_old(start_version)
        group_resource = (kind.group, kind.plural)
        by_namespace = self._subscriptions.setdefault(group_resource, {})
        subscriptions = by_namespace.setdefault(namespace, [])

        def unsubscribe(subscription: Subscription) -> None:
            subscriptions.remove(subscription)
            if not subscriptions and by_namespace.get(namespace) is subscriptions:
                del by_namespace[namespace]

        subscription = Subscription(namespace, self._max_backlog, self._max_size, unsubscribe)
        for change in self._changes:
            if change.version > start_version and change.group_resource == group_resource:
                subscription.offer(change)
        subscriptions.append(subscription)
        return subscription

    def objects_at(
        self, group_resource: GroupResource, objects: Mapping[Key, Object], version: int
    ) -> dict[Key, Object]:
        """Return the objects of a resource as they were in a version; `objects` are those of now.

        Raises Expired where that is not known any more.
        """
        if version < self.horizon:
            raise self._too_old(version)
        objects_then = dict(objects)
        for change in reversed(self._changes):
            if change.version <= version:
                break
            if change.group_resource != group_resource:
                continue
            if change.before is None:
                objects_then.pop(key_of(change.object), None)
            else:
                objects_then[key_of(change.object)] = change.before
        return objects_then

    def _too_old(self, version: int) -> Expired:
        return Expired(f"version {version} is too old: changes are known after {self.horizon}")

    async def follow(
        self, kind: Kind, start_version: int, namespace: str
    ) -> AsyncIterator[SharedWatchEvent]:
        """Return the changes after a version.

        Raises Expired where they are not known any more, where the reader does not keep up,
        and where the resource is not served any more.
        """
        subscription = self.subscribe(kind, start_version, namespace)
        try:
            while True:
                for change in await subscription.next_batch():
                    yield change.event(kind)
        finally:
            subscription.close()

    def end_watches(self, group_resource: GroupResource) -> None:
        """Close the watches of a resource that is not served any more."""
        for subscriptions in self._subscriptions.get(group_resource, {}).values():
            for subscription in subscriptions:
                subscription.end("the resource is not served any more")


def in_version(kind: Kind, obj: Object) -> Object:
    """Return an object in the version in which it was asked for; schemas are alike in all."""
    if obj.get("apiVersion") == kind.api_version:
        return obj
    return {**obj, "apiVersion": kind.api_version}
