"""LustreFileSystems (decided in `dws.storage.globalfs`)."""

from warren.base.objects import Key, key_of
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.storage import globalfs
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class GlobalFileSystemController:
    """Reconciles every LustreFileSystem."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._file_systems = informers.of(kinds.LUSTRE_FILE_SYSTEM)
        self.reconciler: Reconciler[Key] = Reconciler("lustre", self.reconcile)
        self._file_systems.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a LustreFileSystem."""
        raw = self._file_systems.get(key)
        if raw is not None:
            await perform(self._client, globalfs.decide(read(raw, LustreFileSystem)))
        return None
