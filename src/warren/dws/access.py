"""NnfAccess: which nodes mount a storage, as one ClientMount on each node.

Computes mount the one allocation that is theirs; rabbits mount all of their own,
each in an index directory (dws-spec section 8).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.dws import (
    children,
    commandlines,
    kinds,
    labels,
    locks,
    nodelocal,
    profiles,
    reports,
    tolerance,
)
from warren.dws.commandlines import ProfileCommands
from warren.dws.faults import Fault, raise_for
from warren.dws.locks import Holding
from warren.dws.node import LUSTRE
from warren.dws.objects import (
    ClientMount,
    Computes,
    Meta,
    NnfAccess,
    NnfNodeBlockStorage,
    NnfNodeStorage,
    NnfStorage,
    NnfStorageProfile,
    State,
    SystemConfiguration,
    Workflow,
)
from warren.dws.sharing import Sharing
from warren.dws.storage import commands_of, node_storage_keys, volume

COMPUTES = "computes"
SERVERS = "servers"


TEARDOWN: Final[Mapping[str, State]] = {
    "copy_in": State.PRE_RUN,
    "copy_out": State.TEARDOWN,
    "container": State.TEARDOWN,
}
"""In which state rabbits unmount what a command had them mount (dws-spec section 8)."""


def child(
    workflow: Workflow,
    index: int,
    clients: str,
    mount_path: str,
    *,
    copy: tuple[int, str] | None = None,
    persistent: str | None = None,
    shared: Sharing | None = None,
    lost: Collection[str] = (),
) -> Object:
    """Make the NnfAccess of one directive's storage for `computes` or `servers`.

    The latter is for a `copy`, the index and the command of its directive, which it is labelled as.
    `persistent` names the instance whose storage it is, of which rabbits mount what is for the
    Workflow's compute nodes, and `shared` says who else than its owner is let in. What is for
    nodes that are `lost` is left out.
    """
    meta = workflow.metadata
    labelled, command = copy or (index, "")
    state = TEARDOWN.get(command, State.POST_RUN)
    spec: dict[str, Any] = {
        "desiredState": "mounted",
        "teardownState": state,
        "target": "single" if clients == COMPUTES else "all",
        "userID": workflow.spec.user_id,
        "groupID": workflow.spec.group_id,
        "mountPath": mount_path,
        "makeClientMounts": True,
        "storageReference": {
            "kind": "NnfStorage",
            "name": persistent or children.name(workflow, index),
            "namespace": meta.namespace,
        },
    }
    if clients == COMPUTES or persistent is not None:
        spec["clientReference"] = {
            "kind": "Computes",
            "name": meta.name,
            "namespace": meta.namespace,
        }
    if clients == SERVERS:
        spec["mountPathPrefix"] = mount_path
    metadata = children.metadata(
        workflow,
        f"{children.name(workflow, index)}-{clients}",
        labelled,
        labels.ACCESS_FINALIZER,
    )
    metadata["labels"] |= labels.of_profile(children.name(workflow, index), meta.namespace)
    annotations = tolerance.annotation(lost)
    if shared is not None:
        annotations[labels.SHARED_WITH] = str(shared)
    if annotations:
        metadata["annotations"] = annotations
    if copy is not None:
        metadata["labels"][labels.TEARDOWN_STATE] = state
    return {"metadata": metadata, "spec": spec}


def mounted_again(
    access: NnfAccess, index: int, command: str, lost: Collection[str] = ()
) -> Change:
    """Have rabbits mount for another copy, the directive at `index`, what they had unmounted."""
    state = TEARDOWN[command]
    carried = {labels.DIRECTIVE_INDEX: str(index), labels.TEARDOWN_STATE: state}
    return Change(
        kind=kinds.NNF_ACCESS,
        key=access.metadata.key,
        patch={
            "metadata": {"labels": carried, **_annotated(lost)},
            "spec": {"desiredState": "mounted", "teardownState": state},
        },
        resource_version=access.metadata.resource_version,
    )


def unmounted(access: NnfAccess, lost: Collection[str] = ()) -> Change:
    """Have nodes unmount; those that are lost are asked, and not waited for."""
    metadata = _annotated(lost)
    return Change(
        kind=kinds.NNF_ACCESS,
        key=access.metadata.key,
        patch={
            "spec": {"desiredState": "unmounted"},
            **({"metadata": metadata} if metadata else {}),
        },
        resource_version=access.metadata.resource_version,
    )


def _annotated(lost: Collection[str]) -> dict[str, Any]:
    annotations = tolerance.annotation(lost)
    return {"annotations": annotations} if annotations else {}


def storage_of(obj: Object) -> tuple[str, ...]:
    """Index NnfAccesses by their NnfStorage: `namespace/name`."""
    spec = obj.get("spec")
    reference = spec.get("storageReference") if isinstance(spec, Mapping) else None
    return (f"{reference.get('namespace', '')}/{reference['name']}",) if reference else ()


@dataclass(frozen=True, kw_only=True)
class AccessSnapshot:
    """An NnfAccess, and what it refers to."""

    access: NnfAccess
    storage: NnfStorage | None
    node_storages: Sequence[NnfNodeStorage]
    computes: Computes | None
    configuration: SystemConfiguration | None
    mounts: Sequence[ClientMount]
    blocks: Sequence[NnfNodeBlockStorage] = ()
    """The flash of the storage."""
    held: Sequence[Holding] = ()
    """What those of `rivals` hold."""
    profile: NnfStorageProfile | None = None
    """The one that was pinned for the storage."""


def decide(snapshot: AccessSnapshot) -> Sequence[Write]:
    """Make the ClientMounts, ask them for the desired state, and report on them."""
    access = snapshot.access
    if access.metadata.deleting:
        return _finalize(snapshot)
    try:
        mounted = access.spec.desired_state == "mounted"
        wanted = _children(snapshot) if mounted else {}
        holding = _holding(snapshot) if mounted else []
        awaited = _awaited(snapshot)
        _raise_for(awaited)
    except Fault as fault:
        return _report(access, ready=False, fault=fault)
    present = {mount.metadata.key: mount for mount in snapshot.mounts}
    writes: list[Write] = [
        Create(kind=kinds.CLIENT_MOUNT, object=obj)
        for key, obj in wanted.items()
        if key not in present
    ]
    # Of lost nodes nothing more is mounted; what they have mounted, they are to unmount.
    for mount in awaited if mounted else snapshot.mounts:
        change = _asked(access, mount, wanted.get(mount.metadata.key))
        if change:
            patch: dict[str, Any] = {"spec": change}
            carried = labels.inherited(access.metadata)
            if not carried.items() <= mount.metadata.labels.items():
                patch["metadata"] = {"labels": carried}  # it is mounted for another directive
            writes.append(
                Change(
                    kind=kinds.CLIENT_MOUNT,
                    key=mount.metadata.key,
                    patch=patch,
                    resource_version=mount.metadata.resource_version,
                )
            )
    settled = not writes and all(mount.all_in(access.spec.desired_state) for mount in awaited)
    # Nodes reach flash before they mount it, and no longer when they have unmounted it.
    reaching = _reaching(snapshot) if mounted or settled else []
    # Held before it is mounted anywhere, and no longer when it is mounted nowhere.
    released = [] if mounted or not settled else _released(snapshot)
    reported = _report(access, ready=settled, fault=None)
    return [*holding, *reaching, *writes, *released, *reported]


def _awaited(snapshot: AccessSnapshot) -> list[ClientMount]:
    """Return the mounts that the access waits for: those on nodes that are not lost.

    A rabbit of whose nodes all are lost has nothing more to mount.
    """
    lost = tolerance.of(snapshot.access.metadata)
    if not lost:
        return list(snapshot.mounts)
    left = _kept(snapshot, lost)
    return [
        mount
        for mount in snapshot.mounts
        if mount.spec.node not in lost
        and not (left is not None and mount.spec.node not in left and _on_rabbits(snapshot))
    ]


def _on_rabbits(snapshot: AccessSnapshot) -> bool:
    return snapshot.access.spec.target == "all"


def _kept(snapshot: AccessSnapshot, lost: Collection[str]) -> dict[str, list[int]] | None:
    """Return the allocations of a job's storage that are not for lost nodes; None for all."""
    storage = snapshot.storage
    if storage is None or storage.spec.file_system_type not in locks.EXCLUSIVE:
        return None
    if snapshot.configuration is None or snapshot.computes is None:
        raise Fault("the job's Computes are not there yet", severity="Minor")
    return tolerance.kept(snapshot.computes, snapshot.configuration.rabbits_of_computes(), lost)


def _asked(access: NnfAccess, mount: ClientMount, wanted: Object | None) -> dict[str, Any]:
    """Return what is to be changed of what a ClientMount asks for."""
    desired = access.spec.desired_state
    if mount.spec.desired_state == desired:
        return {}
    if desired == "unmounted":
        return {"desiredState": desired}
    if wanted is None or len(wanted["spec"]["mounts"]) == len(mount.spec.mounts):
        return {"desiredState": desired}
    return {"desiredState": desired, "mounts": wanted["spec"]["mounts"]}


def _holding(snapshot: AccessSnapshot) -> list[Change]:
    """Have the access hold its storage. Raises Fault while another one keeps it out."""
    storage, key = snapshot.storage, snapshot.access.metadata.key
    assert storage is not None  # the mounts are known
    exclusive = storage.spec.file_system_type in locks.EXCLUSIVE
    if _has_parts(storage):
        # Several Workflows may have persistent storage at a time, each on nodes of its own.
        own = holding(snapshot.access, snapshot.computes)
        locks.demand_apart(storage, own, snapshot.held)
        exclusive = own.nodes is None or not locks.is_marked(storage, key)
    taken = locks.taken(storage, key, exclusive=exclusive)
    return [] if taken is None else [taken]


def rivals(access: NnfAccess, storage: NnfStorage | None) -> list[Key]:
    """Return the accesses of which `decide` must know what they hold: none for a job's storage."""
    if storage is None or not _outlives(storage):
        return []
    return locks.others(storage, access.metadata.key)


def holding(access: NnfAccess, computes: Computes | None) -> Holding:
    """Return what an access mounts of storage that has a part for each compute node."""
    own = access.spec.target == "single" or names_clients(access)
    nodes = [compute.name for compute in computes.data] if computes is not None and own else ()
    return Holding(
        access=access.metadata.key,
        on_rabbits=access.spec.target == "all",
        nodes=frozenset(nodes) or None,
    )


def _has_parts(storage: NnfStorage) -> bool:
    """Return whether each allocation is one node's, and mounted by one at a time."""
    return _outlives(storage) and storage.spec.file_system_type in locks.EXCLUSIVE


def names_clients(access: NnfAccess) -> bool:
    """Return whether rabbits mount what is for certain compute nodes, and not all they have."""
    return access.spec.target == "all" and access.spec.client_reference is not None


def _released(snapshot: AccessSnapshot) -> list[Change]:
    if snapshot.storage is None:
        return []
    released = locks.released(snapshot.storage, snapshot.access.metadata.key)
    return [] if released is None else [released]


def _reaching(snapshot: AccessSnapshot) -> list[Change]:
    """Have each rabbit's flash name the nodes that reach it: itself, and computes that mount it.

    Those of other accesses that hold persistent storage are among them.
    """
    if snapshot.access.spec.target == "all":
        return []
    nodes: dict[str, None] = {}
    if snapshot.access.spec.desired_state == "mounted" and snapshot.computes is not None:
        nodes.update(dict.fromkeys(compute.name for compute in snapshot.computes.data))
    for other in snapshot.held:
        if not other.on_rabbits:
            nodes.update(dict.fromkeys(sorted(other.nodes or ())))
    clients: dict[str, list[str]] = {}
    if nodes:
        if snapshot.configuration is None:
            return []
        rabbits = snapshot.configuration.rabbits_of_computes()
        for node in nodes:
            # A node that another one has mounted it on may have left the system.
            if (rabbit := rabbits.get(node)) is not None:
                clients.setdefault(rabbit, []).append(node)
    changes = []
    for block in snapshot.blocks:
        rabbit = block.metadata.namespace
        wanted = (rabbit, *clients.get(rabbit, ()))
        # In any order: several accesses may write the same.
        known = all({*each.access} == {*wanted} for each in block.spec.allocations)
        if block.metadata.deleting or known:
            continue
        sizes = [each.capacity for each in block.spec.allocations]
        allocations = [{"capacity": size, "access": list(wanted)} for size in sizes]
        changes.append(
            Change(
                kind=kinds.NNF_NODE_BLOCK_STORAGE,
                key=block.metadata.key,
                patch={"spec": {"allocations": allocations}},
                resource_version=block.metadata.resource_version,
            )
        )
    return changes


def mount_name(access: Meta) -> str:
    """Return what the ClientMounts of an access are called, each in its node's namespace.

    What says by its labels alone that it is one is none: a node's agent may change those of its
    own, and would fail, or hold up, a job of other nodes.
    """
    return f"{access.namespace}-{access.name}"


def _children(snapshot: AccessSnapshot) -> dict[Key, Object]:
    """Return the ClientMounts as they should be, by key."""
    _check_complete(snapshot)
    on_rabbits = snapshot.access.spec.target == "all"
    assert snapshot.storage is not None
    if snapshot.storage.spec.file_system_type == LUSTRE:
        mounts = _lustre_mounts(snapshot)
    else:
        mounts = _rabbit_mounts(snapshot) if on_rabbits else _compute_mounts(snapshot)
    if not snapshot.access.spec.make_client_mounts:
        return {}  # the nodes reach the devices, and that is all
    meta = snapshot.access.metadata
    carried = {key: value for key, value in meta.annotations.items() if key == labels.SHARED_WITH}
    name = mount_name(meta)
    commands = _commands(snapshot.storage, snapshot.profile)
    return {
        Key(node, name): {
            "metadata": {
                "name": name,
                "namespace": node,
                "labels": {
                    **labels.inherited(meta),
                    **labels.of_owner(kinds.NNF_ACCESS, meta),
                    **_target(snapshot.storage),
                },
                **_annotations(carried, commands, on_rabbits=on_rabbits),
                "finalizers": [labels.CLIENT_MOUNT_FINALIZER],
            },
            "spec": {
                "node": node,
                "desiredState": snapshot.access.spec.desired_state,
                "mounts": each,
            },
        }
        for node, each in mounts.items()
    }


def _commands(storage: NnfStorage, profile: NnfStorageProfile | None) -> ProfileCommands:
    """Return the commands of a storage's profile. Raises Fault.

    Not those on its shares: a rabbit's agent may write there, and would have other machines run as
    root what it likes.
    """
    if profile is None and profiles.pinned_for(storage.metadata) is not None:
        raise Fault("the profile of the storage is not there yet", severity="Minor")
    try:
        return commands_of(storage, profile)
    except UserMistake as mistake:
        raise Fault(str(mistake).removesuffix(".")) from mistake


def _annotations(
    carried: Mapping[str, str], commands: ProfileCommands, *, on_rabbits: bool
) -> Object:
    """Return the annotations of a mount: those of its access, and the commands of its profile."""
    side = "rabbitCommands" if on_rabbits else "computeCommands"
    of_lustre = commands.file_system == LUSTRE
    group = "clientOptions.commandlines" if of_lustre else f"{commandlines.FILE_SYSTEM}.{side}"
    own = commands.within(group).without(commandlines.OF_SHARES)
    told = {labels.COMMANDS: commandlines.written(own)} if own else {}
    return {"annotations": {**carried, **told}} if carried or told else {}


def _target(storage: NnfStorage | None) -> dict[str, str]:
    """Return the labels that say whose storage is mounted."""
    if storage is None:
        return {}
    meta = storage.metadata
    return {
        labels.TARGET_INDEX: meta.labels.get(labels.DIRECTIVE_INDEX, ""),
        labels.TARGET_OWNER: labels.owner_uid(meta),
    }


def _check_complete(snapshot: AccessSnapshot) -> None:
    """Raise Fault while not all objects are seen that determine the mounts.

    Kinds are watched one by one: of what was there before the NnfAccess was made,
    some may be seen only after it, and half of the storage would be mounted.
    """
    present = {node_storage.metadata.key for node_storage in snapshot.node_storages}
    if snapshot.storage is None or not node_storage_keys(snapshot.storage).keys() <= present:
        raise Fault("not all of the storage is there yet", severity="Minor")
    by_node = snapshot.access.spec.target != "all" or names_clients(snapshot.access)
    if by_node and not (snapshot.computes and snapshot.computes.data):
        raise Fault("the job's Computes are not there yet", severity="Minor")


def _lustre_mounts(snapshot: AccessSnapshot) -> dict[str, list[Object]]:
    """Return the one mount of each client: computes, or the rabbits that have OSTs."""
    storage = snapshot.storage
    assert storage is not None
    status = storage.status
    if not status.file_system_name:
        raise Fault("the file system has no name yet", severity="Minor")
    on_rabbits = snapshot.access.spec.target == "all" and not names_clients(snapshot.access)
    clients = (
        [node.name for each in storage.spec.allocation_sets if each.name == "ost"
         for node in each.nodes]
        if on_rabbits
        else [each.name for each in snapshot.computes.data] if snapshot.computes else []
    )  # fmt: skip
    mount: Object = {
        "mountPath": snapshot.access.spec.mount_path,
        "type": LUSTRE,
        "targetType": "directory",
        "options": "",
        "setPermissions": False,
        "userID": storage.spec.user_id,
        "groupID": storage.spec.group_id,
        "device": {
            "type": LUSTRE,
            "lustre": {
                "fileSystemName": status.file_system_name,
                "mgsAddresses": status.mgs_address,
            },
            "deviceReference": {
                "objectReference": {
                    "kind": kinds.NNF_STORAGE.name,
                    "name": storage.metadata.name,
                    "namespace": storage.metadata.namespace,
                }
            },
        },
    }
    return {name: [mount] for name in dict.fromkeys(clients)}


def _rabbit_mounts(snapshot: AccessSnapshot) -> dict[str, list[Object]]:
    prefix = snapshot.access.spec.mount_path
    allocations = _allocations(snapshot.node_storages)
    wanted: Mapping[str, Sequence[int]] = {
        rabbit: range(len(own)) for rabbit, own in allocations.items()
    }
    lost = tolerance.of(snapshot.access.metadata)
    if names_clients(snapshot.access):
        wanted = _parts(snapshot, lost)
    elif lost:
        left = _kept(snapshot, lost)
        wanted = wanted if left is None else left
    return {
        rabbit: [
            _mount(
                snapshot.access,
                f"{prefix}/{rabbit}-{number}",
                *_allocation(allocations, rabbit, number, "its compute nodes"),
                "reference",
            )
            for number in numbers
        ]
        for rabbit, numbers in wanted.items()
    }


def _parts(snapshot: AccessSnapshot, lost: Collection[str]) -> Mapping[str, Sequence[int]]:
    if snapshot.configuration is None:
        raise Fault("the system's configuration is not there yet", severity="Minor")
    assert snapshot.computes is not None  # what there must be was looked for
    nodes = [compute.name for compute in snapshot.computes.data if compute.name not in lost]
    places = nodelocal.positions(snapshot.configuration)
    return nodelocal.parts(nodes, snapshot.configuration.rabbits_of_computes(), places)


_Allocations = Mapping[str, Sequence[tuple[NnfNodeStorage, int]]]


def _allocation(
    allocations: _Allocations, rabbit: str, number: int, client: str
) -> tuple[NnfNodeStorage, int]:
    own = allocations.get(rabbit, ())
    if number >= len(own):
        raise Fault(
            "invalid matching between clients and storage. Too many clients for storage: "
            f"{rabbit} has no allocation for {client}",
            type="WLM",
        )
    return own[number]


def _compute_mounts(snapshot: AccessSnapshot) -> dict[str, list[Object]]:
    if snapshot.computes is None or snapshot.configuration is None:
        raise Fault("the job's Computes are not there yet", severity="Minor")
    allocations = _allocations(snapshot.node_storages)
    rabbits = snapshot.configuration.rabbits_of_computes()
    # Of storage that outlives jobs, others mount the rest: each allocation is one node's.
    if _outlives(snapshot.storage):
        numbers = nodelocal.positions(snapshot.configuration)
    else:
        numbers = nodelocal.in_order((each.name for each in snapshot.computes.data), rabbits)
    found: dict[str, list[Object]] = {}
    for compute in snapshot.computes.data:
        rabbit = rabbits.get(compute.name)
        if rabbit is None:
            raise Fault(f"compute node {compute.name} is wired to no rabbit", type="WLM")
        number = 0 if snapshot.access.spec.target == "shared" else numbers[compute.name]
        node_storage, index = _allocation(allocations, rabbit, number, compute.name)
        found[compute.name] = [
            _mount(snapshot.access, snapshot.access.spec.mount_path, node_storage, index, "lvm")
        ]
    return found


def _outlives(storage: NnfStorage | None) -> bool:
    return storage is not None and labels.PERSISTENT_NAME in storage.metadata.labels


def _allocations(node_storages: Sequence[NnfNodeStorage]) -> _Allocations:
    """Return each rabbit's allocations in order."""
    found: dict[str, list[tuple[NnfNodeStorage, int]]] = {}
    for node_storage in sorted(node_storages, key=lambda node_storage: node_storage.metadata.key):
        found.setdefault(node_storage.metadata.namespace, []).extend(
            (node_storage, number) for number in range(node_storage.spec.count)
        )
    return found


def _mount(
    access: NnfAccess, path: str, node_storage: NnfNodeStorage, number: int, device: str
) -> Object:
    group, name = volume(node_storage, number)
    is_raw = node_storage.spec.file_system_type == "raw"
    reference: Object = {
        "objectReference": {
            "kind": "NnfNodeStorage",
            "name": node_storage.metadata.name,
            "namespace": node_storage.metadata.namespace,
        }
    }
    if number:  # the first is not said, as in NNF
        reference = {**reference, "data": number}
    return {
        "mountPath": path,
        "type": _mount_type(node_storage.spec.file_system_type),
        "targetType": "file" if is_raw else "directory",
        "options": "bind" if is_raw else "",
        "setPermissions": is_raw,
        "userID": access.spec.user_id,
        "groupID": access.spec.group_id,
        "device": {
            "type": device,
            "lvm": {"deviceType": "nvme", "volumeGroup": group, "logicalVolume": name},
            "deviceReference": reference,
        },
    }


def _report(access: NnfAccess, *, ready: bool, fault: Fault | None) -> Sequence[Change]:
    state = access.spec.desired_state
    known = access.status
    error = fault.as_status() if fault else None
    if (known.state, known.ready) == (state, ready) and reports.same_error(known.error, error):
        return ()
    status: Object = {"state": state, "ready": ready, "error": error}
    return [reports.status(kinds.NNF_ACCESS, access.metadata, status)]


def _raise_for(mounts: Sequence[ClientMount]) -> None:
    for mount in mounts:
        raise_for(mount.status.error, mount.spec.node)


def _finalize(snapshot: AccessSnapshot) -> Sequence[Write]:
    if snapshot.mounts:
        removals = [
            Remove(kind=kinds.CLIENT_MOUNT, key=mount.metadata.key)
            for mount in snapshot.mounts
            if not mount.metadata.deleting
        ]
        try:
            _raise_for(snapshot.mounts)
        except Fault as fault:
            return [*removals, *_report(snapshot.access, ready=False, fault=fault)]
        return removals
    meta = snapshot.access.metadata
    return [
        *_released(snapshot),
        reports.finalized(kinds.NNF_ACCESS, meta, labels.ACCESS_FINALIZER),
    ]


def _mount_type(file_system: str) -> str:
    """Return what a ClientMount calls a file system: a raw volume is none."""
    return "none" if file_system == "raw" else file_system
