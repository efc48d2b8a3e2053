"""Who holds the storage: Servers, checked in Setup, and reported on (filled in: `placement`).

Only strategies, labels and capacities of the breakdown are read here, never the
name of a file system: what is needed is what the breakdown says.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from warren.base.objects import Change, Object
from warren.base.times import rfc3339_micro
from warren.base.words import plural
from warren.dws import kinds, reports
from warren.dws.breakdown import ACROSS_SERVERS, SINGLE_SERVER
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed, NnfNodeStorage, Servers, ServersSet, Storage
from warren.dws.rabbits import standing, usable


def check(
    needs: Sequence[AllocationNeed], servers: Servers, rabbits: Mapping[str, Storage]
) -> None:
    """Raise the Fault of a workload manager that has filled in the Servers wrongly.

    Only the rabbits that are assigned are looked up.
    """
    sets = {each.label: each for each in servers.spec.allocation_sets}
    if len(servers.spec.allocation_sets) != len(needs):
        raise Fault(
            f"Servers {servers.metadata.name} has {len(servers.spec.allocation_sets)} allocation "
            f"sets, and {len(needs)} are needed",
            type="WLM",
        )
    for need in needs:
        found = sets.get(need.label)
        if found is None:
            raise Fault(f"Servers {servers.metadata.name} lacks the set {need.label}", type="WLM")
        _check_set(need, found)
        for share in found.storage:
            _check_rabbit(share.name, rabbits.get(share.name))


def _check_rabbit(name: str, rabbit: Storage | None) -> None:
    if rabbit is None:
        raise Fault(f"there is no Storage {name}", type="WLM")
    if not usable(rabbit):
        raise Fault(
            f"{name} is {standing(rabbit)}, and only rabbits that are Ready take new storage: "
            "submit the job again",
            type="WLM",
        )


def _check_set(need: AllocationNeed, given: ServersSet) -> None:
    counts = [share.allocation_count for share in given.storage]
    if need.allocation_strategy == SINGLE_SERVER and counts != [1]:
        raise Fault(f"set {need.label} needs one allocation on one rabbit", type="WLM")
    wanted = need.constraints.count
    if need.allocation_strategy == ACROSS_SERVERS and wanted not in (None, sum(counts)):
        raise Fault(
            f"set {need.label} has {plural(sum(counts), 'allocation')}, and {wanted} are needed",
            type="WLM",
        )
    size = given.allocation_size
    if need.allocation_strategy == ACROSS_SERVERS:
        size *= sum(counts)
    if size < need.minimum_capacity:
        raise Fault(
            f"set {need.label} has {size} bytes, and {need.minimum_capacity} are needed",
            type="WLM",
        )


def report(
    servers: Servers, shares: Sequence[NnfNodeStorage], set_of: Mapping[str, str], now: float
) -> Change | None:
    """Write down what is allocated where; None if that is what the status says already.

    `set_of` gives the label of the allocation set that an NnfNodeStorage belongs to; `now` is
    when the status was last changed, and by itself no news.
    """
    listed = Counter(
        (each.label, share.name) for each in servers.spec.allocation_sets for share in each.storage
    )
    present: dict[tuple[str, str], list[NnfNodeStorage]] = {place: [] for place in listed}
    for share in shares:
        place = (set_of[share.metadata.name], share.metadata.namespace)
        present.setdefault(place, []).append(share)
    sizes = {each.label: each.allocation_size for each in servers.spec.allocation_sets}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (label, rabbit), there in present.items():
        done = [share for share in there if share.status.ready]
        found.setdefault(label, {})[rabbit] = {
            # Of flash, which is more than what the user sees of it.
            "allocationSize": sum(sizes.get(label, 0) * share.spec.count for share in done),
            # A rabbit that has not begun is named as well, or nobody could tell who is late.
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
    told = {**status, "lastUpdate": rfc3339_micro(now)}
    return reports.status(kinds.SERVERS, servers.metadata, told)
