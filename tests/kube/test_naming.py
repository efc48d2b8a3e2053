"""Names, labels and annotations that every API takes, and that none takes."""

import pytest

from warren.base.objects import Kind
from warren.dws.kinds import WORKFLOW
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.schemas.naming import violations

ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (WORKFLOW, "w"),
        (WORKFLOW, "0"),
        (WORKFLOW, "fluxjob-123.a-b"),
        (WORKFLOW, "x" * 253),
        (CRD, "workflows.dataworkflowservices.github.io"),
        (NAMESPACE, "x" * 63),
        (ROLE, "system:node"),
    ],
)
def test_good_names(kind: Kind, name: str) -> None:
    assert violations(kind, {"name": name}) == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (WORKFLOW, "W"),
        (WORKFLOW, "a_b"),
        (WORKFLOW, "a..b"),
        (WORKFLOW, "-a"),
        (WORKFLOW, "a."),
        (WORKFLOW, "a\n"),
        (WORKFLOW, "ä"),
        (WORKFLOW, "x" * 254),
        (NAMESPACE, "a.b"),
        (NAMESPACE, "x" * 64),
        (ROLE, ""),
    ],
)
def test_bad_names(kind: Kind, name: str) -> None:
    [cause] = violations(kind, {"name": name})
    assert cause.field == "metadata.name"


@pytest.mark.parametrize(
    "labels",
    [
        {"a": ""},
        {"A_b.c-d": "E_f.g-h"},
        {"x.example/name": "1"},
        {"x" * 63: "y" * 63},
        {f"{'x' * 253}/{'y' * 63}": ""},
    ],
    ids=lambda labels: str(labels)[:30],
)
def test_good_labels_are_good_annotations(labels: dict[str, str]) -> None:
    assert violations(WORKFLOW, {"name": "w", "labels": labels, "annotations": labels}) == []


@pytest.mark.parametrize(
    "name", ["", "a b", "-a", "a/", "/a", "a/b/c", "A.example/b", "x" * 64], ids=str
)
def test_bad_names_of_labels(name: str) -> None:
    [cause] = violations(WORKFLOW, {"name": "w", "labels": {name: "x"}})
    assert cause.field == "metadata.labels"


@pytest.mark.parametrize("value", ["a b", "-", "a/b", "x" * 64])
def test_values_of_labels_are_words_and_those_of_annotations_are_free(value: str) -> None:
    [cause] = violations(WORKFLOW, {"name": "w", "labels": {"a": value}})
    assert cause.field == "metadata.labels"
    assert violations(WORKFLOW, {"name": "w", "annotations": {"a": value}}) == []


def test_capitals_do_not_matter_in_the_names_of_annotations() -> None:
    assert violations(WORKFLOW, {"name": "w", "annotations": {"X.example/A": ""}}) == []


def test_annotations_have_an_end() -> None:
    def annotated(size: int) -> list[str]:
        found = violations(WORKFLOW, {"name": "w", "annotations": {"a": "x" * size}})
        return [cause.reason for cause in found]

    assert annotated(256 * 2**10 - 1) == []
    assert annotated(256 * 2**10) == ["FieldValueTooLong"]
