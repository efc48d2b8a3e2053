"""Namespaces and definitions that go: what is in them goes first."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

from warren.base.objects import Change, Key, Kind, Object, Remove, key_of
from warren.kube.admission import Denied, Operation, Review
from warren.kube.client import NotFound
from warren.kube.runtime import Reconciler
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.history import ObjectChange
from warren.kube.server.resources import Resource
from warren.kube.server.store import CLEANUP_FINALIZER, Store
from warren.kube.server.writing import WriteOptions

_FINALIZED_KINDS: Final = {(kind.group, kind.plural): kind for kind in (NAMESPACE, CRD)}


class Finalization:
    """Empties namespaces and definitions that are marked for deletion, and lets go of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._terminating: set[tuple[Kind, Key]] = set()
        """What is to go, and may not be empty yet."""
        self._reconciler: Reconciler[tuple[Kind, Key]] = Reconciler("ending", self._finalize)
        for kind in _FINALIZED_KINDS.values():
            for obj in store.objects_of(kind):
                self._note_deletion(kind, obj)
        store.listen(self._changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._reconciler.run()

    def _changed(self, change: ObjectChange) -> None:
        if change.type == "DELETED":
            group, plural = change.group_resource
            namespace = change.object["metadata"].get("namespace", "")
            for item in ((NAMESPACE, Key("", namespace)), (CRD, Key("", f"{plural}.{group}"))):
                if item in self._terminating:
                    self._reconciler.add(item)
        elif change.group_resource in _FINALIZED_KINDS:
            self._note_deletion(_FINALIZED_KINDS[change.group_resource], change.object)
        elif change.type == "ADDED":
            self._finalize_missing_namespace(change.object)

    def _finalize_missing_namespace(self, obj: Object) -> None:
        """Look after what was made in a namespace that went while webhooks were asked about it."""
        namespace = Key("", obj["metadata"].get("namespace", ""))
        if namespace.name and self._store.is_absent(NAMESPACE, namespace):
            self._terminating.add((NAMESPACE, namespace))
            self._reconciler.add((NAMESPACE, namespace))

    def _note_deletion(self, kind: Kind, obj: Object) -> None:
        if obj["metadata"].get("deletionTimestamp"):
            self._terminating.add((kind, key_of(obj)))
            self._reconciler.add((kind, key_of(obj)))

    async def _finalize(self, item: tuple[Kind, Key]) -> float | None:
        kind, key = item
        for inner_kind, inner in self._remaining(kind, key):
            if not inner["metadata"].get("deletionTimestamp"):
                with suppress(NotFound):
                    options = WriteOptions(propagation="Background")
                    await self._store.delete(Remove(kind=inner_kind, key=key_of(inner)), options)
        if self._remaining(kind, key):
            return None  # the last one of them will be news
        with suppress(NotFound):  # another client was faster
            await self._remove_finalizer(kind, self._store.get(kind, key))
        self._terminating.discard(item)
        return None

    def _remaining(self, kind: Kind, key: Key) -> list[tuple[Kind, Object]]:
        """Return what is in a namespace, or what a definition defines."""
        return [
            *(
                self._objects_in(key.name)
                if kind == NAMESPACE
                else self._objects_defined_by(key.name)
            )
        ]

    def _objects_in(self, namespace: str) -> Iterator[tuple[Kind, Object]]:
        for resource in self._store.resources():
            if resource.namespaced:
                kind = _kind(resource)
                for obj in self._store.list(kind, namespace).items:
                    yield kind, obj

    def _objects_defined_by(self, crd: str) -> Iterator[tuple[Kind, Object]]:
        plural, _, group = crd.partition(".")
        resource = self._store.resource(group, plural)
        if resource is not None:
            kind = _kind(resource)
            for obj in self._store.objects_of(kind):
                yield kind, obj

    async def _remove_finalizer(self, kind: Kind, obj: Object) -> None:
        if kind == NAMESPACE:
            patch: Object = {"spec": {"finalizers": None}}
        else:
            finalizers = [
                each for each in obj["metadata"].get("finalizers", ()) if each != CLEANUP_FINALIZER
            ]
            patch = {"metadata": {"finalizers": finalizers or None}}
        resource_version = obj["metadata"]["resourceVersion"]
        await self._store.patch(
            Change(kind=kind, key=key_of(obj), patch=patch, resource_version=resource_version)
        )


class NamespaceLifecycle:
    """Admits new objects to namespaces that are there and stay, and keeps three of those."""

    def __init__(self) -> None:
        self._get: Callable[[Kind, Key], Object]

    def connect(self, get: Callable[[Kind, Key], Object]) -> None:
        """Set the store in which namespaces are looked up: the one that asks for admission."""
        self._get = get

    async def admit(self, review: Review) -> Object | None:
        key = review.key
        if review.operation is Operation.DELETE and review.kind == NAMESPACE:
            if key.name in SYSTEM_NAMESPACES:
                raise Denied(
                    f'namespaces "{key.name}" is forbidden: this namespace may not be deleted'
                )
        elif review.operation is Operation.CREATE and key.namespace:
            namespace = self._get(NAMESPACE, Key("", key.namespace))
            if namespace["metadata"].get("deletionTimestamp"):
                raise Denied(
                    f'{review.kind} "{key.name}" is forbidden: unable to create new content in '
                    f"namespace {key.namespace} because it is being terminated"
                )
        return review.new


SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public")
"""The namespaces that every cluster has."""


def _kind(resource: Resource) -> Kind:
    return resource.kind(resource.versions[0])
