"""What Kubernetes Events tell admins of Workflows and rabbits: trouble, and its end."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from warren.base.objects import Key, Kind, Object
from warren.base.times import rfc3339
from warren.dws import labels, tolerance
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.rfc import hostlist

TROUBLE: Final = ("Error", "TransientCondition")
"""The statuses of a Workflow that are told."""

_LONGEST: Final = 1024
"""Characters of a message that Kubernetes takes."""


@dataclass(frozen=True)
class News:
    """One thing that is so of an object."""

    reason: str
    """One word, as `kubectl get events` shows it."""
    message: str
    warning: bool = True


def of_workflow(workflow: Workflow) -> frozenset[News]:
    """Return the trouble that a Workflow has."""
    status, found = workflow.status, set[News]()
    if status.status in TROUBLE:
        found.add(News(status.status, f"{status.state}: {status.message}"))
    if labels.ABORTED in workflow.metadata.annotations:
        why = "its job was let go before it: what has it mounted or holds flash is out of service"
        found.add(News("LetGo", why))
    lost = tolerance.of(workflow.metadata)
    if lost:
        found.add(News("NodesLost", f"goes on without {hostlist.encode(sorted(lost))}"))
    return frozenset(found)


def of_storage(storage: Storage) -> frozenset[News]:
    """Return what a rabbit is, and which nodes have lost it."""
    status = storage.status
    ready, starts = status.status == "Ready", status.status == "Starting"
    plain = "flash is given to jobs" if ready else f"is {status.status}"
    found = {News(status.status, status.message or plain, warning=not (ready or starts))}
    lost = [each.name for each in status.access.computes if each.status != "Ready"]
    if lost and not starts:
        found.add(News("LinkLost", f"{hostlist.encode(sorted(lost))} cannot reach it"))
    return frozenset(found)


def name(meta: Meta, news: News) -> str:
    """Return the name of an Event: the same for the same news of the same object."""
    text = "\0".join((meta.uid, news.reason, news.message))
    return f"{meta.name}.{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def event(kind: Kind, meta: Meta, news: News, now: float, component: str) -> Object:
    """Return the Event of a piece of news."""
    return {
        "metadata": {"name": name(meta, news), "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        },
        "type": "Warning" if news.warning else "Normal",
        "reason": news.reason,
        "message": news.message[:_LONGEST],
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": component,
        "firstTimestamp": rfc3339(now),
        "lastTimestamp": rfc3339(now),
        "count": 1,
    }


def again(known: Object, now: float) -> Mapping[str, Any]:
    """Return the patch of an Event whose news has come once more."""
    return {"lastTimestamp": rfc3339(now), "count": int(known.get("count") or 1) + 1}


def key(meta: Meta, news: News) -> Key:
    """Return the key of an Event."""
    return Key(meta.namespace, name(meta, news))
