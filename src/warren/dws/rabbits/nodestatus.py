"""A rabbit as a Node of its cluster: what its agent says of it, and what is said when that ends.

The condition `Ready` is True where pods are run, False with the reason where they cannot be, and
Unknown where the agent is not heard of (Kubernetes, "Node Status").
"""

from typing import Final

from warren.base.objects import Change, Create, Key, Object, key_of
from warren.base.times import rfc3339
from warren.dws import kinds

_LOST_MESSAGE: Final = "its agent has ended, or does not renew its Lease: pods wait for it"


def new_node(name: str) -> Create:
    """Make the Node of a rabbit."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return Create(kind=kinds.NODE, object={"metadata": metadata, "spec": {}})


def report(name: str, address: str, why_not: str | None, now: float) -> Change:
    """Say that a Node runs pods, or why it does not."""
    status = {
        "conditions": [_ready_condition(why_not, now)],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
    }
    return Change(kind=kinds.NODE, key=Key("", name), patch={"status": status}, status=True)


def is_reported(node: Object, address: str, why_not: str | None) -> bool:
    """Return whether a Node's status says already what `report` would."""
    wanted = _without_time(_ready_condition(why_not, 0.0))
    known = [_without_time(each) for each in _status(node).get("conditions") or ()]
    addresses = [each.get("address") for each in _status(node).get("addresses") or ()]
    return known == [wanted] and address in addresses


def report_unknown(node: Object, now: float) -> list[Change]:
    """Say of a Node whose agent is not heard of that this is not known any more.

    Why one has run no pods stays: it is still the reason.
    """
    conditions = _status(node).get("conditions") or ()
    if not any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions):
        return []
    ready = _condition("Unknown", "NodeStatusUnknown", _LOST_MESSAGE, now)
    return [
        Change(
            kind=kinds.NODE,
            key=key_of(node),
            patch={"status": {"conditions": [ready]}},
            resource_version=node["metadata"].get("resourceVersion"),
            status=True,
        )
    ]


def _ready_condition(why_not: str | None, now: float) -> Object:
    if why_not is None:
        return _condition("True", "Able", "pods are run here", now)
    return _condition("False", "NotAble", why_not, now)


def _condition(status: str, reason: str, message: str, now: float) -> Object:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
    }


def _without_time(condition: Object) -> Object:
    return {name: value for name, value in condition.items() if name != "lastTransitionTime"}


def _status(node: Object) -> Object:
    status: Object = node.get("status") or {}
    return status
