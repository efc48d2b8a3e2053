"""The rabbits: Storages, from the SystemConfiguration and each rabbit's word (`dws.system`)."""

from warren.base.objects import Key
from warren.controllers.access import CONFIGURATION
from warren.dws import kinds, system
from warren.dws.objects import NnfNode, Storage, SystemConfiguration, read
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class SystemController:
    """Reconciles the one SystemConfiguration."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._storages = informers.of(kinds.STORAGE)
        self._nodes = informers.of(kinds.NNF_NODE)
        self.reconciler: Reconciler[Key] = Reconciler("system", self.reconcile, workers=1)
        for informer in (self._configurations, self._storages, self._nodes):
            informer.listen(lambda _: self.reconciler.add(CONFIGURATION))

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over the system."""
        raw = self._configurations.get(key)
        if raw is not None:
            storages = [read(obj, Storage) for obj in self._storages.all()]
            nodes = [read(obj, NnfNode) for obj in self._nodes.all()]
            writes = system.decide(
                read(raw, SystemConfiguration),
                {storage.metadata.name: storage for storage in storages},
                {node.metadata.namespace: node for node in nodes},
            )
            await perform(self._client, writes)
        return None
