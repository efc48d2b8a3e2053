"""Which changes of its children a Workflow is looked at for."""

from typing import Any

import pytest

from warren.dws import kinds
from warren.dws.news import is_news, is_settled

WORKFLOW: dict[str, Any] = {"status": {"status": "DriverWait"}}
ERROR = {"type": "Internal", "severity": "Major", "debugMessage": "no"}


def child(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"desiredState": "mounted"}, "status": status}


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
    assert is_news(kinds.NNF_ACCESS, child(status), WORKFLOW) is expected


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
    assert is_news(kinds.NNF_DATA_MOVEMENT, child(status), WORKFLOW) is expected


@pytest.mark.parametrize("kind", [kinds.NNF_ACCESS, kinds.NNF_DATA_MOVEMENT])
def test_everything_is_news_of_what_is_deleted_or_where_an_error_stands(kind: Any) -> None:
    going = child({}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert is_news(kind, going, WORKFLOW)
    assert is_news(kind, child({}), {"status": {"status": "TransientCondition"}})


def test_all_that_happens_to_other_children_is_news() -> None:
    assert is_news(kinds.NNF_STORAGE, child({}), WORKFLOW)


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
    assert is_settled({**ready, **changed}) is expected
