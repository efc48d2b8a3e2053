"""What `resource.status` says of an instance's nodes (RFC 44)."""

from warren.rfc import idset, resource_set
from warren.rpc.message import Payload
from warren.scheduling.drains import Hosts


def hosts(status: Payload) -> Hosts:
    """Return the host of each rank. Raises BadFormat."""
    return {each.rank: each.host for each in resource_set.decode(status["R"])}


def drained_for(status: Payload, reason: str) -> set[str]:
    """Return the hosts that are drained for a reason. Raises BadFormat."""
    known = hosts(status)
    return {
        known[rank]
        for ranks, drain in status["drain"].items()
        if drain.get("reason") == reason
        for rank in idset.decode(ranks)
        if rank in known
    }
