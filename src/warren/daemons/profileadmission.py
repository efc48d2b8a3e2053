"""The rules of NnfStorageProfiles, in the shape that an API server asks them."""

from warren.base.objects import Object
from warren.dws import kinds, profiles
from warren.kube.admission import Denied, Operation, Review

WEBHOOK = "vnnfstorageprofile.kb.io"
"""The webhook that has these rules on a real cluster."""


class ProfileAdmission:
    """Admits NnfStorageProfiles that say nothing wrong; everything else as it is."""

    async def admit(self, review: Review) -> Object | None:
        kind, new = review.kind, review.new
        if kind.plural != kinds.NNF_STORAGE_PROFILE.plural:
            return new
        if kind.group != kinds.NNF_STORAGE_PROFILE.group or new is None:
            return new
        old = review.old if review.operation is Operation.UPDATE else None
        found = profiles.mistakes(new, old)
        if found:
            raise Denied("; ".join(map(str, found)), WEBHOOK)
        return new
