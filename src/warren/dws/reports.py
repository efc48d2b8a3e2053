"""Writes to an object that was reconciled: its status, where it changes, and its finalizers."""

from collections.abc import Mapping
from typing import Any, Final

from warren.base.objects import Change, Kind, Object
from warren.dws import labels
from warren.dws.objects.meta import Error, Meta

IN_ERROR: Final = "yes"


def in_error(obj: Object) -> tuple[str, ...]:
    """Index objects by whether their status tells of an error that an event may clear."""
    status = obj.get("status")
    if not isinstance(status, Mapping):
        return ()
    has_error_status = status.get("status") in ("TransientCondition", "Error")
    return (IN_ERROR,) if has_error_status or status.get("error") else ()


def status(kind: Kind, meta: Meta, fields: Object) -> Change:
    """Return the write of some fields of a status, on what was read."""
    return Change(
        kind=kind,
        key=meta.key,
        patch={"status": fields},
        resource_version=meta.resource_version,
        status=True,
    )


def remove_finalizer(kind: Kind, meta: Meta, finalizer: str) -> Change:
    """Return the write that takes one finalizer off and leaves the others."""
    return Change(
        kind=kind,
        key=meta.key,
        patch=labels.without_finalizer(meta, finalizer),
        resource_version=meta.resource_version,
    )


def same_error(known: Error | None, error: Mapping[str, Any] | None) -> bool:
    """Return whether a status has this error already, or none if there is none."""
    if known is None or error is None:
        return known is None and error is None
    return bool(known.debug_message == error["debugMessage"])
