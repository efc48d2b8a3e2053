"""Global file systems: who has volumes of them, as a LustreFileSystem says (dws-spec section 13).

Volumes are made by HPE's operator, where it runs: here no containers are started that would claim
any. What a namespace is to have stands in the status as Pending, as the operator begins. Where
there are volumes, the entry and the finalizer are the operator's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from warren.base.objects import Change, Write
from warren.dws import kinds, labels, reports
from warren.dws.objects.lustrefilesystems import AccessStatus, LustreFileSystem


def decide(file_system: LustreFileSystem) -> Sequence[Write]:
    """Guard a file system that namespaces may have volumes of, and say how far these are."""
    meta = file_system.metadata
    if meta.deleting:
        return _finalize(file_system)
    wanted = _wanted_modes(file_system)
    # One without namespaces has nothing to guard, and goes at once.
    if wanted and labels.LUSTRE_FINALIZER not in meta.finalizers:
        finalizers = [*meta.finalizers, labels.LUSTRE_FINALIZER]
        return [
            Change(
                kind=kinds.LUSTRE_FILE_SYSTEM,
                key=meta.key,
                patch={"metadata": {"finalizers": finalizers}},
                resource_version=meta.resource_version,
            )
        ]
    changed = _status_changes(wanted, file_system)
    return (
        [reports.status(kinds.LUSTRE_FILE_SYSTEM, meta, {"namespaces": changed})] if changed else []
    )


def _finalize(file_system: LustreFileSystem) -> Sequence[Write]:
    meta = file_system.metadata
    # Last, as the operator does it: others may still need the file system.
    if meta.finalizers != (labels.LUSTRE_FINALIZER,) or any(
        volume.exists
        for namespace in file_system.status.namespaces.values()
        for volume in namespace.modes.values()
    ):
        return []
    return [reports.remove_finalizer(kinds.LUSTRE_FILE_SYSTEM, meta, labels.LUSTRE_FINALIZER)]


def _wanted_modes(file_system: LustreFileSystem) -> Mapping[str, Sequence[str]]:
    """Return the modes in which each namespace is to have volumes."""
    namespaces = file_system.spec.namespaces
    return {name: each.modes for name, each in namespaces.items() if each.modes}


def _status_changes(
    wanted: Mapping[str, Sequence[str]], file_system: LustreFileSystem
) -> dict[str, dict[str, Any] | None]:
    """Return what changes in the status: what is wanted and not there, and what is not any more.

    Empty where nothing does.
    """
    current = file_system.status.namespaces
    changed: dict[str, dict[str, Any] | None] = {}
    for name in sorted(wanted.keys() | current.keys()):
        wanted_modes = wanted.get(name, ())
        present: Mapping[str, AccessStatus] = current[name].modes if name in current else {}
        has_volumes = any(volume.exists for volume in present.values())
        if name in current and not wanted_modes and not has_volumes:
            changed[name] = None
            continue
        modes: dict[str, Any] = {
            mode: {"state": "Pending"} for mode in wanted_modes if mode not in present
        }
        for mode, volume in present.items():
            if mode not in wanted_modes and not volume.exists:
                modes[mode] = None
        if modes:
            changed[name] = {"modes": modes}
    return changed
