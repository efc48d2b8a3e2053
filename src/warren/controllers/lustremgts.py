"""NnfLustreMGTs: the names of the file systems of an MGT (`dws.storage.lustre` decides)."""

from warren.base.objects import Key, key_of
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import NnfLustreMGT
from warren.dws.storage import lustre
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class LustreMgtController:
    """Reconciles every NnfLustreMGT."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._mgts = informers.of(kinds.LUSTRE_MGT)
        self.reconciler: Reconciler[Key] = Reconciler("lustre mgt", self.reconcile, workers=1)
        self._mgts.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfLustreMGT."""
        raw = self._mgts.get(key)
        change = lustre.naming_change(read(raw, NnfLustreMGT)) if raw is not None else None
        await perform(self._client, [] if change is None else [change])
        return None
