"""Which nodes mount the storage of an NnfAccess, and where: the ClientMounts.

Computes mount the one allocation that is theirs; rabbits mount all of their own,
each in an index directory (dws-spec section 8).
"""

from collections.abc import Collection, Mapping, Sequence

from warren.base.errors import UserMistake
from warren.base.objects import Key, Object
from warren.dws import commandlines, kinds, labels, nodelocal, tolerance
from warren.dws.access import accessobjects
from warren.dws.access.accesssnapshot import (
    AccessSnapshot,
    is_persistent,
    names_clients,
    remaining_allocations,
)
from warren.dws.commandlines import ProfileCommands
from warren.dws.faults import Fault
from warren.dws.node import LUSTRE
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.nnfstorages import NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import locks, lustre, storageprofiles
from warren.dws.storage.nnfstorage import commands_of, label_by_share, volume_group_and_name


def mount_name(access: Key) -> str:
    """Return what the ClientMounts of an access are called, each in its node's namespace.

    Labels alone make no object one of them: a node's agent may change those of its own objects, and
    could fail, or hold up, a job of other nodes.
    """
    return f"{access.namespace}-{access.name}"


def mount_name_on_computes(access: Key) -> str:
    """Return what the ClientMounts are called by which compute nodes mount a directive's storage.

    `access` is that by which rabbits mount it.
    """
    computes_access_name = access.name.removesuffix(accessobjects.SERVERS) + accessobjects.COMPUTES
    return mount_name(Key(access.namespace, computes_access_name))


def node_of(obj: Object) -> tuple[str, ...]:
    """Index ClientMounts by their nodes."""
    spec = obj.get("spec")
    if not isinstance(spec, Mapping) or "node" not in spec or "mounts" not in spec:
        return ()
    return (str(spec["node"]),)


def client_mounts(snapshot: AccessSnapshot) -> dict[Key, Object]:
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
    name = mount_name(meta.key)
    commands = _commands(snapshot.storage, snapshot.profile)
    return {
        Key(node, name): {
            "metadata": {
                "name": name,
                "namespace": node,
                "labels": {
                    **labels.inherited_labels(meta),
                    **labels.of_owner(kinds.NNF_ACCESS, meta),
                    **_target_labels(snapshot.storage),
                },
                **_annotations(shared_with(snapshot), commands, on_rabbits=on_rabbits),
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


def shared_with(snapshot: AccessSnapshot) -> dict[str, str]:
    """Return the annotation that says whom the root directory of a mount lets in, if that is said.

    It follows what the owner says: a node that mounts something again would let in whom an earlier
    list names (ADR 105).
    """
    return {} if snapshot.sharing is None else {labels.SHARED_WITH: str(snapshot.sharing)}


def _commands(storage: NnfStorage, profile: NnfStorageProfile | None) -> ProfileCommands:
    """Return the commands of a storage's profile. Raises Fault.

    Not those on its shares: a rabbit's agent may write there, and would have other machines run as
    root what it likes.
    """
    if profile is None and storageprofiles.pinned_profile_key(storage.metadata) is not None:
        raise Fault("the profile of the storage is not there yet", severity="Minor")
    try:
        return commands_of(storage, profile)
    except UserMistake as mistake:
        raise Fault(str(mistake).removesuffix(".")) from mistake


def _annotations(
    shared_with: Mapping[str, str], commands: ProfileCommands, *, on_rabbits: bool
) -> Object:
    """Return the annotations of a mount: whom it lets in, and the commands of its profile."""
    side = "rabbit" if on_rabbits else "compute"
    if commands.file_system == LUSTRE:
        commands = commands.only(lustre.CLIENT_COMMAND_NAMES[side])
        group = "clientOptions.commandlines"
    else:
        group = f"{commandlines.FILE_SYSTEM_COMMANDS}.{side}Commands"
    own_commands = commands.within(group).without_variables(commandlines.PER_RABBIT_VARIABLES)
    command_annotations = (
        {labels.COMMANDS: commandlines.encode(own_commands)} if own_commands else {}
    )
    return (
        {"annotations": {**shared_with, **command_annotations}}
        if shared_with or command_annotations
        else {}
    )


def _target_labels(storage: NnfStorage | None) -> dict[str, str]:
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
    if snapshot.storage is None or not label_by_share(snapshot.storage).keys() <= present:
        raise Fault("not all of the storage is there yet", severity="Minor")
    needs_computes = snapshot.access.spec.target != "all" or names_clients(snapshot.access)
    if needs_computes and not (snapshot.computes and snapshot.computes.data):
        raise Fault("the job's Computes are not there yet", severity="Minor")


def _lustre_mounts(snapshot: AccessSnapshot) -> dict[str, list[Object]]:
    """Return the one mount of each client: computes, or the rabbits that have OSTs."""
    storage = snapshot.storage
    assert storage is not None
    status = storage.status
    if not status.file_system_name:
        raise Fault("the file system has no name yet", severity="Minor")
    on_rabbits = snapshot.access.spec.target == "all"
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
    numbers_by_rabbit: Mapping[str, Sequence[int]] = {
        rabbit: range(len(rabbit_allocations)) for rabbit, rabbit_allocations in allocations.items()
    }
    lost = tolerance.lost_nodes(snapshot.access.metadata)
    if names_clients(snapshot.access):
        numbers_by_rabbit = _allocation_numbers_of_clients(snapshot, lost)
    elif lost:
        remaining = remaining_allocations(snapshot, lost)
        numbers_by_rabbit = numbers_by_rabbit if remaining is None else remaining
    if lost and not numbers_by_rabbit:
        raise Fault(
            "none of the job's nodes has unmounted its storage: rabbits mount none of it, and "
            "nothing of it can be copied"
        )
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
        for rabbit, numbers in numbers_by_rabbit.items()
    }


def _allocation_numbers_of_clients(
    snapshot: AccessSnapshot, lost: Collection[str]
) -> Mapping[str, Sequence[int]]:
    if snapshot.configuration is None:
        raise Fault("the system's configuration is not there yet", severity="Minor")
    assert snapshot.computes is not None  # `_check_complete` has looked for them
    nodes = [compute.name for compute in snapshot.computes.data if compute.name not in lost]
    wiring = snapshot.configuration.rabbits_of_computes()
    positions = nodelocal.positions(snapshot.configuration)
    numbers_by_rabbit = nodelocal.allocation_numbers_by_rabbit(nodes, wiring, positions)
    _check_same_allocations(snapshot, {node: (wiring[node], positions[node]) for node in nodes})
    return numbers_by_rabbit


def _check_same_allocations(
    snapshot: AccessSnapshot, allocations_by_node: Mapping[str, tuple[str, int]]
) -> None:
    """Raise Fault where a node has had mounted what is another node's since (ADR 053).

    What a rabbit would copy is not what the job has read or written.
    """
    if (
        snapshot.storage is None
        or snapshot.storage.spec.file_system_type not in locks.EXCLUSIVE_TYPES
    ):
        return
    allocations = _allocations(snapshot.node_storages)
    for node, mount in snapshot.mounts_on_computes.items():
        if node not in allocations_by_node:
            continue
        own_volume = volume_group_and_name(
            *_allocation(allocations, *allocations_by_node[node], node)
        )
        devices = (each.device.lvm for each in mount.spec.mounts)
        if any(each and (each.volume_group, each.logical_volume) != own_volume for each in devices):
            raise Fault(
                f"node {node} has had another allocation of {snapshot.storage.metadata.name} "
                "mounted than is its own by the SystemConfiguration, which has changed: nothing "
                "is copied, for that would be another node's",
                type="WLM",
            )


_Allocations = Mapping[str, Sequence[tuple[NnfNodeStorage, int]]]


def _allocation(
    allocations: _Allocations, rabbit: str, number: int, client: str
) -> tuple[NnfNodeStorage, int]:
    rabbit_allocations = allocations.get(rabbit, ())
    if number >= len(rabbit_allocations):
        raise Fault(
            "invalid matching between clients and storage. Too many clients for storage: "
            f"{rabbit} has no allocation for {client}",
            type="WLM",
        )
    return rabbit_allocations[number]


def _compute_mounts(snapshot: AccessSnapshot) -> dict[str, list[Object]]:
    if snapshot.computes is None or snapshot.configuration is None:
        raise Fault("the job's Computes are not there yet", severity="Minor")
    allocations = _allocations(snapshot.node_storages)
    wiring = snapshot.configuration.rabbits_of_computes()
    # Of storage that outlives jobs, others mount the rest: each allocation is one node's.
    if is_persistent(snapshot.storage):
        number_by_node = nodelocal.positions(snapshot.configuration)
    else:
        number_by_node = nodelocal.allocation_numbers(
            (each.name for each in snapshot.computes.data), wiring
        )
    mounts: dict[str, list[Object]] = {}
    for compute in snapshot.computes.data:
        rabbit = wiring.get(compute.name)
        if rabbit is None:
            raise Fault(f"compute node {compute.name} is wired to no rabbit", type="WLM")
        number = 0 if snapshot.access.spec.target == "shared" else number_by_node[compute.name]
        node_storage, index = _allocation(allocations, rabbit, number, compute.name)
        mounts[compute.name] = [
            _mount(snapshot.access, snapshot.access.spec.mount_path, node_storage, index, "lvm")
        ]
    return mounts


def _allocations(node_storages: Sequence[NnfNodeStorage]) -> _Allocations:
    """Return each rabbit's allocations in order."""
    allocations: dict[str, list[tuple[NnfNodeStorage, int]]] = {}
    for node_storage in sorted(node_storages, key=lambda node_storage: node_storage.metadata.key):
        allocations.setdefault(node_storage.metadata.namespace, []).extend(
            (node_storage, number) for number in range(node_storage.spec.count)
        )
    return allocations


def _mount(
    access: NnfAccess, path: str, node_storage: NnfNodeStorage, number: int, device_type: str
) -> Object:
    group, name = volume_group_and_name(node_storage, number)
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
            "type": device_type,
            "lvm": {"deviceType": "nvme", "volumeGroup": group, "logicalVolume": name},
            "deviceReference": reference,
        },
    }


def _mount_type(fs_type: str) -> str:
    """Return what a ClientMount calls a type of file systems: a raw volume is none."""
    return "none" if fs_type == "raw" else fs_type
