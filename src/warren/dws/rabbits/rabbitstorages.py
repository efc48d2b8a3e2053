"""The rabbits of a system: Storages, from the SystemConfiguration and what each rabbit says."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Change, Create, Object, Remove, Write
from warren.dws import kinds, labels, reports
from warren.dws.node import FILE_SYSTEM_TYPES, LUSTRE, RawVolumeAccess
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import (
    Drive,
    NnfNode,
    NnfNodeStatus,
    NodeLink,
    Storage,
    StorageDevice,
)
from warren.dws.objects.systemconfiguration import StorageNode, SystemConfiguration
from warren.dws.rabbits import links, outofservice
from warren.dws.rabbits.links import LostLink

NNF_NODE_NAME = "nnf-nlc"
"""The name of the NnfNode in each rabbit's namespace."""


FAILED: Final = "Failed"

_STATUSES: Final = frozenset(
    (
        "Starting", "Ready", "Disabled", "NotPresent", "Offline", "Failed", "Degraded", "Drained",
        "Fenced", "Unknown",
    )
)  # fmt: skip
"""What a Storage and its links may be."""

_DISABLED_MESSAGE: Final = "Storage node manually disabled"
_FAILED_MESSAGE: Final = "The flash of the rabbit cannot be used"
_OFFLINE_MESSAGE: Final = (
    "The agent of the rabbit has ended, or does not renew its Lease: start it again."
)


def decide(
    configuration: SystemConfiguration,
    rabbit: StorageNode,
    storage: Storage | None,
    nnf_node: NnfNode | None,
    nnf_node_by_compute: Mapping[str, NnfNode] | None = None,
    *,
    agent_alive: bool = True,
    lease_steady: bool = True,
) -> Sequence[Write]:
    """Make the Storage of one rabbit, and keep its status what the rabbit says.

    `nnf_node` is the rabbit's own, and the status of links is what its compute nodes say in theirs,
    where they reach it over a network. Where its agent is not alive, what the rabbit said last is
    not true any more; until its Lease is `lease_steady`, no link is lost anew (`links.lost_links`).
    """
    if storage is None:
        return [Create(kind=kinds.STORAGE, object=_new_storage(configuration, rabbit))]
    lost = links.lost_links(
        rabbit, storage, nnf_node, nnf_node_by_compute or {}, lease_steady=lease_steady
    )
    metadata = (
        _metadata_patch(nnf_node.metadata, storage.metadata, lost) if nnf_node is not None else {}
    )
    if metadata:
        # Its status comes with the next news of it, which this makes.
        return [
            Change(
                kind=kinds.STORAGE,
                key=storage.metadata.key,
                patch={"metadata": metadata},
                resource_version=storage.metadata.resource_version,
            )
        ]
    status = _status(rabbit, storage, nnf_node, lost, agent_alive=agent_alive)
    if _has_status(storage, status):
        return []
    return [reports.status(kinds.STORAGE, storage.metadata, status)]


def namespace_for(configuration: SystemConfiguration, node: str) -> Create:
    """Make the namespace of a node, in which what is for the node stands."""
    owner = labels.of_owner(kinds.SYSTEM_CONFIGURATION, configuration.metadata)
    return Create(kind=kinds.NAMESPACE, object={"metadata": {"name": node, "labels": owner}})


def remove_unknown(configuration: SystemConfiguration, storages: Iterable[Storage]) -> list[Remove]:
    """Remove the Storages of rabbits that the system does not have any more.

    No flash is given out of them from then on; what jobs have there they keep until their end.
    """
    names = {node.name for node in configuration.spec.storage_nodes}
    return [
        Remove(kind=kinds.STORAGE, key=storage.metadata.key)
        for storage in storages
        if storage.metadata.name not in names
        and not storage.metadata.deleting
        and labels.is_owner(
            kinds.SYSTEM_CONFIGURATION, configuration.metadata, storage.metadata.labels
        )
    ]


def ready_status(rabbit: str, capacity: int, known: NnfNodeStatus, nid: str = "") -> Object | None:
    """Return what a rabbit is to say of itself; None if it says so already.

    `capacity` is in bytes, and `nid` where Lustre's servers there are found, if they can be.

    All of its flash is one drive: an image, a device, a volume group or a directory. Nothing is
    said of a model or of wear, which these do not have.
    """
    drive = Drive(id="0", capacity=capacity, serial_number=f"{rabbit}-flash", status="Ready")
    reported = (known.status, known.capacity, known.drives, known.lnet_nid)
    if reported == ("Ready", capacity, (drive,), nid):
        return None
    status: Object = {
        "status": "Ready",
        "health": "OK",
        "capacity": capacity,
        "drives": [
            {
                "id": drive.id,
                "capacity": drive.capacity,
                "serialNumber": drive.serial_number,
                "status": drive.status,
                "health": "OK",
            }
        ],
    }
    if nid != known.lnet_nid:
        status = {**status, "lnetNid": nid}
    if known.servers:  # links may be told of by others
        return status
    own_server = {
        "id": "0",
        "name": "Rabbit",
        "hostname": rabbit,
        "status": "Ready",
        "health": "OK",
    }
    return {**status, "servers": [own_server]}


def failed_status(known: NnfNodeStatus) -> Object | None:
    """Return what a rabbit is to say whose flash cannot be used; None if it says so already."""
    drives = [{"id": each.id, "status": FAILED, "health": "Critical"} for each in known.drives]
    if known.status == FAILED:
        return None
    return {"status": FAILED, "health": "Critical", "drives": drives}


def is_usable(storage: Storage) -> bool:
    """Return whether flash of a rabbit may be given to jobs.

    What an administrator has asked for counts before it shows in the status.
    """
    ready = storage.spec.state != "Disabled" and storage.status.status == "Ready"
    return ready and not _is_drained(storage)


def serves_allocations(storage: Storage) -> bool:
    """Return whether a rabbit makes storage of flash that was given to a job before.

    One that is drained does, and one whose agent is gone does when that is back.
    """
    return storage.spec.state != "Disabled" and storage.status.status in (
        "Ready", "Drained", "Offline",
    )  # fmt: skip


def placement_labels(storage: Storage) -> list[str]:
    """Return what a rabbit carries for sets to ask for, each as `key=value`.

    Without what names its owner: that says nothing of the rabbit.
    """
    owner = labels.of_owner(kinds.STORAGE, storage.metadata)
    object_labels = storage.metadata.labels
    return [f"{key}={value}" for key, value in object_labels.items() if key not in owner]


def effective_status(storage: Storage) -> str:
    """Return in a word what a rabbit is."""
    if storage.spec.state == "Disabled":
        return "Disabled"
    state = storage.status.status
    return "Drained" if state == "Ready" and _is_drained(storage) else state


def _is_drained(storage: Storage) -> bool:
    return labels.DRAINED in storage.metadata.annotations


def raw_volume_access(rabbits: Iterable[Storage]) -> RawVolumeAccess:
    """Return who may have raw volumes, whichever of the rabbits they are on."""
    all_offered = {_raw_volume_access(rabbit.metadata) for rabbit in rabbits} or {
        RawVolumeAccess.FOR_ROOT
    }
    return min(
        all_offered,
        key=[RawVolumeAccess.NONE, RawVolumeAccess.FOR_ROOT, RawVolumeAccess.FOR_USERS].index,
    )


def _metadata_patch(node_meta: Meta, storage_meta: Meta, lost: Mapping[str, LostLink]) -> Object:
    """Return what a Storage is to carry of what its nodes say, where it does not do so yet."""
    patch: dict[str, Any] = {}
    raw_access_offered, unsupported_text = (
        _raw_volume_access(node_meta),
        node_meta.annotations.get(labels.UNSUPPORTED_TYPES),
    )
    changed_labels: dict[str, str | None] = {}
    if raw_access_offered != _raw_volume_access(storage_meta):
        changed_labels[labels.RAW_VOLUMES] = raw_access_offered
    supported_labels = {
        f"{labels.SUPPORTED_TYPE_PREFIX}{fs_type}": "true"
        for fs_type in _supported_types(unsupported_text)
    }
    known_labels = {
        key: each
        for key, each in storage_meta.labels.items()
        if key.startswith(labels.SUPPORTED_TYPE_PREFIX)
    }
    changed_labels |= {key: None for key in known_labels if key not in supported_labels}
    changed_labels |= {
        key: each for key, each in supported_labels.items() if known_labels.get(key) != each
    }
    if changed_labels:
        patch["labels"] = changed_labels
    wanted_annotations = {
        labels.UNSUPPORTED_TYPES: unsupported_text,
        labels.LOST_LINKS: links.encode_lost_links(lost),
    }
    changed_annotations = {
        key: each
        for key, each in wanted_annotations.items()
        if each != storage_meta.annotations.get(key)
    }
    if changed_annotations:
        patch["annotations"] = changed_annotations
    return patch


def encode_unsupported_types(reasons: Mapping[str, str]) -> str:
    """Write which types of file systems a rabbit does not make, and why."""
    return json.dumps(dict(sorted(reasons.items())), separators=(",", ":"))


_UNSUPPORTED_WITHOUT_REPORT: Final = {LUSTRE: "no agent says that it makes it"}
"""What is not made by rabbits that report nothing: those of NNF, and those without an agent."""


def unsupported_types(meta: Meta) -> Mapping[str, str]:
    """Return which types of file systems a rabbit does not make, and why."""
    return _parse_unsupported_types(meta.annotations.get(labels.UNSUPPORTED_TYPES))


def _parse_unsupported_types(text: str | None) -> Mapping[str, str]:
    try:
        return read_json(text or "", dict[str, str])
    except Malformed:
        return _UNSUPPORTED_WITHOUT_REPORT


def supported_type_label(fs_type: str) -> str:
    """Return what a rabbit carries that says that it makes a type, for sets to ask for."""
    return f"{labels.SUPPORTED_TYPE_PREFIX}{fs_type}=true"


def _supported_types(unsupported_text: str | None) -> Sequence[str]:
    """Return the types that a rabbit says that it makes: those that it does not say to lack."""
    unsupported = _parse_unsupported_types(unsupported_text)
    return (
        []
        if unsupported is _UNSUPPORTED_WITHOUT_REPORT
        else [fs_type for fs_type in FILE_SYSTEM_TYPES if fs_type not in unsupported]
    )


def unsupported_types_of(obj: Object) -> tuple[str, ...]:
    """Index Storages by the types of file systems that are not made there."""
    if obj.get("kind") != kinds.STORAGE.name:
        return ()
    annotations = obj["metadata"].get("annotations") or {}
    return tuple(_parse_unsupported_types(annotations.get(labels.UNSUPPORTED_TYPES)))


def supported_types_of(obj: Object) -> tuple[str, ...]:
    """Index Storages by the types of file systems that are made there.

    Those of disabled rabbits, too: jobs wait for these.
    """
    if obj.get("kind") != kinds.STORAGE.name:
        return ()
    annotations = obj["metadata"].get("annotations") or {}
    unsupported = _parse_unsupported_types(annotations.get(labels.UNSUPPORTED_TYPES))
    return tuple(fs_type for fs_type in FILE_SYSTEM_TYPES if fs_type not in unsupported)


_MAX_NAMES: Final = 3
"""How many of many rabbits a reason names."""


def why_not_made(fs_type: str, storages: Iterable[Storage]) -> str | None:
    """Return why no rabbit makes a type of file systems; None where one does, or there is none."""
    reasons: dict[str, list[str]] = {}
    for storage in storages:
        reason = unsupported_types(storage.metadata).get(fs_type)
        if reason is None:
            return None
        reasons.setdefault(reason, []).append(storage.metadata.name)
    if not reasons:
        return _UNSUPPORTED_WITHOUT_REPORT.get(fs_type)
    return "; ".join(f"{reason} on {_shortened_list(names)}" for reason, names in reasons.items())


def _shortened_list(names: Sequence[str]) -> str:
    *most, last = sorted(names)
    if len(names) > _MAX_NAMES:
        most, last = most[:_MAX_NAMES], f"{len(names) - _MAX_NAMES} more"
    return f"{', '.join(most)} and {last}" if most else last


def _raw_volume_access(meta: Meta) -> RawVolumeAccess:
    label = meta.labels.get(labels.RAW_VOLUMES)
    return RawVolumeAccess(label) if label in set(RawVolumeAccess) else RawVolumeAccess.FOR_ROOT


def _new_storage(configuration: SystemConfiguration, rabbit: StorageNode) -> Object:
    meta = configuration.metadata
    return {
        "metadata": {
            "name": rabbit.name,
            "namespace": meta.namespace,
            "labels": {
                labels.STORAGE_TYPE: rabbit.type,
                **labels.of_owner(kinds.SYSTEM_CONFIGURATION, meta),
            },
            "ownerReferences": labels.owner_references(kinds.SYSTEM_CONFIGURATION, meta),
        },
        "spec": {"state": "Enabled", "mode": "Live"},
    }


def _status(
    rabbit: StorageNode,
    storage: Storage,
    nnf_node: NnfNode | None,
    lost: Mapping[str, LostLink],
    *,
    agent_alive: bool,
) -> dict[str, Any]:
    """Return what a Storage is to say: of the rabbit, and apart from that of each of its links."""
    disabled = storage.spec.state == "Disabled"
    if storage.spec.mode == "Testing":
        # All of it is the tester's, but that what is disabled is not tested.
        return {"status": "Disabled", "message": _disabled_message(storage)} if disabled else {}
    message = None
    if disabled:
        state, message = "Disabled", _disabled_message(storage)
    elif nnf_node is None:
        state = "Starting"
    elif nnf_node.status.fenced:
        state = "Degraded"
    elif not agent_alive:
        state, message = "Offline", _OFFLINE_MESSAGE
    elif _is_drained(storage):
        state, message = "Drained", f"Drained{outofservice.note_text(storage, labels.DRAINED)}"
    else:
        state = _known_status(nnf_node.status.status)
        failure = nnf_node.metadata.annotations.get(labels.FAILURE)
        if state == FAILED and failure:
            message = f"{_FAILED_MESSAGE}: {failure}"
    status: dict[str, Any] = {
        "type": "NVMe",
        "status": state,
        "message": message,
        "capacity": nnf_node.status.capacity if nnf_node else 0,
        "rebootRequired": nnf_node is not None and nnf_node.status.fenced,
        "devices": [_device(each) for each in nnf_node.status.drives] if nnf_node else [],
    }
    if nnf_node is not None:
        # Without the rabbit's word nothing is said of links: workload managers drain the nodes
        # of those that are not Ready, and do not bring them back.
        status_by_host = {
            each.hostname: _known_status(each.status) for each in nnf_node.status.servers
        }
        status_by_name = {**dict.fromkeys(lost, links.LOST_STATUS), **status_by_host}
        status["access"] = {
            "protocol": "PCIe",
            "servers": [_encode_link_status(rabbit.name, status_by_name)],
            "computes": [
                _encode_link_status(each.name, status_by_name) for each in rabbit.computes_access
            ],
        }
    return status


def _disabled_message(storage: Storage) -> str:
    return f"{_DISABLED_MESSAGE}{outofservice.note_text(storage, labels.DISABLED)}"


def _device(drive: Drive | StorageDevice) -> dict[str, Any]:
    if drive.status != "Ready":  # then nothing but that is known of it (dws-spec section 6)
        return {"status": _known_status(drive.status)}
    return {
        "serialNumber": drive.serial_number,
        "capacity": drive.capacity,
        "status": drive.status,
    }


def _known_status(status: str) -> str:
    return status if status in _STATUSES else "Unknown"


def _encode_link_status(name: str, status_by_name: Mapping[str, str]) -> dict[str, str]:
    # A rabbit that lists no links has such as cannot break, or as nodes tell of.
    return {"name": name, "status": status_by_name.get(name, "Ready")}


def _has_status(storage: Storage, status: Mapping[str, Any]) -> bool:
    known = storage.status
    old = {
        "type": known.type,
        "status": known.status,
        "message": known.message or None,
        "capacity": known.capacity,
        "rebootRequired": known.reboot_required,
        "devices": [_device(each) for each in known.devices],
        "access": {
            "protocol": "PCIe",
            "servers": [_encode_link(link) for link in known.access.servers],
            "computes": [_encode_link(link) for link in known.access.computes],
        },
    }
    return all(old[name] == value for name, value in status.items())


def _encode_link(link: NodeLink) -> dict[str, str]:
    return {"name": link.name, "status": link.status}
