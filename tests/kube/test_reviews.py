"""Reviews: clients ask what they or others may do, and who they are."""

from typing import Any

import pytest

from warren.base.objects import Object
from warren.kube.admission import User
from warren.kube.client import Refused
from warren.kube.server.access import reviews
from warren.kube.server.access.authorization import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    MASTERS,
    Authorizer,
)

ANN = User("ann", frozenset({"wlm", "system:authenticated"}))
OBJECTS = {
    CLUSTER_ROLE: [
        {
            "metadata": {"name": "r"},
            "rules": [
                {"verbs": ["get"], "apiGroups": ["g"], "resources": ["pods/log", "pods"]},
                {"verbs": ["patch"], "apiGroups": [""], "resources": ["x"], "resourceNames": ["a"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
            ],
        }
    ],
    CLUSTER_ROLE_BINDING: [
        {
            "metadata": {"name": "b"},
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "ann"}],
        }
    ],
}
REASON = 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to User "ann"'
YES, NO = {"allowed": True, "reason": REASON}, {"allowed": False}
GET_PODS = {"verb": "get", "group": "g", "resource": "pods"}


def answered(plural: str, body: Any, user: User = ANN) -> dict[str, Any]:
    return reviews.answer(plural, body, user, Authorizer(lambda kind: OBJECTS.get(kind, [])))


def asking(resource: Any = None, path: Any = None, **rest: Any) -> Object:
    asked = {"resourceAttributes": resource, "nonResourceAttributes": path}
    return {"spec": {**{name: each for name, each in asked.items() if each is not None}, **rest}}


ACCESS: list[tuple[Object, Object]] = [
    (asking(GET_PODS), YES),
    (asking({**GET_PODS, "namespace": "here", "name": "a", "version": "v1"}), YES),
    (asking({**GET_PODS, "subresource": "log"}), YES),
    (asking({**GET_PODS, "subresource": "exec"}), NO),
    (asking({**GET_PODS, "group": ""}), NO),
    (asking({**GET_PODS, "verb": "*"}), NO),
    (asking({**GET_PODS, "group": None}), NO),
    (asking({"verb": "patch", "resource": "x", "name": "a"}), YES),
    (asking({"verb": "patch", "resource": "x"}), NO),
    (asking({}), NO),
    (asking(path={"verb": "get", "path": "/metrics"}), YES),
    (asking(path={"verb": "get", "path": "/"}), NO),
    (asking(path={}), NO),
]


@pytest.mark.parametrize(("body", "status"), ACCESS)
def test_a_user_is_told_what_he_may_do(body: Object, status: Object) -> None:
    assert answered("selfsubjectaccessreviews", body)["status"] == status


@pytest.mark.parametrize(("body", "status"), ACCESS)
def test_a_user_is_told_what_another_one_may_do(body: Object, status: Object) -> None:
    asked = {"spec": {**body["spec"], "user": "ann"}}
    assert answered("subjectaccessreviews", asked, User("bob"))["status"] == status
    asked = {"spec": {**body["spec"], "user": "bob", "groups": ["ann"]}}
    assert answered("subjectaccessreviews", asked, ANN)["status"] == NO


def test_a_group_alone_can_be_asked_about() -> None:
    asked = asking(GET_PODS, groups=[MASTERS])
    assert answered("subjectaccessreviews", asked)["status"] == {"allowed": True}


def test_a_review_of_a_namespace_asks_for_what_is_in_it() -> None:
    def status(asked: Object) -> Any:
        metadata = {"metadata": {"namespace": "here"}}
        return answered("localsubjectaccessreviews", {**asked, **metadata})["status"]

    assert status(asking({**GET_PODS, "namespace": "here"}, user="ann")) == YES
    assert status(asking({**GET_PODS, "namespace": "here"}, user="bob")) == NO
    for asked, field in (
        (asking({**GET_PODS, "namespace": "there"}, user="ann"), "resourceAttributes.namespace"),
        (asking(GET_PODS, user="ann"), "resourceAttributes.namespace"),
        (asking(path={"path": "/x"}, user="ann"), "nonResourceAttributes"),
        (asking({**GET_PODS, "namespace": "here"}), "user"),
        (asking(user="ann"), "resourceAttributes"),
    ):
        with pytest.raises(Refused, match=f"invalid: spec.{field}: Invalid value"):
            status(asked)


def test_a_user_is_told_all_that_he_may_do() -> None:
    found = answered("selfsubjectrulesreviews", {"spec": {"namespace": "here"}})
    assert found["status"] == {
        "resourceRules": [
            {"verbs": ["get"], "apiGroups": ["g"], "resources": ["pods/log", "pods"]},
            {"verbs": ["patch"], "apiGroups": [""], "resources": ["x"], "resourceNames": ["a"]},
        ],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}],
        "incomplete": False,
    }


def test_a_user_who_may_do_nothing_is_told_so() -> None:
    found = answered("selfsubjectrulesreviews", {"spec": {"namespace": "here"}}, User("bob"))
    assert found["status"] == {"resourceRules": [], "nonResourceRules": [], "incomplete": False}


def test_a_user_is_told_who_he_is() -> None:
    groups = ["system:authenticated", "wlm"]
    assert answered("selfsubjectreviews", {}) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": {},
        "status": {"userInfo": {"username": "ann", "groups": groups}},
    }


def test_an_answer_is_the_question_with_a_status_of_the_servers_own() -> None:
    body = {
        "metadata": None,
        "spec": {"resourceAttributes": {**GET_PODS, "namespace": None, "bogus": 1}},
        "status": {"allowed": False, "denied": True},
    }
    assert answered("selfsubjectaccessreviews", body) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": GET_PODS},
        "status": YES,
    }
    assert body["status"] == {"allowed": False, "denied": True}


BOTH = asking(GET_PODS, {"path": "/x"})
MALFORMED: list[tuple[str, Any, str]] = [
    ("selfsubjectaccessreviews", {}, "spec: Required value"),
    ("selfsubjectaccessreviews", {"spec": "x"}, "spec: Invalid value"),
    ("selfsubjectaccessreviews", {"metadata": 1, **asking(GET_PODS)}, "metadata: Invalid value"),
    (
        "selfsubjectaccessreviews",
        {"spec": {}},
        "spec.resourceAttributes: Invalid value: null: exac",
    ),
    ("selfsubjectaccessreviews", BOTH, "spec.nonResourceAttributes: Invalid value: .*: cannot be"),
    ("selfsubjectaccessreviews", asking({"verb": 1}), "spec.resourceAttributes.verb: Invalid"),
    ("selfsubjectaccessreviews", asking(path=[1]), "spec.nonResourceAttributes: Invalid value"),
    ("subjectaccessreviews", asking(GET_PODS), 'spec.user: Invalid value: "": at least one of'),
    ("subjectaccessreviews", asking(user="x"), "spec.resourceAttributes: Invalid value: null"),
    ("subjectaccessreviews", asking(GET_PODS, groups="x"), "spec.groups: Invalid value"),
    ("subjectaccessreviews", asking(GET_PODS, groups=[1]), r"spec.groups\[0\]: Invalid value"),
    ("subjectaccessreviews", asking(GET_PODS, user=[]), "spec.user: Invalid value"),
    ("localsubjectaccessreviews", asking([]), "spec.resourceAttributes: Invalid value"),
    ("localsubjectaccessreviews", asking(GET_PODS, user="x"), "spec.resourceAttributes.namespace"),
    ("selfsubjectrulesreviews", {"spec": {}}, "spec.namespace: Required value"),
    ("selfsubjectrulesreviews", {"spec": {"namespace": ""}}, "spec.namespace: Required value"),
    ("selfsubjectrulesreviews", {"spec": {"namespace": 1}}, "spec.namespace: Invalid value"),
    ("selfsubjectreviews", {"metadata": []}, "metadata: Invalid value"),
]


@pytest.mark.parametrize(("plural", "body", "why"), MALFORMED)
def test_a_review_without_its_form_is_refused_with_the_path(
    plural: str, body: Any, why: str
) -> None:
    with pytest.raises(Refused, match=f'k8s.io "" is invalid: {why}'):
        answered(plural, body)


def test_the_kinds_are_those_of_kubernetes() -> None:
    assert [
        (str(each), each.version, each.name, each.namespaced) for each in reviews.REVIEW_KINDS
    ] == [
        ("selfsubjectaccessreviews.authorization.k8s.io", "v1", "SelfSubjectAccessReview", False),
        ("subjectaccessreviews.authorization.k8s.io", "v1", "SubjectAccessReview", False),
        ("localsubjectaccessreviews.authorization.k8s.io", "v1", "LocalSubjectAccessReview", True),
        ("selfsubjectrulesreviews.authorization.k8s.io", "v1", "SelfSubjectRulesReview", False),
        ("selfsubjectreviews.authentication.k8s.io", "v1", "SelfSubjectReview", False),
    ]
