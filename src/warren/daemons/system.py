"""Parts that live together in one process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from warren.dws import labels, reports
from warren.dws.access import clientmounts, nnfaccess
from warren.dws.breakdown import indexes
from warren.dws.persistent import instances
from warren.dws.rabbits import alerts, rabbitstorages
from warren.dws.storage import locks, lustrestorage, storageprofiles, systemstorage
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler

INDEXES = {
    "workflow": labels.workflow_of,
    "owner": labels.owner_of,
    "instance": instances.instances_of,
    "consumer": instances.consumers_of,
    "storage": nnfaccess.storage_of,
    "mounting node": clientmounts.node_of,
    "holder": locks.holders_of,
    "profiles": storageprofiles.choices_of,
    "pooled": lustrestorage.index_pooled,
    "mgt": lustrestorage.mgt_of,
    "system profile": systemstorage.profile_of,
    "in error": reports.in_error,
    "supported type": rabbitstorages.supported_types_of,
    "unsupported type": rabbitstorages.unsupported_types_of,
    "rabbit": alerts.rabbits_of,
    "compute": alerts.nodes_of,
    "breakdown instance": indexes.instance_of,
    "breakdown profile": indexes.profile_of,
}

Part = Callable[[], Awaitable[None]]
"""Something that lives until it is cancelled."""


class System(msgspec.Struct, kw_only=True):
    """Parts that live together. If one of them dies, all do."""

    parts: dict[str, Part] = msgspec.field(default_factory=dict)
    prepare: Part | None = None
    """What is to be done before they start, while `outer_parts` run already."""
    outer_parts: dict[str, Part] = msgspec.field(default_factory=dict)
    wait_ready: Part | None = None
    """Returns when what has started is ready to be used."""

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Live until cancelled. The first parts outlive the others, whose last writes they do."""
        async with asyncio.TaskGroup() as outer_tasks:
            for name, part in self.outer_parts.items():
                outer_tasks.create_task(_run_part(part), name=name)
            if self.prepare is not None:
                await self.prepare()
            async with asyncio.TaskGroup() as tasks:
                for name, part in self.parts.items():
                    tasks.create_task(_run_part(part), name=name)
                if self.wait_ready is not None:
                    await self.wait_ready()
                if ready is not None:
                    ready.set()


async def _run_part(part: Part) -> None:
    await part()


def parts_after_sync(
    informers: Informers, reconcilers: Iterable[Reconciler[Any]]
) -> dict[str, Part]:
    """Return reconcilers as parts, which begin once everything that they look at is known."""

    def part_of(reconciler: Reconciler[Any]) -> Part:
        async def run() -> None:
            await informers.wait_synced()
            await reconciler.run()

        return run

    return {each.name: part_of(each) for each in reconcilers}
