"""Which NnfAccesses hold an NnfStorage: a finalizer for each, and a lock where one at a time may.

An NnfStorage has the finalizer of each NnfAccess that mounts it, and its flash stays until they
have let go. A file system that two nodes must not write at a time is mounted by one NnfAccess,
which an annotation names (dws-spec section 8). Persistent storage has an allocation for each
compute node: it is mounted by its node or, for copies, by its rabbit (ADR 065). What was another
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

_FINALIZER_PREFIX: Final = "nnf.cray.hpe.com/"
_MAX_NAME_LENGTH: Final = 63
"""Characters of a finalizer after its prefix. An access with a longer name has none."""


class MountedVolume(NamedTuple):
    """A volume on the node that mounts it."""

    volume: tuple[str, str]
    """Its volume group and its name."""
    node: str


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """What an NnfAccess mounts of storage that has an allocation for each compute node."""

    access: Key
    on_rabbits: bool
    """Whether rabbits mount it, not the compute nodes themselves."""
    nodes: frozenset[str] | None
    """The compute nodes whose allocations these are; None for all, and where it is not known."""
    mounted: frozenset[MountedVolume] = frozenset()
    """What nodes have mounted for it, or are asked to."""

    def conflicts_with(self, other: "Holding") -> bool:
        """Return whether a rabbit and a compute node, or two rabbits, would mount the same one."""
        if not (self.on_rabbits or other.on_rabbits):
            return False  # an allocation is one node's, which may mount it for several jobs
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
    holders = dict.fromkeys(str(Key(namespace, name)) for name in _access_names(finalizers))
    lock_holder = _lock_holder(metadata.get("annotations") or {})
    return [*holders] if lock_holder is None else [*dict.fromkeys([*holders, str(lock_holder)])]


def is_held(storage: NnfStorage) -> bool:
    """Return whether an NnfAccess holds a storage."""
    meta = storage.metadata
    return bool(_access_names(meta.finalizers)) or _lock_holder(meta.annotations) is not None


def other_holders(storage: NnfStorage, access: Key) -> list[Key]:
    """Return the other accesses that hold a storage."""
    lock_holder = _lock_holder(storage.metadata.annotations)
    namespace = storage.metadata.namespace
    holders = [Key(namespace, name) for name in _access_names(storage.metadata.finalizers)]
    all_holders = holders if lock_holder is None else [*holders, lock_holder]
    return [each for each in dict.fromkeys(all_holders) if each != access]


def can_have_access_finalizer(storage: NnfStorage, access: Key) -> bool:
    """Return whether an access that holds a storage shows it by a finalizer there.

    One of another namespace, or of a long name, cannot: the storage is its alone then.
    """
    return _finalizer(storage, access) is not None


def check_allocations_free(storage: NnfStorage, own: Holding, others: Sequence[Holding]) -> None:
    """Raise Fault while another access has allocations mounted that this one would mount elsewhere.

    An access that holds the storage has been let in.
    """
    if _holds(storage, own.access, exclusive=not can_have_access_finalizer(storage, own.access)):
        return
    for other in others:
        if own.conflicts_with(other):
            fs_type, name = storage.spec.file_system_type, storage.metadata.name
            raise Fault(
                f"the {fs_type} file system {name} is mounted for another Workflow on the same "
                "nodes, and jobs and copies mount it there one at a time: it is waited for",
                severity="Minor",
                type="User",
                debug=f"NnfStorage {storage.metadata.key} is held by NnfAccess {other.access}",
            )


def check_volumes_free(
    storage: NnfStorage, new_mounts: Iterable[MountedVolume], others: Sequence[Holding]
) -> None:
    """Raise Fault while another node has mounted what a node is to mount, for another access.

    The nodes behind one that leaves the SystemConfiguration have other allocations since, and what
    jobs have mounted stays mounted. An access that holds the storage is asked, too: what it has not
    mounted yet may be another's by now.
    """
    mounts_by_volume = {
        each.volume: (each.node, holding) for holding in others for each in holding.mounted
    }
    for volume, node in sorted(new_mounts):
        mounting_node, holding = mounts_by_volume.get(volume, (node, None))
        if holding is not None and mounting_node != node:
            fs_type, name = storage.spec.file_system_type, storage.metadata.name
            raise Fault(
                f"the part of the {fs_type} file system {name} that is for {node} since the "
                f"SystemConfiguration has changed is mounted on node {mounting_node} for another "
                f"Workflow: {mounting_node} is waited for",
                severity="Minor",
                type="User",
                debug=f"{volume[0]}/{volume[1]} is mounted by NnfAccess {holding.access}",
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
        lock_holder = _lock_holder(meta.annotations)
        if lock_holder not in (None, access):
            fs_type = storage.spec.file_system_type
            raise Fault(
                f"the {fs_type} file system {meta.name} is mounted for another Workflow or "
                "directive, and can be mounted for one at a time: it is waited for",
                severity="Minor",
                type="User",
                debug=f"NnfStorage {meta.key} is held by NnfAccess {lock_holder}",
            )
        patch["annotations"] = {labels.LOCK: f"{access.name}/{access.namespace}"}
    finalizer = _finalizer(storage, access)
    if finalizer is not None and finalizer not in meta.finalizers:
        patch["finalizers"] = [*meta.finalizers, finalizer]
    return _change(meta, patch)


def change_to_release(storage: NnfStorage, access: Key) -> Change | None:
    """Return the change by which an access lets go of a storage; None if it has."""
    meta = storage.metadata
    patch: dict[str, object] = {}
    if _lock_holder(meta.annotations) == access:
        # Without annotations there is no map of them, as everywhere in Kubernetes.
        is_only_annotation = len(meta.annotations) == 1
        patch["annotations"] = None if is_only_annotation else {labels.LOCK: None}
    finalizer = _finalizer(storage, access)
    if finalizer in meta.finalizers:
        patch["finalizers"] = [each for each in meta.finalizers if each != finalizer]
    return _change(meta, patch) if patch else None


def _holds(storage: NnfStorage, access: Key, exclusive: bool) -> bool:
    meta = storage.metadata
    finalizer = _finalizer(storage, access)
    has_finalizer = finalizer is None or finalizer in meta.finalizers
    return has_finalizer and (not exclusive or _lock_holder(meta.annotations) == access)


def _finalizer(storage: NnfStorage, access: Key) -> str | None:
    """Return the finalizer of an access, which names accesses of the storage's namespace alone."""
    if access.namespace != storage.metadata.namespace or len(access.name) > _MAX_NAME_LENGTH:
        return None
    return f"{_FINALIZER_PREFIX}{access.name}"


def _access_names(finalizers: Sequence[str]) -> list[str]:
    return [
        each.removeprefix(_FINALIZER_PREFIX)
        for each in finalizers
        if each.startswith(_FINALIZER_PREFIX) and each != labels.STORAGE_FINALIZER
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
