"""Labels, finalizers and owner references: how objects of one Workflow find each other."""

import pytest

from tests.dws.builders import meta, workflow
from warren.base.objects import Key
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta


def test_what_belongs_to_a_workflow_is_found_by_its_labels() -> None:
    own = labels.of_workflow(workflow(), 2)
    assert own[labels.DIRECTIVE_INDEX] == "2"
    assert labels.workflow_of({"metadata": {"labels": own}}) == ("default/wf",)
    assert labels.workflow_of({"metadata": {}}) == ()
    assert labels.workflow_of({"metadata": {"labels": None}}) == ()


@pytest.mark.parametrize(
    ("job", "label"),
    [
        (12, "12"),
        ("fX", "fX"),
        ("12 of 20", "12-of-20"),
        ("ƒ2UzHM", "2UzHM"),
        ("x" * 62 + " y", "x" * 62),
        ("", ""),
    ],
)
def test_a_directives_children_name_its_job_in_a_label(job: int | str, label: str) -> None:
    """dws-spec section 0.1: spaces become dashes. What no label may hold is not in it."""
    assert labels.of_workflow(workflow(spec={"jobID": job}), 2)[labels.JOB_ID] == label
    assert labels.JOB_ID not in labels.of_workflow(workflow(spec={"jobID": job}))


def test_what_has_an_owner_elsewhere_is_found_by_its_labels() -> None:
    owner = read(meta("wf-0"), Meta)
    own = labels.of_owner(kinds.NNF_STORAGE, owner)
    assert labels.owner_of({"metadata": {"labels": own}}) == ("NnfStorage default/wf-0",)
    assert labels.owner_keys({"metadata": {"labels": own}}) == (Key("default", "wf-0"),)
    assert labels.owner_of({"metadata": {}}) == ()
    assert labels.owner_keys({"metadata": {}}) == ()


def test_a_child_inherits_its_parents_labels_but_not_the_grandparents_claim() -> None:
    owner = labels.of_owner(kinds.WORKFLOW, read(meta("wf"), Meta))
    parent = read(meta("wf-0", labels={**owner, labels.WORKFLOW_NAME: "wf"}), Meta)
    assert labels.inherited_labels(parent) == {labels.WORKFLOW_NAME: "wf"}


def test_a_child_in_the_same_namespace_refers_to_its_controller() -> None:
    assert labels.owner_references(kinds.WORKFLOW, read(meta("wf"), Meta)) == [
        {
            "apiVersion": "dataworkflowservices.github.io/v1alpha7",
            "kind": "Workflow",
            "name": "wf",
            "uid": "uid-wf",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_one_finalizer_is_taken_off_and_the_others_stay() -> None:
    held = read(meta("wf", finalizers=["a", "b", "c"]), Meta)
    assert labels.without_finalizer(held, "b") == {"metadata": {"finalizers": ["a", "c"]}}
    assert labels.without_finalizer(held, "z") == {"metadata": {"finalizers": ["a", "b", "c"]}}
