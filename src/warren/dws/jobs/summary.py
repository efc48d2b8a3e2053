"""The summary of a job's storage: as it is now, or as it was when Teardown began."""

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

from warren.base.objects import Object
from warren.dws import tolerance
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow
from warren.dws.pods import podsummary
from warren.rfc import hostlist

_MAX_COPIES: Final = 100
"""Copies that a summary names: those that failed first, then those that go on."""


def summary(
    workflow: Workflow,
    servers: Iterable[Servers],
    computes: Computes | None,
    mounted_nodes: Collection[str],
    movements: Iterable[Object],
    pods: Iterable[Object] = (),
) -> dict[str, Any]:
    """Return the summary as JSON: sizes are bytes, nodes hostlists.

    `mounted_nodes` are those that have not let go of the storage.
    """
    status = workflow.status
    bytes_by_rabbit = _bytes_by_rabbit(servers)
    copies = [_copy_summary(read(each, NnfDataMovement)) for each in movements]
    return {
        "workflow": workflow.metadata.name,
        "directives": list(workflow.spec.dw_directives),
        "desired": workflow.spec.desired_state,
        "state": status.state or "",
        "ready": status.ready,
        "since": status.desired_state_change,
        "status": status.status,
        "message": status.message,
        "bytes": sum(bytes_by_rabbit.values()),
        "rabbits": bytes_by_rabbit,
        "nodes": hostlist.encode(each.name for each in computes.data) if computes else "",
        "lost": hostlist.encode(sorted(tolerance.lost_nodes(workflow.metadata))),
        "mounted": hostlist.encode(sorted(mounted_nodes)),
        "copied": Counter(each["status"] for each in copies),
        "copies": sorted(copies, key=lambda each: _ORDER_BY_STATUS.get(each["status"], 0))[
            :_MAX_COPIES
        ],
        "containers": podsummary.last_pods(pods),
    }


def _bytes_by_rabbit(servers: Iterable[Servers]) -> dict[str, int]:
    bytes_by_rabbit: Counter[str] = Counter()
    for each in servers:
        for allocation_set in each.spec.allocation_sets:
            for server in allocation_set.storage:
                bytes_by_rabbit[server.name] += (
                    server.allocation_count * allocation_set.allocation_size
                )
    return dict(sorted(bytes_by_rabbit.items()))


def _copy_summary(movement: NnfDataMovement) -> dict[str, Any]:
    """Return one copy; its status is one word: Pending, Running, Success, Failed or Cancelled."""
    status, progress = movement.status, movement.status.command_status
    finished = status.state == "Finished"
    successful = finished and status.status == "Success"
    return {
        "source": movement.spec.source.path,
        "destination": movement.spec.destination.path,
        "status": (status.status if finished else status.state) or "Pending",
        "progress": 100 if successful else (progress.progress if progress else None) or 0,
        "data": progress.data if progress else "",
        "rate": progress.rate if progress else "",
        "files": progress.files if progress else None,
        "message": _message(movement),
    }


def _message(movement: NnfDataMovement) -> str:
    """Return what went wrong, or how far a copy is: also of one that is tried again."""
    status, progress = movement.status, movement.status.command_status
    if status.error:
        return status.error.user_message
    if status.state == "Running" and progress and progress.last_message:
        return progress.last_message
    return status.message


_ORDER_BY_STATUS: Final = {"Running": 1, "Starting": 2, "Pending": 2, "Success": 3}
"""Which copies are named before which; what failed is before all of them."""
