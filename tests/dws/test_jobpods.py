"""The pods of batch Jobs: which is made when, and what becomes of their Job."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import NOW, meta
from warren.base.objects import Change, Create, Object, Write, merge_patch
from warren.base.times import rfc3339
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.pods import jobpods
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.jobpods import FIRST_PAUSE, LONGEST_PAUSE, BatchJobSnapshot
from warren.dws.pods.pod import Pod

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "index"}},
    "spec": {"containers": [], "nodeSelector": {"kubernetes.io/hostname": "r0"}},
}
STARTED = {"startTime": rfc3339(NOW - 60), "active": 0, "ready": 0, "succeeded": 0, "failed": 0}


def pod(phase: str = "Running", ended: float | None = None, **more: Any) -> Object:
    states: list[Object] = []
    if ended is not None:
        states = [{"state": {"terminated": {"finishedAt": rfc3339(ended)}}}]
    status = {"phase": phase, "containerStatuses": states, **more}
    return {"metadata": meta("pod"), "status": status}


FAILED = pod("Failed", NOW - LONGEST_PAUSE)


def decided(
    pods: Sequence[Object] = (),
    status: Mapping[str, Any] | None = None,
    *,
    now: float = NOW,
    template: Object = TEMPLATE,
    gone: bool = False,
    **spec: Any,
) -> tuple[list[Write], float | None]:
    metadata = meta("wf-r0", **({"deletionTimestamp": rfc3339(NOW)} if gone else {}))
    job = read({"metadata": metadata, "spec": spec, "status": status or {}}, BatchJob)
    seen = [read(each, Pod) for each in pods]
    return jobpods.decide(BatchJobSnapshot(job=job, template=template, pods=seen, now=now))


def made(writes: Sequence[Write]) -> list[Create]:
    return [each for each in writes if isinstance(each, Create)]


def said(writes: Sequence[Write]) -> dict[str, Any]:
    """Return what the Job's status comes to."""
    (change,) = [
        each for each in writes if isinstance(each, Change) and each.kind == kinds.BATCH_JOB
    ]
    assert change.status
    found: dict[str, Any] = merge_patch({}, change.patch)["status"]
    return found


def ended(writes: Sequence[Write]) -> tuple[str, str]:
    (condition,) = said(writes)["conditions"]
    return condition["type"], condition.get("reason", "")


def test_a_job_has_its_first_pod_on_the_node_that_it_selects() -> None:
    writes, delay = decided()
    (create,) = made(writes)
    assert delay is None
    assert create.kind == kinds.POD
    assert create.object["spec"] == {**TEMPLATE["spec"], "nodeName": "r0"}
    assert create.object["metadata"]["labels"] == {
        "app": "index",
        "job-name": "wf-r0",
        "batch.kubernetes.io/job-name": "wf-r0",
        "batch.kubernetes.io/controller-uid": "uid-wf-r0",
    }
    (owner,) = create.object["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "wf-r0", "uid-wf-r0")
    assert owner["controller"]
    assert owner["blockOwnerDeletion"]
    assert jobpods.job_of(create.object) == ["uid-wf-r0"]
    assert said(writes)["startTime"] == rfc3339(NOW)


def test_a_pod_without_a_node_to_select_is_left_to_others() -> None:
    (create,) = made(decided(template={"spec": {"containers": []}})[0])
    assert "nodeName" not in create.object["spec"]


def test_a_pod_that_was_made_before_a_crash_is_made_by_the_same_name() -> None:
    """So that it is there once."""
    first, again = (made(decided(now=now)[0])[0].key for now in (NOW, NOW + 1))
    second = made(decided([FAILED])[0])[0].key
    assert first == again != second
    assert first.name.startswith("wf-r0-")


def test_while_a_pod_runs_no_other_is_made_and_its_readiness_is_told() -> None:
    """Statement 001.11: pods run beside the job until one succeeds."""
    ready = pod(conditions=[{"type": "Ready", "status": "True"}])
    writes, _ = decided([ready], STARTED)
    assert made(writes) == []
    assert said(writes) == {"active": 1, "ready": 1, "succeeded": 0, "failed": 0}
    assert decided([ready], {**STARTED, "active": 1, "ready": 1}) == ([], None)


@pytest.mark.parametrize("before", [[], [FAILED]])
def test_a_job_is_complete_when_a_pod_has_succeeded_also_after_others_failed(
    before: list[Object],
) -> None:
    """Statement 001.13: Ready when all pods succeeded, also after a retry."""
    writes, _ = decided([*before, pod("Succeeded", NOW)], STARTED)
    assert made(writes) == []
    assert ended(writes) == ("Complete", "")
    assert said(writes)["completionTime"] == rfc3339(NOW)
    assert (said(writes)["succeeded"], said(writes)["failed"]) == (1, len(before))


@pytest.mark.parametrize("limit", [0, 1, 2, 6])
def test_a_job_is_tried_as_often_again_as_it_says(limit: int) -> None:
    """Statement 001.12: the retry limit; 0 is none."""
    assert made(decided([FAILED] * limit, STARTED, backoffLimit=limit)[0])
    writes, _ = decided([FAILED] * (limit + 1), STARTED, backoffLimit=limit)
    assert made(writes) == []
    assert ended(writes) == ("Failed", "BackoffLimitExceeded")


def test_failed_pods_that_were_removed_count() -> None:
    writes, _ = decided([], {**STARTED, "failed": 2}, backoffLimit=1)
    assert ended(writes) == ("Failed", "BackoffLimitExceeded")


def test_another_try_waits_longer_each_time() -> None:
    for failed, pause in ((1, FIRST_PAUSE), (2, 2 * FIRST_PAUSE), (60, LONGEST_PAUSE)):
        pods = [pod("Failed", NOW)] * failed
        writes, delay = decided(pods, STARTED, now=NOW + 1, backoffLimit=100)
        assert (made(writes), delay) == ([], pause - 1)
        assert made(decided(pods, STARTED, now=NOW + pause, backoffLimit=100)[0])


@pytest.mark.parametrize("back", [1, 5, 3600])
def test_a_clock_that_was_set_back_makes_no_pause_longer(back: float) -> None:
    now = NOW - back
    began = now
    while not made((found := decided([pod("Failed", NOW)], STARTED, now=now))[0]):
        assert found[1] is not None
        assert 0 < found[1] <= FIRST_PAUSE
        now += found[1]
    # By little, it is the node's clock that is ahead.
    assert now - began <= FIRST_PAUSE + (back if back < FIRST_PAUSE else 0)


def test_a_pod_that_was_never_run_is_tried_again_from_when_it_was_made() -> None:
    failed = {**pod("Failed"), "metadata": meta("pod", creationTimestamp=rfc3339(NOW - 4))}
    assert decided([failed], STARTED)[1] == FIRST_PAUSE - 4


def test_a_pod_that_is_being_removed_is_waited_for() -> None:
    going = {**pod(), "metadata": meta("pod", deletionTimestamp=rfc3339(NOW))}
    assert made(decided([going], STARTED)[0]) == []


def test_a_job_that_takes_too_long_fails_and_its_pod_is_ended_and_kept() -> None:
    """Statement 001.14: the timer ends the pods, and the failure shows."""
    writes, delay = decided([pod()], STARTED, activeDeadlineSeconds=90)
    assert (made(writes), delay) == ([], 30)
    writes, _ = decided([pod()], STARTED, activeDeadlineSeconds=60)
    assert ended(writes) == ("Failed", "DeadlineExceeded")
    assert said(writes)["active"] == said(writes)["ready"] == 0
    (stop,) = [each for each in writes if each.kind == kinds.POD]
    assert isinstance(stop, Change)
    assert stop.patch == {"spec": {"activeDeadlineSeconds": 1}}


def test_the_end_of_a_jobs_time_is_not_slept_over() -> None:
    pods = [pod("Failed", NOW)]
    assert decided(pods, STARTED, activeDeadlineSeconds=63)[1] == 3


@pytest.mark.parametrize(
    "status", [{"conditions": [{"type": each}]} for each in ("Complete", "Failed")]
)
def test_nothing_is_done_for_a_job_that_has_ended(status: Object) -> None:
    assert decided([pod()], {**STARTED, **status}) == ([], None)


def test_nothing_is_made_for_a_job_that_is_being_removed() -> None:
    assert decided(gone=True) == ([], None)


@pytest.mark.parametrize("spec", [{"parallelism": 2}, {"completions": 3}, {"suspend": True}])
def test_a_job_of_more_than_one_pod_fails_with_the_reason(spec: dict[str, Any]) -> None:
    writes, _ = decided(**spec)
    assert made(writes) == []
    assert ended(writes) == ("Failed", "NotSupported")


@given(
    st.lists(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]), max_size=6),
    st.integers(0, 5),
    st.none() | st.integers(0, 120),
)
def test_a_job_whose_writes_were_made_has_nothing_left_to_write(
    phases: list[str], limit: int, deadline: int | None
) -> None:
    """Also what is decided again after a crash comes to an end."""
    pods = [pod(each, NOW - LONGEST_PAUSE) for each in phases]
    spec: dict[str, Any] = {"backoffLimit": limit, "activeDeadlineSeconds": deadline}
    writes, _ = decided(pods, STARTED, **spec)
    status = STARTED
    for write in writes:
        if isinstance(write, Create):
            pods.append(pod("Pending"))
        elif isinstance(write, Change) and write.kind == kinds.BATCH_JOB:
            status = merge_patch(status, write.patch["status"])
    again, _ = decided(pods, status, **spec)
    assert len([each for each in again if each.kind != kinds.BATCH_JOB]) == 0
    for write in again:  # the new pod is counted
        assert isinstance(write, Change)
        status = merge_patch(status, write.patch["status"])
    assert decided(pods, status, **spec)[0] == []
