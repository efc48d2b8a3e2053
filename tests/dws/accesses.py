"""NnfAccesses as tests see them, and what comes of them."""

from typing import Any

from msgspec.structs import replace

from tests.dws.builders import (
    DELETING,
    changes,
    client_mount,
    computes,
    configuration,
    made,
    meta,
    nnf_access,
    nnf_storage,
    settled,
    share,
)
from warren.base.objects import Key
from warren.dws import kinds, labels
from warren.dws.access.accesssnapshot import AccessSnapshot
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Reference
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfStorage
from warren.dws.storage.locks import Holding

SHARES = [share("r1", 1), share("r0", 2)]


def seen(access: NnfAccess, *mounts: Any, **others: Any) -> AccessSnapshot:
    return AccessSnapshot(
        access=access,
        storage=others.pop("storage", nnf_storage(("r0", 2), ("r1", 1), ready=True)),
        node_storages=others.pop("node_storages", SHARES),
        computes=others.pop("computes", computes("n0", "n1", "n2")),
        configuration=others.pop("configuration", configuration()),
        mounts=mounts,
        block_storages=others.pop("blocks", ()),
        other_holdings=others.pop("other_holdings", ()),
        mounts_on_computes=others.pop("mounts_on_computes", {}),
        sharing=others.pop("sharing", None),
    )


def storage_held(name: str = "wf-0-computes") -> Any:
    """Return storage with what an access has written into it."""
    held = {
        "finalizers": [labels.STORAGE_FINALIZER, f"nnf.cray.hpe.com/{name}"],
        "annotations": {labels.LOCK: f"{name}/default"},
    }
    return nnf_storage(("r0", 2), ("r1", 1), metadata=held, ready=True)


def status(writes: Any) -> Any:
    (patch,) = changes(writes, kinds.NNF_ACCESS)
    return patch["status"]


def mounting(writes: Any) -> dict[str, list[tuple[str, str]]]:
    """Return where each node mounts which volume."""
    return {
        obj["metadata"]["namespace"]: [
            (
                each["mountPath"],
                f"{each['device']['lvm']['volumeGroup']}/{each['device']['lvm']['logicalVolume']}",
            )
            for each in obj["spec"]["mounts"]
        ]
        for obj in made(writes, kinds.CLIENT_MOUNT)
    }


def flash(rabbit: str, *access: str, deleting: bool = False) -> NnfNodeBlockStorage:
    more = DELETING if deleting else {}
    allocations = [{"capacity": 9, "access": list(access)}]
    block = {"metadata": meta("s", rabbit, **more), "spec": {"allocations": allocations}}
    return read(block, NnfNodeBlockStorage)


def reached(writes: Any) -> list[tuple[int, list[str]]]:
    told = changes(writes, kinds.NNF_NODE_BLOCK_STORAGE)
    return [
        (each["capacity"], each["access"]) for one in told for each in one["spec"]["allocations"]
    ]


def mounted(*nodes: str, state: str = "mounted", desired: str = "mounted") -> list[Any]:
    return [client_mount(node, desired, **settled(state)) for node in nodes]


def lasting(**metadata: Any) -> NnfStorage:
    """Return storage that outlives jobs."""
    found = nnf_storage(("r0", 2), ("r1", 1), metadata=metadata, ready=True)
    owned = {labels.PERSISTENT_NAME: "pers", **found.metadata.labels}
    return replace(found, metadata=replace(found.metadata, labels=owned))


def copying() -> NnfAccess:
    """Return the access by which rabbits mount what is for the job's compute nodes."""
    found = nnf_access("servers")
    clients = Reference(kind="Computes", name="wf", namespace="default")
    return replace(found, spec=replace(found.spec, client_reference=clients))


def by(*nodes: str, on_rabbits: bool = False, name: str = "a-0-computes") -> Holding:
    """Return what another access holds; without nodes all of it."""
    return Holding(
        access=Key("default", name), on_rabbits=on_rabbits, nodes=frozenset(nodes) or None
    )


def waits(writes: Any) -> bool:
    """Return whether an access waits, and writes nothing else."""
    assert not changes(writes, kinds.NNF_STORAGE)
    assert made(writes, kinds.CLIENT_MOUNT) == []
    fault = status(writes)["error"]
    assert (fault["severity"], fault["type"]) == ("Minor", "User")
    return "one at a time" in fault["userMessage"] and "default/a-0-" in fault["debugMessage"]


def losing(clients: str, *lost: str, desired: str = "mounted") -> NnfAccess:
    """Make an access that leaves out what is for some nodes."""
    found = nnf_access(clients, desired)
    annotations = {labels.LOST_NODES: ",".join(lost)}
    return replace(found, metadata=replace(found.metadata, annotations=annotations))
