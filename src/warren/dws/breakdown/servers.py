"""Servers: which rabbits hold the storage. Checked in Setup (`dws.jobs.placement` fills them).

Only strategies, labels and capacities of the breakdown are read here, never the
name of a file system: what is needed is what the breakdown says.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from warren.base.objects import Change, Object
from warren.base.placing import Locality
from warren.base.times import rfc3339_micro
from warren.base.words import plural
from warren.dws import kinds, reports
from warren.dws.breakdown.allocationneeds import ACROSS_SERVERS, PER_COMPUTE, SINGLE_SERVER
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers, ServersSet
from warren.dws.objects.breakdowns import AllocationNeed
from warren.dws.objects.nnfstorages import NnfNodeStorage
from warren.dws.objects.storages import Storage
from warren.dws.rabbits.rabbitstorages import effective_status, serves_allocations


def check(
    needs: Sequence[AllocationNeed],
    servers: Servers,
    rabbits: Mapping[str, Storage],
    node_counts_by_rabbit: Mapping[str, int] | None = None,
    localities: Sequence[Locality] = (),
) -> None:
    """Raise the Fault of a workload manager that has filled in the Servers wrongly.

    All mistakes are told at once, for each of them takes a round of its own to repair
    (dws-spec section 5). `node_counts_by_rabbit` counts the job's compute nodes, where they
    are known, and `localities` say of each set whether all of these must be wired to rabbits
    that hold it (`dws.location`). Only the rabbits that are assigned are looked up.
    """
    mistakes = [
        *_wrong_sets(needs, servers.spec.allocation_sets),
        *_wrong_rabbits(needs, servers.spec.allocation_sets, rabbits),
        *_colocation_mistakes(needs, servers.spec.allocation_sets),
        *_missing_allocations(
            needs, servers.spec.allocation_sets, node_counts_by_rabbit or {}, localities
        ),
    ]
    if mistakes:
        raise Fault(f"Servers {servers.metadata.name}: {'; '.join(mistakes)}", type="WLM")


Sets = Sequence[ServersSet]


def _wrong_sets(needs: Sequence[AllocationNeed], sets: Sets) -> Iterator[str]:
    if len(sets) != len(needs):
        yield f"it has {plural(len(sets), 'allocation set')}, and {len(needs)} are needed"
    present_counts = Counter(each.label for each in sets)
    needed_counts = Counter(need.label for need in needs)
    for label, count in needed_counts.items():
        if not present_counts[label]:
            yield f"it lacks the set {label}"
        elif present_counts[label] > count:
            yield f"it has the set {label} {present_counts[label]} times"
    for label in present_counts:
        if label not in needed_counts:
            yield f"there is no need of a set {label}"
    for need, each in _needs_with_sets(needs, sets):
        yield from _wrong_set(need, each)


def _needs_with_sets(
    needs: Sequence[AllocationNeed], sets: Sets
) -> Iterator[tuple[AllocationNeed, ServersSet]]:
    set_by_label = {each.label: each for each in sets}
    return ((need, set_by_label[need.label]) for need in needs if need.label in set_by_label)


def _wrong_set(need: AllocationNeed, servers_set: ServersSet) -> Iterator[str]:
    set_name, size = f"set {need.label}", servers_set.allocation_size
    for server in servers_set.storage:
        if server.allocation_count < 1:
            yield f"{server.name} has {plural(server.allocation_count, 'allocation')} of {set_name}"
    counts = [server.allocation_count for server in servers_set.storage]
    if need.allocation_strategy == SINGLE_SERVER and counts != [1]:
        allocations_text = f"{plural(sum(counts), 'allocation')} on {plural(len(counts), 'rabbit')}"
        yield f"{set_name} needs one allocation on one rabbit, and has {allocations_text}"
    if need.allocation_strategy == ACROSS_SERVERS:
        wanted_count = need.constraints.count
        if wanted_count not in (None, sum(counts)):
            count_text = plural(sum(counts), "allocation")
            yield f"{set_name} has {count_text}, and {wanted_count} are needed"
        if size * sum(counts) < need.minimum_capacity:
            yield (
                f"{set_name} has {size * sum(counts)} bytes ({sum(counts)} times {size}), and "
                f"{need.minimum_capacity} are needed"
            )
    elif size < need.minimum_capacity:
        yield (
            f"an allocation of {set_name} has {size} bytes, and {need.minimum_capacity} are needed"
        )


def _wrong_rabbits(
    needs: Sequence[AllocationNeed], sets: Sets, rabbits: Mapping[str, Storage]
) -> Iterator[str]:
    names = dict.fromkeys(server.name for each in sets for server in each.storage)
    storage_by_name = {name: rabbits.get(name) for name in names}
    for name, rabbit in storage_by_name.items():
        if rabbit is None:
            yield f"there is no Storage {name}"
        elif not serves_allocations(rabbit):
            yield (
                f"{name} is {effective_status(rabbit)}, and only rabbits that are Ready take new "
                "storage: submit the job again"
            )
    for need, each in _needs_with_sets(needs, sets):
        for name in dict.fromkeys(server.name for server in each.storage):
            rabbit = storage_by_name[name]
            rabbit_labels = rabbit.metadata.labels if rabbit else {}
            lacking_labels = [
                label
                for label in need.constraints.labels
                if rabbit_labels.get(label.partition("=")[0]) != label.partition("=")[2]
            ]
            if rabbit is not None and lacking_labels:
                yield f"{name} lacks {', '.join(lacking_labels)}, which set {need.label} asks for"


def _colocation_mistakes(needs: Sequence[AllocationNeed], sets: Sets) -> Iterator[str]:
    """Tell of rabbits with several of the sets that must be on rabbits of their own."""
    labels_by_key_and_rabbit: dict[str, dict[str, list[str]]] = {}
    for need, each in _needs_with_sets(needs, sets):
        for colocation in need.constraints.colocation:
            if colocation.type == "exclusive":
                for name in dict.fromkeys(server.name for server in each.storage):
                    labels_by_key_and_rabbit.setdefault(colocation.key, {}).setdefault(
                        name, []
                    ).append(need.label)
    for labels_by_rabbit in labels_by_key_and_rabbit.values():
        for name, set_labels in labels_by_rabbit.items():
            if len(set_labels) > 1:
                yield f"{name} has the sets {' and '.join(set_labels)}, which must not be together"


def _missing_allocations(
    needs: Sequence[AllocationNeed],
    sets: Sets,
    node_counts_by_rabbit: Mapping[str, int],
    localities: Sequence[Locality],
) -> Iterator[str]:
    labels_on_every_rabbit = {
        need.label
        for need, each in zip(needs, localities, strict=False)
        if each is Locality.EVERY_RABBIT_OF_JOB
    }
    for need, each in _needs_with_sets(needs, sets):
        if need.allocation_strategy != PER_COMPUTE:
            holding_rabbits = {server.name for server in each.storage}
            lacking_rabbits = (
                [name for name in node_counts_by_rabbit if name not in holding_rabbits]
                if need.label in labels_on_every_rabbit
                else []
            )
            for name in lacking_rabbits:
                yield (
                    f"{name} holds nothing of set {need.label}, which the compute nodes there "
                    "must be wired to"
                )
            continue
        counts: Counter[str] = Counter()
        for server in each.storage:
            counts[server.name] += server.allocation_count
        for name, node_count in node_counts_by_rabbit.items():
            if counts[name] < node_count:
                yield (
                    f"{name} has {plural(counts[name], 'allocation')} of set {need.label} for "
                    f"{plural(node_count, 'compute node')}"
                )


def report(
    servers: Servers,
    shares: Sequence[NnfNodeStorage],
    set_label_by_share: Mapping[str, str],
    now: float,
) -> Change | None:
    """Write down what is allocated where; None if that is what the status says already.

    `set_label_by_share` gives the label of the allocation set that an NnfNodeStorage belongs to, by
    its name; `now` is when the status was last changed, and by itself no change.
    """
    expected_share_counts = Counter(
        (each.label, server.name)
        for each in servers.spec.allocation_sets
        for server in each.storage
    )
    shares_by_set_and_rabbit: dict[tuple[str, str], list[NnfNodeStorage]] = {
        set_and_rabbit: [] for set_and_rabbit in expected_share_counts
    }
    for share in shares:
        set_and_rabbit = (set_label_by_share[share.metadata.name], share.metadata.namespace)
        shares_by_set_and_rabbit.setdefault(set_and_rabbit, []).append(share)
    size_by_label = {each.label: each.allocation_size for each in servers.spec.allocation_sets}
    rabbit_statuses_by_set: dict[str, dict[str, dict[str, Any]]] = {}
    for (label, rabbit), own_shares in shares_by_set_and_rabbit.items():
        ready_shares = [share for share in own_shares if share.status.ready]
        rabbit_statuses_by_set.setdefault(label, {})[rabbit] = {
            # Of flash, which is more than what the user sees of it.
            "allocationSize": sum(
                size_by_label.get(label, 0) * share.spec.count for share in ready_shares
            ),
            # A rabbit that has not begun is named as well, or it could not be seen which is late.
            "ready": len(ready_shares) == len(own_shares) >= expected_share_counts[label, rabbit],
        }
    ready = all(
        each["ready"] for statuses in rabbit_statuses_by_set.values() for each in statuses.values()
    )
    status: Object = {
        # Once true it stays true: a set that fails later is the NnfStorage's to tell.
        "ready": servers.status.ready or (ready and bool(expected_share_counts)),
        "allocationSets": [
            {"label": label, "storage": rabbit_statuses_by_set[label]}
            for label in sorted(rabbit_statuses_by_set)
        ],
    }
    if (
        status["ready"] == servers.status.ready
        and tuple(status["allocationSets"]) == servers.status.allocation_sets
    ):
        return None
    stamped_status = {**status, "lastUpdate": rfc3339_micro(now)}
    return reports.status(kinds.SERVERS, servers.metadata, stamped_status)
