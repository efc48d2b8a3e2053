"""Objects as values, for tests of decisions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tests.directives.rulebook import RULES
from warren.base.objects import Change, Create, Kind, Object, Remove, Write, merge_patch
from warren.directives.parse import parse
from warren.dws import kinds, labels
from warren.dws.binding import Binding, Phase
from warren.dws.breakdown.allocationneeds import needs_of
from warren.dws.objects.accesses import ClientMount, NnfAccess
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import AllocationNeed, Constraints, DirectiveBreakdown
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.meta import Meta
from warren.dws.objects.nnfstorages import NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import State, Workflow
from warren.dws.storage import storageprofiles
from warren.dws.workflow.states import with_initial_status

BINDING = Binding(
    "flux",
    "fluxjob-",
    "flux.example/workflow",
    {Phase.HELD: "dws-create", Phase.STARTING: "dws-setup"},
)

T = TypeVar("T")

NOW = 1_769_860_800.0
STAMP = "2026-01-31T12:00:00.000000Z"
DEEP = '{"unknown": ' + "[" * 100_000 + "]" * 100_000 + "}"
"""JSON of more levels than a reader of it takes."""
JOBDW = "#DW jobdw type=xfs capacity=1GiB name=my-fs"
COPY_IN = "#DW copy_in source=/lus/in/ destination=$DW_JOB_my_fs/data/"
COPY_OUT = "#DW copy_out source=$DW_JOB_my_fs/out destination=/lus/results"
SIZE = 1388314624
"""What 1 GiB of xfs needs with 300 MiB of padding."""

RABBITS = {"r0": ("n0", "n1"), "r1": ("n2",)}
"""Which computes are wired to which rabbit."""


def meta(name: str, namespace: str = "default", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        **more,
    }


DELETING = {"deletionTimestamp": STAMP}


def error(message: str = "broke", severity: str = "Major", type: str = "Internal") -> Object:
    return {"debugMessage": message, "userMessage": message, "severity": severity, "type": type}


# The Workflow and what is named after its directives


def raw_workflow(
    *directives: str,
    state: str | None = "Proposal",
    desired: str | None = None,
    ready: bool = False,
    metadata: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Make a Workflow that is in `state`; what earlier states foresaw is done."""
    made = with_initial_status(
        {
            "kind": "Workflow",
            "metadata": meta("wf")
            | {"finalizers": [labels.WORKFLOW_FINALIZER]}
            | dict(metadata or {}),
            "spec": {
                "desiredState": desired or state or "Proposal",
                "dwDirectives": list(directives),
                "jobID": "fX",
                "userID": 1001,
                "groupID": 1002,
                "wlmID": "flux",
                "hurry": False,
                "forceReady": False,
                **(spec or {}),
            },
        },
        RULES,
    )
    if state is not None:
        order = list(State)
        for entry in made["status"]["drivers"]:
            before = order.index(entry["watchState"]) < order.index(State(state))
            if before or (ready and entry["watchState"] == state):
                entry |= {"status": "Completed", "completed": True, "completeTime": STAMP}
        made["status"] |= {
            "state": state,
            "ready": ready,
            "status": "Completed" if ready else "DriverWait",
            "message": "",
            "desiredStateChange": STAMP,
            "computes": {"kind": "Computes", "name": "wf", "namespace": "default"},
        }
    made["status"] |= status or {}
    return made


def workflow(*directives: str, **options: Any) -> Workflow:
    return read(raw_workflow(*directives, **options), Workflow)


def computes(*nodes: str) -> Computes:
    return read({"metadata": meta("wf"), "data": [{"name": node} for node in nodes]}, Computes)


def need(
    label: str = "xfs",
    size: int = SIZE,
    strategy: str = "AllocatePerCompute",
    count: int | None = None,
) -> AllocationNeed:
    return AllocationNeed(
        allocation_strategy=strategy,
        minimum_capacity=size,
        label=label,
        constraints=Constraints(count=count),
    )


def breakdown(
    index: int = 0, *needs: AllocationNeed, directive: str = JOBDW, **status: Any
) -> DirectiveBreakdown:
    """Make a DirectiveBreakdown that is ready if it has needs."""
    found: dict[str, Any] = dict(status)
    if needs:
        storage = {
            "reference": {"kind": "Servers", "name": f"wf-{index}", "namespace": "default"},
            "allocationSets": [msgspec.to_builtins(each) for each in needs],
        }
        found = {"ready": True, "storage": storage, **status}
    return read(
        {
            "metadata": meta(f"wf-{index}"),
            "spec": {"directive": directive, "userID": 1001},
            "status": found,
        },
        DirectiveBreakdown,
    )


def servers(*sets: Mapping[str, Any], index: int = 0, **status: Any) -> Servers:
    return read(
        {"metadata": meta(f"wf-{index}"), "spec": {"allocationSets": list(sets)}, "status": status},
        Servers,
    )


def share_of(label: str = "xfs", size: int = SIZE, **rabbits: int) -> dict[str, Any]:
    """Make one allocation set of Servers: how many allocations each rabbit holds."""
    return {
        "label": label,
        "allocationSize": size,
        "storage": [{"name": name, "allocationCount": count} for name, count in rabbits.items()],
    }


def nnf_storage(
    *nodes: tuple[str, int],
    index: int = 0,
    metadata: Mapping[str, Any] | None = None,
    **status: Any,
) -> NnfStorage:
    return read(
        {
            "metadata": meta(
                f"wf-{index}", **{"finalizers": [labels.STORAGE_FINALIZER], **(metadata or {})}
            ),
            "spec": {
                "fileSystemType": "xfs",
                "userID": 1001,
                "groupID": 1002,
                "allocationSets": [
                    {
                        "name": "xfs",
                        "capacity": SIZE,
                        "nodes": [{"name": name, "count": count} for name, count in nodes],
                    }
                ],
            },
            "status": status,
        },
        NnfStorage,
    )


def share(
    rabbit: str, count: int = 1, number: int = 0, deleting: bool = False, **status: Any
) -> NnfNodeStorage:
    """Make the share of a rabbit in the storage of the first directive."""
    return read(
        {
            "metadata": meta(
                f"default-wf-0-xfs-{number}", rabbit, **(DELETING if deleting else {})
            ),
            "spec": {"count": count, "capacity": SIZE, "fileSystemType": "xfs"},
            "status": status,
        },
        NnfNodeStorage,
    )


def nnf_access(
    clients: str = "computes",
    desired: str = "mounted",
    index: int = 0,
    deleting: bool = False,
    **status: Any,
) -> NnfAccess:
    return read(
        {
            "metadata": meta(
                f"wf-{index}-{clients}",
                finalizers=[labels.ACCESS_FINALIZER],
                **(DELETING if deleting else {}),
            ),
            "spec": {
                "desiredState": desired,
                "target": "single" if clients == "computes" else "all",
                "mountPath": "/mnt/nnf/uid-wf-0",
                "storageReference": {"kind": "NnfStorage", "name": f"wf-{index}"},
                "userID": 1001,
                "groupID": 1002,
            },
            "status": status,
        },
        NnfAccess,
    )


def client_mount(
    node: str,
    desired: str = "mounted",
    access: str = "computes",
    deleting: bool = False,
    **status: Any,
) -> ClientMount:
    return read(
        {
            "metadata": meta(f"default-wf-0-{access}", node, **(DELETING if deleting else {})),
            "spec": {
                "node": node,
                "desiredState": desired,
                "mounts": [{"mountPath": "/m", "type": "xfs", "device": {"type": "lvm"}}],
            },
            "status": status,
        },
        ClientMount,
    )


def settled(state: str, mounts: int = 1) -> dict[str, Any]:
    """Return the status of a ClientMount whose mounts are in `state`."""
    return {"allReady": True, "mounts": [{"state": state, "ready": True}] * mounts}


def movement(
    index: int, rabbit: str = "r0", number: int = 0, deleting: bool = False, **status: Any
) -> NnfDataMovement:
    return read(
        {
            "metadata": meta(
                f"wf-{index}-{number}",
                rabbit,
                labels={labels.DIRECTIVE_INDEX: str(index)},
                **(DELETING if deleting else {}),
            ),
            "spec": {"source": {"path": "/a"}, "destination": {"path": "/b"}},
            "status": status,
        },
        NnfDataMovement,
    )


def lustre(name: str = "lus", root: str = "/lus") -> LustreFileSystem:
    return read(
        {"metadata": meta(name), "spec": {"name": name, "mountRoot": root}}, LustreFileSystem
    )


def rabbit(name: str, spec: Mapping[str, str] | None = None, **status: Any) -> Storage:
    """Make the Storage of a rabbit that is Ready, unless something else is said of it."""
    found = {"status": "Ready", **status}
    return read({"metadata": meta(name), "spec": spec or {}, "status": found}, Storage)


def raw_profile(name: str = "default", default: bool = True, **xfs: Any) -> dict[str, Any]:
    """Make a profile that directives choose from."""
    options = {"allocationPadding": "300MiB", **xfs}
    return {
        "kind": "NnfStorageProfile",
        "metadata": meta(name, kinds.PROFILES_NAMESPACE),
        "data": {"default": default, "xfsStorage": options},
    }


def profile(name: str = "default", default: bool = True, **xfs: Any) -> NnfStorageProfile:
    return read(raw_profile(name, default, **xfs), NnfStorageProfile)


def copied(source: Object, owner: Kind = kinds.BREAKDOWN, name: str = "wf-0") -> Object:
    """Make the pinned copy that an owner has of a profile."""
    copy = storageprofiles.pinned_copy(source, owner, read(meta(name), Meta), {})
    return {**copy, "metadata": {**meta(name), **copy["metadata"]}}


def needed(directive: str, *choices: NnfStorageProfile) -> list[AllocationNeed]:
    """Return what a directive needs, by the profile that it chooses."""
    found = parse(directive)
    return needs_of(found, storageprofiles.choose(found.values.get("profile"), choices))


def configuration(
    rabbits: Mapping[str, Sequence[str]] = RABBITS, ready: bool = True
) -> SystemConfiguration:
    nodes = [
        {"type": "Rabbit", "name": name, "computesAccess": [{"name": each} for each in wired]}
        for name, wired in rabbits.items()
    ]
    return read(
        {"metadata": meta("default"), "spec": {"storageNodes": nodes}, "status": {"ready": ready}},
        SystemConfiguration,
    )


# What was decided


def changes(writes: Iterable[Any], kind: Kind) -> list[Object]:
    """Return the patches of all changes to objects of a kind."""
    return [each.patch for each in writes if isinstance(each, Change) and each.kind == kind]


def made(writes: Iterable[Any], kind: Kind) -> list[Object]:
    """Return the objects of a kind that are created."""
    return [each.object for each in writes if isinstance(each, Create) and each.kind == kind]


def removed(writes: Iterable[Any], kind: Kind) -> list[str]:
    """Return the keys of the objects of a kind that are removed."""
    return [str(each.key) for each in writes if isinstance(each, Remove) and each.kind == kind]


def after(obj: T, writes: Iterable[Write]) -> T:
    """Return an object as it is after the changes that were decided for it."""
    raw = msgspec.to_builtins(obj)
    for each in writes:
        if isinstance(each, Change) and each.key == obj.metadata.key:  # type: ignore[attr-defined]
            raw = merge_patch(raw, each.patch)
    return read(raw, type(obj))
