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
    nodes_by_rabbit: Mapping[str, int] | None = None,
    localities: Sequence[Locality] = (),
) -> None:
    """Raise the Fault of a workload manager that has filled in the Servers wrongly.

    All mistakes are told at once, for each of them takes a round of its own to repair
    (dws-spec section 5). `nodes_by_rabbit` counts the job's compute nodes by their rabbits, where
    they are known, and `localities` say of each set whether all of these must be wired to rabbits
    that hold it (`dws.location`). Only the rabbits that are assigned are looked up.
    """
    mistakes = [
        *_wrong_sets(needs, servers.spec.allocation_sets),
        *_wrong_rabbits(needs, servers.spec.allocation_sets, rabbits),
        *_colocation_mistakes(needs, servers.spec.allocation_sets),
        *_missing_allocations(
            needs, servers.spec.allocation_sets, nodes_by_rabbit or {}, localities
        ),
    ]
    if mistakes:
        raise Fault(f"Servers {servers.metadata.name}: {'; '.join(mistakes)}", type="WLM")


Sets = Sequence[ServersSet]


def _wrong_sets(needs: Sequence[AllocationNeed], given: Sets) -> Iterator[str]:
    if len(given) != len(needs):
        yield f"it has {plural(len(given), 'allocation set')}, and {len(needs)} are needed"
    found = Counter(each.label for each in given)
    wanted = Counter(need.label for need in needs)
    for label, count in wanted.items():
        if not found[label]:
            yield f"it lacks the set {label}"
        elif found[label] > count:
            yield f"it has the set {label} {found[label]} times"
    for label in found:
        if label not in wanted:
            yield f"there is no need of a set {label}"
    for need, each in _pairs(needs, given):
        yield from _wrong_set(need, each)


def _pairs(
    needs: Sequence[AllocationNeed], given: Sets
) -> Iterator[tuple[AllocationNeed, ServersSet]]:
    by_label = {each.label: each for each in given}
    return ((need, by_label[need.label]) for need in needs if need.label in by_label)


def _wrong_set(need: AllocationNeed, given: ServersSet) -> Iterator[str]:
    name, size = f"set {need.label}", given.allocation_size
    for share in given.storage:
        if share.allocation_count < 1:
            yield f"{share.name} has {plural(share.allocation_count, 'allocation')} of {name}"
    counts = [share.allocation_count for share in given.storage]
    if need.allocation_strategy == SINGLE_SERVER and counts != [1]:
        there = f"{plural(sum(counts), 'allocation')} on {plural(len(counts), 'rabbit')}"
        yield f"{name} needs one allocation on one rabbit, and has {there}"
    if need.allocation_strategy == ACROSS_SERVERS:
        wanted = need.constraints.count
        if wanted not in (None, sum(counts)):
            yield f"{name} has {plural(sum(counts), 'allocation')}, and {wanted} are needed"
        if size * sum(counts) < need.minimum_capacity:
            yield (
                f"{name} has {size * sum(counts)} bytes ({sum(counts)} times {size}), and "
                f"{need.minimum_capacity} are needed"
            )
    elif size < need.minimum_capacity:
        yield (f"an allocation of {name} has {size} bytes, and {need.minimum_capacity} are needed")


def _wrong_rabbits(
    needs: Sequence[AllocationNeed], given: Sets, rabbits: Mapping[str, Storage]
) -> Iterator[str]:
    names = dict.fromkeys(share.name for each in given for share in each.storage)
    found = {name: rabbits.get(name) for name in names}
    for name, rabbit in found.items():
        if rabbit is None:
            yield f"there is no Storage {name}"
        elif not serves_allocations(rabbit):
            yield (
                f"{name} is {effective_status(rabbit)}, and only rabbits that are Ready take new "
                "storage: submit the job again"
            )
    for need, each in _pairs(needs, given):
        for name in dict.fromkeys(share.name for share in each.storage):
            rabbit = found[name]
            carried = rabbit.metadata.labels if rabbit else {}
            lacking = [
                label
                for label in need.constraints.labels
                if carried.get(label.partition("=")[0]) != label.partition("=")[2]
            ]
            if rabbit is not None and lacking:
                yield f"{name} lacks {', '.join(lacking)}, which set {need.label} asks for"


def _colocation_mistakes(needs: Sequence[AllocationNeed], given: Sets) -> Iterator[str]:
    """Tell of rabbits with several of the sets that must be on rabbits of their own."""
    apart: dict[str, dict[str, list[str]]] = {}
    for need, each in _pairs(needs, given):
        for one in need.constraints.colocation:
            if one.type == "exclusive":
                for name in dict.fromkeys(share.name for share in each.storage):
                    apart.setdefault(one.key, {}).setdefault(name, []).append(need.label)
    for by_rabbit in apart.values():
        for name, together in by_rabbit.items():
            if len(together) > 1:
                yield f"{name} has the sets {' and '.join(together)}, which must not be together"


def _missing_allocations(
    needs: Sequence[AllocationNeed],
    given: Sets,
    nodes_by_rabbit: Mapping[str, int],
    localities: Sequence[Locality],
) -> Iterator[str]:
    node_local_sets = {
        need.label for need, each in zip(needs, localities, strict=False) if each is Locality.NODE
    }
    for need, each in _pairs(needs, given):
        if need.allocation_strategy != PER_COMPUTE:
            held = {share.name for share in each.storage}
            far = (
                [name for name in nodes_by_rabbit if name not in held]
                if need.label in node_local_sets
                else []
            )
            for name in far:
                yield (
                    f"{name} holds nothing of set {need.label}, which the compute nodes there "
                    "must be wired to"
                )
            continue
        counts: Counter[str] = Counter()
        for share in each.storage:
            counts[share.name] += share.allocation_count
        for name, nodes in nodes_by_rabbit.items():
            if counts[name] < nodes:
                yield (
                    f"{name} has {plural(counts[name], 'allocation')} of set {need.label} for "
                    f"{plural(nodes, 'compute node')}"
                )


def report(
    servers: Servers, shares: Sequence[NnfNodeStorage], set_labels: Mapping[str, str], now: float
) -> Change | None:
    """Write down what is allocated where; None if that is what the status says already.

    `set_labels` gives the label of the allocation set that an NnfNodeStorage belongs to; `now` is
    when the status was last changed, and by itself no change.
    """
    listed = Counter(
        (each.label, share.name) for each in servers.spec.allocation_sets for share in each.storage
    )
    present: dict[tuple[str, str], list[NnfNodeStorage]] = {place: [] for place in listed}
    for share in shares:
        place = (set_labels[share.metadata.name], share.metadata.namespace)
        present.setdefault(place, []).append(share)
    sizes = {each.label: each.allocation_size for each in servers.spec.allocation_sets}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (label, rabbit), there in present.items():
        done = [share for share in there if share.status.ready]
        found.setdefault(label, {})[rabbit] = {
            # Of flash, which is more than what the user sees of it.
            "allocationSize": sum(sizes.get(label, 0) * share.spec.count for share in done),
            # A rabbit that has not begun is named as well, or it could not be seen which is late.
            "ready": len(done) == len(there) >= listed[label, rabbit],
        }
    ready = all(entry["ready"] for entries in found.values() for entry in entries.values())
    status: Object = {
        # Once true it stays true: a set that fails later is the NnfStorage's to tell.
        "ready": servers.status.ready or (ready and bool(listed)),
        "allocationSets": [{"label": label, "storage": found[label]} for label in sorted(found)],
    }
    if (
        status["ready"] == servers.status.ready
        and tuple(status["allocationSets"]) == servers.status.allocation_sets
    ):
        return None
    written = {**status, "lastUpdate": rfc3339_micro(now)}
    return reports.status(kinds.SERVERS, servers.metadata, written)
