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
    reported = _statuses(wanted, file_system)
    return (
        [reports.status(kinds.LUSTRE_FILE_SYSTEM, meta, {"namespaces": reported})]
        if reported
        else []
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
    named = file_system.spec.namespaces
    return {name: each.modes for name, each in named.items() if each.modes}


def _statuses(
    promised: Mapping[str, Sequence[str]], file_system: LustreFileSystem
) -> dict[str, dict[str, Any] | None]:
    """Return what changes in the status: what is wanted and not there, and what is not any more.

    Empty where nothing does.
    """
    known = file_system.status.namespaces
    reported: dict[str, dict[str, Any] | None] = {}
    for name in sorted(promised.keys() | known.keys()):
        modes_wanted = promised.get(name, ())
        there: Mapping[str, AccessStatus] = known[name].modes if name in known else {}
        kept = any(volume.exists for volume in there.values())
        if name in known and not modes_wanted and not kept:
            reported[name] = None
            continue
        modes: dict[str, Any] = {
            mode: {"state": "Pending"} for mode in modes_wanted if mode not in there
        }
        for mode, volume in there.items():
            if mode not in modes_wanted and not volume.exists:
                modes[mode] = None
        if modes:
            reported[name] = {"modes": modes}
    return reported
