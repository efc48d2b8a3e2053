"""Rabbits that admins take out of service, and put back: who has done it, when and why.

It stands in annotations of the Storage. A drained rabbit takes no new allocations, and jobs
that have some of its flash use it to their end. A disabled one (`spec.state`) makes nothing for
any job.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import orjson
from msgspec.structs import replace

from warren.base.errors import UserMistake
from warren.base.objects import Change, merge_patch
from warren.base.times import rfc3339
from warren.dws import kinds, labels
from warren.dws.objects.storages import Storage


class ServiceAction(StrEnum):
    """What admins do to have a rabbit serve jobs, or serve none."""

    DRAIN = "drain"
    UNDRAIN = "undrain"
    DISABLE = "disable"
    ENABLE = "enable"


_ANNOTATION_BY_ACTION: Final = {
    ServiceAction.DRAIN: labels.DRAINED,
    ServiceAction.UNDRAIN: labels.DRAINED,
    ServiceAction.DISABLE: labels.DISABLED,
    ServiceAction.ENABLE: labels.DISABLED,
}


_FLUX_CORAL2_ANNOTATIONS: Final = ("disable_reason", "disable_date")
"""The annotations by which flux-coral2 says why a rabbit is Disabled."""


def change(
    storage: Storage,
    action: ServiceAction,
    *,
    by: str,
    now: float,
    reason: str,
    force: bool = False,
) -> Change:
    """Return what an action changes of a Storage.

    Raises UserMistake where the rabbit is already what it is to become, but to give the reason
    anew with `force`.
    """
    name, annotation = storage.metadata.name, _ANNOTATION_BY_ACTION[action]
    disabling = annotation == labels.DISABLED
    word = "disabled" if disabling else "drained"
    is_done_already = (
        storage.spec.state == "Disabled"
        if disabling
        else annotation in storage.metadata.annotations
    )
    has_verdict = disabling and labels.SELF_TEST in storage.metadata.annotations
    test_removal = {labels.SELF_TEST: None} if has_verdict else {}
    patch: dict[str, Any]
    if action in (ServiceAction.DRAIN, ServiceAction.DISABLE):
        if is_done_already and not force:
            raise UserMistake(
                f"{name} is {word} already{note_text(storage, annotation)}: --force gives a new "
                "reason."
            )
        note = {"by": by, "since": rfc3339(now), "reason": reason}
        new_annotations: dict[str, str | None] = {annotation: orjson.dumps(note).decode()}
        patch = {"metadata": {"annotations": {**new_annotations, **test_removal}}}
        if disabling:
            patch["spec"] = {"state": "Disabled"}
    else:
        if not is_done_already:
            raise UserMistake(f"{name} is not {word}: `warren rabbits status` shows what it is.")
        other_annotations = (*_FLUX_CORAL2_ANNOTATIONS, labels.DISABLED_FOR) if disabling else ()
        removed_annotations = [
            annotation,
            *(each for each in other_annotations if each in storage.metadata.annotations),
        ]
        patch = {
            "metadata": {"annotations": {**dict.fromkeys(removed_annotations), **test_removal}}
        }
        if disabling:
            patch["spec"] = {"state": "Enabled"}
    return Change(
        kind=kinds.STORAGE,
        key=storage.metadata.key,
        patch=patch,
        resource_version=storage.metadata.resource_version,
    )


def annotate(change: Change, annotations: Mapping[str, str]) -> Change:
    """Return the change of a Storage with more annotations."""
    return replace(
        change, patch=merge_patch(change.patch, {"metadata": {"annotations": annotations}})
    )


def note(annotations: Mapping[str, str], annotation: str) -> Mapping[str, str]:
    """Return who has taken a rabbit out of service, since when and why, as far as that is told.

    Of an annotation that was written by hand, in a form of its own, all of the text is the reason.
    """
    text = annotations.get(annotation)
    if text is None:
        return {}
    try:
        decoded = orjson.loads(text)
    except orjson.JSONDecodeError:
        decoded = None
    if not isinstance(decoded, dict):
        return {"reason": text} if text else {}
    return {key: str(decoded[key]) for key in ("by", "since", "reason") if decoded.get(key)}


def note_text(storage: Storage, annotation: str) -> str:
    """Write who, when and why, to follow on what was done: ` by root since ...: bad disk`."""
    note_fields = note(storage.metadata.annotations, annotation)
    by = f" by {note_fields['by']}" if "by" in note_fields else ""
    since = f" since {note_fields['since']}" if "since" in note_fields else ""
    why = f": {note_fields['reason']}" if "reason" in note_fields else ""
    return f"{by}{since}{why}"
