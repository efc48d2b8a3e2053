"""NnfLustreMGTs, on the rabbit that has the MGS: what file systems have it run.

`dws.storage.mgscommands` decides; names are given out elsewhere (`controllers.lustremgts`).
"""

from collections.abc import Sequence
from typing import Final

from warren.base.objects import Key, key_of
from warren.controllers.localnode import LocalNode
from warren.dws import kinds
from warren.dws.node import NodeTrouble
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import NnfLustreMGT, Requester
from warren.dws.storage import mgscommands
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import RECONCILE_SECONDS, Reconciler

Request = tuple[Key, Requester]
"""An NnfLustreMGT, and what asks it for commands."""

_WORKERS: Final = 16
"""Of how many file systems commands are run side by side: some of them may hang."""


class MgsReconciler:
    """Runs what the NnfLustreMGTs of one rabbit ask for, and says so.

    `command_reconciler` runs them, those of each file system by themselves: where they hang, they
    hold up no other's. `reconciler` says of an NnfLustreMGT what came of them.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        local_node: LocalNode,
        *,
        timeout: float = RECONCILE_SECONDS,
    ) -> None:
        """`timeout` is in seconds: more than the commands take."""
        self._client = client
        self._local_node = local_node
        self._mgts = informers.of(kinds.LUSTRE_MGT)
        self._queued: dict[Key, Sequence[Requester]] = {}
        """Whose commands are queued or were run, until their NnfLustreMGT is seen to say so."""
        self._outcomes: dict[Key, dict[Requester, NodeTrouble | None]] = {}
        """What came of their commands; None where all went well."""
        self.command_reconciler: Reconciler[Request] = Reconciler(
            "mgs commands", self.run_commands, workers=_WORKERS, timeout=timeout
        )
        self.reconciler: Reconciler[Key] = Reconciler("mgs", self.reconcile)
        self._mgts.listen(lambda obj: self.reconciler.add(key_of(obj), obj))

    async def reconcile(self, key: Key) -> float | None:
        """Have an NnfLustreMGT's commands run, and say what came of them.

        An agent that dies before it says so runs commands again when it is back.
        """
        current = self._current(key)
        if current is None:
            self._queued.pop(key, None)
            self._outcomes.pop(key, None)
            return None
        due = [each.reference for each in mgscommands.unanswered_commands(current)]
        queued = self._queued.get(key, ())
        for requester in due:
            if requester not in queued:
                self.command_reconciler.add((key, requester))
        self._queued[key] = due
        outcomes = self._outcomes[key] = {
            each: trouble for each, trouble in self._outcomes.get(key, {}).items() if each in due
        }
        change = mgscommands.answer_change(current, outcomes)
        # What it says wakes it once more, so that it forgets what is said.
        await perform(self._client, [] if change is None else [change])
        return None

    async def run_commands(self, request: Request) -> float | None:
        """Run what was asked for, if it still is."""
        key, requester = request
        current = self._current(key)
        due = [] if current is None else mgscommands.unanswered_commands(current)
        commands = next((each for each in due if each.reference == requester), None)
        if commands is None:
            return None
        failure = None
        try:
            await self._local_node.configure_mgs(mgscommands.vectors(commands))
        except NodeTrouble as trouble:
            failure = trouble
        self._outcomes.setdefault(key, {})[requester] = failure
        self.reconciler.add(key)
        if failure is not None and not failure.fatal:
            raise failure
        return None

    def _current(self, key: Key) -> NnfLustreMGT | None:
        raw = self._mgts.get(key)
        if raw is None:
            return None
        current = read(raw, NnfLustreMGT)
        return None if current.metadata.deleting else current
