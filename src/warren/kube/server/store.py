"""The objects of the embedded API server: versions, conflicts, finalizers, watches.

Nothing is visible before it is durable. A write is checked against the newest
version of its object, durable or not, so that two writers cannot both win;
reads and watches see what is on disk.
"""

import asyncio
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from warren.base.clock import Clock
from warren.base.objects import Change, Key, Kind, Object, Remove, key_of, merge_patch
from warren.base.times import rfc3339
from warren.journal import Journal
from warren.journal.committer import Committer, rewrite_limit
from warren.kube.admission import Admission, Operation, Review
from warren.kube.client import Listing, Refused, WatchEvent
from warren.kube.server import writing
from warren.kube.server.builtin import BUILT_IN, CRD, NAMESPACE
from warren.kube.server.history import (
    GroupResource,
    History,
    ObjectChange,
    Subscription,
    estimated_size,
    in_version,
)
from warren.kube.server.labels import LabelIndex
from warren.kube.server.resources import ObjectInvalid, Resource, established_status, from_crd
from warren.kube.server.schemas import builtinfields, naming
from warren.kube.server.schemas.apply import apply, track_update
from warren.kube.server.schemas.causes import Cause
from warren.kube.server.schemas.defaulting import fill_in
from warren.kube.server.storeerrors import (
    ObjectAlreadyExists,
    ObjectConflict,
    ObjectNotFound,
    ResourceNotServed,
    ResourceVersionTooLarge,
    failed_precondition,
)
from warren.kube.server.writing import DEFAULT_OPTIONS, WriteOptions, deletion_metadata

_namespace_of = attrgetter("namespace")

_MAX_ATTEMPTS = 8
"""How often a write is made anew because its object has changed while admission looked at it."""

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer of a definition that goes: its objects go first."""


class _Pending(msgspec.Struct, frozen=True):
    """The newest state of an object, on its way to the disk; its `object` is None where it goes."""

    version: int
    object: Object | None
    durable: "asyncio.Future[None]"


class Store:
    """All objects, by resource. `run` must be running for writes to come to an end."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        admission: Admission,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
        history: History | None = None,
        rewrite_limit: Callable[[int], int] = rewrite_limit,
    ) -> None:
        """`rewrite_limit` says how many bytes may be appended before the journal is rewritten.

        It is given how many bytes the last rewrite had.
        """
        self._clock = clock
        self._admission = admission
        self._new_uid = new_uid
        self._committer = Committer(journal, self._snapshot, limit=rewrite_limit)
        self._objects: dict[GroupResource, dict[Key, Object]] = {}
        self._label_indexes: dict[GroupResource, LabelIndex] = {}
        self._sorted_keys_by_resource: dict[GroupResource, Sequence[Key]] = {}
        """The keys of resources in order, where they were asked for since they last changed."""
        self._pending: dict[tuple[GroupResource, Key], _Pending] = {}
        self._resources: dict[GroupResource, Resource] = {}
        self._history = history or History()
        self._listeners: list[Callable[[ObjectChange], None]] = []
        self._version = 0
        self._durable_version = 0
        for resource in BUILT_IN:
            self._serve(resource)
        self._load(journal)

    async def run(self) -> None:
        """Commit writes until cancelled."""
        await self._committer.run()

    @property
    def full_reason(self) -> str | None:
        """Why nothing new is to be written: the disk is full, in a sentence. None if it is not.

        Whatever is written nonetheless waits until there is room.
        """
        return self._committer.full_reason

    @property
    def stuck(self) -> bool:
        """Whether whatever is written waits."""
        return self._committer.stuck

    def listen(self, listener: Callable[[ObjectChange], None]) -> None:
        """Call `listener` with every change of every resource, once it is durable."""
        self._listeners.append(listener)

    # Reading

    def resources(self) -> list[Resource]:
        """Return what is served now."""
        return list(self._resources.values())

    def resource(self, group: str, plural: str) -> Resource | None:
        """Find a resource by its group and plural."""
        return self._resources.get((group, plural))

    @property
    def resource_version(self) -> str:
        """The resourceVersion of the newest durable change."""
        return str(self._durable_version)

    def get(self, kind: Kind, key: Key) -> Object:
        """Return one object. Raises NotFound."""
        return in_version(kind, self._visible(kind, key))

    def is_absent(self, kind: Kind, key: Key) -> bool:
        """Return whether a write would find nothing there."""
        return self._newest((kind.group, kind.plural), key) is None

    def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        """Return the objects of a kind, sorted by key."""
        objects, group_resource = self._objects_by_key(kind), (kind.group, kind.plural)
        keys = (
            sorted(self._label_indexes[group_resource].find(labels))
            if labels
            else self._sorted_keys(group_resource)
        )
        if namespace:
            first = bisect_left(keys, namespace, key=_namespace_of)
            keys = keys[first : bisect_right(keys, namespace, lo=first, key=_namespace_of)]
        return Listing([in_version(kind, objects[key]) for key in keys], self.resource_version)

    def list_at(self, version: int, kind: Kind, namespace: str = "") -> Listing:
        """Return the objects of a kind as they were in a version, sorted by key.

        Raises Expired where that is not known any more.
        """
        self.check_reached(version)
        objects = self._history.objects_at(
            (kind.group, kind.plural), self._objects_by_key(kind), version
        )
        keys = (key for key in sorted(objects) if namespace in ("", key.namespace))
        return Listing([in_version(kind, objects[key]) for key in keys], str(version))

    def check_reached(self, version: int) -> None:
        """Raise ResourceVersionTooLarge for a version that there has not been yet."""
        if version > self._durable_version:
            raise ResourceVersionTooLarge(version, self._durable_version)

    def _sorted_keys(self, group_resource: GroupResource) -> Sequence[Key]:
        """Return the keys of a resource in order; lists in pages ask for them again and again."""
        keys = self._sorted_keys_by_resource.get(group_resource)
        if keys is None:
            keys = self._sorted_keys_by_resource[group_resource] = sorted(
                self._objects[group_resource]
            )
        return keys

    def objects_of(self, kind: Kind) -> Iterable[Object]:
        """Return the objects of a kind, if that kind is served."""
        return list(self._objects.get((kind.group, kind.plural), {}).values())

    def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        """Return the changes after `since`.

        Raises Expired where they are not known any more, and ResourceVersionTooLarge where it is
        yet to come.
        """
        return self._history.follow(kind, self._start_version(kind, since), namespace)

    def subscribe(self, kind: Kind, since: str, namespace: str = "") -> Subscription:
        """Watch the changes after `since`. Raises what `watch` raises."""
        return self._history.subscribe(kind, self._start_version(kind, since), namespace)

    def _start_version(self, kind: Kind, since: str) -> int:
        """Return the version after which a watch begins: the newest where none is said."""
        self._objects_by_key(kind)
        start_version = int(since or self._durable_version)
        self.check_reached(start_version)
        return start_version

    # Writing

    async def create(
        self, kind: Kind, obj: Object, options: WriteOptions = DEFAULT_OPTIONS
    ) -> Object:
        """Store a new object. Raises AlreadyExists, Denied, or Refused."""
        resource = self._resource(kind)
        writing.check_metadata(obj.get("metadata", {}))
        metadata = dict(obj.get("metadata", {}))
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + self._new_uid()[:5]
        _check_names(kind, metadata)
        if resource.namespaced:
            metadata["namespace"] = metadata.get("namespace") or "default"
        else:
            metadata.pop("namespace", None)
        body = {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
        _raise_if_invalid(
            kind, Key("", metadata.get("name") or ""), builtinfields.violations(kind, body)
        )
        body = dict(fill_in(kind, body))
        if resource.has_status:
            body.pop("status", None)
        review = Review(
            operation=Operation.CREATE,
            kind=kind,
            key=Key(metadata.get("namespace", ""), metadata["name"]),
            new=resource.prune_and_default(kind.version, body, options.report_unknown),
            user=options.user,
            dry_run=options.dry_run,
            warn=options.warn,
        )
        body = dict(await self._admit(review))
        metadata = dict(body["metadata"])
        group_resource, key = (kind.group, kind.plural), key_of(body)
        if self._newest(group_resource, key) is not None:
            raise ObjectAlreadyExists(kind, key.name)
        metadata.update(
            uid=self._new_uid(),
            creationTimestamp=rfc3339(self._clock.now()),
            generation=1,
        )
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        if kind == CRD:
            _check_servable(body)
            body["status"] = established_status(body, metadata["creationTimestamp"])
        if kind == NAMESPACE:
            body.update(spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"})
        new = {**body, "metadata": metadata}
        if options.manager and "managedFields" not in metadata:
            new = dict(self._track_managed_fields(resource, kind, None, new, options))
        return await self._commit(kind, key, new, "ADDED", options)

    async def patch(self, change: Change) -> Object:
        """Merge into an object. Raises NotFound, Conflict, Denied, or Refused."""
        return await self.modify(
            change.kind,
            change.key,
            lambda old: merge_patch(old, change.patch),
            WriteOptions(resource_version=change.resource_version, through_status=change.status),
        )

    async def modify(
        self,
        kind: Kind,
        key: Key,
        make: Callable[[Object], Object],
        options: WriteOptions = DEFAULT_OPTIONS,
    ) -> Object:
        """Put what `make` gives for an object in its place, as far as the writer may change it.

        Raises NotFound, Conflict if it is not the one that was seen, Denied, or Refused.
        """
        return await self._modify(kind, key, make, options, self._track_managed_fields)

    async def apply(
        self, kind: Kind, key: Key, configuration: Object, options: WriteOptions, *, force: bool
    ) -> tuple[Object, bool]:
        """Make an object what its manager's configuration says; return whether it is new.

        Raises ApplyConflict where others own what would change, NotFound for the status of
        what is not there, and what `create` and `modify` raise.
        """
        resource = self._resource(kind)
        writing.check_metadata(configuration.get("metadata"))
        seen_version = configuration["metadata"].get("resourceVersion")
        writable = writing.writable_configuration(
            configuration, options.through_status, resource.has_status
        )

        def make(live: Object | None) -> Object:
            return apply(
                live,
                writable,
                manager=options.manager,
                force=force,
                now=rfc3339(self._clock.now()),
                schema=resource.schemas.get(kind.version),
                subresource="status" if options.through_status else "",
            )

        if self._newest((kind.group, kind.plural), key) is None and not options.through_status:
            return await self.create(kind, make(None), options), True
        modified = await self._modify(
            kind, key, make, replace(options, resource_version=seen_version), _keep_managed_fields
        )
        return modified, False

    def _track_managed_fields(
        self, resource: Resource, kind: Kind, old: Object | None, new: Object, options: WriteOptions
    ) -> Object:
        """Return an object with its managed fields brought up to date, if it has any."""
        if old is not None and not old["metadata"].get("managedFields"):
            return new
        return track_update(
            old,
            new,
            manager=options.manager or "unnamed",
            now=rfc3339(self._clock.now()),
            schema=resource.schemas.get(kind.version),
            subresource="status" if options.through_status and resource.has_status else "",
        )

    async def _modify(
        self,
        kind: Kind,
        key: Key,
        make: Callable[[Object], Object],
        options: WriteOptions,
        track: Callable[[Resource, Kind, Object, Object, WriteOptions], Object],
    ) -> Object:
        self._resource(kind)
        for _ in range(_MAX_ATTEMPTS):
            old = self._writable(kind, key)
            new = await self._prepare_update(kind, old, make, options, track)
            if new is None:
                await self._wait_durable((kind.group, kind.plural), key)
                return in_version(kind, old)
            if self._newest((kind.group, kind.plural), key) is old:
                ends = new["metadata"].get("deletionTimestamp") and not _has_finalizers(kind, new)
                return await self._commit(
                    kind, key, new, "DELETED" if ends else "MODIFIED", options
                )
            # It has changed while a webhook looked: what was made of it is out of date.
        raise ObjectConflict(kind, key.name)

    async def _prepare_update(
        self,
        kind: Kind,
        old: Object,
        make: Callable[[Object], Object],
        options: WriteOptions,
        track: Callable[[Resource, Kind, Object, Object, WriteOptions], Object],
    ) -> dict[str, Any] | None:
        """Return what is to be written in an object's place; None where nothing changes."""
        resource, key, shown_object = self._resource(kind), key_of(old), in_version(kind, old)
        proposed = make(shown_object)
        given_metadata = proposed.get("metadata")
        if given_metadata is old["metadata"]:
            _check_preconditions(kind, old, options.resource_version, options.uid)
            new = writing.writable_part(old, proposed, options.through_status, resource.has_status)
        else:
            new = self._with_new_metadata(kind, old, proposed, options)
        _raise_if_invalid(kind, key, builtinfields.violations(kind, new, old))
        new = dict(
            resource.prune_and_default(
                kind.version, fill_in(kind, new), options.report_unknown, old
            )
        )
        _raise_if_invalid(kind, key, builtinfields.immutable_violations(kind, old, new))
        if new == old:
            return None
        review = Review(
            operation=Operation.UPDATE,
            kind=kind,
            key=key,
            old=shown_object,
            new=in_version(kind, new),
            user=options.user,
            through_status=options.through_status and resource.has_status,
            dry_run=options.dry_run,
            warn=options.warn,
        )
        admitted = await self._admit(review)
        new = {**admitted, "apiVersion": old["apiVersion"], "metadata": {**admitted["metadata"]}}
        new = dict(track(resource, kind, shown_object, new, options))
        if kind == CRD:
            _check_servable(new)
        has_status = resource.has_status
        if writing.generation_content(new, has_status) != writing.generation_content(
            old, has_status
        ):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return new

    def _with_new_metadata(
        self, kind: Kind, old: Object, proposed: Object, options: WriteOptions
    ) -> dict[str, Any]:
        """Return what is to be written where metadata changes, too. Raises Refused, Conflict."""
        given_metadata = proposed.get("metadata")
        writing.check_metadata(given_metadata)
        assert isinstance(given_metadata, Mapping)
        _check_preconditions(
            kind,
            old,
            options.resource_version or given_metadata.get("resourceVersion"),
            options.uid,
        )
        writing.check_address(old["metadata"], given_metadata)
        _raise_if_invalid(
            kind, key_of(old), writing.immutable_changes(old["metadata"], given_metadata)
        )
        new = writing.writable_part(
            old, proposed, options.through_status, self._resource(kind).has_status
        )
        new["metadata"] = writing.preserve_server_fields(old["metadata"], new["metadata"])
        if new["metadata"] != old["metadata"]:
            _check_names(kind, new["metadata"])
        return new

    async def delete(self, remove: Remove, options: WriteOptions = DEFAULT_OPTIONS) -> Object:
        """Delete an object, or mark it as deleting while it has finalizers.

        Raises NotFound, Denied, and Conflict if it is not the one that is meant.
        """
        kind, key = remove.kind, remove.key
        self._resource(kind)
        old = self._writable(kind, key)
        _check_preconditions(kind, old, options.resource_version, options.uid)
        review = Review(
            operation=Operation.DELETE,
            kind=kind,
            key=key,
            old=in_version(kind, old),
            user=options.user,
            dry_run=options.dry_run,
            warn=options.warn,
        )
        await self._admission.admit(review)
        old = self._writable(kind, key)
        _check_preconditions(kind, old, options.resource_version, options.uid)
        new = _marked_for_deletion(kind, old, options, rfc3339(self._clock.now()))
        if new is None:
            deleted = {**old, "metadata": dict(old["metadata"])}
            return await self._commit(kind, key, deleted, "DELETED", options)
        if new == old:
            await self._wait_durable((kind.group, kind.plural), key)
            return in_version(kind, old)
        return await self._commit(kind, key, new, "MODIFIED", options)

    async def _admit(self, review: Review) -> Object:
        admitted = await self._admission.admit(review)
        assert admitted is not None, "what is written is an object"
        return admitted

    async def _commit(
        self, kind: Kind, key: Key, obj: dict[str, Any], event_type: str, options: WriteOptions
    ) -> Object:
        """Write an object with its new version; return it once it is durable and visible."""
        if options.dry_run:
            return in_version(kind, obj)
        version = self._version + 1
        group_resource = (kind.group, kind.plural)
        obj["metadata"]["resourceVersion"] = str(version)
        after = None if event_type == "DELETED" else obj
        try:
            record = orjson.dumps([version, *group_resource, *key, after])
        except orjson.JSONEncodeError as error:
            raise Refused(f"{kind} {key} cannot be written: {error}") from error
        self._version = version
        before = self._newest(group_resource, key)
        change = ObjectChange(
            version, group_resource, event_type, obj, before, estimated_size(record)
        )
        durable = self._committer.submit(record, lambda: self._publish(change, key, after))
        self._pending[group_resource, key] = _Pending(version, after, durable)
        await asyncio.shield(durable)
        return in_version(kind, obj)

    async def _wait_durable(self, group_resource: GroupResource, key: Key) -> None:
        """Return once the newest version of an object is durable: what is told of it is true."""
        pending = self._pending.get((group_resource, key))
        if pending is not None:
            await asyncio.shield(pending.durable)

    def _publish(self, change: ObjectChange, key: Key, after: Object | None) -> None:
        """Make a durable change visible: to readers, and to watchers, in order."""
        self._durable_version = change.version
        self._set_visible(change.group_resource, key, after)
        if self._pending[change.group_resource, key].version == change.version:
            del self._pending[change.group_resource, key]
        self._history.add(change)
        for listener in self._listeners:
            listener(change)

    def _set_visible(self, group_resource: GroupResource, key: Key, after: Object | None) -> None:
        before = self._objects[group_resource].get(key)
        self._label_indexes[group_resource].update(key, before, after)
        if before is None or after is None:
            self._sorted_keys_by_resource.pop(group_resource, None)
        if after is None:
            self._objects[group_resource].pop(key, None)
            if group_resource == (CRD.group, CRD.plural) and before is not None:
                self._withdraw(from_crd(before))
        else:
            self._objects[group_resource][key] = after
            if group_resource == (CRD.group, CRD.plural):
                self._serve(from_crd(after))

    def _withdraw(self, resource: Resource) -> None:
        group_resource = (resource.group, resource.plural)
        self._resources.pop(group_resource, None)
        self._history.end_watches(group_resource)

    def _serve(self, resource: Resource) -> None:
        group_resource = (resource.group, resource.plural)
        self._resources[group_resource] = resource
        self._objects.setdefault(group_resource, {})
        self._label_indexes.setdefault(group_resource, LabelIndex())

    # Restarting

    def _load(self, journal: Journal) -> None:
        for record in journal.replay():
            version, group, plural, namespace, name, after = orjson.loads(record)
            group_resource, key = (group, plural), Key(namespace, name)
            self._objects.setdefault(group_resource, {})
            self._label_indexes.setdefault(group_resource, LabelIndex())
            before = self._objects[group_resource].get(key)
            self._set_visible(group_resource, key, after)
            self._version = max(self._version, version)
            if not name:
                self._history.forget_all(version)
            elif version > self._history.horizon and (after or before):
                change = _replayed_change(
                    version, group_resource, before, after, estimated_size(record)
                )
                self._history.add(change)
        self._durable_version = self._version

    def _snapshot(self) -> Iterable[bytes]:
        # Definitions first: replaying an object needs its resource. Copied, because changes
        # go on meanwhile, which put other objects in the place of these.
        group_resources = sorted(
            self._objects, key=lambda group_resource: group_resource != (CRD.group, CRD.plural)
        )
        objects = [
            (group_resource, [*self._objects[group_resource].items()])
            for group_resource in group_resources
        ]
        # A record without an object keeps the version counter from going back, and says
        # that changes are not known as a history before it.
        yield orjson.dumps([self._durable_version, CRD.group, CRD.plural, "", "", None])
        for group_resource, objects_by_key in objects:
            for key, obj in objects_by_key:
                version = int(obj["metadata"]["resourceVersion"])
                yield orjson.dumps([version, *group_resource, *key, obj])

    # Finding

    def _resource(self, kind: Kind) -> Resource:
        resource = self._resources.get((kind.group, kind.plural))
        if resource is None or kind.version not in resource.versions:
            raise ResourceNotServed()
        return resource

    def _objects_by_key(self, kind: Kind) -> dict[Key, Object]:
        self._resource(kind)
        return self._objects[kind.group, kind.plural]

    def _visible(self, kind: Kind, key: Key) -> Object:
        obj = self._objects_by_key(kind).get(key)
        if obj is None:
            raise ObjectNotFound(kind, key.name)
        return obj

    def _newest(self, group_resource: GroupResource, key: Key) -> Object | None:
        if (group_resource, key) in self._pending:
            return self._pending[group_resource, key].object
        return self._objects[group_resource].get(key)

    def _writable(self, kind: Kind, key: Key) -> Object:
        obj = self._newest((kind.group, kind.plural), key)
        if obj is None:
            raise ObjectNotFound(kind, key.name)
        return obj


def _check_servable(crd: Object) -> None:
    """Raise Refused for a definition that cannot be served: after the disk it is too late."""
    try:
        resource = from_crd(crd)
        established_status(crd, "")
    except (KeyError, TypeError, AttributeError) as error:
        raise Refused(f"spec: the definition is not complete: {error!r}") from error
    if not resource.versions or not writing.are_strings(
        (resource.group, resource.plural, resource.kind_name, *resource.versions)
    ):
        raise Refused("spec: the definition serves nothing")
    name = crd["metadata"]["name"]
    if name != f"{resource.plural}.{resource.group}":
        why = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
        _raise_if_invalid(CRD, Key("", name), [Cause("metadata.name", "FieldValueInvalid", why)])


def _check_names(kind: Kind, metadata: Mapping[str, Any]) -> None:
    """Raise ObjectInvalid for names, labels and annotations that no API takes."""
    _raise_if_invalid(kind, Key("", metadata.get("name") or ""), naming.violations(kind, metadata))


def _raise_if_invalid(kind: Kind, key: Key, causes: Sequence[Cause]) -> None:
    if causes:
        raise ObjectInvalid(kind.group, kind.name, key.name, causes)


def _keep_managed_fields(
    resource: Resource, kind: Kind, old: Object, new: Object, options: WriteOptions
) -> Object:
    """Return an object that has been applied: its managed fields are up to date already."""
    return new


def _check_preconditions(kind: Kind, obj: Object, seen_version: Any, uid: Any) -> None:
    """Raise Conflict where an object is not the one, or not in the version, that is meant."""
    metadata = obj["metadata"]
    if uid is not None and uid != metadata["uid"]:
        raise ObjectConflict(
            kind, metadata["name"], failed_precondition("UID", uid, metadata["uid"])
        )
    if seen_version is not None and seen_version != metadata["resourceVersion"]:
        raise ObjectConflict(kind, metadata["name"])


def _has_finalizers(kind: Kind, obj: Object) -> bool:
    """Return whether something is still to be done before an object may go."""
    if kind == NAMESPACE and obj.get("spec", {}).get("finalizers"):
        return True
    return bool(obj["metadata"].get("finalizers"))


def _marked_for_deletion(
    kind: Kind, old: Object, options: WriteOptions, now: str
) -> dict[str, Any] | None:
    """Return an object as it waits for its end; None where it can go at once."""
    metadata = old["metadata"]
    finalizers = list(metadata.get("finalizers") or ())
    if kind == CRD and not metadata.get("deletionTimestamp"):
        metadata = {**metadata, "finalizers": [*finalizers, CLEANUP_FINALIZER]}
    waiting_metadata = deletion_metadata(metadata, options, now)
    if waiting_metadata is None and _has_finalizers(kind, old):
        waiting_metadata = {"deletionTimestamp": now, "deletionGracePeriodSeconds": 0, **metadata}
    if waiting_metadata is None:
        return None
    if kind == NAMESPACE:
        return {**old, "metadata": waiting_metadata, "status": {"phase": "Terminating"}}
    return {**old, "metadata": waiting_metadata}


def _replayed_change(
    version: int,
    group_resource: GroupResource,
    before: Object | None,
    after: Object | None,
    size: int,
) -> ObjectChange:
    """Return a change that an earlier life has made."""
    if after is not None:
        type = "ADDED" if before is None else "MODIFIED"
        return ObjectChange(version, group_resource, type, after, before, size)
    assert before is not None
    metadata = {**before["metadata"], "resourceVersion": str(version)}
    deleted = {**before, "metadata": metadata}
    return ObjectChange(version, group_resource, "DELETED", deleted, before, size)
