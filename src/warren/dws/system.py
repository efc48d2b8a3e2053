"""The rabbits of a system: Storages, from the SystemConfiguration and what each rabbit says."""

from collections.abc import Mapping, Sequence
from typing import Any

from warren.base.objects import Change, Create, Object, Write
from warren.dws import kinds, labels
from warren.dws.objects import NnfNode, Storage, StorageNode, SystemConfiguration

NODE_NAME = "nnf-nlc"
"""The name of the NnfNode in each rabbit's namespace."""


def decide(
    configuration: SystemConfiguration,
    storages: Mapping[str, Storage],
    nodes: Mapping[str, NnfNode],
) -> Sequence[Write]:
    """Make a Storage for each rabbit, and keep its status what the rabbit says."""
    writes: list[Write] = []
    for rabbit in configuration.spec.storage_nodes:
        storage = storages.get(rabbit.name)
        if storage is None:
            writes.append(Create(kind=kinds.STORAGE, object=_child(configuration, rabbit)))
            continue
        status = _status(rabbit, storage, nodes.get(rabbit.name))
        if not _same(storage, status):
            writes.append(
                Change(
                    kind=kinds.STORAGE,
                    key=storage.metadata.key,
                    patch={"status": status},
                    seen=storage.metadata.resource_version,
                    status=True,
                )
            )
    if not writes and not configuration.status.ready:
        writes.append(
            Change(
                kind=kinds.SYSTEM_CONFIGURATION,
                key=configuration.metadata.key,
                patch={"status": {"ready": True}},
                seen=configuration.metadata.resource_version,
                status=True,
            )
        )
    return writes


def _child(configuration: SystemConfiguration, rabbit: StorageNode) -> Object:
    meta = configuration.metadata
    return {
        "metadata": {
            "name": rabbit.name,
            "namespace": meta.namespace,
            "labels": {
                labels.STORAGE_TYPE: rabbit.type,
                **labels.of_owner(kinds.SYSTEM_CONFIGURATION, meta),
            },
            "ownerReferences": labels.controller(kinds.SYSTEM_CONFIGURATION, meta),
        },
        "spec": {"state": "Enabled", "mode": "Live"},
    }


def _status(rabbit: StorageNode, storage: Storage, node: NnfNode | None) -> dict[str, Any]:
    if storage.spec.state == "Disabled":
        state, message = "Disabled", "Storage node manually disabled"
    elif node is None:
        state, message = "Starting", ""
    else:
        state, message = node.status.status, ""
    status: dict[str, Any] = {
        "type": "NVMe",
        "status": state,
        "message": message or None,
        "capacity": node.status.capacity if node else 0,
        "rebootRequired": False,
    }
    link = "Ready" if state == "Ready" else "Offline"
    status["access"] = {
        "protocol": "PCIe",
        "servers": [{"name": rabbit.name, "status": link}],
        "computes": [{"name": each.name, "status": link} for each in rabbit.computes_access],
    }
    return status


def _same(storage: Storage, status: Mapping[str, Any]) -> bool:
    known = storage.status
    return (
        known.status == status["status"]
        and known.capacity == status["capacity"]
        and known.message == (status["message"] or "")
        and [link.name for link in known.access.computes]
        == [link["name"] for link in status["access"]["computes"]]
    )
