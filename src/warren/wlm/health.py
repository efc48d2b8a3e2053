"""Which flash the scheduler may give to jobs: that of rabbits whose Storages are Ready.

And how much of it: what a rabbit says that it has, without what storage that is in no job's R
takes of it. Nodes that have lost the link to their rabbit are drained or tagged
(`dws.rabbits.nodedrains`). All of it is told rabbit by rabbit, when there is news of one, and of
all when it begins.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from warren.base.bytesize import GIB
from warren.base.objects import Object, key_of
from warren.dws import kinds, labels
from warren.dws.binding import Binding
from warren.dws.breakdown.allocationneeds import RABBIT_LABEL
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.rabbits.nodedrains import DRAIN_REASON, DrainDecision, DrainPolicy, decide_drains
from warren.dws.rabbits.rabbitstorages import effective_status, is_usable, placement_labels
from warren.dws.storage.nnfstorage import bytes_by_rabbit
from warren.kube.informer import Informer
from warren.rfc.fluid import JobId


class Scheduler(Protocol):
    """Is told of each rabbit's flash, as often as there is news of it."""

    def set_rabbit(
        self,
        rabbit: str,
        *,
        up: bool,
        state: str = "",
        capacity_gib: int | None = None,
        labels: Iterable[str] | None = None,
    ) -> None: ...

    def set_storage(
        self, name: str, bytes_by_rabbit: Mapping[str, int] | None, job: JobId | None = None
    ) -> None:
        """Count as taken the flash of one NnfStorage that is in no job's R.

        `name` is the NnfStorage's; without `bytes_by_rabbit` it is gone. While the R of the `job`
        that has made it has that flash, it is not counted twice.
        """
        ...

    def set_badrabbit_nodes(self, source: str, hosts: Iterable[str]) -> None: ...


class NodeDrainer(Protocol):
    """Drains nodes for a reason, and undrains those that it has drained for it."""

    async def keep_drained(
        self, lost: Iterable[str], reason: str, among: Iterable[str] | None = None
    ) -> None: ...


def mark_all_down(rabbits: Iterable[str], scheduler: Scheduler) -> None:
    """Tell the scheduler to give out nothing of which nothing is known yet."""
    for rabbit in rabbits:
        scheduler.set_rabbit(rabbit, up=False)


async def follow_health(
    storages: Informer,
    nnf_storages: Informer,
    binding: Binding,
    scheduler: Scheduler,
    drainer: NodeDrainer,
    policy: Callable[[], DrainPolicy] = DrainPolicy,
    listen_to_policy: Callable[[Callable[[], None]], None] = lambda listener: None,
) -> None:
    """Tell the scheduler what it may give out, and drain nodes, until cancelled.

    `storages` are the rabbits, and `nnf_storages` the NnfStorages, which are there for as long as
    there is flash that is theirs. `binding` tells whose jobs have made them. `listen_to_policy`
    takes what is to be called when the policy has changed.
    """
    decisions: dict[str, DrainDecision] = {}
    drain_changes: asyncio.Queue[tuple[frozenset[str], frozenset[str]]] = asyncio.Queue()

    def apply_decision(name: str, storage: Storage | None) -> None:
        before, now = decisions.pop(name, DrainDecision()), decide_drains(storage, policy())
        if storage is not None:
            decisions[name] = now
        if now.nodes_to_tag != before.nodes_to_tag:
            scheduler.set_badrabbit_nodes(name, now.nodes_to_tag)
        if now.nodes_to_drain or before.nodes_to_drain:
            drain_changes.put_nowait((now.nodes_to_drain, before.nodes | now.nodes))

    def rabbit_changed(obj: Object) -> None:
        key = key_of(obj)
        if key.namespace != kinds.DEFAULT_NAMESPACE:
            return
        raw = storages.get(key)
        apply_decision(key.name, None if raw is None else read(raw, Storage))
        if raw is None:
            scheduler.set_rabbit(key.name, up=False)
            return
        storage = read(raw, Storage)
        capacity, rabbit_labels = storage.status.capacity, placement_labels(storage)
        is_rabbit = RABBIT_LABEL in rabbit_labels
        scheduler.set_rabbit(
            key.name,
            up=is_usable(storage) and is_rabbit,
            state=effective_status(storage) if is_rabbit else f"without the label {RABBIT_LABEL}",
            # One that has not said how much it has, says 0.
            capacity_gib=capacity // GIB if capacity else None,
            labels=[label for label in rabbit_labels if label != RABBIT_LABEL],
        )

    def policy_changed() -> None:
        for obj in storages.all():
            rabbit_changed(obj)

    def storage_changed(obj: Object) -> None:
        key = key_of(obj)
        raw = nnf_storages.get(key)
        if raw is None:
            scheduler.set_storage(str(key), None)
            return
        storage = read(raw, NnfStorage)
        scheduler.set_storage(str(key), bytes_by_rabbit(storage), _creating_job(storage, binding))

    # First what is taken: until that is known, there is no telling what is free.
    await nnf_storages.wait_synced()
    nnf_storages.listen(storage_changed)
    await storages.wait_synced()
    storages.listen(rabbit_changed)
    listen_to_policy(policy_changed)
    # Whose rabbit has gone meanwhile, or got its link back, is not drained any more.
    lost = frozenset[str]().union(*(each.nodes_to_drain for each in decisions.values()))
    await drainer.keep_drained(lost, DRAIN_REASON)
    while True:
        lost, among = await drain_changes.get()
        await drainer.keep_drained(lost, DRAIN_REASON, among)


def _creating_job(storage: NnfStorage, binding: Binding) -> JobId | None:
    """Return the job whose Workflow has made storage, if it is a job of this workload manager."""
    meta = storage.metadata
    labelled = meta.labels.get(labels.WORKFLOW_NAMESPACE), meta.labels.get(labels.WORKFLOW_NAME)
    made_by = meta.annotations.get(labels.MADE_BY, "").split("/")
    for namespace, name in (labelled, made_by if len(made_by) == 2 else (None, None)):
        if namespace == kinds.DEFAULT_NAMESPACE and name:
            job = binding.job_id(name)
            return None if job is None else JobId(job)
    return None
