"""Nodes that stayed drained for jobs whose Workflows went while no conductor was there.

The event that a Workflow is gone returns its nodes (`Conductor`). A conductor that starts later
receives none: it looks once at the nodes that are drained for that very reason.
"""

from functools import partial
from typing import Final

from warren.base import log
from warren.base.errors import UserMistake
from warren.base.objects import Object, key_of
from warren.conductor.workloadmanager import WorkloadManager
from warren.dws import kinds
from warren.dws.binding import Phase
from warren.dws.jobs import abort
from warren.dws.objects.assignments import Computes
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler

_ALL: Final = "all"


class StaleDrains:
    """Undrains such nodes, each time that it is asked to look at them."""

    def __init__(
        self, informers: Informers, wlm: WorkloadManager, *, enabled: bool = False
    ) -> None:
        self._wlm = wlm
        self._enabled = enabled
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._workflows = informers.of(kinds.WORKFLOW)
        self._computes = informers.of(kinds.COMPUTES)
        self.reconciler: Reconciler[str] = Reconciler("left drains", self.reconcile, workers=1)

    def configure(self, *, enabled: bool) -> None:
        """Undrain nodes from now on, or do not."""
        if enabled and not self._enabled:
            self.enqueue()
        self._enabled = enabled

    def enqueue(self) -> None:
        """Have the nodes that are drained looked at, soon."""
        self.reconciler.add(_ALL)

    async def reconcile(self, key: str) -> None:
        """Undrain the nodes that no Workflow of a job that is over has any more."""
        await self._wlm.wait_synced()
        raw = self._configurations.get(kinds.CONFIGURATION_KEY)
        if raw is None or not self._enabled:
            return
        nodes = (
            read(raw, SystemConfiguration).rabbits_of_computes().keys()
            - self._nodes_of_remaining_workflows()
        )
        if nodes:
            await self._wlm.undrain(sorted(nodes), abort.DRAIN_REASON)

    def _nodes_of_remaining_workflows(self) -> set[str]:
        """Return the nodes of the Workflows that are still to go, or to be marked."""
        remaining: set[str] = set()
        for raw in self._workflows.all():
            job_id = self._wlm.binding.job_id(key_of(raw).name)
            if job_id is None:
                continue
            for nodes in (abort.nodes_of_abort, partial(self._nodes_of_finished_job, job_id)):
                try:
                    remaining |= nodes(raw)
                except UserMistake as error:  # one object may not keep the nodes of all others
                    log.warning(
                        "a Workflow's nodes are not known, and may return before it is gone: see "
                        "whether they have storage mounted",
                        workflow=key_of(raw).name,
                        reason=str(error),
                    )
        return remaining

    def _nodes_of_finished_job(self, job_id: int, workflow: Object) -> frozenset[str]:
        """Return the nodes of a Workflow whose job is over. Raises Malformed."""
        job, computes = self._wlm.job(job_id), self._computes.get(key_of(workflow))
        if computes is None or not (job is None or job.phase is Phase.OVER):
            return frozenset()
        return frozenset(each.name for each in read(computes, Computes).data)
