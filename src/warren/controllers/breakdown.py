"""DirectiveBreakdowns: what each directive needs (decided in `dws.breakdown`)."""

from warren.base.objects import Key, key_of
from warren.dws import breakdown, kinds
from warren.dws.objects import DirectiveBreakdown, NnfStorageProfile, read
from warren.kube.client import Client, Invalid
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class BreakdownController:
    """Reconciles every DirectiveBreakdown."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._breakdowns = informers.of(kinds.BREAKDOWN)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self.reconciler: Reconciler[Key] = Reconciler("breakdown", self.reconcile)
        self._breakdowns.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a DirectiveBreakdown."""
        raw = self._breakdowns.get(key)
        if raw is not None:
            profiles = [
                read(obj, NnfStorageProfile)
                for obj in self._profiles.all()
                if obj["metadata"]["namespace"] == kinds.PROFILES_NAMESPACE
            ]
            current = read(raw, DirectiveBreakdown)
            try:
                await perform(self._client, breakdown.decide(current, profiles))
            except Invalid as error:
                # The definitions may be HPE's, which know fewer file systems than ours.
                await perform(self._client, breakdown.unsaid(current, str(error)))
        return None
