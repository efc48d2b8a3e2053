"""Nodes whose agents are not heard of, for clusters whose Kubernetes is ours.

There the node lifecycle controller of Kubernetes says of such a node that its state is Unknown.
Only events of Leases count here, and none of Nodes: what an agent says of its Node it is believed,
until its Lease is over again.
"""

from warren.base.clock import Clock
from warren.base.objects import Key
from warren.controllers.heartbeats import Heartbeats
from warren.dws import kinds
from warren.dws.rabbits import nodestatus
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class NodeLifecycleController:
    """Reconciles the Node of each rabbit, by the rabbit's name."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._nodes = informers.of(kinds.NODE)
        self.reconciler: Reconciler[str] = Reconciler("node life", self.reconcile)
        self._heartbeats = Heartbeats(informers, self.reconciler.add)

    async def reconcile(self, rabbit: str) -> float | None:
        """Say of the Node of a rabbit whose Lease is over that nothing is known of it."""
        until_offline = self._heartbeats.seconds_until_offline(rabbit)
        node = self._nodes.get(Key("", rabbit))
        if until_offline == 0 and node is not None:
            await perform(self._client, nodestatus.report_unknown(node, self._clock.now()))
        return until_offline or None
