"""NnfAccess: one ClientMount on each node that is to mount a storage.

Which nodes mount what is decided in `clientmounts`, which access waits for others in `storagelock`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.dws import kinds, labels, reports
from warren.dws.access import blockaccess, outofreach
from warren.dws.access.accesssnapshot import AccessSnapshot
from warren.dws.access.clientmounts import client_mounts, shared_with
from warren.dws.access.storagelock import hold, release
from warren.dws.faults import Fault, raise_for
from warren.dws.objects.accesses import ClientMount, ClientMountSpec, NnfAccess
from warren.dws.objects.decoding import read


def storage_of(obj: Object) -> tuple[str, ...]:
    """Index NnfAccesses by their NnfStorage: `namespace/name`."""
    spec = obj.get("spec")
    reference = spec.get("storageReference") if isinstance(spec, Mapping) else None
    return (f"{reference.get('namespace', '')}/{reference['name']}",) if reference else ()


def decide(snapshot: AccessSnapshot) -> Sequence[Write]:
    """Make the ClientMounts, ask them for the desired state, and report on them."""
    access = snapshot.access
    if access.metadata.deleting:
        return _finalize(snapshot)
    try:
        is_mounting = access.spec.desired_state == "mounted"
        wanted_mounts = client_mounts(snapshot) if is_mounting else {}
        present_mounts = {mount.metadata.key: mount for mount in snapshot.mounts}
        lock_changes = (
            hold(snapshot, _new_mounts(access, present_mounts, wanted_mounts))
            if is_mounting
            else []
        )
        awaited = outofreach.awaited_mounts(snapshot)
    except Fault as fault:
        return _report(access, ready=False, fault=fault)
    writes: list[Write] = [
        Create(kind=kinds.CLIENT_MOUNT, object=obj)
        for key, obj in wanted_mounts.items()
        if key not in present_mounts
    ]
    # Of lost nodes nothing more is mounted; what they have mounted, they are to unmount.
    for mount in awaited if is_mounting else snapshot.mounts:
        spec_changes = _spec_changes(access, mount, wanted_mounts.get(mount.metadata.key))
        if spec_changes:
            patch: dict[str, Any] = {"spec": spec_changes}
            metadata: dict[str, Any] = {}
            inherited = labels.inherited_labels(access.metadata)
            if not inherited.items() <= mount.metadata.labels.items():
                metadata["labels"] = inherited  # it is mounted for another directive
            if _has_old_sharing(snapshot, mount):
                metadata["annotations"] = shared_with(snapshot)
            if metadata:
                patch["metadata"] = metadata
            writes.append(_change(mount, patch))
    trouble = _trouble(_up_to_date_mounts(access, awaited))
    is_done = (
        trouble is None
        and not writes
        and all(mount.all_in(access.spec.desired_state) for mount in awaited)
    )
    # Nodes reach flash before they mount it, and no longer when they have unmounted it.
    block_changes = blockaccess.changes(snapshot) if is_mounting or is_done else []
    # Held before it is mounted anywhere, and no longer when it is mounted nowhere.
    unlock_changes = [] if is_mounting or not is_done else release(snapshot)
    # Those of lost nodes, too. None of them is mounted less while it is told.
    sharing_changes = [
        _change(mount, {"metadata": {"annotations": shared_with(snapshot)}})
        for mount in snapshot.mounts
        if mount.spec.desired_state == access.spec.desired_state == "mounted"
        and _has_old_sharing(snapshot, mount)
    ]
    # What one node cannot do is told, and keeps no other from being asked.
    report = _report(access, ready=is_done, fault=trouble)
    return [*lock_changes, *block_changes, *writes, *sharing_changes, *unlock_changes, *report]


def _has_old_sharing(snapshot: AccessSnapshot, mount: ClientMount) -> bool:
    return not shared_with(snapshot).items() <= mount.metadata.annotations.items()


def _change(mount: ClientMount, patch: dict[str, Any]) -> Change:
    meta = mount.metadata
    return Change(
        kind=kinds.CLIENT_MOUNT,
        key=meta.key,
        patch=patch,
        resource_version=meta.resource_version,
    )


def _new_mounts(
    access: NnfAccess,
    present_mounts: Mapping[Key, ClientMount],
    wanted_mounts: Mapping[Key, Object],
) -> Iterator[ClientMountSpec]:
    """Return what nodes are to mount and are not asked to yet."""
    for key, obj in wanted_mounts.items():
        mount = present_mounts.get(key)
        spec_changes = _spec_changes(access, mount, obj) if mount is not None else {}
        if mount is None or "mounts" in spec_changes:
            yield read(obj, ClientMount).spec
        elif spec_changes:
            yield mount.spec


def _spec_changes(
    access: NnfAccess, mount: ClientMount, wanted_mount: Object | None
) -> dict[str, Any]:
    """Return what is to be changed of what a ClientMount asks for."""
    desired = access.spec.desired_state
    if mount.spec.desired_state == desired:
        return {}
    if desired == "unmounted":
        return {"desiredState": desired}
    if wanted_mount is None or len(wanted_mount["spec"]["mounts"]) == len(mount.spec.mounts):
        return {"desiredState": desired}
    return {"desiredState": desired, "mounts": wanted_mount["spec"]["mounts"]}


def _report(access: NnfAccess, *, ready: bool, fault: Fault | None) -> Sequence[Change]:
    state = access.spec.desired_state
    current = access.status
    error = fault.as_error() if fault else None
    if (current.state, current.ready) == (state, ready) and reports.same_error(
        current.error, error
    ):
        return ()
    status: Object = {"state": state, "ready": ready, "error": error}
    return [reports.status(kinds.NNF_ACCESS, access.metadata, status)]


def _up_to_date_mounts(access: NnfAccess, mounts: Sequence[ClientMount]) -> list[ClientMount]:
    """Return the mounts whose status answers what the access asks for, not what it did before."""
    desired = access.spec.desired_state
    return [
        mount
        for mount in mounts
        if mount.spec.desired_state == desired
        and all(each.state == desired for each in mount.status.mounts)
    ]


def _trouble(mounts: Sequence[ClientMount]) -> Fault | None:
    """Return what the first node that is in trouble says of it, with its name."""
    try:
        for mount in mounts:
            raise_for(mount.status.error, mount.spec.node)
    except Fault as fault:
        return fault
    return None


def _finalize(snapshot: AccessSnapshot) -> Sequence[Write]:
    if snapshot.mounts:
        removals = [
            Remove(kind=kinds.CLIENT_MOUNT, key=mount.metadata.key)
            for mount in snapshot.mounts
            if not mount.metadata.deleting
        ]
        trouble = _trouble(snapshot.mounts)
        if trouble is None:
            return removals
        return [*removals, *_report(snapshot.access, ready=False, fault=trouble)]
    meta = snapshot.access.metadata
    return [
        *release(snapshot),
        reports.remove_finalizer(kinds.NNF_ACCESS, meta, labels.ACCESS_FINALIZER),
    ]
