"""NnfLustreMGTs, on the rabbit that has the MGS: what file systems have it run.

`dws.storage.mgscommands` decides; names are given out elsewhere (`controllers.lustremgts`).
"""

from warren.base.objects import Key, key_of
from warren.controllers.machine import Machine
from warren.dws import kinds
from warren.dws.node import NodeTrouble
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import MgsCommands, NnfLustreMGT, Requester
from warren.dws.storage import mgscommands
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import RECONCILE_SECONDS, Reconciler


class MgsReconciler:
    """Runs what the NnfLustreMGTs of one rabbit ask for, and says so."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        machine: Machine,
        *,
        limit: float = RECONCILE_SECONDS,
    ) -> None:
        """`limit` is in seconds: more than the commands take."""
        self._client = client
        self._machine = machine
        self._mgts = informers.of(kinds.LUSTRE_MGT)
        self.reconciler: Reconciler[Key] = Reconciler("mgs", self.reconcile, limit=limit)
        self._mgts.listen(lambda obj: self.reconciler.add(key_of(obj), obj))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfLustreMGT.

        An agent that dies before it says so runs commands again when it is back.
        """
        raw = self._mgts.get(key)
        if raw is None:
            return None
        current = read(raw, NnfLustreMGT)
        if current.metadata.deleting:
            return None
        ran: dict[Requester, NodeTrouble | None] = {}
        for each in mgscommands.due(current):
            ran[each.reference] = await self._run(each)
        change = mgscommands.told(current, ran)
        self.reconciler.wrote(key, await perform(self._client, [] if change is None else [change]))
        for trouble in ran.values():
            if trouble is not None and not trouble.fatal:
                raise trouble
        return None

    async def _run(self, wanted: MgsCommands) -> NodeTrouble | None:
        try:
            await self._machine.configure_mgs(mgscommands.vectors(wanted))
        except NodeTrouble as trouble:
            return trouble
        return None
