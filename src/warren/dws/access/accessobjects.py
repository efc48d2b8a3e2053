"""The NnfAccesses of a Workflow's directives: how they are made, mounted again and unmounted."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from warren.base.objects import Change, Object
from warren.dws import children, kinds, labels, tolerance
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.workflows import State, Workflow

COMPUTES = "computes"
SERVERS = "servers"

TEARDOWN_STATES: Final[Mapping[str, State]] = {
    "copy_in": State.PRE_RUN,
    "copy_out": State.TEARDOWN,
    "container": State.TEARDOWN,
}
"""In which state rabbits unmount what a command had them mount (dws-spec section 8)."""


def new(
    workflow: Workflow,
    index: int,
    clients: str,
    mount_path: str,
    *,
    mounted_for: tuple[int, str] | None = None,
    instance_name: str | None = None,
    lost: Collection[str] = (),
) -> Object:
    """Make the NnfAccess of one directive's storage for `computes` or `servers`.

    What rabbits mount (`servers`) is `mounted_for` a directive of copies or containers: its index,
    by which the access is labelled, and its command, which says how long it stays mounted.
    `instance_name` is that of the persistent storage, if it is one's: rabbits mount what of it is
    for the Workflow's compute nodes. What is for nodes that are `lost` is left out.
    """
    meta = workflow.metadata
    label_index, command = mounted_for or (index, "")
    state = TEARDOWN_STATES.get(command, State.POST_RUN)
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
            "name": instance_name or children.name(workflow, index),
            "namespace": meta.namespace,
        },
    }
    if clients == COMPUTES or instance_name is not None:
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
        label_index,
        labels.ACCESS_FINALIZER,
    )
    metadata["labels"] |= labels.of_profile(children.name(workflow, index), meta.namespace)
    annotations = tolerance.annotation(lost)
    if annotations:
        metadata["annotations"] = annotations
    if mounted_for is not None:
        metadata["labels"][labels.TEARDOWN_STATE] = state
    return {"metadata": metadata, "spec": spec}


def mount_again(access: NnfAccess, index: int, command: str, lost: Collection[str] = ()) -> Change:
    """Have rabbits mount what they had unmounted, for another copy or for containers.

    `index` and `command` are as `mounted_for` in `new`.
    """
    state = TEARDOWN_STATES[command]
    new_labels = {labels.DIRECTIVE_INDEX: str(index), labels.TEARDOWN_STATE: state}
    return Change(
        kind=kinds.NNF_ACCESS,
        key=access.metadata.key,
        patch={
            "metadata": {"labels": new_labels, **_annotations_patch(lost)},
            "spec": {"desiredState": "mounted", "teardownState": state},
        },
        resource_version=access.metadata.resource_version,
    )


def unmount(access: NnfAccess, lost: Collection[str] = ()) -> Change:
    """Have nodes unmount; those that are lost are asked, and not waited for."""
    metadata = _annotations_patch(lost)
    return Change(
        kind=kinds.NNF_ACCESS,
        key=access.metadata.key,
        patch={
            "spec": {"desiredState": "unmounted"},
            **({"metadata": metadata} if metadata else {}),
        },
        resource_version=access.metadata.resource_version,
    )


def _annotations_patch(lost: Collection[str]) -> dict[str, Any]:
    annotations = tolerance.annotation(lost)
    return {"annotations": annotations} if annotations else {}
