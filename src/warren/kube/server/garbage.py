"""Objects whose owners are gone: collected, as ownerReferences ask.

An owner is known by its uid. Background: dependents go after their owner.
Foreground: an owner that waits for it goes after those dependents that block
it. Orphan: dependents are left, and forget their owner.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.kube.client import NotFound
from warren.kube.runtime import Reconciler
from warren.kube.server.history import GroupResource, ObjectChange
from warren.kube.server.store import Store
from warren.kube.server.writing import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, WriteOptions


class _ObjectReference(NamedTuple):
    """Where an object is."""

    group_resource: GroupResource
    key: Key


class GarbageCollector:
    """Collects in one store. `run` lives until cancelled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._items_by_uid: dict[str, _ObjectReference] = {}
        """Every object by its uid."""
        self._dependents_by_owner: dict[str, set[_ObjectReference]] = {}
        """What names an owner, by the owner's uid."""
        self._owner_uids: dict[_ObjectReference, frozenset[str]] = {}
        self._reconciler: Reconciler[_ObjectReference] = Reconciler("garbage", self._collect)
        for resource in store.resources():
            group_resource = (resource.group, resource.plural)
            for obj in store.objects_of(resource.kind(resource.versions[0])):
                self._add(_ObjectReference(group_resource, key_of(obj)), obj)
        # What lost its owner before this began: known only when all objects are.
        for item in self._owner_uids:
            self._reconciler.add(item)
        for item in self._items_by_uid.values():
            self._requeue_if_waiting(item)
        store.listen(self._changed)

    async def run(self) -> None:
        """Collect until cancelled."""
        await self._reconciler.run()

    # Knowing

    def _changed(self, change: ObjectChange) -> None:
        item = _ObjectReference(change.group_resource, key_of(change.object))
        old_owner_uids = self._owner_uids.get(item, frozenset())
        if change.type == "DELETED":
            uid = change.object["metadata"]["uid"]
            self._remove(item, uid)
            for dependent in self._dependents_by_owner.get(uid, ()):
                self._reconciler.add(dependent)
        else:
            self._add(item, change.object)
            if self._owner_uids.get(item, frozenset()) - old_owner_uids:
                self._reconciler.add(item)
            self._requeue_if_waiting(item, change.object)
        # An owner may have waited for this dependent.
        for uid in old_owner_uids:
            if uid in self._items_by_uid:
                self._requeue_if_waiting(self._items_by_uid[uid])

    def _add(self, item: _ObjectReference, obj: Object) -> None:
        metadata = obj["metadata"]
        self._items_by_uid[metadata["uid"]] = item
        owner_uids = frozenset(
            reference["uid"] for reference in metadata.get("ownerReferences") or ()
        )
        self._set_owners(item, owner_uids)

    def _remove(self, item: _ObjectReference, uid: str) -> None:
        if self._items_by_uid.get(uid) == item:
            del self._items_by_uid[uid]
        self._set_owners(item, frozenset())

    def _set_owners(self, item: _ObjectReference, uids: frozenset[str]) -> None:
        old_uids = self._owner_uids.get(item, frozenset())
        if old_uids == uids:
            return
        for uid in old_uids - uids:
            self._dependents_by_owner[uid].discard(item)
            if not self._dependents_by_owner[uid]:
                del self._dependents_by_owner[uid]
        for uid in uids - old_uids:
            self._dependents_by_owner.setdefault(uid, set()).add(item)
        if uids:
            self._owner_uids[item] = uids
        else:
            self._owner_uids.pop(item, None)

    def _requeue_if_waiting(self, item: _ObjectReference, obj: Object | None = None) -> None:
        """Look at an owner that waits for its dependents, or to let go of them."""
        current = obj if obj is not None else self._object(item)
        if current is not None and _waits_for(current):
            self._reconciler.add(item)

    # Collecting

    async def _collect(self, item: _ObjectReference) -> float | None:
        obj = self._object(item)
        if obj is None:
            return None
        try:
            waits_for = _waits_for(obj)
            if waits_for == ORPHAN_FINALIZER:
                await self._orphan(item, obj)
            elif waits_for == FOREGROUND_FINALIZER:
                await self._delete_dependents(item, obj)
            await self._delete_or_disown(item, obj)
        except NotFound:
            pass  # another client was faster
        return None

    async def _orphan(self, item: _ObjectReference, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in list(self._dependents_by_owner.get(uid, ())):
            obj = self._object(dependent)
            if obj is not None:
                await self._disown(dependent, obj, {uid})
        await self._remove_finalizer(item, owner, ORPHAN_FINALIZER)

    async def _delete_dependents(self, item: _ObjectReference, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents_by_owner.get(uid, ())):
            obj = self._object(dependent)
            if obj is None:
                continue
            blocking |= any(each.get("blockOwnerDeletion") for each in _references(obj, {uid}))
            # One that has other owners lives on with them, and only forgets this one.
            other_owner_uids = self._owner_uids[dependent] - {uid}
            if any(self._is_live(other) for other in other_owner_uids):
                await self._disown(dependent, obj, {uid})
            elif not obj["metadata"].get("deletionTimestamp"):
                await self._delete(dependent, obj, foreground=True)
        if not blocking:
            await self._remove_finalizer(item, owner, FOREGROUND_FINALIZER)

    async def _delete_or_disown(self, item: _ObjectReference, obj: Object) -> None:
        """Delete an object that has lost all its owners; let it forget those that are gone."""
        owner_uids = self._owner_uids.get(item, frozenset())
        gone_uids = {uid for uid in owner_uids if not self._exists(uid, obj)}
        if not gone_uids or obj["metadata"].get("deletionTimestamp"):
            return
        if gone_uids != owner_uids:
            await self._disown(item, obj, gone_uids)
        else:
            await self._delete(item, obj)

    def _exists(self, uid: str, dependent: Object) -> bool:
        """Return whether there is such an owner, where a dependent may have one."""
        owner = self._items_by_uid.get(uid)
        if owner is None:
            return False
        # Nothing is owned across namespaces, nor something cluster-wide by what is in one.
        return owner.key.namespace in ("", key_of(dependent).namespace)

    def _is_live(self, uid: str) -> bool:
        owner = self._items_by_uid.get(uid)
        obj = self._object(owner) if owner is not None else None
        return obj is not None and _waits_for(obj) != FOREGROUND_FINALIZER

    # Writing

    async def _delete(
        self, item: _ObjectReference, obj: Object, *, foreground: bool = False
    ) -> None:
        uid = obj["metadata"]["uid"]
        has_dependents_to_wait_for = foreground and uid in self._dependents_by_owner
        options = WriteOptions(
            uid=uid,
            resource_version=obj["metadata"]["resourceVersion"],
            propagation="Foreground" if has_dependents_to_wait_for else None,
        )
        await self._store.delete(Remove(kind=self._kind(item), key=item.key), options)

    async def _disown(self, item: _ObjectReference, obj: Object, uids: set[str]) -> None:
        references = obj["metadata"].get("ownerReferences") or ()
        kept = [each for each in references if each["uid"] not in uids]
        await self._merge(item, obj, {"ownerReferences": kept or None})

    async def _remove_finalizer(self, item: _ObjectReference, obj: Object, finalizer: str) -> None:
        kept = [each for each in obj["metadata"]["finalizers"] if each != finalizer]
        await self._merge(item, obj, {"finalizers": kept or None})

    async def _merge(self, item: _ObjectReference, obj: Object, metadata: dict[str, Any]) -> None:
        resource_version = obj["metadata"]["resourceVersion"]
        patch = {"metadata": metadata}
        await self._store.patch(
            Change(
                kind=self._kind(item), key=item.key, patch=patch, resource_version=resource_version
            )
        )

    def _object(self, item: _ObjectReference) -> Object | None:
        try:
            return self._store.get(self._kind(item), item.key)
        except NotFound:
            return None

    def _kind(self, item: _ObjectReference) -> Kind:
        resource = self._store.resource(*item.group_resource)
        if resource is None:
            raise NotFound(f"{item.group_resource} is not served any more")
        return resource.kind(resource.versions[0])


def _waits_for(obj: Object) -> str | None:
    """Return the finalizer of ours that an object which is to go waits for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp"):
        return None
    finalizers = metadata.get("finalizers") or ()
    return next(
        (each for each in (ORPHAN_FINALIZER, FOREGROUND_FINALIZER) if each in finalizers), None
    )


def _references(obj: Object, uids: set[str]) -> Iterator[Object]:
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference["uid"] in uids:
            yield reference
