"""The Node of a rabbit: its agent makes it, and reports there whether it can run pods."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from warren.base.clock import Clock
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds
from warren.dws.rabbits import nodestatus
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

_RETRY_DELAY: Final = 10.0
"""Seconds after which to check again whether pods can be run: the reason may pass."""


class NodeRegistration:
    """Keeps the Node of a rabbit, with the status that its agent reports."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        name: str,
        address: str,
        why_cannot_run_pods: Callable[[], Awaitable[str | None]],
    ) -> None:
        """`why_cannot_run_pods` returns why no pods can be run; None if they can."""
        self._client = client
        self._clock = clock
        self._key = Key("", name)
        self._address = address
        self._why_cannot_run_pods = why_cannot_run_pods
        self._nodes = informers.of(kinds.NODE)
        self.can_run_pods = asyncio.Event()
        """Set when pods can be run, from then on."""
        self.reconciler: Reconciler[Key] = Reconciler("node", self.reconcile)
        self.reconciler.add(self._key)
        self._nodes.listen(self._node_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Make the Node if it is not there, and update its status."""
        why_not = await self._why_cannot_run_pods()
        node = self._nodes.get(key)
        if node is None or not nodestatus.is_reported(node, self._address, why_not):
            status = nodestatus.report(key.name, self._address, why_not, self._clock.now())
            await perform(self._client, [nodestatus.new_node(key.name), status])
        if why_not is not None:
            return _RETRY_DELAY
        self.can_run_pods.set()
        return None

    def _node_changed(self, obj: Object) -> None:
        if key_of(obj) == self._key:
            self.reconciler.add(self._key)
