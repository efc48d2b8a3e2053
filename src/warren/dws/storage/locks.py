"""Which NnfAccesses hold an NnfStorage: a finalizer for each, and a lock where one at a time may.

An NnfStorage has the finalizer of each NnfAccess that mounts it, and its flash stays until they
have let go. A file system that two nodes must not write at a time is mounted by one NnfAccess,
which an annotation names (dws-spec section 8). Persistent storage has a part for each compute
node: a part is mounted by its node or, for copies, by its rabbit (ADR 065). What was another
node's before the SystemConfiguration changed, and is mounted there, is waited for (ADR 053).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from warren.base.objects import Change, Key, Object
from warren.dws import kinds, labels
from warren.dws.faults import Fault
from warren.dws.objects.meta import Meta
from warren.dws.objects.nnfstorages import NnfStorage

EXCLUSIVE_TYPES: Final = ("xfs", "ext4")
"""File systems that are damaged where two nodes mount the same one. A program that writes to a raw
volume from two nodes has the means to; a gfs2 is made for it."""

_FINALIZER: Final = "nnf.cray.hpe.com/"
_LONGEST: Final = 63
"""Characters of a finalizer after its prefix. An access with a longer name has none."""


class MountedVolume(NamedTuple):
    """A volume on the node that mounts it."""

    volume: tuple[str, str]
    """Its volume group and its name."""
    node: str


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What an NnfAccess mounts of storage that has a part for each compute node."""

    access: Key
    on_rabbits: bool
    """Whether rabbits mount it, not the compute nodes themselves."""
    nodes: frozenset[str] | None
    """The compute nodes whose parts these are; None for all, and where it is not known."""
    mounted: frozenset[MountedVolume] = frozenset()
    """What nodes have mounted for it, or are asked to."""

    def conflicts_with(self, other: "Holding") -> bool:
        """Return whether a rabbit and a compute node, or two rabbits, would mount the same part."""
        if not (self.on_rabbits or other.on_rabbits):
            return False  # a part is one node's, which may mount it for several jobs
        if self.nodes is None or other.nodes is None:
            return True
        return not self.nodes.isdisjoint(other.nodes)


def holders_of(obj: Object) -> Sequence[str]:
    """Index NnfStorages by the NnfAccesses that hold them: `namespace/name`."""
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or ()
    if labels.STORAGE_FINALIZER not in finalizers:
        return ()
    namespace = metadata.get("namespace", "")
    found = dict.fromkeys(str(Key(namespace, name)) for name in _access_names(finalizers))
    owner = _lock_holder(metadata.get("annotations") or {})
    return [*found] if owner is None else [*dict.fromkeys([*found, str(owner)])]


def is_held(storage: NnfStorage) -> bool:
    """Return whether an NnfAccess holds a storage."""
    meta = storage.metadata
    return bool(_access_names(meta.finalizers)) or _lock_holder(meta.annotations) is not None


def other_holders(storage: NnfStorage, access: Key) -> list[Key]:
    """Return the other accesses that hold a storage."""
    owner = _lock_holder(storage.metadata.annotations)
    namespace = storage.metadata.namespace
    holders = [Key(namespace, name) for name in _access_names(storage.metadata.finalizers)]
    found = holders if owner is None else [*holders, owner]
    return [each for each in dict.fromkeys(found) if each != access]


def has_access_finalizer(storage: NnfStorage, access: Key) -> bool:
    """Return whether an access that holds a storage has a finalizer there."""
    return _finalizer(storage, access) is not None


def check_parts_free(storage: NnfStorage, own: Holding, held: Sequence[Holding]) -> None:
    """Raise Fault while another access has parts mounted that this one would mount elsewhere.

    An access that holds the storage has been let in.
    """
    if _holds(storage, own.access, exclusive=not has_access_finalizer(storage, own.access)):
        return
    for other in held:
        if own.conflicts_with(other):
            kind, name = storage.spec.file_system_type, storage.metadata.name
            raise Fault(
                f"the {kind} file system {name} is mounted for another Workflow on the same nodes, "
                "and jobs and copies mount it there one at a time: it is waited for",
                severity="Minor",
                type="User",
                debug=f"NnfStorage {storage.metadata.key} is held by NnfAccess {other.access}",
            )


def check_volumes_free(
    storage: NnfStorage, new_mounts: Iterable[MountedVolume], held: Sequence[Holding]
) -> None:
    """Raise Fault while another node has mounted what a node is to mount, for another access.

    The nodes behind one that leaves the SystemConfiguration have other parts since, and what jobs
    have mounted stays mounted. An access that holds the storage is asked, too: what it has not
    mounted yet may be another's by now.
    """
    mounted = {each.volume: (each.node, other) for other in held for each in other.mounted}
    for volume, node in sorted(new_mounts):
        holder, other = mounted.get(volume, (node, None))
        if other is not None and holder != node:
            kind, name = storage.spec.file_system_type, storage.metadata.name
            raise Fault(
                f"the part of the {kind} file system {name} that is for {node} since the "
                f"SystemConfiguration has changed is mounted on node {holder} for another "
                f"Workflow: {holder} is waited for",
                severity="Minor",
                type="User",
                debug=f"{volume[0]}/{volume[1]} is mounted by NnfAccess {other.access}",
            )


def change_to_hold(storage: NnfStorage, access: Key, *, exclusive: bool) -> Change | None:
    """Return the change by which an access holds a storage; None if it does.

    Raises Fault while it cannot. Of those that are `exclusive` one at a time mounts it.
    """
    meta = storage.metadata
    if _holds(storage, access, exclusive):
        return None
    if meta.deleting:
        raise Fault(f"the storage {meta.name} is being deleted", severity="Minor")
    patch: dict[str, Mapping[str, str] | list[str]] = {}
    if exclusive:
        owner = _lock_holder(meta.annotations)
        if owner not in (None, access):
            kind = storage.spec.file_system_type
            raise Fault(
                f"the {kind} file system {meta.name} is mounted for another Workflow or directive, "
                "and can be mounted for one at a time: it is waited for",
                severity="Minor",
                type="User",
                debug=f"NnfStorage {meta.key} is held by NnfAccess {owner}",
            )
        patch["annotations"] = {labels.LOCK: f"{access.name}/{access.namespace}"}
    own = _finalizer(storage, access)
    if own is not None and own not in meta.finalizers:
        patch["finalizers"] = [*meta.finalizers, own]
    return _change(meta, patch)


def change_to_release(storage: NnfStorage, access: Key) -> Change | None:
    """Return the change by which an access lets go of a storage; None if it has."""
    meta = storage.metadata
    patch: dict[str, object] = {}
    if _lock_holder(meta.annotations) == access:
        # Without annotations there is no map of them, as everywhere in Kubernetes.
        alone = len(meta.annotations) == 1
        patch["annotations"] = None if alone else {labels.LOCK: None}
    own = _finalizer(storage, access)
    if own in meta.finalizers:
        patch["finalizers"] = [each for each in meta.finalizers if each != own]
    return _change(meta, patch) if patch else None


def _holds(storage: NnfStorage, access: Key, exclusive: bool) -> bool:
    meta = storage.metadata
    own = _finalizer(storage, access)
    marked = own is None or own in meta.finalizers
    return marked and (not exclusive or _lock_holder(meta.annotations) == access)


def _finalizer(storage: NnfStorage, access: Key) -> str | None:
    """Return the finalizer of an access, which names accesses of the storage's namespace alone."""
    if access.namespace != storage.metadata.namespace or len(access.name) > _LONGEST:
        return None
    return f"{_FINALIZER}{access.name}"


def _access_names(finalizers: Sequence[str]) -> list[str]:
    return [
        each.removeprefix(_FINALIZER)
        for each in finalizers
        if each.startswith(_FINALIZER) and each != labels.STORAGE_FINALIZER
    ]


def _lock_holder(annotations: Mapping[str, str]) -> Key | None:
    """Return the access that has locked a storage."""
    name, _, namespace = annotations.get(labels.LOCK, "").partition("/")
    return Key(namespace, name) if name else None


def _change(meta: Meta, patch: Mapping[str, object]) -> Change:
    """Change what was seen and nothing else: of two that try at a time, one is refused."""
    return Change(
        kind=kinds.NNF_STORAGE,
        key=meta.key,
        patch={"metadata": patch},
        resource_version=meta.resource_version,
    )
