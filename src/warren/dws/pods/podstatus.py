"""What is told of a pod that a node runs: its status, as a kubelet writes it, and its hosts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Object
from warren.base.times import rfc3339
from warren.dws.pods.pod import FAILED, SUCCEEDED, PodState

_KILLED_EXIT_CODE: Final = 137
"""The exit code of a container that was killed with its pod."""

_SERVICE_DOMAIN: Final = "svc.cluster.local"

_DEADLINE_EXCEEDED: Final = "Pod was active on the node longer than the specified deadline"


def waiting_status(pod: Object, now: float, reason: str, message: str) -> Object:
    """Return the status of a pod that cannot begin yet."""
    state = {"waiting": {"reason": reason, "message": message}}
    return {
        "phase": "Pending",
        "startTime": _start_time(pod, now),
        "conditions": [*_conditions(initialized=False, ready=False)],
        "containerStatuses": [_status(each, state) for each in pod["spec"]["containers"]],
    }


def refused_status(pod: Object, now: float, reason: str, message: str) -> Object:
    """Return the status of a pod that never will begin."""
    return {
        "phase": FAILED,
        "reason": reason,
        "message": message,
        "startTime": _start_time(pod, now),
        "conditions": [*_conditions(initialized=False, ready=False)],
        "containerStatuses": [],
    }


def deadline_exceeded_status(pod: Object, now: float) -> Object:
    """Return the status of a pod whose time was over before it could begin."""
    return refused_status(pod, now, "DeadlineExceeded", _DEADLINE_EXCEEDED)


def running_status(
    pod: Object, state: PodState, now: float, addresses: tuple[str, str], *, past_deadline: bool
) -> Object:
    """Return the status of a pod that has begun; `addresses` are its own and its node's.

    `past_deadline` says that its time is over, for which it was stopped.
    """
    prepared = all(each.get("exitCode") == 0 for each in state.init)
    phase = _phase(state, prepared=prepared)
    ready = phase == "Running" and all(_is_running(each, state) for each in state.containers)
    status: dict[str, Any] = {
        "phase": phase,
        "startTime": _start_time(pod, now),
        "podIP": addresses[0],
        "podIPs": [{"ip": addresses[0]}],
        "hostIP": addresses[1],
        "conditions": [*_conditions(initialized=prepared, ready=ready)],
        "containerStatuses": [*_statuses(pod["spec"]["containers"], state.containers, state, now)],
    }
    if state.init:
        init_containers = pod["spec"].get("initContainers") or ()
        status["initContainerStatuses"] = [*_statuses(init_containers, state.init, state, now)]
    if phase == FAILED:
        if state.error:
            status |= {"reason": "CannotRun", "message": state.error}
        elif past_deadline and state.stopped:
            status |= {"reason": "DeadlineExceeded", "message": _DEADLINE_EXCEEDED}
    return status


def _phase(state: PodState, *, prepared: bool) -> str:
    codes = [each.get("exitCode") for each in state.containers]
    if not state.error and prepared and all(code == 0 for code in codes):
        return SUCCEEDED
    failed = not prepared and any(each.get("exitCode") for each in state.init)
    if state.error or failed or None not in codes or not state.alive:
        return FAILED
    return "Running" if prepared else "Pending"


def _is_running(container: Object, state: PodState) -> bool:
    return state.alive and "startedAt" in container and "finishedAt" not in container


def _start_time(pod: Object, now: float) -> str:
    return (pod.get("status") or {}).get("startTime") or rfc3339(now)


def _conditions(*, initialized: bool, ready: bool) -> Iterator[Object]:
    for condition_type, holds in (
        ("PodScheduled", True),
        ("Initialized", initialized),
        ("ContainersReady", ready),
        ("Ready", ready),
    ):
        yield {"type": condition_type, "status": str(holds)}


def _statuses(
    containers: Sequence[Object],
    container_states: Sequence[Object],
    pod_state: PodState,
    now: float,
) -> Iterator[Object]:
    # Of a pod whose node has lost what it knew there are none.
    for container, container_state in zip(
        containers, container_states or [{}] * len(containers), strict=True
    ):
        yield _status(container, _state(container_state, pod_state, now))


def _status(container: Object, state: Mapping[str, Any]) -> Object:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "restartCount": 0,
        "ready": "running" in state,
        "started": "running" in state,
        "state": state,
    }


def _state(container_state: Object, pod_state: PodState, now: float) -> Mapping[str, Any]:
    started = container_state.get("startedAt")
    if "finishedAt" in container_state:
        code, finished = container_state["exitCode"], rfc3339(container_state["finishedAt"])
        return {
            "terminated": {
                "exitCode": code,
                "reason": container_state.get("reason") or ("Error" if code else "Completed"),
                "message": container_state.get("message", ""),
                "startedAt": rfc3339(
                    started if started is not None else container_state["finishedAt"]
                ),
                "finishedAt": finished,
            }
        }
    if started is None:
        return {"waiting": {"reason": "PodInitializing"}}
    if pod_state.alive:
        return {"running": {"startedAt": rfc3339(started)}}
    return {
        "terminated": {
            "exitCode": _KILLED_EXIT_CODE,
            "reason": "Error",
            "message": "it was killed with the process of its pod",
            "startedAt": rfc3339(started),
            "finishedAt": rfc3339(now),
        }
    }


def hosts(pod: Object, address: str, siblings: Iterable[Object]) -> str:
    """Return what /etc/hosts says in a pod: itself, and pods of the same subdomain by their names.

    They are those that a headless Service gives them, with what Kubernetes and the pod itself have
    looked for (Kubernetes, "DNS for Services and Pods").
    """
    lines = ["127.0.0.1 localhost", "::1 localhost"]
    searches = (pod["spec"].get("dnsConfig") or {}).get("searches") or ()
    address_by_names = {_dns_names(pod, searches): address}
    for each in siblings:
        entry = hosts_entry(each)
        if entry and each["metadata"].get("uid") != pod["metadata"].get("uid"):
            address_by_names.setdefault(_dns_names(each, searches), entry["address"])
    lines += sorted(
        f"{host_address} {' '.join(names)}"
        for names, host_address in address_by_names.items()
        if names
    )
    lines.append(f"{address} {pod['spec'].get('hostname') or pod['metadata']['name']}")
    return "\n".join([*lines, ""])


def hosts_entry(pod: Object) -> Object:
    """Return what `hosts` tells other pods of a pod; nothing where they could not find it."""
    spec, status = pod["spec"], pod.get("status") or {}
    address = None if status.get("phase") in (SUCCEEDED, FAILED) else status.get("podIP")
    if not (address and spec.get("hostname") and spec.get("subdomain")):
        return {}
    return {"hostname": spec["hostname"], "subdomain": spec["subdomain"], "address": address}


def subdomain_of(obj: Object) -> Sequence[str]:
    """Index pods by the subdomain in which they are found: `namespace/subdomain`."""
    subdomain = (obj.get("spec") or {}).get("subdomain")
    return [f"{obj['metadata'].get('namespace', '')}/{subdomain}"] if subdomain else []


def _dns_names(pod: Object, searches: Collection[str]) -> tuple[str, ...]:
    """Return the names of a pod, the longest first."""
    spec, namespace = pod["spec"], pod["metadata"].get("namespace", "")
    if not spec.get("hostname") or not spec.get("subdomain"):
        return ()
    name = f"{spec['hostname']}.{spec['subdomain']}.{namespace}.{_SERVICE_DOMAIN}"
    domains = (f"{namespace}.{_SERVICE_DOMAIN}", _SERVICE_DOMAIN, "cluster.local", *searches)
    short_names = (
        name.removesuffix(f".{domain}") for domain in domains if name.endswith(f".{domain}")
    )
    return (name, *sorted(short_names, key=len, reverse=True))
