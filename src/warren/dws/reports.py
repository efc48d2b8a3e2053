"""What is written back to an object: its status where that is news, and its finalizer off."""

from collections.abc import Mapping
from typing import Any

from warren.base.objects import Change, Kind, Object
from warren.dws import labels
from warren.dws.objects import Error, Meta


def status(kind: Kind, meta: Meta, told: Object) -> Change:
    """Return the write of some fields of a status, on what was read."""
    return Change(
        kind=kind,
        key=meta.key,
        patch={"status": told},
        resource_version=meta.resource_version,
        status=True,
    )


def finalized(kind: Kind, meta: Meta, finalizer: str) -> Change:
    """Return the write that takes one finalizer off and leaves the others."""
    return Change(
        kind=kind,
        key=meta.key,
        patch=labels.finalized(meta, finalizer),
        resource_version=meta.resource_version,
    )


def same_error(known: Error | None, error: Mapping[str, Any] | None) -> bool:
    """Return whether a status has this error already, or none if there is none."""
    if known is None or error is None:
        return known is None and error is None
    return bool(known.debug_message == error["debugMessage"])
