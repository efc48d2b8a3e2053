"""Teardown removes copies, mounts and storage; a Workflow that is deleted does so, too."""

from typing import Any

import pytest

from tests.dws.builders import DELETING, changes, movement, nnf_access, removed, workflow
from tests.dws.test_driver import ALL, STORAGE, broken, seen, told
from warren.base.objects import Key
from warren.dws import kinds, labels
from warren.dws.workflow.driver import decide

HAS = {
    "movements": [movement(1), movement(2)],
    "accesses": [nnf_access(), nnf_access("servers")],
    "storages": [STORAGE],
}


@pytest.mark.parametrize(
    ("gone", "kind", "keys_"),
    [
        ((), kinds.NNF_DATA_MOVEMENT, ["r0/wf-1-0", "r0/wf-2-0"]),
        (("movements",), kinds.NNF_ACCESS, ["default/wf-0-computes", "default/wf-0-servers"]),
        (("movements", "accesses"), kinds.NNF_STORAGE, ["default/wf-0"]),
    ],
)
@pytest.mark.parametrize("metadata", [{}, DELETING])
def test_teardown_removes_copies_then_mounts_then_storage(
    metadata: dict[str, str], gone: tuple[str, ...], kind: Any, keys_: list[str]
) -> None:
    left = {name: value for name, value in HAS.items() if name not in gone}
    wf = workflow(*ALL, state="Teardown", metadata=metadata)

    writes = [each for each in decide(seen(wf, **left)) if each.kind != kinds.WORKFLOW]

    assert sorted(removed(writes, kind)) == keys_
    assert len(writes) == len(keys_)


def test_what_is_on_its_way_out_is_waited_for() -> None:
    going = {
        "movements": [movement(1, deleting=True)],
        "accesses": [nnf_access()],
        "storages": [STORAGE],
    }
    writes = decide(seen(workflow(*ALL, state="Teardown"), **going))
    assert [each.kind for each in writes] == [kinds.WORKFLOW]
    assert told(writes) == ("DriverWait", "DW Directive 2: delete")


OWN = labels.WORKFLOW_FINALIZER
LEFT = [(kinds.BREAKDOWN, Key("default", "wf-0")), (kinds.COMPUTES, Key("default", "wf"))]


@pytest.mark.parametrize("state", ["Proposal", "PreRun"])
def test_a_deleted_workflow_is_torn_down_from_wherever_it_is(state: str) -> None:
    wf = workflow(*ALL, state=state, metadata=DELETING)
    writes = decide(seen(wf, storages=[STORAGE], dependents=LEFT))
    assert removed(writes, kinds.NNF_STORAGE) == ["default/wf-0"]
    assert len(writes) == 1


def test_a_deleted_workflow_waits_for_a_node_that_cannot_let_go() -> None:
    stuck = nnf_access(deleting=True, **broken("Major", message="busy"))
    assert decide(seen(workflow(*ALL, metadata=DELETING), accesses=[stuck])) == []


def test_a_deleted_workflow_then_removes_its_dependents() -> None:
    writes = decide(seen(workflow(*ALL, metadata=DELETING), dependents=LEFT))
    assert removed(writes, kinds.BREAKDOWN) == ["default/wf-0"]
    assert removed(writes, kinds.COMPUTES) == ["default/wf"]
    assert len(writes) == 2


@pytest.mark.parametrize(
    ("finalizers", "patches"),
    [([OWN], [{"metadata": {"finalizers": []}}]), ([OWN, "other"], []), (["other"], []), ([], [])],
)
def test_a_deleted_workflow_is_let_go_of_last(finalizers: list[str], patches: list[Any]) -> None:
    wf = workflow(*ALL, metadata={**DELETING, "finalizers": finalizers})
    assert changes(decide(seen(wf)), kinds.WORKFLOW) == patches
