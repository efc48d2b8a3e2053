"""The SystemStatus: which compute nodes the workload manager has, and which are out of reach.

Drivers do not wait for a node that is Disabled there (dws-spec section 6).
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Final

from warren.base import log
from warren.base.errors import Retryable
from warren.base.objects import Change, Key
from warren.conductor.workloadmanager import ComputeNodes
from warren.dws import kinds
from warren.dws.rabbits.systemstatus import changes
from warren.kube.client import AlreadyExists, Client, NotFound

KEY: Final = Key(kinds.DEFAULT_NAMESPACE, "default")

_RETRY_DELAY: Final = 5.0
"""Seconds before the whole is looked at again, where either side did not answer."""


class SystemStatusReporter:
    """Keeps the SystemStatus what the workload manager's nodes are."""

    def __init__(self, client: Client, nodes: ComputeNodes) -> None:
        self._client = client
        self._nodes = nodes

    async def run(self) -> None:
        """Keep it until cancelled, by patches of the nodes that have changed."""
        while True:
            try:
                recorded = await self._read_or_create()
                async with aclosing(self._nodes.follow()) as updates:  # type: ignore[type-var]
                    async for online in updates:
                        patch = changes(recorded, online)
                        if patch:
                            await self._write(patch)
                            recorded = {**recorded, **patch}
                            recorded = {node: state for node, state in recorded.items() if state}
            except Retryable as error:
                log.info("system status is not written", reason=str(error))
            except NotFound:
                log.info("system status was removed")
            await asyncio.sleep(_RETRY_DELAY)

    async def _read_or_create(self) -> Mapping[str, Any]:
        """Return the state of each node by the SystemStatus, which is created if there is none."""
        try:
            obj = await self._client.get(kinds.SYSTEM_STATUS, KEY)
        except NotFound:
            new_status = {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": {}}
            try:
                obj = await self._client.create(kinds.SYSTEM_STATUS, new_status)
            except AlreadyExists:
                obj = await self._client.get(kinds.SYSTEM_STATUS, KEY)
        return dict((obj.get("data") or {}).get("nodes") or {})

    async def _write(self, nodes: Mapping[str, Any]) -> None:
        change = Change(kind=kinds.SYSTEM_STATUS, key=KEY, patch={"data": {"nodes": nodes}})
        await self._client.patch(change)
