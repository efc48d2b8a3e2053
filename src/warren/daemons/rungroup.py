"""What runs together in one process: if one of it fails, all of it ends."""

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
    "profiles": storageprofiles.index_choices,
    "pooled": lustrestorage.index_pooled,
    "mgt": lustrestorage.addresses_and_claimants_of,
    "system profile": systemstorage.profile_of,
    "in error": reports.in_error,
    "supported type": rabbitstorages.supported_types_of,
    "unsupported type": rabbitstorages.unsupported_types_of,
    "rabbit": alerts.rabbits_of,
    "compute": alerts.nodes_of,
    "breakdown instance": indexes.named_instance_keys,
    "breakdown profile": indexes.named_profiles,
}
"""The indexes of the informers of controllers, conductor, instance and agents, by their names."""

Runnable = Callable[[], Awaitable[None]]
"""A coroutine function that runs until it is cancelled."""


class RunGroup(msgspec.Struct, kw_only=True):
    """Runnables that run together. If one of them fails, all are cancelled."""

    runnables: dict[str, Runnable] = msgspec.field(default_factory=dict)
    prepare: Runnable | None = None
    """What is to be done before they start, while `outer_runnables` run already."""
    outer_runnables: dict[str, Runnable] = msgspec.field(default_factory=dict)
    """Those that start first and end last: they do the last writes of the others."""
    wait_ready: Runnable | None = None
    """Returns when what has started is ready to be used."""

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Run until cancelled, and set `ready` when all is ready to be used."""
        async with asyncio.TaskGroup() as outer_tasks:
            for name, runnable in self.outer_runnables.items():
                outer_tasks.create_task(_run_one(runnable), name=name)
            if self.prepare is not None:
                await self.prepare()
            async with asyncio.TaskGroup() as tasks:
                for name, runnable in self.runnables.items():
                    tasks.create_task(_run_one(runnable), name=name)
                if self.wait_ready is not None:
                    await self.wait_ready()
                if ready is not None:
                    ready.set()


async def _run_one(runnable: Runnable) -> None:
    await runnable()


def runnables_after_sync(
    informers: Informers, reconcilers: Iterable[Reconciler[Any]]
) -> dict[str, Runnable]:
    """Return reconcilers as runnables, which begin once everything that they look at is known."""

    def runnable_of(reconciler: Reconciler[Any]) -> Runnable:
        async def run() -> None:
            await informers.wait_synced()
            await reconciler.run()

        return run

    return {each.name: runnable_of(each) for each in reconcilers}
