"""What the containers of pods print: the port to where that is kept, and what can be had of it.

A real API server asks the kubelets. The sentences are Kubernetes'.
"""

from collections.abc import Iterator
from typing import Any, Final, Protocol

from warren.base.objects import Object
from warren.kube.server.storeerrors import LogNotAvailable

_ENDED_PHASES: Final = ("Succeeded", "Failed")


class LogStream(Protocol):
    """What one container prints."""

    async def read(self) -> bytes:
        """Return the next piece; an empty one where there is no more as yet.

        Raises NotFound where nothing of the pod is kept, and Unavailable where it cannot be read.
        """
        ...

    def close(self) -> None:
        """Stop reading, and close what is open."""
        ...


class PodLogSource(Protocol):
    """What the containers of pods print."""

    def open(self, pod: Object, container: str, lines: int | None) -> LogStream:
        """Open what a container has printed, or the last `lines` lines of it."""
        ...


def container_of(pod: Object, name: str) -> str:
    """Return the container whose log is meant: there is no choice where there is one.

    Raises LogNotAvailable where it is not known.
    """
    pod_name = pod["metadata"]["name"]
    containers, init_containers = (
        [*_container_names(pod, "containers")],
        [*_container_names(pod, "initContainers")],
    )
    if not name and len(containers) == 1:
        return containers[0]
    if not name:
        init_choice = (
            f" or one of the init containers: [{' '.join(init_containers)}]"
            if init_containers
            else ""
        )
        choice = f"a container name must be specified for pod {pod_name}, choose one of: "
        raise LogNotAvailable(f"{choice}[{' '.join(containers)}]{init_choice}")
    if name not in (*containers, *init_containers):
        raise LogNotAvailable(f"container {name} is not valid for pod {pod_name}")
    return name


def _container_names(pod: Object, field: str) -> Iterator[str]:
    for each in (pod.get("spec") or {}).get(field) or ():
        yield str(each.get("name"))


def check_started(pod: Object, container: str) -> None:
    """Raise LogNotAvailable where a container has not begun, and not ended either."""
    name = pod["metadata"]["name"]
    if not (pod.get("spec") or {}).get("nodeName"):
        raise LogNotAvailable(f"pod {name} does not have a host assigned")
    state = _state(pod, container)
    if "running" in state or "terminated" in state or _phase(pod) in _ENDED_PHASES:
        return
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    raise LogNotAvailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')


def has_ended(pod: Object, container: str) -> bool:
    """Return whether a container prints no more."""
    return _phase(pod) in _ENDED_PHASES or "terminated" in _state(pod, container)


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase"))


def _state(pod: Object, container: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(field) or ():
            if each.get("name") == container:
                return each.get("state") or {}
    return {}
