"""A local copy of the objects of one kind, kept up to date by a watch.

What a watch tells may come twice or out of order: no object is replaced by an
older one, nor comes back once its deletion is known. A list counts for more
than all that was told before it.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from warren.base import log
from warren.base.errors import Retryable
from warren.base.objects import Key, Kind, Object, key_of
from warren.kube.client import Client, Forbidden, NotFound, Refused, WatchEvent
from warren.kube.queue import backoff
from warren.kube.refusallog import RefusalLog

Listener = Callable[[Object], None]
"""Told of every object that was added, changed or deleted, in its last known form."""

ChangeListener = Callable[[Object | None, Object | None], None]
"""Told of every change: the object before it and after it, None where there was or is none."""

Indexer = Callable[[Object], Iterable[str]]
"""Returns the values under which an index files an object."""

_MAX_DELAY: Final = 30.0
"""The longest time between two tries, in seconds."""

_REFUSED_DELAY: Final = 1.0
"""Seconds after which a list that was refused is asked for again, at first: roles may come yet,
and so may definitions of kinds."""

_STABLE_WATCH: Final = 10.0
"""Seconds after which a watch has been a good one, whether it had anything to tell or not."""

_MAX_DELETIONS: Final = 1024
"""How many deletions are remembered one by one."""

_MAX_STALE_LISTS: Final = 3
"""How often in a row a list must be older than what is known, to be the truth after all."""


class _StaleList(Retryable):
    """The list is from before what is known already: it comes from a server that lags."""

    delay = 1.0


class SyncState(msgspec.Struct, frozen=True, kw_only=True):
    """How far an informer is."""

    synced: bool
    """Whether the first list is complete."""
    resource_version: str
    """The newest resourceVersion that it has heard of."""
    silence: float
    """Seconds since it heard anything: a list, an event or a bookmark. Infinite at first."""
    list_count: int
    watch_count: int


class Informer:
    """The objects of one kind in one namespace, or in all.

    Lists, watches, and lists again after a gap; what vanished during a gap is
    noticed. `run` lives until cancelled: what is refused is told, and asked for again.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        namespace: str = "",
        indexes: Mapping[str, Indexer] | None = None,
        jitter: Callable[[], float] = random.random,
        max_deletions: int = _MAX_DELETIONS,
    ) -> None:
        """`jitter` returns a random number from 0 to 1.

        `max_deletions` is how many are remembered one by one.
        """
        self._max_deletions = max_deletions
        self.kind = kind
        self.namespace = namespace
        self._client = client
        self._jitter = jitter
        self._objects: dict[Key, Object] = {}
        self._indexers = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[Key]]] = {name: {} for name in self._indexers}
        self._change_listeners: list[ChangeListener] = []
        self._synced = asyncio.Event()
        self._refusals = RefusalLog()
        self._list_label, self._watch_label = f"list {kind}", f"watch {kind}"
        self._resource_version = ""
        self._last_heard: float | None = None
        self._list_count = self._watch_count = 0
        self._failures = 0
        """How often in a row it has got nowhere."""
        self._stale_lists = 0
        """How many lists in a row were older than what is known."""
        self._deleted_in: OrderedDict[Key, int] = OrderedDict()
        """In which version the last few objects were deleted."""
        self._complete_until = -1
        """The version up to which what is not here is not there."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every change from now on, and for what is known already.

        What it raises is logged, and costs it that one event.
        """
        self.listen_to_changes(lambda before, after: listener(_last_known(before, after)))

    def listen_to_changes(self, change_listener: ChangeListener) -> None:
        """Call `change_listener` as `listen` does, with what was known before each change, too."""
        self._change_listeners.append(change_listener)
        for obj in self._objects.values():
            _notify(change_listener, self.kind, None, obj)

    async def wait_synced(self) -> None:
        """Return once the first list is complete."""
        await self._synced.wait()

    def sync_state(self) -> SyncState:
        """Return how far it is, as of now."""
        heard, now = self._last_heard, asyncio.get_running_loop().time()
        return SyncState(
            synced=self._synced.is_set(),
            resource_version=self._resource_version,
            silence=float("inf") if heard is None else now - heard,
            list_count=self._list_count,
            watch_count=self._watch_count,
        )

    def get(self, key: Key) -> Object | None:
        """Return an object, as of now."""
        return self._objects.get(key)

    def all(self) -> list[Object]:
        """Return all objects, as of now."""
        return list(self._objects.values())

    def values(self) -> Iterable[Object]:
        """Return a view of all objects, which changes with them: for callers that look at a few."""
        return self._objects.values()

    @property
    def is_empty(self) -> bool:
        """Whether there are no objects."""
        return not self._objects

    def keys(self) -> list[Key]:
        """Return the keys of all objects, as of now."""
        return list(self._objects)

    def by_index(self, index: str, value: str) -> list[Object]:
        """Return the objects that an index files under `value`, in the order of their keys."""
        return [self._objects[key] for key in sorted(self._indexes[index].get(value, ()))]

    def is_indexed(self, index: str, value: str) -> bool:
        """Return whether an index files any object under `value`."""
        return value in self._indexes[index]

    async def run(self) -> None:
        """Keep the copy up to date until cancelled."""
        listed = False
        while True:
            delay, reason = 0.0, "it has ended"
            try:
                if not listed:
                    await self._list()
                    listed = True
                await self._watch()
            except (Retryable, Refused, NotFound) as error:
                delay = error.delay if isinstance(error, Retryable) else _REFUSED_DELAY
                reason = str(error)
                if not isinstance(error, Retryable) or isinstance(error, Forbidden):
                    self._refusals.note_refusal(
                        self._watch_label if listed else self._list_label, reason
                    )
                listed = False
            # The first time at once, or when the error says: servers end watches in peace from
            # time to time. One that does so over and over gets nowhere, and is left alone.
            self._failures += 1
            delay = backoff(delay, self._failures, self._jitter(), _MAX_DELAY)
            is_expected = self._refusals.is_refused or (listed and self._failures == 1)
            say = log.debug if is_expected else log.info
            say("watch begins again", kind=self.kind.plural, reason=reason, delay=delay)
            await asyncio.sleep(delay)

    async def _list(self) -> None:
        listing = await self._client.list(self.kind, self.namespace)
        self._refusals.note_success(self._list_label)
        self._list_count += 1
        self._last_heard = asyncio.get_running_loop().time()
        if _is_older(listing.resource_version, self._resource_version):
            self._stale_lists += 1
            # Believed at last: the server was set back, and its versions begin anew.
            if self._stale_lists < _MAX_STALE_LISTS:
                raise _StaleList(
                    f"the list is of {listing.resource_version}, before {self._resource_version}"
                )
        self._stale_lists = 0
        fresh = {key_of(obj): obj for obj in listing.items}
        for key in [key for key in self._objects if key not in fresh]:
            self._remove(key, self._objects[key])
        for key, obj in fresh.items():
            known = self._objects.get(key)
            if known is None or _resource_version(known) != _resource_version(obj):
                self._put(key, obj)
        self._resource_version = listing.resource_version
        self._complete_until = _version_number(listing.resource_version)
        self._deleted_in.clear()
        self._synced.set()

    async def _watch(self) -> None:
        """Watch until the API ends it."""
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        self._watch_count += 1
        try:
            watch = self._client.watch(self.kind, self._resource_version, self.namespace)
            async with aclosing(watch) as events:  # type: ignore[type-var]
                async for event in events:
                    self._last_heard = loop.time()
                    self._refusals.note_success(self._watch_label)
                    self._apply(event)
        finally:
            if loop.time() - started_at >= _STABLE_WATCH:
                self._failures = 0

    def _apply(self, event: WatchEvent) -> None:
        version = _resource_version(event.object)
        if version not in ("", self._resource_version) and not _is_older(
            version, self._resource_version
        ):
            self._resource_version = version
            self._failures = 0
        if event.type == "BOOKMARK":
            return
        key = key_of(event.object)
        if self._is_outdated(key, event, version):
            return
        if event.type == "DELETED":
            known = self._objects.get(key, event.object)
            self._remove(key, event.object)
            self._tombstone(
                key, max(_version_number(version), _version_number(_resource_version(known)))
            )
        else:
            self._put(key, event.object)

    def _is_outdated(self, key: Key, event: WatchEvent, version: str) -> bool:
        """Return whether more than this event says is known already."""
        known = self._objects.get(key)
        if known is None:
            return (
                0
                <= _version_number(version)
                <= max(self._complete_until, self._deleted_in.get(key, -1))
            )
        if event.type != "DELETED":
            return version == _resource_version(known) or _is_older(
                version, _resource_version(known)
            )
        # An object that was deleted never is again: its namesake has another uid.
        uid = known["metadata"].get("uid")
        is_same_object = uid is not None and uid == event.object["metadata"].get("uid")
        return not is_same_object and _is_older(version, _resource_version(known))

    def _tombstone(self, key: Key, version: int) -> None:
        """Remember that an object was deleted, for as long as older events of it may come."""
        self._deleted_in.pop(key, None)
        self._deleted_in[key] = version
        if len(self._deleted_in) > self._max_deletions:
            _, forgotten = self._deleted_in.popitem(last=False)
            self._complete_until = max(self._complete_until, forgotten)

    def _put(self, key: Key, obj: Object) -> None:
        before = self._objects.get(key)
        self._reindex(key, before, obj)
        self._objects[key] = obj
        for change_listener in self._change_listeners:
            _notify(change_listener, self.kind, before, obj)

    def _remove(self, key: Key, obj: Object) -> None:
        self._reindex(key, self._objects.pop(key, None), None)
        for change_listener in self._change_listeners:
            _notify(change_listener, self.kind, obj, None)

    def _reindex(self, key: Key, before: Object | None, after: Object | None) -> None:
        for name, indexer in self._indexers.items():
            index = self._indexes[name]
            for value in _values(indexer, self.kind, before) if before is not None else ():
                index[value].discard(key)
                if not index[value]:
                    del index[value]
            for value in _values(indexer, self.kind, after) if after is not None else ():
                index.setdefault(value, set()).add(key)


def _notify(
    change_listener: ChangeListener, kind: Kind, before: Object | None, after: Object | None
) -> None:
    try:
        change_listener(before, after)
    except Exception:  # a bug of one listener may cost neither the copy nor the others
        key = key_of(_last_known(before, after))
        log.exception("listener failed", kind=kind.plural, key=str(key))


def _last_known(before: Object | None, after: Object | None) -> Object:
    """Return an object in its last known form."""
    last_known = before if after is None else after
    assert last_known is not None  # there was one, or there is
    return last_known


def _values(indexer: Indexer, kind: Kind, obj: Object) -> set[str]:
    try:
        return set(indexer(obj))
    except Exception:  # an unexpected object may cost its own place in the index
        log.exception("indexer failed", kind=kind.plural, key=str(key_of(obj)))
        return set()


def _resource_version(obj: Object) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))


def _version_number(version: str) -> int:
    """Return a version as a number that can be compared; -1 for one that cannot."""
    return int(version) if version.isdecimal() else -1


def _is_older(version: str, other: str) -> bool:
    """Return whether a version is certainly older than another one."""
    return 0 <= _version_number(version) < _version_number(other)


class Informers:
    """One informer a kind, shared by all readers of that kind from one client."""

    def __init__(
        self, client: Client, namespace: str = "", indexes: Mapping[str, Indexer] | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._indexes = indexes
        self._informers: dict[Kind, Informer] = {}

    def of(self, kind: Kind, namespace: str | None = None) -> Informer:
        """Return the informer of a kind: of all that it has, or of those in a namespace.

        The namespace is that of the first call, and the same for all.
        """
        if kind not in self._informers:
            within = self._namespace if namespace is None else namespace
            self._informers[kind] = Informer(self._client, kind, within, self._indexes)
        return self._informers[kind]

    def all(self) -> list[Informer]:
        """Return the informers that have been asked for."""
        return list(self._informers.values())

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as running:
            for informer in self._informers.values():
                running.create_task(informer.run(), name=f"informer {informer.kind.plural}")

    async def wait_synced(self) -> None:
        """Return once every informer is complete."""
        for informer in self._informers.values():
            await informer.wait_synced()
