"""NnfStorage: a file system spread over rabbits, as one NnfNodeStorage on each.

The share of a rabbit is an object in that rabbit's own namespace: the agent
there watches its namespace and nothing else.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.directives import capacity
from warren.dws import children, commandlines, kinds, labels, reports
from warren.dws.commandlines import ProfileCommands
from warren.dws.faults import Fault, raise_for
from warren.dws.node import LUSTRE
from warren.dws.objects.assignments import Servers
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import locks, lustre, storageprofiles


def new(owner: children.Owner, name: str, first_set_label: str, servers: Servers) -> Object:
    """Make an NnfStorage from what the workload manager has assigned.

    `first_set_label` is the type of its file systems; the sets of Lustre, of which it has several,
    are labelled by their targets. Its name is that of the profile that was pinned for it, too
    (dws-spec section 0.3).
    """
    metadata = owner.metadata(name, labels.STORAGE_FINALIZER)
    metadata["labels"] |= labels.of_profile(name, owner.meta.namespace)
    variables = [{"name": name, "value": value} for name, value in owner.variables.items()]
    is_lustre = first_set_label in lustre.SET_LABELS
    return {
        "metadata": metadata,
        "spec": {
            "fileSystemType": LUSTRE if is_lustre else first_set_label,
            "userID": owner.userid,
            "groupID": owner.groupid,
            "allocationSets": [
                {
                    "name": each.label,
                    "capacity": each.allocation_size,
                    # All allocations on a rabbit are volumes of one group, but Lustre's targets.
                    "sharedAllocation": not is_lustre,
                    **({"targetType": each.label, "backFs": "zfs"} if is_lustre else {}),
                    "commandVariables": variables,
                    "nodes": [
                        {"name": server.name, "count": server.allocation_count}
                        for server in each.storage
                    ],
                }
                for each in servers.spec.allocation_sets
            ],
        },
    }


def decide(
    storage: NnfStorage,
    shares: Sequence[NnfNodeStorage],
    block_storages: Sequence[NnfNodeBlockStorage] = (),
    profile: NnfStorageProfile | None = None,
) -> Sequence[Write]:
    """Make the shares and report on them; in deletion, remove them and let go.

    `block_storages` are the shares' flash; `profile` is the one that is pinned for the storage.
    """
    meta = storage.metadata
    if meta.deleting:
        # Deleted by hand while a job has it mounted: its flash stays until that has let go.
        return () if locks.is_held(storage) else give_back(storage, shares, block_storages)
    present = {share.metadata.key: share for share in shares}
    block_keys = {block_storage.metadata.key for block_storage in block_storages}
    try:
        wanted = wanted_shares(storage, profile)
    except UserMistake as mistake:  # the pinned profile was edited since
        error = Fault(str(mistake).removesuffix(".")).as_error()
        if reports.same_error(storage.status.error, error):
            return ()
        return [reports.status(kinds.NNF_STORAGE, meta, {"ready": False, "error": error})]
    # The flash first: a share that is seen without it waits.
    missing = [
        *(
            Create(kind=kinds.NNF_NODE_BLOCK_STORAGE, object=new_block_storage(obj, size))
            for key, (obj, size) in wanted.items()
            # Shares of older versions have none.
            if key not in block_keys and (key not in present or present[key].spec.block_reference)
        ),
        *(
            Create(kind=kinds.NNF_NODE_STORAGE, object=obj)
            for key, (obj, _) in wanted.items()
            if key not in present
        ),
    ]
    return [*missing, *status_changes(storage, {key: present.get(key) for key in wanted})]


def bytes_by_rabbit(storage: NnfStorage) -> dict[str, int]:
    """Return how many bytes of each rabbit are the storage's, for as long as it is there."""
    bytes_by_rabbit: dict[str, int] = {}
    for each in storage.spec.allocation_sets:
        for node in each.nodes:
            bytes_by_rabbit[node.name] = (
                bytes_by_rabbit.get(node.name, 0) + node.count * each.capacity
            )
    return bytes_by_rabbit


def label_by_share(storage: NnfStorage) -> dict[Key, str]:
    """Return the label of the allocation set that each share belongs to, by the share's key."""
    return {
        key: obj["metadata"]["labels"][_SET_LABEL_KEY]
        for key, (obj, _) in wanted_shares(storage).items()
    }


_SET_LABEL_KEY = "nnf.cray.hpe.com/allocationset"


class LustreAddress(msgspec.Struct, frozen=True):
    """By what a Lustre file system is found: the address of its MGS, and its name there."""

    mgs_address: str
    file_system_name: str


def wanted_shares(
    storage: NnfStorage,
    profile: NnfStorageProfile | None = None,
    address: LustreAddress | None = None,
) -> dict[Key, tuple[dict[str, Any], int]]:
    """Return the shares as they should be, and how many bytes of flash each allocation takes.

    Raises UserMistake for commands of the profile that make no sense.
    """
    meta = storage.metadata
    shares_with_sizes: dict[Key, tuple[dict[str, Any], int]] = {}
    options_by_type = profile.data.file_system_profiles if profile is not None else {}
    fs_type = storage.spec.file_system_type
    options = options_by_type.get(fs_type)
    padding = options.allocation_padding if options is not None else "0"
    lustre_variables = lustre.variables(storage.spec.allocation_sets) if fs_type == LUSTRE else {}
    for each in storage.spec.allocation_sets:
        for target_share in lustre.target_shares(each):
            name = f"{meta.namespace}-{meta.name}-{each.name}-{target_share.number}"
            reference = {
                "kind": "NnfNodeBlockStorage",
                "name": name,
                "namespace": target_share.rabbit,
            }
            variables = [
                {"name": "$ALLOCATION_COUNT", "value": str(target_share.count)},
                # The rabbit is a host, too.
                {"name": "$HOST_COUNT", "value": str(target_share.count + 1)},
                *each.command_variables,
            ]
            values = {each["name"]: str(each["value"]) for each in variables if "value" in each}
            if fs_type == LUSTRE:
                commands = storageprofiles.lustre_commands(
                    profile, target_share.label, {**values, **lustre_variables}
                )
            else:
                commands = storageprofiles.commands_of(profile, fs_type, values)
            share = {
                "metadata": {
                    "name": name,
                    "namespace": target_share.rabbit,
                    **_annotations(commands),
                    "labels": {
                        **labels.inherited_labels(meta),
                        **labels.of_owner(kinds.NNF_STORAGE, meta),
                        _SET_LABEL_KEY: each.name,
                    },
                    "finalizers": [labels.NODE_STORAGE_FINALIZER],
                },
                "spec": {
                    "count": target_share.count,
                    "capacity": without_padding(each.capacity, padding),
                    "blockReference": reference,
                    "sharedAllocation": fs_type != LUSTRE,
                    "commandVariables": variables,
                    "fileSystemType": fs_type,
                    "userID": storage.spec.user_id,
                    "groupID": storage.spec.group_id,
                    **_targets(storage, target_share, address),
                },
            }
            shares_with_sizes[Key(target_share.rabbit, name)] = (share, each.capacity)
    return shares_with_sizes


def commands_of(storage: NnfStorage, profile: NnfStorageProfile | None) -> ProfileCommands:
    """Return the commands of a profile for a storage. Raises UserMistake.

    One profile is pinned for all of it: what is for mounts, each of its shares carries alike.
    """
    shares = [share for share, _ in wanted_shares(storage, profile).values()]
    encoded_commands = {
        share["metadata"].get("annotations", {}).get(labels.COMMANDS, "") for share in shares
    }
    return commandlines.decode(max(encoded_commands, default="") or None)


def _targets(
    storage: NnfStorage, target_share: lustre.TargetShare, address: LustreAddress | None
) -> dict[str, Any]:
    """Return what a share says of the targets that it is."""
    if storage.spec.file_system_type != LUSTRE or address is None:
        return {}
    start = {"startIndex": target_share.start_index} if target_share.start_index else {}
    name = {"fileSystemName": address.file_system_name} if address.file_system_name else {}
    return {
        "lustreStorage": {
            "backFs": "zfs",
            **name,
            "lustreComponents": lustre.components(storage.spec.allocation_sets),
            "mgsAddress": address.mgs_address,
            **start,
            "targetType": target_share.label,
        }
    }


def _annotations(commands: ProfileCommands) -> Object:
    """Return the metadata by which agents, who read no profiles, have the commands of one."""
    return {"annotations": {labels.COMMANDS: commandlines.encode(commands)}} if commands else {}


def without_padding(size: int, padding: str) -> int:
    """Return the capacity to which a profile's padding was added (dws-spec section 3.1)."""
    padding = padding or "0"  # as it was added
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", padding)
    if percent is not None:
        return int(size / (1 + float(percent[1]) * 0.01))
    return max(size - (int(padding) if padding.isdecimal() else capacity.parse(padding)), 0)


def new_block_storage(share: Object, size: int) -> Object:
    """Make the NnfNodeBlockStorage of a share, whose allocations are of this size.

    Its flash is one pool for all of them; each target of Lustre has its own.
    """
    metadata, count = share["metadata"], share["spec"]["count"]
    access = [metadata["namespace"]]
    shared = share["spec"]["sharedAllocation"]
    target_flash = {"capacity": max(size, lustre.MIN_TARGET_SIZE), "access": access}
    pool_flash = {"capacity": size * count, "access": access}
    return {
        "metadata": {
            **{name: value for name, value in metadata.items() if name != "annotations"},
            "finalizers": [labels.NODE_BLOCK_STORAGE_FINALIZER, labels.NODE_STORAGE_FINALIZER],
        },
        "spec": {
            "sharedAllocation": shared,
            "allocations": [pool_flash] if shared else [target_flash] * count,
        },
    }


def volume_size(
    share: NnfNodeStorage, block_storage: NnfNodeBlockStorage | None, number: int
) -> int:
    """Return how many bytes one volume of a share takes; what it holds is a little less."""
    if block_storage is None or not block_storage.spec.allocations:
        return share.spec.capacity
    if block_storage.spec.shared_allocation:
        return block_storage.spec.allocations[0].capacity // share.spec.count
    return block_storage.spec.allocations[number].capacity


def status_changes(
    storage: NnfStorage,
    shares: Mapping[Key, NnfNodeStorage | None],
    extra_status: Mapping[str, Any] = {},
    *,
    has_extra_status: bool = True,
    is_incomplete: bool = False,
    fault: Fault | None = None,
) -> Sequence[Change]:
    """Return the change of the status to what its shares say; nothing where it says so already.

    `extra_status` is what the status is to say besides, and `has_extra_status` whether it does. The
    storage is not ready while something beside its shares `is_incomplete`, or has met a `fault`.
    """
    error = None if fault is None else fault.as_error()
    try:
        for share in shares.values():
            if share is not None:
                raise_for(share.status.error, share.metadata.namespace)
    except Fault as share_fault:
        error = share_fault.as_error()
    ready = error is None and not is_incomplete and are_ready(shares.values())
    is_same = ready == storage.status.ready and reports.same_error(storage.status.error, error)
    if is_same and has_extra_status:
        return ()
    sets = _set_statuses(storage, shares)
    worst_health = max((each["health"] for each in sets), key=HEALTH.index, default=HEALTH[0])
    own_status: Object = {
        "ready": ready,
        "health": worst_health,
        "allocationSets": sets,
        "error": error,
    }
    status = {**own_status, **extra_status}
    return [reports.status(kinds.NNF_STORAGE, storage.metadata, status)]


def are_ready(shares: Iterable[NnfNodeStorage | None]) -> bool:
    """Return whether all shares are there, and ready."""
    return all(share is not None and share.status.ready for share in shares)


HEALTH: Final = ("Healthy", "Degraded", "Faulted")
"""From good to bad."""


def health(severity: str | None) -> str:
    """Return the health of storage with an error of some severity, or with none."""
    if severity is None:
        return "Healthy"
    return "Faulted" if severity == "Fatal" else "Degraded"


def _set_statuses(
    storage: NnfStorage, shares: Mapping[Key, NnfNodeStorage | None]
) -> list[dict[str, Any]]:
    labels_of_sets = label_by_share(storage)
    reported = []
    for each in storage.spec.allocation_sets:
        shares_of_set = [
            share for key, share in shares.items() if labels_of_sets.get(key) == each.name
        ]
        present = [share for share in shares_of_set if share is not None]
        ready = [share for share in present if share.status.ready and not share.status.error]
        reported.append(
            {
                "ready": len(ready) == len(shares_of_set),
                "health": max(
                    (
                        health(error.severity if (error := share.status.error) else None)
                        for share in present
                    ),
                    key=HEALTH.index,
                    default=HEALTH[0],
                ),
                # Of rabbits' shares, as NNF counts them.
                "allocationCount": len(ready),
            }
        )
    return reported


def give_back(
    storage: NnfStorage,
    shares: Sequence[NnfNodeStorage],
    block_storages: Sequence[NnfNodeBlockStorage],
) -> Sequence[Write]:
    """Remove shares and their flash; where none is left, let go of the storage."""
    if shares or block_storages:
        # Both at once: an agent keeps the record of its flash until that of the volumes is gone.
        removals = [
            *(
                Remove(kind=kinds.NNF_NODE_STORAGE, key=share.metadata.key)
                for share in shares
                if not share.metadata.deleting
            ),
            *(
                Remove(kind=kinds.NNF_NODE_BLOCK_STORAGE, key=block_storage.metadata.key)
                for block_storage in block_storages
                if not block_storage.metadata.deleting
            ),
        ]
        is_stuck = any(share.status.error for share in shares)
        remaining = {each.metadata.key: each for each in shares}
        return [*removals, *(status_changes(storage, remaining) if is_stuck else ())]
    return [reports.remove_finalizer(kinds.NNF_STORAGE, storage.metadata, labels.STORAGE_FINALIZER)]


def volume_group_and_name(share: NnfNodeStorage, number: int) -> tuple[str, str]:
    """Return the names of an allocation of a share on disk: its volume group's, and its volume's.

    They come from the rabbit and the object's UID, so that a retry finds its own work.
    """
    return share.metadata.namespace, f"{share.metadata.uid}-{number}"
