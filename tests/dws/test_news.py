"""Which changes controllers and the conductor have something to decide on."""

from typing import Any

import pytest

from warren.base.objects import Kind
from warren.dws import kinds, labels
from warren.dws.changes import (
    has_nothing_to_decide,
    is_relevant_block_storage_change,
    is_relevant_mount_change,
    is_relevant_node_storage_change,
    is_relevant_servers_change,
    is_relevant_storage_change,
    is_relevant_to_conductor,
    is_relevant_to_workflow,
)

WORKFLOW: dict[str, Any] = {
    "metadata": {},
    "spec": {"desiredState": "Setup"},
    "status": {"status": "DriverWait"},
}
ERROR = {"type": "Internal", "severity": "Major", "debugMessage": "no"}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
READY = {"ready": True}


def child(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"desiredState": "mounted"}, "status": status}


def in_state(desired: str, **rest: Any) -> dict[str, Any]:
    return {**WORKFLOW, "spec": {"desiredState": desired}, **rest}


# For a Workflow


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"state": "unmounted", "ready": True}, False),
        ({"state": "mounted", "ready": False}, False),
        ({"state": "mounted", "ready": True}, True),
        ({"state": "unmounted", "ready": True, "error": ERROR}, True),
    ],
)
def test_a_mount_is_news_at_its_end(status: dict[str, Any], expected: bool) -> None:
    assert is_relevant_to_workflow(kinds.NNF_ACCESS, None, child(status), WORKFLOW) is expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, False),
        ({"state": "Running", "commandStatus": {"progress": 40}}, False),
        ({"state": "Running", "error": ERROR}, True),
        ({"state": "Finished", "status": "Failed"}, True),
        ({"state": "Finished", "status": "Success"}, True),
    ],
)
def test_a_copy_is_news_at_its_end(status: dict[str, Any], expected: bool) -> None:
    before = child({"state": "Starting"})
    assert (
        is_relevant_to_workflow(kinds.NNF_DATA_MOVEMENT, before, child(status), WORKFLOW)
        is expected
    )


@pytest.mark.parametrize("kind", [kinds.BREAKDOWN, kinds.NNF_STORAGE])
def test_a_breakdown_and_a_storage_are_news_when_they_are_ready(kind: Kind) -> None:
    assert not is_relevant_to_workflow(kind, None, child({}), WORKFLOW)
    assert is_relevant_to_workflow(kind, child({}), child(READY), WORKFLOW)
    assert is_relevant_to_workflow(kind, None, child(READY), WORKFLOW)


def test_which_accesses_hold_a_storage_is_no_news_for_its_workflow() -> None:
    held = child(READY, annotations={labels.LOCK: "a/default"}, finalizers=["a"])
    assert not is_relevant_to_workflow(kinds.NNF_STORAGE, child(READY), held, WORKFLOW)


@pytest.mark.parametrize("kind", [kinds.NNF_STORAGE, kinds.NNF_ACCESS, kinds.SERVERS])
def test_that_a_child_goes_is_no_news_and_that_it_is_gone_is(kind: Kind) -> None:
    before = child({"state": "mounted", "ready": True})
    going = {**before, "metadata": GOING}
    assert not is_relevant_to_workflow(kind, before, going, WORKFLOW)
    assert is_relevant_to_workflow(kind, going, None, WORKFLOW)


def test_servers_are_news_when_they_are_filled_in_once_the_workflow_is_proposed() -> None:
    empty = child({})
    filled = {**empty, "spec": {"allocationSets": [{"label": "xfs"}]}}
    told = {**filled, "status": READY}
    assert is_relevant_to_workflow(kinds.SERVERS, empty, filled, WORKFLOW)
    assert not is_relevant_to_workflow(kinds.SERVERS, filled, told, WORKFLOW)
    assert not is_relevant_to_workflow(kinds.SERVERS, None, filled, in_state("Proposal"))


def test_a_pinned_profile_is_news_when_it_is_gone() -> None:
    assert not is_relevant_to_workflow(kinds.NNF_STORAGE_PROFILE, None, child({}), WORKFLOW)
    assert is_relevant_to_workflow(kinds.NNF_STORAGE_PROFILE, child({}), None, WORKFLOW)


@pytest.mark.parametrize("kind", [kinds.BREAKDOWN, kinds.SERVERS, kinds.NNF_STORAGE_PROFILE])
def test_what_comes_late_is_news_for_a_workflow_that_goes(kind: Kind) -> None:
    going = in_state("Proposal", metadata=GOING)
    assert is_relevant_to_workflow(kind, None, child({}), going)


@pytest.mark.parametrize(
    "kind", [kinds.NNF_ACCESS, kinds.NNF_DATA_MOVEMENT, kinds.NNF_STORAGE, kinds.SERVERS]
)
def test_an_error_is_news_when_it_comes_and_when_it_is_over(kind: Kind) -> None:
    wrong = child({"error": ERROR})
    assert is_relevant_to_workflow(kind, child({}), wrong, WORKFLOW)
    assert is_relevant_to_workflow(kind, wrong, child({}), WORKFLOW)
    assert is_relevant_to_workflow(
        kind, None, child({}), {**WORKFLOW, "status": {"status": "TransientCondition"}}
    )


def test_all_that_happens_to_other_children_is_news() -> None:
    assert is_relevant_to_workflow(kinds.NNF_DATA_MOVEMENT, child({}), child({}, **GOING), WORKFLOW)
    assert is_relevant_to_workflow(kinds.COMPUTES, None, child({}), WORKFLOW)
    assert is_relevant_to_workflow(kinds.BATCH_JOB, child({}), child({}), WORKFLOW)


# For the conductor


def test_a_breakdown_is_news_for_the_conductor_and_what_it_fills_in_itself_is_not() -> None:
    empty, filled = child({}), {**child({}), "spec": {"allocationSets": []}, "data": [1]}
    for kind in (kinds.SERVERS, kinds.COMPUTES):
        assert is_relevant_to_conductor(kind, None, empty, WORKFLOW)
        assert is_relevant_to_conductor(kind, filled, None, WORKFLOW)
        assert not is_relevant_to_conductor(kind, empty, filled, WORKFLOW)
    assert is_relevant_to_conductor(kinds.BREAKDOWN, empty, child(READY), WORKFLOW)
    assert not is_relevant_to_conductor(kinds.BREAKDOWN, empty, child({}, **GOING), WORKFLOW)


def test_which_rabbits_hold_the_storage_of_a_running_job_is_news_for_the_conductor() -> None:
    running = in_state("PreRun", status={"state": "PreRun", "ready": True})
    empty, filled = child({}), {**child({}), "spec": {"allocationSets": []}}
    assert is_relevant_to_conductor(kinds.SERVERS, empty, filled, running)
    assert not is_relevant_to_conductor(kinds.SERVERS, filled, {**filled, "status": READY}, running)


def test_of_what_a_workflow_that_goes_takes_along_nothing_is_news_for_the_conductor() -> None:
    assert not is_relevant_to_conductor(
        kinds.SERVERS, child({}), None, {**WORKFLOW, "metadata": GOING}
    )


# For an NnfStorage


def test_a_share_is_news_when_it_says_something_and_when_it_is_gone() -> None:
    assert not is_relevant_node_storage_change(None, child({}))
    assert is_relevant_node_storage_change(None, child(READY))
    assert is_relevant_node_storage_change(None, child({"error": ERROR}))
    assert is_relevant_node_storage_change(child({}), child(READY))
    assert not is_relevant_node_storage_change(child(READY), child(READY, **GOING))
    assert is_relevant_node_storage_change(child(READY), None)
    assert is_relevant_node_storage_change(
        None, {**child({}), "spec": {"fileSystemType": "lustre"}}
    )


def test_flash_is_news_when_it_is_gone() -> None:
    assert not is_relevant_block_storage_change(None, child({}))
    assert not is_relevant_block_storage_change(child({}), child(READY))
    assert is_relevant_block_storage_change(child(READY), None)


def test_which_accesses_hold_a_storage_is_news_for_it_when_it_is_deleted() -> None:
    held = child({}, finalizers=["a"], annotations={labels.LOCK: "a/default"})
    assert is_relevant_storage_change(None, child({}))
    assert not is_relevant_storage_change(child({}), held)
    assert is_relevant_storage_change(child({}), child(READY))
    assert is_relevant_storage_change(child({}), child({}, labels={"a": "b"}))
    assert is_relevant_storage_change(
        {**held, "metadata": {**held["metadata"], **GOING}}, child({}, **GOING)
    )


def test_servers_are_news_for_a_storage_when_they_are_filled_in_or_wait_to_be_let_go() -> None:
    empty = {**child({}), "spec": {}}
    assert not is_relevant_servers_change(None, empty)
    assert is_relevant_servers_change(None, {**empty, "spec": {"allocationSets": [{}]}})
    assert is_relevant_servers_change(None, {**empty, "status": READY})
    assert is_relevant_servers_change(empty, {**empty, "status": READY})
    kept = child({}, finalizers=[labels.SERVERS_FINALIZER], **GOING)
    assert is_relevant_servers_change(empty, kept)
    assert not is_relevant_servers_change(kept, child({}, **GOING))
    assert not is_relevant_servers_change(empty, None)


# For an NnfAccess


def test_a_mount_is_news_for_its_access_but_for_going() -> None:
    assert is_relevant_mount_change(None, child({}))
    assert is_relevant_mount_change(child({}), child({"mounts": []}))
    assert is_relevant_mount_change(child({}), child({}, labels={"a": "b"}))
    assert not is_relevant_mount_change(child({}), child({}, **GOING))
    assert is_relevant_mount_change(child({}), None)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"status": {"state": "Setup", "ready": False}}, False),
        ({"spec": {"desiredState": "DataIn"}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"spec": {"desiredState": "Proposal"}, "status": {"state": "Proposal", "ready": True}},
         False),
        ({"status": {}}, False),
    ],
)  # fmt: skip
def test_a_workflow_is_settled_while_it_is_ready_in_the_state_that_it_is_asked_for(
    changed: dict[str, Any], expected: bool
) -> None:
    ready = {
        "metadata": {},
        "spec": {"desiredState": "Setup"},
        "status": {"state": "Setup", "ready": True},
    }
    assert has_nothing_to_decide({**ready, **changed}) is expected
