"""Workflows are admitted by the rules that are installed."""

import asyncio

import pytest

from warren.base.objects import Kind, Object, key_of
from warren.daemons.cluster import manifests
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds
from warren.kube.admission import Denied, Operation, Review


def admission() -> WorkflowAdmission:
    made = WorkflowAdmission()
    rules = [obj for obj in manifests("rules.yaml") if obj["kind"] == "DWDirectiveRule"]
    made.connect(lambda kind: rules)
    return made


def created(kind: Kind, obj: Object) -> Object:
    """Return what admission makes of a new object."""
    review = Review(operation=Operation.CREATE, kind=kind, key=key_of(obj), new=obj)
    made = asyncio.run(admission().admit(review))
    assert made is not None
    return made


def workflow(*directives: str, state: str = "Proposal") -> Object:
    return {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"desiredState": state, "dwDirectives": list(directives)},
    }


def test_a_new_workflow_gets_its_drivers_work_and_its_first_variables() -> None:
    made = created(kinds.WORKFLOW, workflow("#DW jobdw type=xfs capacity=1GiB name=scratch"))

    states = [driver["watchState"] for driver in made["status"]["drivers"]]
    assert states == ["Proposal", "Setup", "PreRun", "PostRun", "Teardown"]
    assert {driver["driverID"] for driver in made["status"]["drivers"]} == {"nnf"}
    assert made["status"]["env"]["DW_WORKFLOW_NAME"] == "w"


def test_a_wrong_directive_is_denied_with_its_reason() -> None:
    with pytest.raises(Denied, match="Unknown command 'nosuch'"):
        created(kinds.WORKFLOW, workflow("#DW nosuch name=foo"))


def test_a_directive_without_a_command_is_denied_and_breaks_nothing() -> None:
    with pytest.raises(Denied, match="A command is missing"):
        created(kinds.WORKFLOW, workflow("#DW"))


def test_a_workflow_starts_in_proposal() -> None:
    with pytest.raises(Denied, match="starts in Proposal"):
        created(kinds.WORKFLOW, workflow(state="Setup"))


def test_other_kinds_are_none_of_its_business() -> None:
    obj: Object = {"metadata": {"name": "x"}, "spec": {}}

    assert created(kinds.SERVERS, obj) is obj
