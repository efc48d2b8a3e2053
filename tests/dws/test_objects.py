"""Labels, faults and the small values of nodes."""

import pytest

from tests.dws.builders import configuration, meta, workflow
from warren.dws import kinds, labels
from warren.dws.faults import STATUS, Fault, raise_for
from warren.dws.node import NodeTrouble, Progress
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.meta import Error, Meta
from warren.dws.objects.nnfstorages import NnfStorage

# Labels


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
    assert labels.owner_of({"metadata": {}}) == ()


def test_a_child_inherits_its_parents_labels_but_not_the_grandparents_claim() -> None:
    owner = labels.of_owner(kinds.WORKFLOW, read(meta("wf"), Meta))
    parent = read(meta("wf-0", labels={**owner, labels.WORKFLOW_NAME: "wf"}), Meta)
    assert labels.inherited(parent) == {labels.WORKFLOW_NAME: "wf"}


def test_a_child_in_the_same_namespace_refers_to_its_controller() -> None:
    assert labels.controller(kinds.WORKFLOW, read(meta("wf"), Meta)) == [
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
    assert labels.finalized(held, "b") == {"metadata": {"finalizers": ["a", "c"]}}
    assert labels.finalized(held, "z") == {"metadata": {"finalizers": ["a", "b", "c"]}}


def test_no_two_kinds_are_served_at_one_place() -> None:
    assert len({str(kind) for kind in kinds.ALL}) == len(kinds.ALL)


# Faults


@pytest.mark.parametrize(
    ("severity", "status"),
    [("Minor", "Running"), ("Major", "TransientCondition"), ("Fatal", "Error")],
)
def test_each_severity_has_its_status(severity: str, status: str) -> None:
    assert STATUS[severity] == status


def test_a_fault_keeps_its_words_over_a_status() -> None:
    fault = Fault("no room", severity="Major", type="WLM", debug="ENOSPC")
    assert fault.shown == "WLM error: no room"

    told = read(fault.as_status(), Error)

    with pytest.raises(Fault) as raised:
        raise_for(told)
    assert raised.value.as_status() == fault.as_status()
    with pytest.raises(Fault, match=r"^r0: no room$"):
        raise_for(told, "r0")


def test_an_error_without_words_for_users_shows_those_for_developers() -> None:
    with pytest.raises(Fault, match=r"^r0: ENOSPC$") as raised:
        raise_for(Error(debug_message="ENOSPC"), "r0")
    assert (raised.value.type, raised.value.severity) == ("Internal", "Minor")


def test_no_error_raises_nothing() -> None:
    raise_for(None, "r0")


def test_an_object_that_is_not_of_its_kind_is_refused_with_the_path() -> None:
    obj = {"kind": "NnfStorage", "metadata": meta("wf-0"), "spec": {"fileSystemType": 7}}
    with pytest.raises(Malformed, match=r"NnfStorage wf-0: .*spec\.fileSystemType"):
        read(obj, NnfStorage)


# Nodes


def test_trouble_of_a_node_is_major_unless_trying_again_will_not_help() -> None:
    assert NodeTrouble("busy").as_status()["severity"] == "Major"
    assert NodeTrouble("no such type", fatal=True).as_status()["severity"] == "Fatal"


@pytest.mark.parametrize(
    ("done", "total", "seconds", "percent", "rate"),
    [(0, 0, 0, 100, 0), (0, 10, 0, 0, 0), (1, 3, 2, 33, 0.5), (3, 3, 3, 100, 1), (4, 3, 1, 100, 4)],
)
def test_progress_is_a_percentage_and_a_rate(
    done: int, total: int, seconds: float, percent: int, rate: float
) -> None:
    progress = Progress(bytes=done, total_bytes=total, files=0, total_files=0, seconds=seconds)
    assert (progress.percent, progress.rate) == (percent, rate)


def test_each_compute_is_wired_to_one_rabbit() -> None:
    assert configuration().rabbits_of_computes() == {"n0": "r0", "n1": "r0", "n2": "r1"}
    found = configuration()
    assert found.rabbits_of_computes() is found.rabbits_of_computes()


def test_a_site_may_prefer_a_version_of_those_that_are_spoken() -> None:
    dws, nnf = "dataworkflowservices.github.io", "nnf.cray.hpe.com"

    assert kinds.versions() == kinds.VERSIONS
    assert kinds.versions(nnf="v1alpha9")[nnf] == (
        "v1alpha9", "v1alpha11", "v1alpha10", "v1alpha8",
    )  # fmt: skip
    assert kinds.versions(dws="v1alpha6", nnf="v2")[dws] == ("v1alpha6", "v1alpha7")
    assert kinds.versions(dws="v1alpha6", nnf="v2")[nnf] == kinds.VERSIONS[nnf]
