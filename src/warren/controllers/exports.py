"""NnfNodeBlockStorages, on their rabbit: which nodes reach its volumes over a network.

Only where a site attaches volumes so; where nodes are wired to their rabbit's devices,
there is nothing to do for what an NnfNodeBlockStorage says of access.
"""

from collections.abc import Collection
from typing import Protocol

from warren.base.objects import Key, key_of
from warren.dws import kinds
from warren.dws.access.exports import nodes_by_volume
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.kube.informer import Informers
from warren.kube.runtime import RECONCILE_SECONDS, Reconciler

_ALL = Key("", "")
"""Stands for all volumes of the rabbit: those of objects that are gone have no key."""


class Exports(Protocol):
    """What a rabbit offers on the network. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        """Have some nodes reach a volume, and no other node."""
        ...

    async def withdraw_others(self, volumes: Collection[str]) -> None:
        """Withdraw all of the rabbit's volumes but these."""
        ...


class ExportReconciler:
    """Makes what one rabbit offers what its NnfNodeBlockStorages say."""

    def __init__(
        self, informers: Informers, exports: Exports, *, timeout: float = RECONCILE_SECONDS
    ) -> None:
        """`timeout` is in seconds: more than the commands take by which volumes are made ready."""
        self._exports = exports
        self._shares = informers.of(kinds.NNF_NODE_STORAGE)
        self._block_storages = informers.of(kinds.NNF_NODE_BLOCK_STORAGE)
        # One at a time: an export is not withdrawn by a reconcile that has not seen its reason.
        self.reconciler: Reconciler[Key] = Reconciler(
            "exports", self.reconcile, workers=1, timeout=timeout
        )
        for informer in (self._shares, self._block_storages):
            informer.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self.reconciler.add(_ALL)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfNodeBlockStorage and the NnfNodeStorage of the same name."""
        if key == _ALL or self._shares.get(key) is None:
            await self._exports.withdraw_others(self._wanted_volumes())
            return None
        for volume, nodes in self._exported_nodes(key).items():
            await self._exports.export(volume, nodes)
        return None

    def _wanted_volumes(self) -> list[str]:
        volumes = []
        for obj in self._shares.all():
            volumes += [name for name, nodes in self._exported_nodes(key_of(obj)).items() if nodes]
        return volumes

    def _exported_nodes(self, key: Key) -> dict[str, list[str]]:
        raw_share, raw_block = self._shares.get(key), self._block_storages.get(key)
        assert raw_share is not None
        block_storage = None if raw_block is None else read(raw_block, NnfNodeBlockStorage)
        return nodes_by_volume(read(raw_share, NnfNodeStorage), block_storage)
