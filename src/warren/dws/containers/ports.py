"""Ports for containers: an NnfPortManager, in which Workflows ask and its controller answers.

A Workflow has the same ports on each of its rabbits (dws-spec section 12.6).
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Key, Object, Write
from warren.base.times import parse_rfc3339, rfc3339
from warren.dws import kinds, reports
from warren.dws.faults import Fault
from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta, Reference
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow

MANAGER_KEY: Final = Key(kinds.PROFILES_NAMESPACE, "nnf-port-manager")
"""The one that Workflows ask."""

IN_USE: Final = "InUse"
COOLDOWN: Final = "Cooldown"
INVALID: Final = "InvalidConfiguration"
INSUFFICIENT: Final = "InsufficientResources"

_PORT_LIMIT: Final = 2**16


class Requester(Reference, frozen=True):
    uid: str = ""


class PortRequest(Struct, frozen=True):
    requester: Requester
    count: int = 1


class PortManagerSpec(Struct, frozen=True):
    system_configuration: Reference = Reference()
    allocations: tuple[PortRequest, ...] = ()


class PortAllocation(Struct, frozen=True):
    """An answer, or ports that are not given out again yet."""

    status: str
    requester: Requester | None = None
    ports: tuple[int, ...] = ()
    time_unallocated: str | None = None


class PortManagerStatus(Struct, frozen=True):
    status: str = ""
    allocations: tuple[PortAllocation, ...] = ()


class NnfPortManager(Struct, frozen=True):
    metadata: Meta
    spec: PortManagerSpec = PortManagerSpec()
    status: PortManagerStatus = PortManagerStatus()

    def allocation_of(self, uid: str) -> PortAllocation | None:
        """Return what is said to the requester with this UID."""
        return next(
            (
                each
                for each in self.status.allocations
                if each.requester is not None and each.requester.uid == uid
            ),
            None,
        )


def workflows_of(obj: Object) -> tuple[Key, ...]:
    """Return the Workflows that ask a manager or have ports of it."""
    workflows = [
        _requesting_workflow(each)
        for part in ("spec", "status")
        for each in (obj.get(part) or {}).get("allocations") or ()
    ]
    return tuple(dict.fromkeys(key for key in workflows if key is not None))


def _requesting_workflow(entry: Object) -> Key | None:
    requester = entry.get("requester") or {}
    if requester.get("kind") != kinds.WORKFLOW.name or not requester.get("name"):
        return None
    return Key(requester.get("namespace", ""), requester["name"])


# A Workflow's side


def assigned_ports(manager: NnfPortManager | None, workflow: Workflow, count: int) -> Sequence[int]:
    """Return the ports of a Workflow that needs so many; none while they are asked for.

    Raises Fault where it cannot have them.
    """
    allocation = manager.allocation_of(workflow.metadata.uid) if manager is not None else None
    if manager is None:
        raise Fault(f"there is no NnfPortManager {MANAGER_KEY}: an admin has to make it")
    if allocation is None:
        if manager.status.status == "SystemConfigurationNotFound":
            where = manager.spec.system_configuration.key
            raise Fault(f"the NnfPortManager finds no SystemConfiguration {where}")
        return ()
    if allocation.status == INVALID:
        raise Fault(
            f"the SystemConfiguration has no ports for containers, and {count} are needed",
            type="User",
        )
    if allocation.status == INSUFFICIENT:
        raise Fault(f"the SystemConfiguration has fewer ports than the {count} that are needed")
    return (
        allocation.ports if len(allocation.ports) == count and allocation.status == IN_USE else ()
    )


def request_ports(manager: NnfPortManager, workflow: Workflow, count: int) -> Change | None:
    """Ask for a Workflow's ports, unless that is done."""
    meta = workflow.metadata
    if any(each.requester.uid == meta.uid for each in manager.spec.allocations):
        return None
    requester = {
        "kind": kinds.WORKFLOW.name,
        "name": meta.name,
        "namespace": meta.namespace,
        "uid": meta.uid,
    }
    request = {"requester": requester, "count": count}
    return _requests_change(manager, [*map(msgspec.to_builtins, manager.spec.allocations), request])


def release_ports(manager: NnfPortManager | None, uid: str) -> Change | None:
    """Give the ports of a Workflow back, unless that is done."""
    if manager is None:
        return None
    remaining = [each for each in manager.spec.allocations if each.requester.uid != uid]
    return _remove_requests(manager, remaining)


def are_released(manager: NnfPortManager | None, uid: str) -> bool:
    """Return whether a Workflow has no ports any more."""
    allocation = manager.allocation_of(uid) if manager is not None else None
    return allocation is None or allocation.status != IN_USE


def _remove_requests(manager: NnfPortManager, remaining: Sequence[PortRequest]) -> Change | None:
    if len(remaining) == len(manager.spec.allocations):
        return None
    return _requests_change(manager, list(map(msgspec.to_builtins, remaining)))


def _requests_change(manager: NnfPortManager, allocations: Sequence[Object]) -> Change:
    return Change(
        kind=kinds.PORT_MANAGER,
        key=manager.metadata.key,
        patch={"spec": {"allocations": allocations}},
        resource_version=manager.metadata.resource_version,
    )


# The manager's side


class PortSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An NnfPortManager, and what its answers depend on."""

    manager: NnfPortManager
    configuration: SystemConfiguration | None
    userid_by_workflow_uid: Mapping[str, int]
    """The user of each Workflow that asks and is there."""
    now: float


def decide(snapshot: PortSnapshot) -> tuple[list[Write], float | None]:
    """Return what to write, and after how many seconds to look again, if no event would tell."""
    manager = snapshot.manager
    if snapshot.configuration is None:
        return _report(manager, "SystemConfigurationNotFound", manager.status.allocations), None
    remaining = [
        each
        for each in manager.spec.allocations
        if each.requester.kind != kinds.WORKFLOW.name
        or each.requester.uid in snapshot.userid_by_workflow_uid
    ]
    change = _remove_requests(manager, remaining)
    if change is not None:
        return [change], None  # what a Workflow that was removed by hand has left
    cooldown = snapshot.configuration.spec.ports_cooldown_in_seconds
    current = list(_current_allocations(snapshot, cooldown))
    pool = available_ports(snapshot.configuration)
    allocations = [*current, *_new_allocations(snapshot, pool, current)]
    remaining_seconds = [
        _unallocated_at(each) + cooldown - snapshot.now
        for each in allocations
        if each.status == COOLDOWN
    ]
    return _report(manager, "Ready", allocations), min(remaining_seconds, default=None)


def available_ports(configuration: SystemConfiguration) -> Sequence[int] | None:
    """Return the ports for containers in order, each once; None if there are none, or a mistake."""
    spec = configuration.spec
    ranges: list[int | str] = list(spec.ports)
    low, high = spec.container_host_port_range_min, spec.container_host_port_range_max
    if low is not None and high is not None:
        ranges.append(f"{low}-{high}")
    ports: dict[int, None] = {}
    for port_range in ranges:
        first, _, last = str(port_range).partition("-")
        try:
            span = range(int(first), int(last or first) + 1)
        except ValueError:
            return None
        if not span or span[0] < 1 or span[-1] >= _PORT_LIMIT:
            return None
        ports |= dict.fromkeys(span)
    return tuple(ports) or None


def _current_allocations(snapshot: PortSnapshot, cooldown: int) -> Iterator[PortAllocation]:
    """Go on with what is in use; keep others from what was, for some seconds."""
    requesting_uids = {each.requester.uid for each in snapshot.manager.spec.allocations}
    for each in snapshot.manager.status.allocations:
        if (
            each.status == IN_USE
            and each.requester is not None
            and each.requester.uid in requesting_uids
        ):
            yield each
        elif each.status not in (IN_USE, COOLDOWN) or not cooldown:
            continue
        # Where the clock was set back, the seconds begin anew: they do not last until it is there.
        elif each.status == IN_USE or _unallocated_at(each) > snapshot.now:
            unallocated_at = rfc3339(snapshot.now)
            yield PortAllocation(status=COOLDOWN, ports=each.ports, time_unallocated=unallocated_at)
        elif _unallocated_at(each) + cooldown > snapshot.now:
            yield each


def _unallocated_at(allocation: PortAllocation) -> float:
    try:
        return parse_rfc3339(allocation.time_unallocated or "")
    except ValueError:
        return 0.0


def _new_allocations(
    snapshot: PortSnapshot, pool: Sequence[int] | None, current: Sequence[PortAllocation]
) -> Iterator[PortAllocation]:
    """Answer requests without ports; those for which others' ports will do, later.

    The user with the fewest ports comes first, then the oldest request. A request that waits may
    wait for ports of jobs that run for days: smaller ones pass it, as with NNF, but only those of
    users without ports, or one user's many small ones could keep it waiting for ever.
    """
    held_ports = Counter[int | None]()
    served_uids = set()
    for each in current:
        if each.requester is not None:
            served_uids.add(each.requester.uid)
            held_ports[_user_of(each.requester, snapshot)] += len(each.ports)
    taken_ports = {port for each in current for port in each.ports}
    free_ports = deque(port for port in pool or () if port not in taken_ports)
    waiting: dict[int | None, deque[tuple[int, PortRequest]]] = {}
    for number, request in enumerate(snapshot.manager.spec.allocations):
        if request.requester.uid not in served_uids:
            user = _user_of(request.requester, snapshot)
            waiting.setdefault(user, deque()).append((number, request))
    # By the number of their first request, which no two have, where they have as many ports.
    users = [(held_ports[user], own[0][0], user) for user, own in waiting.items()]
    heapify(users)
    has_unserved_request = False
    while users:
        _, _, user = heappop(users)
        _, request = waiting[user].popleft()
        if pool is None or request.count < 1:
            yield PortAllocation(status=INVALID, requester=request.requester)
        elif request.count > len(pool):
            yield PortAllocation(status=INSUFFICIENT, requester=request.requester)
        elif request.count > len(free_ports):
            has_unserved_request = True
        elif not has_unserved_request or not held_ports[user]:
            ports = tuple(free_ports.popleft() for _ in range(request.count))
            yield PortAllocation(status=IN_USE, requester=request.requester, ports=ports)
            held_ports[user] += request.count
        if waiting[user]:
            heappush(users, (held_ports[user], waiting[user][0][0], user))


def _user_of(requester: Requester, snapshot: PortSnapshot) -> int | None:
    """Return the user who asks; None if it is no Workflow of a user's."""
    return snapshot.userid_by_workflow_uid.get(requester.uid)


def _report(
    manager: NnfPortManager, status: str, allocations: Iterable[PortAllocation]
) -> list[Write]:
    new_status = PortManagerStatus(status=status, allocations=tuple(allocations))
    if new_status == manager.status:
        return []
    fields: Mapping[str, Any] = {
        "status": status,
        "allocations": [_encode(each) for each in new_status.allocations],
    }
    return [reports.status(kinds.PORT_MANAGER, manager.metadata, fields)]


def _encode(allocation: PortAllocation) -> Object:
    fields = {**msgspec.to_builtins(allocation), "ports": list(allocation.ports)}
    return {name: value for name, value in fields.items() if value not in (None, [])}
