"""The link of a compute node to its rabbit, where that is a network: tested, and told of when lost.

What the node is to test, and what it says, stand in its NnfNode (`dws.rabbits.links`). While
nothing is lost nothing is written.
"""

import random
from collections.abc import Awaitable, Callable

from warren.base import log
from warren.base.clock import Clock
from warren.base.objects import Key, key_of
from warren.base.times import rfc3339
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import NnfNode
from warren.dws.rabbits import links
from warren.dws.rabbits.links import LinkTestPolicy
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

Probe = Callable[[str], Awaitable[str | None]]
"""Returns why a rabbit is not reached; None if it is. It ends in bounded time."""


class LinkReconciler:
    """Tests one node's link, again and again, and says whether it is lost."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        node: str,
        probe: Probe,
        policy: LinkTestPolicy,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._clock = clock
        self._probe = probe
        self._policy = policy
        self._jitter = jitter
        self._key = Key(node, links.NNF_NODE_NAME)
        self._nnf_nodes = informers.of(kinds.NNF_NODE)
        self._failures = 0
        """How many tests have failed in a row. One that has begun anew begins at none."""
        self.reconciler: Reconciler[Key] = Reconciler("link", self.reconcile, workers=1)
        self._nnf_nodes.listen(lambda obj: self.reconciler.add(key_of(obj)))

    def test_now(self) -> None:
        """Test the link at once: what needs it has failed.

        While tests fail already they keep their pace: however many mounts fail, a link is not lost
        sooner than its rabbit is Offline, should that be the reason.
        """
        if not self._failures:
            self.reconciler.add(self._key)

    async def reconcile(self, key: Key) -> float | None:
        """Test the link once, and say what is to be said after that."""
        raw = self._nnf_nodes.get(key)
        if key != self._key or raw is None:
            return None  # it is made when the rabbit is known, which is news
        meta = read(raw, NnfNode).metadata
        rabbit = links.rabbit_of(meta)
        if not rabbit or not self._policy.enabled:
            await perform(self._client, links.report_writes(meta, None))
            return None
        why = await self._probe(rabbit)
        self._failures = 0 if why is None else self._failures + 1
        reported = links.lost_link_of(meta)
        lost = links.lost_link_after(
            reported,
            rabbit,
            why,
            failures=self._failures,
            now=rfc3339(self._clock.now()),
            policy=self._policy,
        )
        if lost is not None and reported is None:
            log.warning("link lost", rabbit=rabbit, reason=why)
        elif reported is not None and lost is None:
            log.info("link is back", rabbit=rabbit)
        await perform(self._client, links.report_writes(meta, lost))
        return self._policy.delay(lost=lost is not None, jitter=self._jitter())
