"""Admission of profiles: their rules, as the API server asks for them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from warren.base.objects import Object
from warren.dws import kinds
from warren.dws.containers import containerprofiles
from warren.dws.copies import copyprofiles
from warren.dws.profilemistakes import ProfileMistake
from warren.dws.storage import idlelines, storageprofiles
from warren.kube.admission import Denied, Operation, Review

_FindMistakes = Callable[[Object, Object | None], Sequence[ProfileMistake]]

_RULES: Final[Mapping[tuple[str, str], tuple[str, _FindMistakes]]] = {
    (kind.group, kind.plural): (webhook, rules)
    for kind, webhook, rules in (
        (kinds.NNF_STORAGE_PROFILE, "vnnfstorageprofile.kb.io", storageprofiles.mistakes),
        (kinds.COPY_PROFILE, "vnnfdatamovementprofile.kb.io", copyprofiles.mistakes),
        (kinds.CONTAINER_PROFILE, "vnnfcontainerprofile.kb.io", containerprofiles.mistakes),
    )
}
"""The rules of each kind, and the webhook that has them on a real cluster."""


def _is_pinned(profile: Object) -> bool:
    """Return whether a profile is a pinned copy: its original was warned about."""
    return bool((profile.get("data") or {}).get("pinned"))


class ProfileAdmission:
    """Admits profiles that say nothing wrong; everything else as it is."""

    async def admit(self, review: Review) -> Object | None:
        kind, new = review.kind, review.new
        webhook_and_rules = _RULES.get((kind.group, kind.plural))
        if webhook_and_rules is None or new is None:
            return new
        webhook, find_mistakes = webhook_and_rules
        old = review.old if review.operation is Operation.UPDATE else None
        mistakes = find_mistakes(new, old)
        if mistakes:
            raise Denied("; ".join(map(str, mistakes)), webhook)
        if kind.plural == kinds.NNF_STORAGE_PROFILE.plural and not _is_pinned(new):
            for warning in idlelines.warnings(new):
                review.warn(warning)
        return new
