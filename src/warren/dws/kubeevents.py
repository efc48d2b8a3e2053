"""What Kubernetes Events tell admins of Workflows and rabbits: trouble, and its end."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from warren.base.objects import Key, Kind, Object
from warren.base.printable import printable
from warren.base.times import rfc3339
from warren.dws import labels, tolerance
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.rfc import hostlist

TROUBLE_STATUSES: Final = ("Error", "TransientCondition")
"""The statuses of a Workflow that are told."""

_MAX_MESSAGE_LENGTH: Final = 1024
"""Characters of a message that Kubernetes takes."""


class EventContent(msgspec.Struct, frozen=True):
    """What an Event says of an object: its reason, its message, and whether it is a warning."""

    reason: str
    """One word, as `kubectl get events` shows it."""
    message: str
    warning: bool = True


def of_workflow(workflow: Workflow) -> frozenset[EventContent]:
    """Return the trouble that a Workflow has."""
    status, contents = workflow.status, set[EventContent]()
    if status.status in TROUBLE_STATUSES:
        contents.add(EventContent(status.status, f"{status.state}: {status.message}"))
    if labels.ABORTED in workflow.metadata.annotations:
        why = "its job was let go before it: what has it mounted or holds flash is out of service"
        contents.add(EventContent("LetGo", why))
    lost = tolerance.lost_nodes(workflow.metadata)
    if lost:
        contents.add(EventContent("NodesLost", f"goes on without {hostlist.encode(sorted(lost))}"))
    return frozenset(contents)


def of_storage(storage: Storage) -> frozenset[EventContent]:
    """Return what a rabbit is, and which nodes have lost it."""
    status = storage.status
    is_ready, is_starting = status.status == "Ready", status.status == "Starting"
    default_message = "flash is given to jobs" if is_ready else f"is {status.status}"
    contents = {
        EventContent(
            status.status, status.message or default_message, warning=not (is_ready or is_starting)
        )
    }
    unlinked_nodes = [each.name for each in status.access.computes if each.status != "Ready"]
    if unlinked_nodes and not is_starting:
        contents.add(
            EventContent("LinkLost", f"{hostlist.encode(sorted(unlinked_nodes))} cannot reach it")
        )
    return frozenset(contents)


def name(meta: Meta, content: EventContent) -> str:
    """Return the name of an Event: the same for the same content and object."""
    text = "\0".join((meta.uid, content.reason, content.message))
    return f"{meta.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def event(kind: Kind, meta: Meta, content: EventContent, now: float, component: str) -> Object:
    """Return the Event with some content."""
    return {
        "metadata": {"name": name(meta, content), "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "type": "Warning" if content.warning else "Normal",
        "reason": content.reason,
        # kubectl prints it as it is.
        "message": printable(content.message)[:_MAX_MESSAGE_LENGTH],
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "count": 1,
    }


def repetition_patch(existing: Object, now: float) -> Mapping[str, Any]:
    """Return the patch of an Event whose content has come once more."""
    return {"lastTimestamp": rfc3339(now), "count": int(existing.get("count") or 1) + 1}


def key(meta: Meta, content: EventContent) -> Key:
    """Return the key of an Event."""
    return Key(meta.namespace, name(meta, content))
