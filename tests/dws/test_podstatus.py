"""What is told of pods: their statuses, and which hosts they know."""

from typing import Any

import pytest

from tests.dws.builders import NOW, meta
from warren.base.objects import Object
from warren.base.times import rfc3339
from warren.dws.pods import podstatus
from warren.dws.pods.pod import NO_RUNTIME_MESSAGE, PodState, why_no_node_runs_pods

APP = {"name": "app", "image": "index:1"}
ADDRESSES = ("10.0.1.2", "127.9.0.1")
BEGAN = {"name": "app", "startedAt": NOW - 9}
DONE = {**BEGAN, "finishedAt": NOW - 1, "exitCode": 0, "message": ""}
FAILED = {**DONE, "exitCode": 3, "message": "no data"}


def pod(name: str = "a", address: str = "", init: int = 0, **status: Any) -> Object:
    spec: dict[str, Any] = {"containers": [APP], "hostname": name, "subdomain": "wf"}
    if init:
        spec["initContainers"] = [{"name": "first", "image": "index:1"}] * init
    if address:
        status["podIP"] = address
    return {"metadata": meta(f"wf-{name}"), "spec": spec, "status": status}


def state(
    *containers: Object, init: tuple[Object, ...] = (), alive: bool = True, **more: Any
) -> PodState:
    return PodState(alive=alive, init=init, containers=containers or ({"name": "app"},), **more)


def told(found: PodState, *, overdue: bool = False) -> Any:
    return podstatus.running_status(
        pod(init=len(found.init)), found, NOW, ADDRESSES, past_deadline=overdue
    )


def holds(status: Any, condition: str) -> bool:
    (found,) = [each for each in status["conditions"] if each["type"] == condition]
    return bool(found["status"] == "True")


def test_a_pod_that_waits_says_for_what() -> None:
    status = podstatus.waiting_status(pod(), NOW, "ErrImagePull", "there is no image index:1")
    assert status["phase"] == "Pending"
    assert status["startTime"] == rfc3339(NOW)
    (container,) = status["containerStatuses"]
    why = {"reason": "ErrImagePull", "message": "there is no image index:1"}
    assert container["state"] == {"waiting": why}
    assert not holds(status, "Ready")


def test_a_pod_whose_node_has_lost_what_it_knew_has_failed_and_says_so() -> None:
    lost = PodState(alive=False, init=(), containers=(), error="it cannot be read")
    status = podstatus.running_status(pod(init=1), lost, NOW, ADDRESSES, past_deadline=False)
    assert (status["phase"], status["message"]) == ("Failed", "it cannot be read")
    assert [each["name"] for each in status["containerStatuses"]] == ["app"]


def test_a_pod_whose_containers_run_is_ready() -> None:
    status = told(state(BEGAN))
    assert (status["phase"], status["podIP"], status["hostIP"]) == ("Running", *ADDRESSES)
    assert holds(status, "Ready")
    (container,) = status["containerStatuses"]
    assert container["state"] == {"running": {"startedAt": rfc3339(NOW - 9)}}
    assert container["ready"]


def test_a_pod_that_was_told_when_it_began_is_told_the_same_again() -> None:
    known = pod(startTime=rfc3339(NOW - 60))
    status = podstatus.running_status(known, state(BEGAN), NOW, ADDRESSES, past_deadline=False)
    assert status["startTime"] == rfc3339(NOW - 60)


@pytest.mark.parametrize(
    ("found", "phase"),
    [
        (state(BEGAN), "Running"),
        (state({"name": "app"}), "Running"),
        (state(DONE), "Succeeded"),
        (state(DONE, alive=False), "Succeeded"),
        (state(FAILED), "Failed"),
        (state(BEGAN, alive=False), "Failed"),
        (state(alive=False), "Failed"),
        (state(init=({"name": "first"},)), "Pending"),
        (state(init=({**BEGAN, "name": "first"},)), "Pending"),
        (state(init=({**DONE, "name": "first"},)), "Running"),
        (state(init=({**FAILED, "name": "first"},)), "Failed"),
        (state(init=({**FAILED, "name": "first"},), alive=False), "Failed"),
        (state(error="port 5000 is in use", alive=False), "Failed"),
    ],
)
def test_a_pod_is_as_its_containers_are(found: PodState, phase: str) -> None:
    assert told(found)["phase"] == phase


def test_of_two_containers_the_one_that_runs_keeps_its_pod_running() -> None:
    spec = {"containers": [APP, {"name": "other", "image": "b"}]}
    both = {"metadata": meta("a"), "spec": spec}
    for first in (DONE, FAILED):
        found = state(first, {**BEGAN, "name": "other"})
        status = podstatus.running_status(both, found, NOW, ADDRESSES, past_deadline=False)
        assert status["phase"] == "Running"
        assert not holds(status, "Ready")


def test_the_last_words_of_a_container_that_failed_are_told() -> None:
    (container,) = told(state(FAILED))["containerStatuses"]
    assert container["state"]["terminated"] == {
        "exitCode": 3,
        "reason": "Error",
        "message": "no data",
        "startedAt": rfc3339(NOW - 9),
        "finishedAt": rfc3339(NOW - 1),
    }


def test_a_container_that_was_killed_for_its_memory_is_told_as_kubernetes_does() -> None:
    killed = {**FAILED, "exitCode": 137, "reason": "OOMKilled"}
    (container,) = told(state(killed))["containerStatuses"]
    terminated = container["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")


def test_a_container_that_was_lost_with_its_pod_counts_as_killed() -> None:
    (container,) = told(state(BEGAN, alive=False))["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137


def test_why_a_pod_failed_is_told() -> None:
    assert told(state(error="no port", alive=False))["message"] == "no port"
    ended = told(state(FAILED, stopped=True, alive=False), overdue=True)
    assert ended["reason"] == "DeadlineExceeded"
    assert "reason" not in told(state(FAILED, alive=False), overdue=True)
    refused = podstatus.refused_status(pod(), NOW, "Unfit", "it asks for hostNetwork")
    assert (refused["phase"], refused["message"]) == ("Failed", "it asks for hostNetwork")


def test_a_pod_knows_itself_and_those_of_its_subdomain() -> None:
    """Statements 001.25, 001.26: short names and whole ones resolve."""
    others = [pod("a", "10.9.9.9"), pod("b", "10.0.2.2"), pod("c")]
    assert podstatus.hosts(pod("a"), "10.0.1.2", others).splitlines() == [
        "127.0.0.1 localhost",
        "::1 localhost",
        "10.0.1.2 a.wf.default.svc.cluster.local a.wf.default.svc a.wf.default a.wf",
        "10.0.2.2 b.wf.default.svc.cluster.local b.wf.default.svc b.wf.default b.wf",
        "10.0.1.2 a",
    ]
    # A try that has failed has the name of the one that follows it.
    ended = pod("b", "10.0.2.9", phase="Failed")
    for known in ([ended, others[1]], [others[1], ended]):
        assert "10.0.2.9" not in podstatus.hosts(pod("a"), "10.0.1.2", known)
    searching = pod("a")
    searching["spec"]["dnsConfig"] = {"searches": ["wf.default.svc.cluster.local"]}
    assert podstatus.hosts(searching, "10.0.1.2", others).splitlines()[3].endswith(" b.wf b")
    assert podstatus.subdomain_of(pod()) == ["default/wf"]
    assert podstatus.subdomain_of({"metadata": meta("x"), "spec": {}}) == []


def node(name: str, **ready: str) -> Object:
    status = {"conditions": [{"type": "Ready", **ready}]} if ready else {}
    return {"metadata": {"name": name}, "status": status}


def test_why_no_node_runs_pods_is_told_in_its_words() -> None:
    unable = node("r0", status="False", message="bubblewrap is not installed")
    assert why_no_node_runs_pods([]) == NO_RUNTIME_MESSAGE
    assert why_no_node_runs_pods([unable]) == "r0: bubblewrap is not installed"
    for able in (node("r1"), node("r1", status="True"), node("r1", status="Unknown")):
        assert why_no_node_runs_pods([unable, able]) is None
