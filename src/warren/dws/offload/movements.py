"""The NnfDataMovement that a running job's request for a copy becomes, and how many there may be.

The rabbit copies that has the storage mounted which the compute node has, and with the rights of
the job's user, as it makes the copies of directives (dws-spec section 11).
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Key, Object, key_of
from warren.dws import kinds, labels
from warren.dws.copies import copyprofiles, staging
from warren.dws.faults import Fault
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload.requests import (
    BAD_REQUEST,
    CONFLICT,
    TOO_MANY,
    UNAVAILABLE,
    CopyEnd,
    CopyEnds,
    CopyRequest,
    Refusal,
    device_reference_of,
)

MAX_ACTIVE: Final = 256
"""Copies of one job that have not ended."""

MAX_REMEMBERED: Final = 1024
"""Copies of one job that are remembered."""

_PREFIX: Final = "nnf-copy-offload-node-"
_NAME_PATTERN: Final = re.compile(r"([a-z0-9][a-z0-9.-]{0,252})--([a-z0-9][a-z0-9.-]{0,252})")


def rabbit_mounts_selector(workflow: Workflow, ends: CopyEnds) -> tuple[str, Mapping[str, str]]:
    """Return the namespace, empty for all, and the labels of what rabbits have mounted.

    `movement` is to be given these ClientMounts.
    """
    return next(iter(ends.rabbits), ""), labels.of_workflow(workflow)


def name_prefix(workflow: Workflow) -> str:
    """Return what the names of a Workflow's copies begin with.

    Labels alone do not make a movement one of them: a rabbit's agent may change those of its own.
    """
    uid_digest = hashlib.sha256(workflow.metadata.uid.encode()).hexdigest()[:12]
    return f"{_PREFIX}{uid_digest}-"


def movement(
    request: CopyRequest,
    ends: CopyEnds,
    workflow: Workflow,
    rabbit_mounts: Sequence[Object],
    profiles: Mapping[str, Object],
    suffix: str,
) -> Object:
    """Return the movement of a request, whose name ends with a suffix of its own. Raises Refusal.

    `rabbit_mounts` are the ClientMounts that `rabbit_mounts_selector` names.
    """
    rabbit, mounts = _rabbit_with_storage(ends, rabbit_mounts, workflow)
    annotations, profile_fields = _profile_additions(request, profiles)
    index = ends.storage_ends[0].directive_index
    root_by_annotation = {
        labels.SOURCE_STORAGE: _root(ends.source, mounts),
        labels.DESTINATION_STORAGE: _root(ends.destination, mounts),
    }
    return {
        "metadata": {
            "name": f"{name_prefix(workflow)}{suffix}",
            "namespace": rabbit,
            "labels": {
                **labels.of_workflow(workflow, int(index) if index.isdecimal() else None),
                **labels.of_owner(kinds.WORKFLOW, workflow.metadata),
                labels.INITIATOR: labels.label_value(request.compute_name),
                labels.TEARDOWN_STATE: State.POST_RUN,
            },
            "finalizers": [labels.MOVEMENT_FINALIZER],
            "annotations": {
                **annotations,
                **{name: root for name, root in root_by_annotation.items() if root is not None},
            },
        },
        "spec": {
            "source": _end(ends.source, mounts),
            "destination": _end(ends.destination, mounts),
            "userId": workflow.spec.user_id,
            "groupId": workflow.spec.group_id,
            "cancel": False,
            "userConfig": {
                "dryrun": request.dryrun,
                "logStdout": request.log_stdout,
                "storeStdout": request.store_stdout,
                "slots": request.slots,
                "maxSlots": request.max_slots,
            },
            **profile_fields,
        },
    }


def _rabbit_with_storage(
    ends: CopyEnds, rabbit_mounts: Sequence[Object], workflow: Workflow
) -> tuple[str, Sequence[Object]]:
    """Find a rabbit that has all of the storage mounted, and return its mounts. Raises Refusal."""
    mounts_by_rabbit: dict[str, list[Object]] = {}
    for each in rabbit_mounts:
        # By its namespace and its name, which its rabbit cannot change.
        if _is_rabbit_mount(each, workflow):
            mounts_by_rabbit.setdefault(each["metadata"]["namespace"], []).extend(_mounts(each))
    for rabbit, mounts in sorted(mounts_by_rabbit.items()):
        if all(_root(end, mounts) is not None for end in ends.storage_ends):
            return rabbit, mounts
    raise Refusal(UNAVAILABLE, "no rabbit has mounted the storage that is copied: ask again")


def _is_rabbit_mount(client_mount: Object, workflow: Workflow) -> bool:
    """Return whether a ClientMount is a rabbit's, for an NnfAccess of a Workflow."""
    meta = workflow.metadata
    access = re.escape(f"{meta.namespace}-{meta.name}-")
    return re.fullmatch(rf"{access}\d+-servers", client_mount["metadata"]["name"]) is not None


def _mounts(client_mount: Object) -> Sequence[Object]:
    """Return what is mounted by a ClientMount."""
    spec = client_mount["spec"]
    if spec["desiredState"] != "mounted":
        return ()
    states = (client_mount.get("status") or {}).get("mounts") or ()
    return [
        mount
        for mount, state in zip(spec["mounts"], states, strict=False)
        if state.get("state") == "mounted" and state.get("ready")
    ]


def _root(end: CopyEnd, mounts: Sequence[Object]) -> str | None:
    """Return where the storage of an end is mounted; None where it is not."""
    mount_paths = (
        mount["mountPath"] for mount in mounts if device_reference_of(mount) == end.device_reference
    )
    return next(mount_paths, None)


def _end(end: CopyEnd, mounts: Sequence[Object]) -> Object:
    root = _root(end, mounts)
    if root is not None:
        return {
            "path": staging.path_inside(root, end.path),
            "storageReference": dict(end.device_reference["objectReference"]),
        }
    assert end.file_system is not None
    meta = end.file_system.metadata
    reference = {
        "kind": kinds.LUSTRE_FILE_SYSTEM.name,
        "name": meta.name,
        "namespace": meta.namespace,
    }
    return {"path": end.path, "storageReference": reference}


def _profile_additions(
    request: CopyRequest, profiles: Mapping[str, Object]
) -> tuple[Object, Object]:
    """Return what the profile adds to the annotations and the spec. Raises Refusal.

    What the request says of it comes before what the profile does.
    """
    try:
        profile = copyprofiles.choose(request.dm_profile or None, profiles)
        if profile is None:
            return {}, {}
        profile_data: dict[str, Any] = dict(profile["data"])
        for name, value in (("slots", request.slots), ("maxSlots", request.max_slots)):
            profile_data |= {name: value} if value >= 0 else {}
        profile_data |= {"storeStdout": True} if request.store_stdout else {}
        return copyprofiles.movement_additions({**profile, "data": profile_data})
    except Fault as fault:
        raise Refusal(BAD_REQUEST, str(fault)) from fault


# Which are taken, and how many


def check_running(workflow: Workflow) -> None:
    """Raise Refusal where a job's tasks do not run."""
    desired, status = workflow.spec.desired_state, workflow.status
    is_ready = status.state is State.PRE_RUN and status.ready
    if desired is not State.PRE_RUN or not is_ready or workflow.metadata.deleting:
        message = f"workflow must be in '{State.PRE_RUN}' state and 'Completed' status"
        raise Refusal(CONFLICT, message)


def check_below_limit(
    movements: Sequence[Object], max_active: int = MAX_ACTIVE, max_remembered: int = MAX_REMEMBERED
) -> None:
    """Raise Refusal where a job has as many copies as it may have."""
    if sum(not is_finished(each) for each in movements) >= max_active:
        raise Refusal(TOO_MANY, f"{max_active} copies of this job have not ended: ask when one has")
    if sum(not _is_dispensable(each) for each in movements) >= max_remembered:
        raise Refusal(TOO_MANY, f"{max_remembered} copies of this job go on or have failed")


def movements_to_forget(
    movements: Sequence[Object], max_remembered: int = MAX_REMEMBERED
) -> list[Key]:
    """Return the copies that need not be remembered any more, for one more to have room.

    They have ended well, or were cancelled: what has failed is told when the tasks have ended.
    """
    excess = len(movements) + 1 - max_remembered
    if excess <= 0:
        return []
    dispensable = sorted(
        filter(_is_dispensable, movements), key=lambda each: each["status"]["endTime"]
    )
    return [key_of(each) for each in dispensable[:excess]]


def is_requested_by_job(movement: Object) -> bool:
    """Return whether a movement is one that a running job has asked for."""
    object_labels = movement["metadata"].get("labels") or {}
    return object_labels.get(labels.TEARDOWN_STATE) == State.POST_RUN


def is_finished(movement: Object) -> bool:
    """Return whether a movement has ended."""
    return (movement.get("status") or {}).get("state") == "Finished"


def _is_dispensable(movement: Object) -> bool:
    dispensable_statuses = ("Success", "Cancelled")
    return is_finished(movement) and movement["status"].get("status") in dispensable_statuses


# What it is called


def name_of(movement: Object) -> str:
    """Return the name by which an application knows a copy."""
    return f"{movement['metadata']['namespace']}--{movement['metadata']['name']}"


def key_by_name(name: str) -> Key | None:
    """Return the key of the movement that a name is of; None for what is no such name."""
    match = _NAME_PATTERN.fullmatch(name)
    return Key(match[1], match[2]) if match else None


def belongs_to(movement: Object, workflow: Workflow) -> bool:
    """Return whether a movement was asked for by the job of this Workflow."""
    object_labels = movement["metadata"].get("labels") or {}
    has_own_name = movement["metadata"]["name"].startswith(name_prefix(workflow))
    has_own_labels = labels.of_workflow(workflow).items() <= object_labels.items()
    return has_own_name and has_own_labels and is_requested_by_job(movement)
