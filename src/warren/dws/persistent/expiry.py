"""When persistent storage expires: from then on no job begins to use it, and it goes (ADR 057)."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from warren.base.objects import Object
from warren.base.times import parse_rfc3339, rfc3339
from warren.dws import labels
from warren.dws.objects.meta import Meta

LAST_TIMESTAMP: Final = 253402300799.0
"""The last timestamp that can be written, in seconds since the epoch: the end of the year 9999."""


def from_annotations(annotations: Mapping[str, str]) -> float | None:
    """Return when an instance expires, in seconds since the epoch; None for never.

    What cannot be read is never: storage is not destroyed by a mistake in writing. So is a time
    that `expiry_text` refuses.
    """
    with suppress(ValueError, OverflowError):
        moment = parse_rfc3339(annotations.get(labels.EXPIRES, ""))
        return moment if _can_be_written(moment) else None
    return None


def expiry_text(moment: float) -> str:
    """Return the text that `from_annotations` reads, to the second. Raises ValueError for a time
    that cannot be written.
    """
    if not _can_be_written(moment):
        raise ValueError(f"{moment} is not a time that can be written")
    return rfc3339(moment)


def _can_be_written(moment: float) -> bool:
    return 0 <= moment <= LAST_TIMESTAMP


def inherited_metadata(maker: Meta) -> Object:
    """Return the metadata that a Workflow's breakdown, and the instance made for that, inherit from
    their maker: when the instance expires.
    """
    annotations = {key: value for key, value in maker.annotations.items() if key == labels.EXPIRES}
    return {"annotations": annotations} if annotations else {}


def expiry_time(meta: Meta, max_seconds: float | None) -> float | None:
    """Return when an instance expires, which is kept for `max_seconds` at most; None for never."""
    own = from_annotations(meta.annotations)
    if max_seconds is None or meta.creation_timestamp is None:
        return own
    latest = parse_rfc3339(meta.creation_timestamp) + max_seconds
    return latest if own is None else min(own, latest)


def has_expired(annotations: Mapping[str, str], now: float) -> bool:
    """Return whether an instance has expired."""
    moment = from_annotations(annotations)
    return moment is not None and moment <= now
