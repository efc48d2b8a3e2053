"""Whom an NnfAccess waits for, and which nodes it leaves behind that are out of reach (ADR 098)."""

from warren.base.objects import Change
from warren.dws import kinds, tolerance
from warren.dws.access.accesssnapshot import (
    AccessSnapshot,
    is_persistent,
    on_rabbits,
    remaining_allocations,
)
from warren.dws.objects.accesses import ClientMount
from warren.dws.storage import locks

UNMOUNTED = "unmounted"


def awaited_mounts(snapshot: AccessSnapshot) -> list[ClientMount]:
    """Return the mounts that the access waits for: those on nodes that are not lost.

    A rabbit of whose nodes all are lost has nothing more to mount.
    """
    lost = tolerance.lost_nodes(snapshot.access.metadata)
    if not lost:
        return list(snapshot.mounts)
    remaining = remaining_allocations(snapshot, lost) if on_rabbits(snapshot) else None
    return [
        mount
        for mount in snapshot.mounts
        if mount.spec.node not in lost and (remaining is None or mount.spec.node in remaining)
    ]


def changes_to_leave_behind(snapshot: AccessSnapshot) -> list[Change]:
    """Count nodes as lost that do not unmount and are out of reach, once no other is awaited.

    Nothing where there are none. Rabbits mount nothing of theirs from then on (ADR 072).
    """
    access, workflow = snapshot.access, snapshot.workflow
    if access.spec.desired_state != UNMOUNTED or on_rabbits(snapshot) or workflow is None:
        return []
    if snapshot.storage is None or _others_mount_it_next(snapshot):
        return []
    late_mounts = [mount for mount in awaited_mounts(snapshot) if not mount.all_in(UNMOUNTED)]
    nodes = frozenset(mount.spec.node for mount in late_mounts)
    all_asked = all(mount.spec.desired_state == UNMOUNTED for mount in late_mounts)
    if not nodes or not all_asked or not nodes <= frozenset(snapshot.unreachable):
        return []
    lost = tolerance.lost_nodes(access.metadata) | nodes
    # First the Workflow: what it does once the access is ready goes by what it says of them.
    return [
        Change(
            kind=kind,
            key=meta.key,
            patch={
                "metadata": {"annotations": tolerance.annotation(lost | tolerance.lost_nodes(meta))}
            },
            resource_version=meta.resource_version,
        )
        for kind, meta in (
            (kinds.WORKFLOW, workflow.metadata),
            (kinds.NNF_ACCESS, access.metadata),
        )
    ]


def _others_mount_it_next(snapshot: AccessSnapshot) -> bool:
    """Return whether others are to mount, after this access, what two nodes at once would damage.

    They know nothing of what this Workflow has lost.
    """
    storage = snapshot.storage
    assert storage is not None  # it was looked for
    return is_persistent(storage) and storage.spec.file_system_type in locks.EXCLUSIVE_TYPES
