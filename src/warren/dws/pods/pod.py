"""Kubernetes' pods, as far as what makes and runs them on one machine needs them."""

from collections.abc import Iterable
from typing import Final

import msgspec

from warren.base.objects import Object
from warren.base.times import parse_rfc3339
from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta
from warren.dws.pods.batchjobs import Condition

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"


class ContainerStateTerminated(Struct, frozen=True):
    finished_at: str | None = None
    exit_code: int = 0
    message: str | None = None


class ContainerStateWaiting(Struct, frozen=True):
    reason: str | None = None
    message: str | None = None


class ContainerState(Struct, frozen=True):
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True):
    phase: str = "Pending"
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class PodSpec(Struct, frozen=True):
    node_name: str = ""
    active_deadline_seconds: int | None = None


class Pod(Struct, frozen=True):
    """Containers that run together on one node, once."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_ready(self) -> bool:
        """Whether all of its containers run and can be used."""
        conditions = self.status.conditions or ()
        return any(each.type == "Ready" and each.status == "True" for each in conditions)

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, or will."""
        return self.status.phase in (SUCCEEDED, FAILED)

    @property
    def ended_at(self) -> float:
        """When the last of its containers has ended, in seconds since the epoch.

        Where that is not told, as of a pod that was never run, it is when it was made.
        """
        states = [each.state.terminated for each in self.status.container_statuses or ()]
        end_times = [each.finished_at for each in states if each is not None and each.finished_at]
        created = self.metadata.creation_timestamp
        return max(map(parse_rfc3339, end_times or ([created] if created else [])), default=0.0)


class PodState(msgspec.Struct, frozen=True, kw_only=True):
    """How a pod is, as its node tells."""

    alive: bool
    """Whether its process is."""
    init: tuple[Object, ...]
    containers: tuple[Object, ...]
    """Of each container its name and, as far as it has come, `startedAt` and `finishedAt` in
    seconds since the epoch, `exitCode`, and the last words of one that has failed, `message`."""
    stopped: bool = False
    """Whether it was asked to end."""
    error: str = ""
    """Why it could not be run, or its state not be read."""


NO_RUNTIME_MESSAGE: Final = "this cluster has nothing that would start them"


def why_not_ready(node: Object) -> str | None:
    """Return why a Node runs no pods, in its words; None where it does."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: Object = next((each for each in conditions if each.get("type") == "Ready"), {})
    # Unknown is one that is not heard of: it may be back before the job starts.
    if ready.get("status") != "False":
        return None
    return str(ready.get("message") or ready.get("reason"))


def why_no_node_runs_pods(nodes: Iterable[Object]) -> str | None:
    """Return why no Node runs pods, in the words of one of them; None where some Node does."""
    reason = NO_RUNTIME_MESSAGE
    for node in nodes:
        why_not = why_not_ready(node)
        if why_not is None:
            return None
        reason = f"{node['metadata']['name']}: {why_not}"
    return reason
