"""System storage: the system's own, on all rabbits or on some, until an admin deletes it.

An NnfSystemStorage, its Servers, Computes, NnfStorage and NnfAccess have one name, and are made in
that order. Rabbits that join the system get their share; what was made on a rabbit stays until all
of it is deleted, and is not made larger or smaller.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Create, Kind, Object, Remove, Write
from warren.dws import children, kinds, labels, reports
from warren.dws.faults import Fault, raise_for
from warren.dws.node import FLASH_TYPES
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import (
    Computes,
    Servers,
    ServersSet,
    ServersSpec,
    ServersStorage,
)
from warren.dws.objects.meta import Meta
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.systemconfiguration import StorageNode, SystemConfiguration
from warren.dws.objects.systemstorages import NnfSystemStorage
from warren.dws.storage import nnfstorage

SET_LABEL: Final = "system-storage"
"""The allocation set."""

_SHAREABLE_TYPES: Final = ("raw", "gfs2")
"""What several nodes may have at a time."""


class SystemStorageSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An NnfSystemStorage, and what has its name, as it was seen."""

    object: NnfSystemStorage
    configuration: SystemConfiguration | None
    is_usable: Callable[[str], bool]
    """Returns whether a rabbit is enabled and ready."""
    has_profile: bool
    """Whether the profile that it refers to is there."""
    servers: Servers | None = None
    computes: Computes | None = None
    storage: NnfStorage | None = None
    access: NnfAccess | None = None

    @property
    def objects_of_its_name(self) -> Mapping[Kind, Meta]:
        """What has its name, in the order in which it goes."""
        objects = {
            kinds.NNF_ACCESS: self.access,
            kinds.NNF_STORAGE: self.storage,
            kinds.COMPUTES: self.computes,
            kinds.SERVERS: self.servers,
        }
        return {kind: each.metadata for kind, each in objects.items() if each is not None}

    @property
    def dependents(self) -> Mapping[Kind, Meta]:
        """What is its own of that, and no older namesake's."""
        meta = self.object.metadata
        return {
            kind: each
            for kind, each in self.objects_of_its_name.items()
            if labels.is_owner(kinds.SYSTEM_STORAGE, meta, each.labels)
        }


def profile_of(obj: Object) -> tuple[str, ...]:
    """Index NnfSystemStorages by the profile that they refer to: `namespace/name`."""
    spec = obj.get("spec")
    reference = spec.get("storageProfile") if isinstance(spec, Mapping) else None
    if not isinstance(reference, Mapping):
        return ()
    return (f"{reference.get('namespace', '')}/{reference.get('name', '')}",)


def is_about_to_go(snapshot: SystemStorageSnapshot) -> bool:
    """Return whether `decide` is about to say that nothing is left.

    What was seen may be older than the NnfSystemStorage, so that must be read from the API.
    """
    return snapshot.object.metadata.deleting and not snapshot.dependents


def decide(snapshot: SystemStorageSnapshot) -> Sequence[Write]:
    """Make what is missing, and say how far it is; in deletion, give all of it back."""
    system_storage = snapshot.object
    if system_storage.metadata.deleting:
        return _give_back(snapshot)
    if labels.SYSTEM_STORAGE_FINALIZER not in system_storage.metadata.finalizers:
        # First of all: without it the object may be gone before its storage is.
        finalizers = [*system_storage.metadata.finalizers, labels.SYSTEM_STORAGE_FINALIZER]
        patch = {"metadata": {"finalizers": finalizers}}
        return [_change(kinds.SYSTEM_STORAGE, system_storage.metadata, patch)]
    try:
        _check_spec(snapshot)
        return _make(snapshot)
    except Fault as fault:
        return _report(system_storage, ready=False, fault=fault)


# What is asked for


def _check_spec(snapshot: SystemStorageSnapshot) -> None:
    """Raise the Fault of what cannot be made."""
    spec = snapshot.object.spec
    for listed, left_out, names in (
        (spec.include_rabbits, spec.exclude_rabbits, "Rabbits"),
        (spec.include_computes, spec.exclude_computes, "Computes"),
    ):
        if listed and left_out:
            raise _mistake(f"include{names} and exclude{names} cannot both be given: leave one out")
    if spec.type not in FLASH_TYPES:
        raise _mistake(
            f"there is no file system of type {spec.type}: take {', '.join(FLASH_TYPES)}"
        )
    if spec.capacity < 1:
        raise _mistake(f"a capacity of {spec.capacity} is none: ask for a byte or more")
    if spec.make_client_mounts and not spec.client_mount_path.startswith("/"):
        raise _mistake("makeClientMounts needs a clientMountPath that begins with /")
    if spec.system_configuration.name and spec.system_configuration.key != kinds.CONFIGURATION_KEY:
        other_key = spec.system_configuration.key
        raise _mistake(f"the SystemConfiguration is {kinds.CONFIGURATION_KEY}, and not {other_key}")
    profile = spec.storage_profile
    if profile.kind != kinds.NNF_STORAGE_PROFILE.name or not snapshot.has_profile:
        raise _mistake(f"storageProfile: there is no NnfStorageProfile {profile.key}")
    if snapshot.configuration is None:
        raise Fault(
            f"SystemConfiguration {kinds.CONFIGURATION_KEY} is not there yet", severity="Minor"
        )
    for kind, each in snapshot.objects_of_its_name.items():
        if kind not in snapshot.dependents:
            raise _mistake(f"the name is taken: there is a {kind.name} {each.key} of another's")
    _check_unchanged(snapshot.storage, snapshot.object)


def _check_unchanged(storage: NnfStorage | None, system_storage: NnfSystemStorage) -> None:
    if storage is None or not storage.spec.allocation_sets:
        return
    existing = (storage.spec.file_system_type, storage.spec.allocation_sets[0].capacity)
    if existing != (system_storage.spec.type, system_storage.spec.capacity):
        raise _mistake(
            f"it was made as {existing[0]} of {existing[1]} bytes, which cannot be changed: delete "
            "it, and make another"
        )


def _mistake(message: str) -> Fault:
    return Fault(message, type="User")


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where system storage is, and who reaches it."""

    count_by_rabbit: Mapping[str, int]
    """How many allocations each rabbit has."""
    rabbit_by_compute: Mapping[str, str]
    """The rabbit of each compute node that reaches it."""


def layout(snapshot: SystemStorageSnapshot) -> Layout:
    """Return the rabbits and compute nodes that a spec asks for. Raises Fault."""
    spec, configuration = snapshot.object.spec, snapshot.configuration
    assert configuration is not None
    nodes = {node.name: node for node in configuration.spec.storage_nodes}
    unknown = [name for name in spec.include_rabbits if name not in nodes]
    if unknown:
        raise _mistake(f"includeRabbits: the system has no rabbit {', '.join(unknown)}")
    rabbits = spec.include_rabbits or [name for name in nodes if name not in spec.exclude_rabbits]
    if spec.exclude_disabled_rabbits:
        rabbits = [name for name in rabbits if snapshot.is_usable(name)]
    computes_by_rabbit = {
        name: _reaching_computes(snapshot.object, nodes[name]) for name in dict.fromkeys(rabbits)
    }
    reached = {each for computes in computes_by_rabbit.values() for each in computes}
    unreached = [name for name in spec.include_computes if name not in reached]
    if unreached:
        raise _mistake(
            f"includeComputes: {', '.join(unreached)} is wired to no rabbit that has the storage"
        )
    crowded = [
        name for name, computes in computes_by_rabbit.items() if spec.shared and len(computes) > 1
    ]
    if spec.make_client_mounts and spec.type not in _SHAREABLE_TYPES and crowded:
        raise _mistake(
            f"an {spec.type} is damaged where several compute nodes mount it, as those of "
            f"{crowded[0]} would: ask for shared: false"
        )
    counts = {
        name: 1 if spec.shared else len(computes) for name, computes in computes_by_rabbit.items()
    }
    return Layout(
        count_by_rabbit={name: count for name, count in counts.items() if count},
        rabbit_by_compute={
            each: name for name, computes in computes_by_rabbit.items() for each in computes
        },
    )


def _reaching_computes(system_storage: NnfSystemStorage, rabbit: StorageNode) -> list[str]:
    """Return the compute nodes of a rabbit that are to reach the storage."""
    spec = system_storage.spec
    if spec.include_computes:
        wanted = {*spec.include_computes}
        return [each.name for each in rabbit.computes_access if each.name in wanted]
    return [
        each.name
        for each in rabbit.computes_access
        if _is_targeted(system_storage, each.index) and each.name not in spec.exclude_computes
    ]


def _is_targeted(system_storage: NnfSystemStorage, index: int) -> bool:
    """Return whether compute nodes at a place on their rabbit are meant."""
    match system_storage.spec.computes_target:
        case "even":
            return index % 2 == 0
        case "odd":
            return index % 2 == 1
        case "pattern":
            return index in system_storage.spec.computes_pattern
    return True


# What is made


def _make(snapshot: SystemStorageSnapshot) -> Sequence[Write]:
    system_storage, wanted_layout = snapshot.object, layout(snapshot)
    # What is there stays, and is as much as it was.
    existing = _existing_counts(snapshot.storage)
    counts = {
        **existing,
        **{name: n for name, n in wanted_layout.count_by_rabbit.items() if name not in existing},
    }
    if not counts:
        raise Fault("no rabbit is to have it", type="User", severity="Major")
    servers_spec = _servers_spec(system_storage, counts)
    writes: list[Write] = []
    sets = [_encode_set(each) for each in servers_spec.allocation_sets]
    if snapshot.servers is None:
        body = {"spec": {"allocationSets": sets}}
        writes.append(_create_for(kinds.SERVERS, system_storage, body, labels.SERVERS_FINALIZER))
    elif snapshot.servers.spec != servers_spec:
        patch = {"spec": {"allocationSets": sets}}
        writes.append(_change(kinds.SERVERS, snapshot.servers.metadata, patch))
    computes = _computes(snapshot, wanted_layout)
    data = [{"name": name} for name in computes]
    if snapshot.computes is None:
        writes.append(_create_for(kinds.COMPUTES, system_storage, {"data": data}))
    elif [each.name for each in snapshot.computes.data] != computes:
        writes.append(_change(kinds.COMPUTES, snapshot.computes.metadata, {"data": data}))
    new_storage = _new_storage(system_storage, servers_spec)
    if snapshot.storage is None:
        return [
            *writes,
            Create(kind=kinds.NNF_STORAGE, object=new_storage),
            *_report_not_ready(system_storage),
        ]
    if existing != counts:
        patch = {"spec": {"allocationSets": new_storage["spec"]["allocationSets"]}}
        change = _change(kinds.NNF_STORAGE, snapshot.storage.metadata, patch)
        return [*writes, change, *_report_not_ready(system_storage)]
    raise_for(snapshot.storage.status.error)
    if not snapshot.storage.status.ready:
        return [*writes, *_report_not_ready(system_storage)]
    if not computes:
        return [*writes, *_report(system_storage, ready=not writes)]
    if snapshot.access is None:
        return [
            *writes,
            Create(kind=kinds.NNF_ACCESS, object=_new_access(system_storage)),
            *_report_not_ready(system_storage),
        ]
    raise_for(snapshot.access.status.error)
    status = snapshot.access.status
    ready = status.ready and status.state == "mounted" and not writes
    return [*writes, *_report(system_storage, ready=ready)]


def _computes(snapshot: SystemStorageSnapshot, wanted_layout: Layout) -> list[str]:
    """Return who reaches it: those who did, as far as the system has them still, and new ones.

    Those of a rabbit on which nothing was made yet did not, listed or not: it may have none in the
    end. An allocation is a compute node's own by its place in the list. So none comes to a rabbit
    whose allocations are not shared, after they have been made.
    """
    existing, configuration = _existing_counts(snapshot.storage), snapshot.configuration
    wired = configuration.rabbits_of_all_computes() if configuration is not None else {}
    listed = [each.name for each in snapshot.computes.data] if snapshot.computes else []
    remaining = [name for name in listed if wired.get(name) in existing]
    new = [
        name
        for name, rabbit in wanted_layout.rabbit_by_compute.items()
        if name not in remaining and (snapshot.object.spec.shared or rabbit not in existing)
    ]
    return [*remaining, *new]


def _existing_counts(storage: NnfStorage | None) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for each in storage.spec.allocation_sets if storage is not None else ():
        for node in each.nodes:
            counts[node.name] += node.count
    return dict(counts)


def _servers_spec(system_storage: NnfSystemStorage, counts: Mapping[str, int]) -> ServersSpec:
    servers = tuple(ServersStorage(name=name, allocation_count=n) for name, n in counts.items())
    allocation_set = ServersSet(
        label=SET_LABEL, allocation_size=system_storage.spec.capacity, storage=servers
    )
    return ServersSpec(allocation_sets=(allocation_set,))


def _encode_set(each: ServersSet) -> Object:
    return {
        "label": each.label,
        "allocationSize": each.allocation_size,
        "storage": [
            {"name": server.name, "allocationCount": server.allocation_count}
            for server in each.storage
        ],
    }


def _owner(system_storage: NnfSystemStorage) -> children.Owner:
    return children.Owner(
        kind=kinds.SYSTEM_STORAGE,
        meta=system_storage.metadata,
        labels=_labels(system_storage),
        # A profile may be one for jobs, too, and its commands name what is the job's.
        variables={
            "$JOBID": "none",
            "$DIRECTIVE_INDEX": "0",
            "$WORKFLOW_UID": system_storage.metadata.uid,
            "$USERID": "0",
            "$GROUPID": "0",
        },
        userid=0,
        groupid=0,
    )


def _labels(system_storage: NnfSystemStorage) -> dict[str, str]:
    # The last one is inherited down to the nodes: what has it is no orphan of a Workflow.
    return {labels.DIRECTIVE_INDEX: "0", labels.SYSTEM_STORAGE: system_storage.metadata.uid}


def _create_for(
    kind: Kind, system_storage: NnfSystemStorage, body: Object, *finalizers: str
) -> Create:
    meta = system_storage.metadata
    metadata = {
        "name": meta.name,
        "namespace": meta.namespace,
        "labels": {**_labels(system_storage), **labels.of_owner(kinds.SYSTEM_STORAGE, meta)},
        "ownerReferences": labels.owner_references(kinds.SYSTEM_STORAGE, meta),
        "finalizers": list(finalizers),
    }
    return Create(kind=kind, object={"metadata": metadata, **body})


def _new_storage(system_storage: NnfSystemStorage, servers_spec: ServersSpec) -> Object:
    servers = Servers(metadata=system_storage.metadata, spec=servers_spec)
    new_storage = nnfstorage.new(
        _owner(system_storage), system_storage.metadata.name, system_storage.spec.type, servers
    )
    new_storage["metadata"]["labels"] |= _profile_labels(system_storage)
    return new_storage


def _profile_labels(system_storage: NnfSystemStorage) -> dict[str, str]:
    profile = system_storage.spec.storage_profile
    return labels.of_profile(profile.name, profile.namespace)


def _new_access(system_storage: NnfSystemStorage) -> Object:
    spec, meta = system_storage.spec, system_storage.metadata
    metadata = _owner(system_storage).metadata(meta.name, labels.ACCESS_FINALIZER)
    metadata["labels"] |= _profile_labels(system_storage)
    name_fields = {"name": meta.name, "namespace": meta.namespace}
    return {
        "metadata": metadata,
        "spec": {
            "desiredState": "mounted",
            "teardownState": "PostRun",
            "target": "shared" if spec.shared else "single",
            "userID": 0,
            "groupID": 0,
            "ignoreOfflineComputes": spec.ignore_offline_computes,
            "makeClientMounts": spec.make_client_mounts,
            "mountPath": spec.client_mount_path,
            "clientReference": {"kind": kinds.COMPUTES.name, **name_fields},
            "storageReference": {"kind": kinds.NNF_STORAGE.name, **name_fields},
        },
    }


# What is reported, and given back


def _report_not_ready(system_storage: NnfSystemStorage) -> Sequence[Write]:
    return _report(system_storage, ready=False)


def _report(
    system_storage: NnfSystemStorage, *, ready: bool, fault: Fault | None = None
) -> Sequence[Change]:
    error: dict[str, Any] | None = fault.as_error() if fault else None
    current = system_storage.status
    if current is not None and current.ready is ready and reports.same_error(current.error, error):
        return ()
    status = {"ready": ready, "error": error}
    return [reports.status(kinds.SYSTEM_STORAGE, system_storage.metadata, status)]


def _give_back(snapshot: SystemStorageSnapshot) -> Sequence[Write]:
    system_storage = snapshot.object
    if labels.SYSTEM_STORAGE_FINALIZER not in system_storage.metadata.finalizers:
        return ()
    # One kind after the other: nodes unmount before rabbits give back.
    for kind, meta in snapshot.dependents.items():
        removal = [] if meta.deleting else [Remove(kind=kind, key=meta.key)]
        return [*removal, *_report(system_storage, ready=False, fault=_removal_fault(snapshot))]
    finalizer = labels.SYSTEM_STORAGE_FINALIZER
    return [reports.remove_finalizer(kinds.SYSTEM_STORAGE, system_storage.metadata, finalizer)]


def _removal_fault(snapshot: SystemStorageSnapshot) -> Fault | None:
    """Return what a node says is in the way of what goes."""
    for each in (snapshot.access, snapshot.storage):
        if each is not None and each.metadata.deleting:
            try:
                raise_for(each.status.error)
            except Fault as fault:
                return fault
    return None


def _change(kind: Kind, meta: Meta, patch: Object) -> Change:
    return Change(kind=kind, key=meta.key, patch=patch, resource_version=meta.resource_version)
