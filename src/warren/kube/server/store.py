"""The objects of the embedded API server: versions, conflicts, finalizers, watches.

Nothing is visible before it is durable. A write is checked against the newest
version of its object, durable or not, so that two writers cannot both win;
reads and watches see what is on disk.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from warren.base.clock import Clock
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of, merged
from warren.base.times import rfc3339
from warren.journal import Journal
from warren.journal.committer import Committer
from warren.kube.admission import Admission
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Event,
    Expired,
    Listing,
    NotFound,
    Refused,
)
from warren.kube.server.apply import applied, tracked
from warren.kube.server.labels import LabelIndex
from warren.kube.server.resources import BUILT_IN, CRD, Resource, established, from_crd

Place = tuple[str, str]
"""A resource: its group and plural."""

_HISTORY: Final = 8192
"""Changes that a watch may start behind."""

_BACKLOG: Final = 8192
"""Changes that a slow watcher may fall behind before it is closed."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How a write is to be done."""

    seen: str | None = None
    """The resourceVersion that it was decided on."""
    status: bool = False
    """Through the status subresource."""
    dry_run: bool = False
    """Refuse what would be refused, and write nothing."""
    manager: str = ""
    """Who writes, for managedFields. Writers without a name leave no record where there is none."""
    told: Callable[[list[str]], None] = lambda unknown: None
    """Told the paths of fields that are dropped, because no schema has them. May raise."""


_PLAINLY: Final = How()


@dataclass(frozen=True)
class _Changed:
    version: int
    place: Place
    event: Event


@dataclass(frozen=True)
class _Pending:
    """The newest version of an object that is on its way to the disk; None is its deletion."""

    version: int
    object: Object | None
    durable: "asyncio.Future[None]"


class _Watcher:
    """One open watch: its queue, and whether it was overrun."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.overrun = False

    def offer(self, change: _Changed) -> None:
        if self.overrun:
            return
        obj = change.event.object
        if self.namespace and obj["metadata"].get("namespace") != self.namespace:
            return
        # What waits already is told, without a gap; then it ends.
        self.overrun = self.queue.qsize() >= _BACKLOG
        self.queue.put_nowait(None if self.overrun else change.event)


class Store:
    """All objects, by resource. `run` must be running for writes to come to an end."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        admission: Admission,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._clock = clock
        self._admission = admission
        self._new_uid = new_uid
        self._committer = Committer(journal, self._snapshot)
        self._objects: dict[Place, dict[Key, Object]] = {}
        self._labels: dict[Place, LabelIndex] = {}
        self._pending: dict[tuple[Place, Key], _Pending] = {}
        self._resources: dict[Place, Resource] = {}
        self._watchers: dict[Place, list[_Watcher]] = {}
        self._history: deque[_Changed] = deque(maxlen=_HISTORY)
        self._version = 0
        self._durable = 0
        self._horizon = 0
        for resource in BUILT_IN:
            self._serve(resource)
        self._load(journal)

    async def run(self) -> None:
        """Commit writes until cancelled."""
        await self._committer.run()

    # Reading

    def resources(self) -> list[Resource]:
        """Give what is served now."""
        return list(self._resources.values())

    def resource(self, group: str, plural: str) -> Resource | None:
        """Find a resource by its group and plural."""
        return self._resources.get((group, plural))

    @property
    def version(self) -> str:
        """The resourceVersion of the newest durable change."""
        return str(self._durable)

    def get(self, kind: Kind, key: Key) -> Object:
        """Give one object. Raises NotFound."""
        return _spelled(kind, self._visible(kind, key))

    def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        """Give the objects of a kind, sorted by key."""
        objects = self._table(kind)
        keys = self._labels[kind.group, kind.plural].find(labels) if labels else objects
        found = [
            _spelled(kind, objects[key])
            for key in sorted(keys)
            if not namespace or key.namespace == namespace
        ]
        return Listing(found, self.version)

    def everything(self, kind: Kind) -> Iterable[Object]:
        """Give the objects of a kind, if that kind is served."""
        return list(self._objects.get((kind.group, kind.plural), {}).values())

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[Event]:
        """Give the changes after `since`. Raises Expired where they are not known any more."""
        self._table(kind)
        place = (kind.group, kind.plural)
        watcher = _Watcher(namespace)
        start = int(since or self._durable)
        if start < self._horizon:
            raise Expired(f"version {since} is too old: changes are known after {self._horizon}")
        for change in self._history:
            if change.version > start and change.place == place:
                watcher.offer(change)
        watchers = self._watchers.setdefault(place, [])
        watchers.append(watcher)
        try:
            while (event := await watcher.queue.get()) is not None:
                yield Event(event.type, _spelled(kind, event.object))
        finally:
            watchers.remove(watcher)
        raise Expired("the watcher did not keep up with the changes")

    # Writing

    async def create(self, kind: Kind, obj: Object, how: How = _PLAINLY) -> Object:
        """Store a new object. Raises AlreadyExists, Denied, or Refused."""
        resource = self._resource(kind)
        _check(obj.get("metadata", {}))
        metadata = dict(obj.get("metadata", {}))
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._new_uid()[:5]
        if not metadata.get("name"):
            raise Refused(f"{kind.name}: metadata.name is missing")
        if resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        body = {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        if resource.status:
            body.pop("status", None)
        body = dict(self._admission.create(kind, resource.conformed(kind.version, body, how.told)))
        metadata = dict(body["metadata"])
        place, key = (kind.group, kind.plural), key_of(body)
        if self._newest(place, key) is not None:
            raise AlreadyExists(f"{kind} {key} exists already")
        metadata.update(
            uid=self._new_uid(),
            creationTimestamp=rfc3339(self._clock.now()),
            generation=1,
        )
        metadata.pop("deletionTimestamp", None)
        if kind == CRD:
            _served(body)
            body["status"] = established(body, metadata["creationTimestamp"])
        new = {**body, "metadata": metadata}
        if how.manager and "managedFields" not in metadata:
            new = dict(self._tracked(resource, kind, None, new, how))
        return await self._commit(kind, key, new, "ADDED", how)

    async def patch(self, change: Change) -> Object:
        """Merge into an object. Raises NotFound, Conflict, Denied, or Refused."""
        return await self.modify(
            change.kind,
            change.key,
            lambda old: merged(old, change.patch),
            How(seen=change.seen, status=change.status),
        )

    async def modify(
        self, kind: Kind, key: Key, make: Callable[[Object], Object], how: How = _PLAINLY
    ) -> Object:
        """Put what `make` gives for an object in its place, as far as the writer may change it.

        Raises NotFound, Conflict if it is not the one that was seen, Denied, or Refused.
        """
        return await self._modify(kind, key, make, how, self._tracked)

    async def apply(
        self, kind: Kind, key: Key, configuration: Object, how: How, *, force: bool
    ) -> tuple[Object, bool]:
        """Make an object what its manager's configuration says; tell whether it is new.

        Raises ApplyConflict where others own what would change, NotFound for the status of
        what is not there, and what `create` and `modify` raise.
        """
        resource = self._resource(kind)
        _check(configuration.get("metadata"))
        seen = configuration["metadata"].get("resourceVersion")
        part = _part(configuration, how.status, resource.status)

        def make(live: Object | None) -> Object:
            return applied(
                live,
                part,
                manager=how.manager,
                force=force,
                now=rfc3339(self._clock.now()),
                schema=resource.schemas.get(kind.version),
                subresource="status" if how.status else "",
            )

        if self._newest((kind.group, kind.plural), key) is None and not how.status:
            return await self.create(kind, make(None), how), True
        found = await self._modify(kind, key, make, replace(how, seen=seen), _recorded)
        return found, False

    def _tracked(
        self, resource: Resource, kind: Kind, old: Object | None, new: Object, how: How
    ) -> Object:
        """Give an object with the record of who owns its fields, if there is one."""
        if old is not None and not old["metadata"].get("managedFields"):
            return new
        return tracked(
            old,
            new,
            manager=how.manager or "unnamed",
            now=rfc3339(self._clock.now()),
            schema=resource.schemas.get(kind.version),
            subresource="status" if how.status and resource.status else "",
        )

    async def _modify(
        self,
        kind: Kind,
        key: Key,
        make: Callable[[Object], Object],
        how: How,
        track: Callable[[Resource, Kind, Object, Object, How], Object],
    ) -> Object:
        resource = self._resource(kind)
        old = self._writable(kind, key)
        shown = _spelled(kind, old)
        made = make(shown)
        given = made.get("metadata")
        _check(given)
        assert isinstance(given, Mapping)
        seen = how.seen or given.get("resourceVersion")
        if seen is not None and seen != old["metadata"]["resourceVersion"]:
            raise Conflict(f"{kind} {key} has changed since version {seen}")
        new = _allowed(old, made, how.status, resource.status)
        new["metadata"] = _preserved(old["metadata"], new["metadata"])
        new = dict(resource.conformed(kind.version, new, how.told))
        if new == old:
            await self._settled((kind.group, kind.plural), key)
            return shown
        self._admission.update(kind, shown, _spelled(kind, new))
        new = dict(track(resource, kind, shown, new, how))
        if kind == CRD:
            _served(new)
        if _body(new, resource.status) != _body(old, resource.status):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return await self._commit(kind, key, new, "DELETED", how)
        return await self._commit(kind, key, new, "MODIFIED", how)

    async def delete(self, remove: Remove, how: How = _PLAINLY) -> Object:
        """Delete an object, or mark it as deleting while it has finalizers. Raises NotFound."""
        kind, key = remove.kind, remove.key
        self._resource(kind)
        old = self._writable(kind, key)
        metadata = dict(old["metadata"])
        if not metadata.get("finalizers"):
            return await self._commit(kind, key, {**old, "metadata": metadata}, "DELETED", how)
        if metadata.get("deletionTimestamp"):
            await self._settled((kind.group, kind.plural), key)
            return _spelled(kind, old)
        metadata["deletionTimestamp"] = rfc3339(self._clock.now())
        metadata["deletionGracePeriodSeconds"] = 0
        return await self._commit(kind, key, {**old, "metadata": metadata}, "MODIFIED", how)

    async def _commit(
        self, kind: Kind, key: Key, obj: dict[str, Any], event: str, how: How
    ) -> Object:
        """Give the object its version, and return once it is durable and visible."""
        if how.dry_run:
            return _spelled(kind, obj)
        version = self._version + 1
        place = (kind.group, kind.plural)
        obj["metadata"]["resourceVersion"] = str(version)
        after = None if event == "DELETED" else obj
        try:
            record = orjson.dumps([version, *place, *key, after])
        except orjson.JSONEncodeError as error:
            raise Refused(f"{kind} {key} cannot be written: {error}") from error
        self._version = version
        change = _Changed(version, place, Event(event, obj))
        durable = self._committer.submit(record, lambda: self._show(change, key, after))
        self._pending[place, key] = _Pending(version, after, durable)
        await asyncio.shield(durable)
        return _spelled(kind, obj)

    async def _settled(self, place: Place, key: Key) -> None:
        """Return once the newest version of an object is durable: what is told of it is true."""
        pending = self._pending.get((place, key))
        if pending is not None:
            await asyncio.shield(pending.durable)

    def _show(self, change: _Changed, key: Key, after: Object | None) -> None:
        """Make a durable change visible: to readers, and to watchers, in order."""
        self._durable = change.version
        self._apply(change.place, key, after)
        if self._pending[change.place, key].version == change.version:
            del self._pending[change.place, key]
        if len(self._history) == _HISTORY:
            self._horizon = self._history[0].version
        self._history.append(change)
        for watcher in self._watchers.get(change.place, ()):
            watcher.offer(change)

    def _apply(self, place: Place, key: Key, after: Object | None) -> None:
        self._labels[place].change(key, self._objects[place].get(key), after)
        if after is None:
            self._objects[place].pop(key, None)
        else:
            self._objects[place][key] = after
            if place == (CRD.group, CRD.plural):
                self._serve(from_crd(after))

    def _serve(self, resource: Resource) -> None:
        place = (resource.group, resource.plural)
        self._resources[place] = resource
        self._objects.setdefault(place, {})
        self._labels.setdefault(place, LabelIndex())

    # Restarting

    def _load(self, journal: Journal) -> None:
        for record in journal.replay():
            version, group, plural, namespace, name, after = orjson.loads(record)
            self._objects.setdefault((group, plural), {})
            self._labels.setdefault((group, plural), LabelIndex())
            self._apply((group, plural), Key(namespace, name), after)
            self._version = max(self._version, version)
        # What came before is not known as a history: older watches must list again.
        self._durable = self._horizon = self._version

    def _snapshot(self) -> Iterable[bytes]:
        # A record without an object keeps the version counter from going back.
        yield orjson.dumps([self._durable, CRD.group, CRD.plural, "", "", None])
        # Definitions first: replaying an object needs its resource.
        for place in sorted(self._objects, key=lambda place: place != (CRD.group, CRD.plural)):
            for key, obj in self._objects[place].items():
                version = int(obj["metadata"]["resourceVersion"])
                yield orjson.dumps([version, *place, *key, obj])

    # Finding

    def _resource(self, kind: Kind) -> Resource:
        resource = self._resources.get((kind.group, kind.plural))
        if resource is None or kind.version not in resource.versions:
            raise NotFound(f"the server has no {kind} in version {kind.version}")
        return resource

    def _table(self, kind: Kind) -> dict[Key, Object]:
        self._resource(kind)
        return self._objects[kind.group, kind.plural]

    def _visible(self, kind: Kind, key: Key) -> Object:
        obj = self._table(kind).get(key)
        if obj is None:
            raise NotFound(f"{kind} {key} is not there")
        return obj

    def _newest(self, place: Place, key: Key) -> Object | None:
        if (place, key) in self._pending:
            return self._pending[place, key].object
        return self._objects[place].get(key)

    def _writable(self, kind: Kind, key: Key) -> Object:
        obj = self._newest((kind.group, kind.plural), key)
        if obj is None:
            raise NotFound(f"{kind} {key} is not there")
        return obj


def _spelled(kind: Kind, obj: Object) -> Object:
    """Give an object in the version in which it was asked for; schemas are alike in all."""
    if obj.get("apiVersion") == kind.api_version:
        return obj
    return {**obj, "apiVersion": kind.api_version}


def _check(metadata: Any) -> None:
    """Raise Refused for metadata that readers would stumble over."""
    if not isinstance(metadata, Mapping):
        raise Refused("metadata: this is not an object")
    for name in ("name", "namespace", "generateName"):
        value = metadata.get(name) or ""
        if not isinstance(value, str) or value in (".", "..") or "/" in value or "%" in value:
            raise Refused(f"metadata.{name}: {value!r} cannot be part of a path")
    for name in ("labels", "annotations"):
        values = metadata.get(name) or {}
        # In a patch, None takes a label away.
        if not isinstance(values, Mapping) or not _strings(
            value for value in values.values() if value is not None
        ):
            raise Refused(f"metadata.{name}: the values of names are strings")
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list | tuple) or not _strings(finalizers):
        raise Refused("metadata.finalizers: this is not a list of strings")


def _strings(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _served(crd: Object) -> None:
    """Raise Refused for a definition that cannot be served: after the disk it is too late."""
    try:
        resource = from_crd(crd)
        established(crd, "")
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused(f"spec: the definition is not complete: {error!r}") from error
    if not resource.versions or not _strings(
        (resource.group, resource.plural, resource.name, *resource.versions)
    ):
        raise Refused("spec: the definition serves nothing")


def _allowed(old: Object, made: Object, status: bool, apart: bool) -> dict[str, Any]:
    """Give the object with what its writer may write; `apart`: whether status is a subresource."""
    if status and apart:
        return _with(old, "status", made)
    new = {**made, "apiVersion": old["apiVersion"], "kind": old["kind"]}
    return _with(new, "status", old) if apart else new


def _part(configuration: Object, status: bool, apart: bool) -> Object:
    """Give the part of a configuration that its writer may write."""
    if status and apart:
        names = ("apiVersion", "kind", "metadata", "status")
        return {name: configuration[name] for name in names if name in configuration}
    return _with(configuration, "status", {}) if apart else configuration


def _recorded(resource: Resource, kind: Kind, old: Object, new: Object, how: How) -> Object:
    """Give an object that has been applied: its owners are recorded already."""
    return new


def _with(obj: Object, name: str, source: Object) -> dict[str, Any]:
    """Give an object with a field as it is in another one, or without it."""
    new = {key: value for key, value in obj.items() if key != name}
    if name in source:
        new[name] = source[name]
    return new


_FIXED = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation",
          "deletionGracePeriodSeconds", "resourceVersion")  # fmt: skip


def _preserved(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Give the new metadata with what no writer may change as it was."""
    kept = {name: value for name, value in new.items() if name not in _FIXED}
    kept.update((name, old[name]) for name in _FIXED if name in old)
    return kept


def _body(obj: Object, status: bool) -> dict[str, Any]:
    """Give what counts for the generation: all but metadata, and status where it is apart."""
    skipped = ("metadata", "status", "apiVersion") if status else ("metadata", "apiVersion")
    return {name: value for name, value in obj.items() if name not in skipped}
