"""The pods of a job's containers. They are not watched: a cluster has many others."""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from warren.base import log
from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.objects.workflows import Workflow
from warren.dws.workflow import containersteps
from warren.kube.client import Client, Refused, Unavailable

_CACHE_SECONDS: Final = 1.0
"""Seconds for which a list is told again to users, however often they ask."""


class _CachedPods(msgspec.Struct):
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    valid_until: float = 0.0
    pods: Sequence[Object] = ()


class PodLists:
    """The lists of pods of all Workflows."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cached_by_uid: dict[str, _CachedPods] = {}

    async def read_live(self, workflow: Workflow) -> Sequence[Object]:
        """Return a Workflow's pods. What cannot be told of them holds nothing up."""
        if not containersteps.may_have_containers(workflow.spec.dw_directives):
            return ()
        namespace, selector = workflow.metadata.namespace, labels.of_workflow(workflow)
        try:
            return (await self._client.list(kinds.POD, namespace, selector)).items
        except (Refused, Unavailable) as error:
            log.warning("pods not known", workflow=workflow.metadata.name, reason=str(error))
            return ()

    async def read_recent(self, workflow: Workflow) -> Sequence[Object]:
        """Return a Workflow's pods as they were within the last second: many may ask."""
        loop = asyncio.get_running_loop()
        self._cached_by_uid = {
            uid: each
            for uid, each in self._cached_by_uid.items()
            if each.lock.locked() or loop.time() < each.valid_until
        }
        cached = self._cached_by_uid.setdefault(workflow.metadata.uid, _CachedPods())
        async with cached.lock:
            if loop.time() >= cached.valid_until:
                cached.pods = await self.read_live(workflow)
                cached.valid_until = loop.time() + _CACHE_SECONDS
            return cached.pods
