"""What Kubernetes Events tell of Workflows and rabbits."""

from typing import Any

import pytest

from tests.dws.builders import JOBDW, rabbit, workflow
from warren.dws import kinds, kubeevents, labels
from warren.dws.kubeevents import EventContent
from warren.dws.objects.storages import NodeLink, StorageAccess


def told(status: str = "DriverWait", message: str = "", **facts: Any) -> set[tuple[str, str]]:
    said = {"status": status, "message": message}
    wf = workflow(JOBDW, state="Setup", ready=False, status=said, **facts)
    return {(each.reason, each.message) for each in kubeevents.of_workflow(wf)}


def test_a_workflow_that_lives_well_has_no_news() -> None:
    assert told() == set()
    assert told(message="waits") == set()


@pytest.mark.parametrize("status", ["Error", "TransientCondition"])
def test_trouble_is_told_with_its_state_and_words(status: str) -> None:
    assert told(status=status, message="no disk") == {(status, "Setup: no disk")}


def test_lost_nodes_and_jobs_that_were_let_go_are_told() -> None:
    annotations = {labels.LOST_NODES: "n[0-1]", labels.ABORTED: "before"}
    found = told(metadata={"annotations": annotations})

    assert ("NodesLost", "goes on without n[0-1]") in found
    assert {reason for reason, _ in found} == {"NodesLost", "LetGo"}


def test_a_rabbit_is_told_with_what_it_is() -> None:
    ready = rabbit("r0", status="Ready")
    gone = rabbit("r0", status="Offline", message="its agent has ended")
    access = StorageAccess(
        computes=(NodeLink(name="n1", status="Failed"), NodeLink(name="n0", status="Ready"))
    )
    cut = rabbit("r0", status="Ready", access=access)

    assert kubeevents.of_storage(ready) == {
        EventContent("Ready", "flash is given to jobs", warning=False)
    }
    assert kubeevents.of_storage(gone) == {EventContent("Offline", "its agent has ended")}
    assert EventContent("LinkLost", "n1 cannot reach it") in kubeevents.of_storage(cut)
    assert kubeevents.of_storage(rabbit("r0", status="Degraded")) == {
        EventContent("Degraded", "is Degraded")
    }


def test_the_same_news_of_the_same_object_has_the_same_name_and_a_message_has_an_end() -> None:
    meta = rabbit("r0").metadata
    long = EventContent("Offline", "x" * 5000)
    made = kubeevents.event(kinds.STORAGE, meta, long, 0.0, "warren")

    assert (
        made["metadata"]["name"] == kubeevents.name(meta, long) == kubeevents.key(meta, long).name
    )
    assert kubeevents.name(meta, long) != kubeevents.name(meta, EventContent("Offline", "y"))
    assert len(made["message"]) == 1024
    assert kubeevents.repetition_patch({"count": 3}, 0.0) == {
        "lastTimestamp": "1970-01-01T00:00:00Z",
        "count": 4,
    }


def test_a_name_of_a_file_does_nothing_to_the_terminal_of_kubectl() -> None:
    content = EventContent("Error", "\x1b]0;owned\x07: Permission denied")
    made = kubeevents.event(kinds.STORAGE, rabbit("r0").metadata, content, 0.0, "warren")

    assert made["message"] == r"\x1b]0;owned\x07: Permission denied"
