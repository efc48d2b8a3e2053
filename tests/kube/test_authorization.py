"""Who may do what, and how it is told who may not."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.objects import Kind, Object, merge_patch
from warren.dws import kinds
from warren.kube.admission import User
from warren.kube.client import NotFound
from warren.kube.server.access.authorization import (
    ANONYMOUS,
    AUTHENTICATED,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    KINDS,
    MASTERS,
    ROLE,
    ROLE_BINDING,
    Attributes,
    Authorizer,
    escalation_message,
    forbidden_message,
    service_account,
)
from warren.kube.server.access.grants import RBAC, PolicyRule
from warren.kube.server.access.roles import default_roles

ANN = User("ann", frozenset({AUTHENTICATED, "wlm"}))
BOB = User("bob")
ROOT = User("root", frozenset({MASTERS}))
DWS = "dataworkflowservices.github.io"


# Objects


def rule(
    *verbs: str, groups: Iterable[str] = (DWS,), on: Iterable[str] = (), **rest: Any
) -> Object:
    return {"verbs": [*verbs], "apiGroups": [*groups], "resources": [*on], **rest}


def urls(*places: str, verbs: Iterable[str] = ("get",)) -> Object:
    return {"verbs": [*verbs], "nonResourceURLs": [*places]}


def role(*rules: Object, name: str = "r", namespace: str = "", **rest: Any) -> Object:
    """A Role where there is a namespace, and a ClusterRole where there is none."""
    return obj(ROLE if namespace else CLUSTER_ROLE, name, namespace, rules=[*rules], **rest)


def gathering(*selectors: Object, name: str = "r", **rest: Any) -> Object:
    return role(name=name, aggregationRule={"clusterRoleSelectors": [*selectors]}, **rest)


def binding(
    *subjects: Object,
    of: str = "r",
    kind: Kind = CLUSTER_ROLE,
    name: str = "b",
    namespace: str = "",
) -> Object:
    """A RoleBinding where there is a namespace, and a ClusterRoleBinding where there is none."""
    return obj(
        ROLE_BINDING if namespace else CLUSTER_ROLE_BINDING,
        name,
        namespace,
        roleRef={"apiGroup": RBAC, "kind": kind.name, "name": of},
        subjects=[*subjects],
    )


def obj(kind: Kind, name: str, namespace: str, labels: Object | None = None, **rest: Any) -> Object:
    metadata: dict[str, Any] = {"name": name}
    metadata.update({"namespace": namespace} if namespace else {})
    metadata.update({"labels": labels} if labels else {})
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **rest}


def person(name: str) -> Object:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def group(name: str) -> Object:
    return {"apiGroup": RBAC, "kind": "Group", "name": name}


def account(name: str, namespace: str) -> Object:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def authorizer(*objects: Object) -> Authorizer:
    return Authorizer(lambda kind: [each for each in objects if each["kind"] == kind.name])


def to(verb: str, on: str = "", where: str = "", name: str = "", of: str = DWS) -> Attributes:
    resource, _, subresource = on.partition("/")
    return Attributes(
        verb=verb, group=of, resource=resource, subresource=subresource, name=name, namespace=where
    )


def at(path: str, verb: str = "get") -> Attributes:
    return Attributes(verb=verb, path=path)


READ = rule("get", on=["servers"])


# What a rule allows

RULES: list[tuple[Object, Attributes, bool]] = [
    (rule("get", on=["workflows"]), to("get", "workflows"), True),
    (rule("get", on=["workflows"]), to("list", "workflows"), False),
    (rule("get", on=["workflows"]), to("get", "servers"), False),
    (rule("get", on=["workflows"]), to("get", "workflows", of=""), False),
    (rule("get", on=["workflows"]), to("get", "workflows", of="*"), False),
    (rule("*", on=["workflows"]), to("anything", "workflows"), True),
    (rule("get", on=["*"]), to("get", "workflows"), True),
    (rule("get", on=["*"]), to("get", "workflows/status"), True),
    (rule("get", on=["*"], groups=[""]), to("get", "workflows"), False),
    (rule("get", on=["workflows"], groups=["*"]), to("get", "workflows", of="x"), True),
    (rule("get", on=["workflows"], groups=["*"]), to("get", "workflows", of=""), True),
    (rule("get", on=["workflows"], groups=["", DWS]), to("get", "workflows"), True),
    (rule("get", "list", on=["servers", "workflows"]), to("list", "workflows"), True),
    (rule("get", on=["pods"]), to("get", "pods/log"), False),
    (rule("get", on=["pods/log"]), to("get", "pods/log"), True),
    (rule("get", on=["pods/log"]), to("get", "pods"), False),
    (rule("get", on=["*/scale"]), to("get", "pods/scale"), True),
    (rule("get", on=["*/scale"]), to("get", "pods/log"), False),
    (rule("get", on=["*/scale"]), to("get", "scale"), False),
    (rule("get", on=["pods/*"]), to("get", "pods/log"), False),
    (rule("get", on=["pods/*"]), to("get", "pods"), False),
    (rule("get", on=["*/*"]), to("get", "pods/log"), False),
    (rule("get", on=["pod*"]), to("get", "pods"), False),
    (rule("g*", on=["pods"]), to("get", "pods"), False),
    (rule("get", on=["pods"], resourceNames=["a", "b"]), to("get", "pods", name="b"), True),
    (rule("get", on=["pods"], resourceNames=["a"]), to("get", "pods", name="b"), False),
    (rule("*", on=["pods"], resourceNames=["a"]), to("patch", "pods", name="a"), True),
    (rule("*", on=["pods"], resourceNames=["a"]), to("create", "pods"), False),
    (rule("*", on=["pods"], resourceNames=["a"]), to("deletecollection", "pods"), False),
    (rule("*", on=["pods"], resourceNames=["*"]), to("get", "pods", name="a"), False),
    (rule("*", on=["pods"], resourceNames=None), to("create", "pods"), True),
    (rule("*", on=["*"], groups=["*"]), at("/healthz"), False),
    (rule(on=["pods"]), to("get", "pods"), False),
    (urls("/healthz"), at("/healthz"), True),
    (urls("/healthz"), at("/healthz/etcd"), False),
    (urls("/healthz"), at("/healthz", "post"), False),
    (urls("/api/*"), at("/api/v1"), True),
    (urls("/api/*"), at("/api/"), True),
    (urls("/api/*"), at("/api"), False),
    (urls("/a*"), at("/api"), True),
    (urls("/a/*/c"), at("/a/b/c"), False),
    (urls("*"), at("/whatever"), True),
    (urls("*", verbs=["*"]), at("/whatever", "post"), True),
    (urls("*", verbs=["*"]), to("get", "pods"), False),
    (urls("/a*"), at("/api", "post"), False),
    (urls("/api", verbs=["*"]), at("/api", "post"), True),
]


@pytest.mark.parametrize(("one", "asked", "allowed"), RULES)
def test_a_rule_allows_what_it_allows_in_kubernetes(
    one: Object, asked: Attributes, allowed: bool
) -> None:
    assert authorizer(role(one), binding(person("ann"))).allows(ANN, asked) is allowed


def test_rules_do_not_add_up_to_more_than_each_of_them() -> None:
    rules = [
        READ,
        rule("list", on=["workflows"]),
        rule("patch", on=["computes"], resourceNames=["a"]),
        rule("get", on=["computes"]),
    ]
    found = authorizer(role(*rules), binding(person("ann")))

    assert not found.allows(ANN, to("list", "servers"))
    assert not found.allows(ANN, to("get", "workflows"))
    assert not found.allows(ANN, to("patch", "computes", name="b"))
    assert found.allows(ANN, to("patch", "computes", name="a"))
    assert found.allows(ANN, to("get", "computes", name="b"))


# To whom, and where

SUBJECTS: list[tuple[Object, User, bool]] = [
    (person("ann"), ANN, True),
    (person("ann"), BOB, False),
    (person("wlm"), ANN, False),
    (person("*"), ANN, False),
    ({"kind": "User", "name": "ann"}, ANN, True),
    ({"kind": "User", "name": "ann", "apiGroup": ""}, ANN, True),
    (group("wlm"), ANN, True),
    (group("wlm"), BOB, False),
    (group("ann"), ANN, False),
    (group("system:unauthenticated"), ANONYMOUS, True),
    (group("system:authenticated"), ANONYMOUS, False),
    (account("dm", "nnf"), service_account("nnf", "dm"), True),
    (account("dm", "nnf"), service_account("default", "dm"), False),
    (account("dm", "nnf"), User("dm"), False),
    ({"kind": "ServiceAccount", "name": "dm"}, service_account("", "dm"), False),
    (person("system:serviceaccount:nnf:dm"), service_account("nnf", "dm"), True),
    (group("system:serviceaccounts"), service_account("nnf", "dm"), True),
    (group("system:serviceaccounts:nnf"), service_account("nnf", "dm"), True),
    (group("system:serviceaccounts:nnf"), service_account("dm", "nnf"), False),
    (group("system:authenticated"), service_account("nnf", "dm"), True),
]


@pytest.mark.parametrize(("subject", "user", "meant"), SUBJECTS)
def test_a_subject_means_whom_it_means_in_kubernetes(
    subject: Object, user: User, meant: bool
) -> None:
    found = authorizer(role(rule("get", on=["servers"])), binding(subject))
    assert found.allows(user, to("get", "servers")) is meant


def test_an_account_is_of_its_bindings_namespace_where_it_names_none() -> None:
    subject = {"kind": "ServiceAccount", "name": "dm"}
    found = authorizer(role(rule("get", on=["servers"])), binding(subject, namespace="nnf"))
    assert found.allows(service_account("nnf", "dm"), to("get", "servers", "nnf"))


SERVERS = {
    "everywhere": to("get", "servers"),
    "here": to("get", "servers", "here"),
    "there": to("get", "servers", "there"),
}


def where_allowed(*objects: Object) -> list[str]:
    found = authorizer(*objects)
    return [where for where, asked in SERVERS.items() if found.allows(ANN, asked)]


def test_a_binding_of_the_cluster_reaches_everywhere() -> None:
    assert where_allowed(role(READ), binding(person("ann"))) == [*SERVERS]


def test_a_binding_of_a_namespace_reaches_no_further_even_with_a_role_of_the_cluster() -> None:
    assert where_allowed(role(READ), binding(person("ann"), namespace="here")) == ["here"]


def test_a_role_of_a_namespace_is_bound_there_alone() -> None:
    inside = role(READ, namespace="here")
    assert where_allowed(inside, binding(person("ann"), kind=ROLE, namespace="here")) == ["here"]
    assert where_allowed(inside, binding(person("ann"), kind=ROLE, namespace="there")) == []
    assert where_allowed(inside, binding(person("ann"), kind=ROLE)) == []


def test_roles_of_the_cluster_and_of_namespaces_are_not_taken_for_each_other() -> None:
    assert where_allowed(role(READ), binding(person("ann"), kind=ROLE)) == []
    assert where_allowed(role(READ), binding(person("ann"), kind=ROLE, namespace="here")) == []
    inside = role(READ, namespace="here")
    assert where_allowed(inside, binding(person("ann"), namespace="here")) == []


def test_objects_that_lost_their_namespace_do_not_reach_the_whole_cluster() -> None:
    lost = merge_patch(role(READ, namespace="here"), {"metadata": {"namespace": None}})
    assert where_allowed(lost, binding(person("ann"), kind=ROLE)) == []
    lost = merge_patch(binding(person("ann"), namespace="here"), {"metadata": {"namespace": None}})
    assert where_allowed(role(READ), lost) == []


def test_a_path_is_in_no_namespace() -> None:
    everything = role(urls("*", verbs=["*"]))
    found = authorizer(everything, binding(person("ann"), namespace="here"))
    assert not found.allows(ANN, at("/healthz"))


def test_a_role_that_is_missing_grants_nothing_until_it_is_there() -> None:
    objects = [binding(person("ann"))]
    found = Authorizer(lambda kind: [each for each in objects if each["kind"] == kind.name])
    assert not found.allows(ANN, to("get", "servers"))

    objects.append(role(READ))
    found.forget_policy()
    assert found.allows(ANN, to("get", "servers"))

    objects.pop()
    found.forget_policy()
    assert not found.allows(ANN, to("get", "servers"))


def test_masters_may_do_everything_without_any_role() -> None:
    found = authorizer()
    assert found.allows(ROOT, to("delete", "servers", "here", "a"))
    assert found.allows(ROOT, at("/x", "post"))
    assert not found.allows(User(MASTERS), at("/x"))


def test_what_is_stored_is_read_once_for_many_questions_and_many_users() -> None:
    reads: list[Kind] = []
    found = Authorizer(lambda kind: reads.append(kind) or [])  # type: ignore[func-returns-value]
    for user, verb in product((ANN, BOB), ("get", "list")):
        found.allows(user, to(verb, "servers"))
    assert sorted(reads, key=KINDS.index) == [*KINDS]


# Roles that aggregate

SELECTORS: list[tuple[Object, bool]] = [
    ({"matchLabels": {"into": "view"}}, True),
    ({"matchLabels": {"into": "edit"}}, False),
    ({"matchLabels": {"into": "view", "other": "x"}}, False),
    ({"matchExpressions": [{"key": "into", "operator": "In", "values": ["view", "x"]}]}, True),
    ({"matchExpressions": [{"key": "into", "operator": "In", "values": ["x"]}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "In", "values": []}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "NotIn", "values": ["x"]}]}, True),
    ({"matchExpressions": [{"key": "else", "operator": "NotIn", "values": ["x"]}]}, True),
    ({"matchExpressions": [{"key": "into", "operator": "NotIn", "values": ["view"]}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "NotIn", "values": []}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "NotIn"}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "Exists"}]}, True),
    ({"matchExpressions": [{"key": "into", "operator": "Exists", "values": ["view"]}]}, False),
    ({"matchExpressions": [{"key": "else", "operator": "DoesNotExist"}]}, True),
    ({"matchExpressions": [{"key": "into", "operator": "DoesNotExist"}]}, False),
    ({"matchExpressions": [{"key": "into", "operator": "Is", "values": ["view"]}]}, False),
    ({}, True),
]


@pytest.mark.parametrize(("selector", "selects"), SELECTORS)
def test_a_role_gathers_the_rules_of_those_that_it_selects(selector: Object, selects: bool) -> None:
    part = role(READ, name="part", labels={"into": "view"})
    assert bool(where_allowed(gathering(selector), part, binding(person("ann")))) is selects


def test_a_role_gathers_by_any_of_its_selectors_and_through_others() -> None:
    first, second = {"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}
    objects = [
        gathering(first, second),
        role(READ, name="plain", labels={"b": "1"}),
        gathering({"matchLabels": {"c": "1"}}, name="middle", labels={"a": "1"}),
        role(rule("list", on=["servers"]), name="deep", labels={"c": "1"}),
        role(rule("patch", on=["servers"]), name="stranger", labels={"d": "1"}),
        binding(person("ann")),
    ]
    found = authorizer(*objects)
    allowed = [verb for verb in ("get", "list", "patch") if found.allows(ANN, to(verb, "servers"))]
    assert allowed == ["get", "list"]


def test_roles_that_gather_each_other_gather_what_either_finds() -> None:
    objects = [
        gathering({"matchLabels": {"into": "r"}}, labels={"into": "other"}),
        gathering({"matchLabels": {"into": "other"}}, name="other", labels={"into": "r"}),
        role(READ, name="part", labels={"into": "other"}),
    ]
    assert where_allowed(*objects, binding(person("ann"))) == [*SERVERS]
    assert where_allowed(*objects, binding(person("ann"), of="other")) == [*SERVERS]


def test_the_own_rules_of_a_role_that_gathers_do_not_count() -> None:
    assert where_allowed({**gathering({}), "rules": [READ]}, binding(person("ann"))) == []
    assert where_allowed({**gathering(), "rules": [READ]}, binding(person("ann"))) == []


# Whatever is stored

VERBS, GROUPS, NAMES, NAMESPACES = ("get", "list"), ("", "g"), ("", "n", "m"), ("", "here", "there")
RESOURCES = ("pods", "pods/log", "nodes", "nodes/log")
PATHS = ("/a", "/a/b", "/ab")
ASKED = [
    *(
        to(verb, on, where, name, of)
        for verb, of, on, name, where in product(VERBS, GROUPS, RESOURCES, NAMES, NAMESPACES)
    ),
    *(at(path, verb) for path, verb in product(PATHS, VERBS)),
]


def some(*values: str, least: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=2, unique=True)


A_RULE = st.fixed_dictionaries(
    {"verbs": some(*VERBS, "*")},
    optional={
        "apiGroups": some(*GROUPS, "*"),
        "resources": some(*RESOURCES, "*", "*/log", "pods/*"),
        "resourceNames": some("n", "m"),
        "nonResourceURLs": some(*PATHS, "*", "/a/*", "/a*"),
    },
)
RULE_LISTS = st.lists(A_RULE, max_size=3)
LABELS = st.dictionaries(st.sampled_from("ab"), st.just("1"), max_size=2)
SELECTING = st.lists(st.builds(lambda labels: {"matchLabels": labels}, LABELS), max_size=2)


def place_of(one: Object) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


A_ROLE = st.one_of(
    st.builds(
        lambda name, where, rules: role(*rules, name=name, namespace=where),
        st.sampled_from("rs"),
        st.sampled_from(NAMESPACES[1:]),
        RULE_LISTS,
    ),
    st.builds(
        lambda name, labels, rules: role(*rules, name=name, labels=labels),
        st.sampled_from("rs"),
        LABELS,
        RULE_LISTS,
    ),
    st.builds(
        lambda name, labels, selectors: gathering(*selectors, name=name, labels=labels),
        st.sampled_from("rs"),
        LABELS,
        SELECTING,
    ),
)
A_SUBJECT = st.sampled_from([person("ann"), person("bob"), group("wlm"), account("dm", "here")])
A_BINDING = st.builds(
    lambda subjects, of, kind, where: binding(*subjects, of=of, kind=kind, namespace=where),
    st.lists(A_SUBJECT, min_size=1, max_size=2),
    st.sampled_from("rs"),
    st.sampled_from((CLUSTER_ROLE, ROLE)),
    st.sampled_from(NAMESPACES),
)
POLICIES = st.tuples(
    st.lists(A_ROLE, max_size=4, unique_by=lambda one: place_of(one)),
    st.lists(A_BINDING, max_size=4),
)
USERS = st.sampled_from([ANN, BOB, service_account("here", "dm"), User("x", frozenset({"wlm"}))])


def allowed_by(found: Authorizer, user: User) -> set[int]:
    return {number for number, asked in enumerate(ASKED) if found.allows(user, asked)}


def oracle(roles: list[Object], bindings: list[Object], user: User) -> set[int]:
    """Go through all rules for each question, as the documentation tells it."""
    rules = [
        (one["metadata"].get("namespace", ""), each)
        for one in bindings
        if any(meant(subject, user) for subject in one["subjects"])
        for each in bound(one, roles)
    ]
    return {
        number
        for number, asked in enumerate(ASKED)
        if any(
            where in ("", asked.namespace) and matches(each, asked, bool(where))
            for where, each in rules
        )
    }


def meant(subject: Object, user: User) -> bool:
    match subject["kind"]:
        case "User":
            return bool(subject["name"] == user.name)
        case "Group":
            return subject["name"] in user.groups
        case _:
            name = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            return name == user.name


def bound(one: Object, roles: list[Object]) -> Iterator[Object]:
    kind, name = one["roleRef"]["kind"], one["roleRef"]["name"]
    inside = one["metadata"].get("namespace", "") if kind == "Role" else ""
    for each in roles:
        if place_of(each) == (kind, inside, name):
            yield from gathered(each, roles, [])


def gathered(one: Object, roles: list[Object], path: list[str]) -> Iterator[Object]:
    name = one["metadata"]["name"]
    if "aggregationRule" not in one:
        yield from one["rules"]
        return
    for other in roles:
        labels = other["metadata"].get("labels", {}).items()
        selectors = one["aggregationRule"]["clusterRoleSelectors"]
        chosen = any(each["matchLabels"].items() <= labels for each in selectors)
        if other["kind"] == "ClusterRole" and chosen and other["metadata"]["name"] not in path:
            yield from gathered(other, roles, [*path, name])


def matches(one: Object, asked: Attributes, inside: bool) -> bool:
    if not {"*", asked.verb} & {*one["verbs"]}:
        return False
    if asked.path is not None:
        return not inside and any(
            asked.path.startswith(url[:-1]) if url.endswith("*") else asked.path == url
            for url in one.get("nonResourceURLs", ())
        )
    resource = "/".join(filter(None, (asked.resource, asked.subresource)))
    resources = {"*", resource, *([f"*/{asked.subresource}"] if asked.subresource else [])}
    names = one.get("resourceNames") or [asked.name]
    return (
        bool({"*", asked.group} & {*one.get("apiGroups", ())})
        and bool(resources & {*one.get("resources", ())})
        and asked.name in names
    )


@settings(deadline=None)
@given(POLICIES, USERS)
def test_a_user_may_do_what_going_through_all_rules_allows(
    policy: tuple[list[Object], list[Object]], user: User
) -> None:
    roles, bindings = policy
    assert allowed_by(authorizer(*roles, *bindings), user) == oracle(roles, bindings, user)


@settings(deadline=None, max_examples=50)
@given(POLICIES, A_BINDING, USERS)
def test_a_binding_that_is_added_takes_nothing_away(
    policy: tuple[list[Object], list[Object]], added: Object, user: User
) -> None:
    objects = [*policy[0], *policy[1]]
    before, after = authorizer(*objects), authorizer(*objects, added)
    assert allowed_by(before, user) <= allowed_by(after, user)


@settings(deadline=None, max_examples=50)
@given(some(*VERBS, least=1), some(*GROUPS, least=1), some(*RESOURCES, least=1), some("n", "m"))
def test_a_rule_without_wildcards_allows_the_product_of_its_lists(
    verbs: list[str], groups: list[str], resources: list[str], names: list[str]
) -> None:
    one = rule(*verbs, groups=groups, on=resources, resourceNames=names)
    product_of_lists = {
        number
        for number, asked in enumerate(ASKED)
        if (asked.verb, asked.group, asked.name) in {*product(verbs, groups, names or NAMES)}
        and "/".join(filter(None, (asked.resource, asked.subresource))) in resources
    }
    assert allowed_by(authorizer(role(one), binding(person("ann"))), ANN) == product_of_lists


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, 0, 1.5, "", "x", "*", [], {}]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=4,
)


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Return the path of everything in an object."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in items:
        yield (step,)
        if isinstance(inner, dict | list):
            yield from ((step, *rest) for rest in places(inner))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new) if path[1:] else new
    return copy


SOUND = [
    role(rule("get", on=["pods"], resourceNames=["n"]), urls("/a"), labels={"a": "1"}),
    gathering(
        {"matchLabels": {"a": "1"}},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]},
    ),
    binding(person("ann"), group("wlm"), account("dm", "here"), namespace="here"),
    binding(person("ann"), of="s"),
]
BROKEN = [(one, path) for one in SOUND for path in places(one) if path[0] != "kind"]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(BROKEN), ANYTHING)
def test_what_is_not_of_its_form_grants_no_more_and_spoils_nothing_for_others(
    broken: tuple[Object, tuple[Any, ...]], value: Any
) -> None:
    whole, path = broken
    others = [each for each in SOUND if each is not whole]
    others += [role(READ, name="own"), binding(person("bob"), of="own")]
    found = authorizer(*others, replaced(whole, path, value))

    assert found.allows(BOB, to("get", "servers"))
    for user in (ANN, BOB):
        allowed_by(found, user)
        found.reason(user, to("get", "pods"))
        found.rules(user, "here")


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": 1},
        {"metadata": {"labels": {"a": 1}}},
        {"rules": "all"},
        {"rules": [READ, "all"]},
        {"rules": [READ, {**READ, "verbs": "get"}]},
        {"rules": [READ, {**READ, "resources": [1]}]},
        {"rules": [READ, {**READ, "resourceNames": {}}]},
        {"aggregationRule": []},
        {"aggregationRule": {"clusterRoleSelectors": [None]}},
    ],
)
def test_a_role_that_is_not_of_its_form_grants_nothing_at_all(change: Object) -> None:
    assert where_allowed({**role(READ), **change}, binding(person("ann"))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": None},
        {"roleRef": None},
        {"roleRef": {"kind": "Workflow", "name": "r"}},
        {"roleRef": {"apiGroup": "x", "kind": "ClusterRole", "name": "r"}},
        {"subjects": person("ann")},
        {"subjects": [person("ann"), {"kind": "Cat", "name": "tom"}]},
        {"subjects": [person("ann"), {"kind": "User"}]},
        {"subjects": [{**person("ann"), "apiGroup": "x"}]},
    ],
)
def test_a_binding_that_is_not_of_its_form_grants_nothing_at_all(change: Object) -> None:
    assert where_allowed(role(READ), {**binding(person("ann")), **change}) == []


def test_null_is_as_good_as_nothing() -> None:
    nothing = {"namespace": None, "labels": None}
    whole = [role(READ), binding({**person("ann"), "apiGroup": None})]
    empty = [{**role(name="s"), "rules": None}, {**binding(of="s"), "subjects": None}]
    assert where_allowed(*({**one, "metadata": {**one["metadata"], **nothing}} for one in whole),
                         *empty) == [*SERVERS]  # fmt: skip


# What may be handed out

MAY_WRITE = rule("create", "update", on=["*"], groups=[RBAC])


def holder(*rules: Object, namespace: str = "") -> Authorizer:
    """Return who answers where ann holds these rules, and bob what is in role `other`."""
    return authorizer(
        role(*rules, MAY_WRITE, name="held"),
        binding(person("ann"), of="held", name="held", namespace=namespace),
        role(rule("patch", "get", on=["servers"]), name="other"),
    )


HANDED: list[tuple[list[Object], Object, list[str]]] = [
    ([READ], READ, []),
    ([rule("*", on=["servers"])], READ, []),
    ([rule("get", on=["*"])], READ, []),
    ([rule("get", on=["servers"], groups=["*"])], READ, []),
    ([rule("get", on=["*/status"])], rule("get", on=["servers/status"]), []),
    ([READ, rule("list", on=["servers"])], rule("get", "list", on=["servers"]), []),
    ([urls("/api/*")], urls("/api/v1", "/api/v*"), []),
    ([urls("*", verbs=["*"])], urls("/api/*", "*"), []),
    ([READ], rule("get", on=["servers"], resourceNames=["a"]), []),
    (
        [],
        rule("patch", "get", on=["servers", "computes"]),
        [
            f'{{APIGroups:["{DWS}"], Resources:["computes"], Verbs:["get" "patch"]}}',
            f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["get" "patch"]}}',
        ],
    ),
    (
        [READ],
        rule("patch", "get", on=["servers"]),
        [f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["patch"]}}'],
    ),
    (
        [READ],
        rule("*", on=["servers"]),
        [f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["*"]}}'],
    ),
    (
        [READ],
        rule("get", on=["*"]),
        [f'{{APIGroups:["{DWS}"], Resources:["*"], Verbs:["get"]}}'],
    ),
    (
        [rule("get", on=["pods/status"])],
        rule("get", on=["*/status"]),
        [f'{{APIGroups:["{DWS}"], Resources:["*/status"], Verbs:["get"]}}'],
    ),
    (
        [rule("get", on=["servers"], resourceNames=["a"])],
        rule("get", on=["servers"], resourceNames=["a", "b"]),
        [f'{{APIGroups:["{DWS}"], Resources:["servers"], ResourceNames:["b"], Verbs:["get"]}}'],
    ),
    (
        [rule("get", on=["servers"], resourceNames=["a", ""])],
        READ,
        [f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["get"]}}'],
    ),
    (
        [urls("/api/v1")],
        urls("/api/*"),
        ['{NonResourceURLs:["/api/*"], Verbs:["get"]}'],
    ),
]


@pytest.mark.parametrize(("held", "wanted", "missing"), HANDED)
def test_a_role_can_be_written_with_rules_that_its_writer_has(
    held: list[Object], wanted: Object, missing: list[str]
) -> None:
    assert holder(*held).escalated_permissions(ANN, CLUSTER_ROLE, role(wanted)) == missing


@pytest.mark.parametrize(("held", "wanted", "missing"), HANDED)
def test_a_role_can_be_bound_by_who_has_its_rules(
    held: list[Object], wanted: Object, missing: list[str]
) -> None:
    found = authorizer(
        role(*held, name="held"),
        binding(person("ann"), of="held", name="held"),
        role(wanted, name="other"),
    )
    made = binding(person("bob"), of="other")
    assert found.escalated_permissions(ANN, CLUSTER_ROLE_BINDING, made) == missing


def test_masters_hand_out_what_they_like() -> None:
    everything = role(rule("*", on=["*"], groups=["*"]))
    assert holder().escalated_permissions(ROOT, CLUSTER_ROLE, everything) == []
    assert holder().escalated_permissions(ROOT, CLUSTER_ROLE_BINDING, binding(of="nowhere")) == []


def test_what_is_held_in_a_namespace_is_handed_out_there_alone() -> None:
    found = holder(READ, namespace="here")
    assert found.escalated_permissions(ANN, ROLE, role(READ, namespace="here")) == []
    assert found.escalated_permissions(ANN, ROLE, role(READ, namespace="there")) != []
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, role(READ)) != []


def test_a_role_that_names_no_namespace_is_written_to_the_default_one() -> None:
    nowhere = merge_patch(role(READ, namespace="x"), {"metadata": {"namespace": None}})
    assert holder(READ, namespace="default").escalated_permissions(ANN, ROLE, nowhere) == []
    assert holder(READ, namespace="here").escalated_permissions(ANN, ROLE, nowhere) != []


def test_an_update_is_judged_where_the_object_is_and_not_where_it_says_that_it_is() -> None:
    old = role(namespace="there")
    assert holder(READ, namespace="here").escalated_permissions(
        ANN, ROLE, role(READ, namespace="here"), old
    )


@pytest.mark.parametrize(("name", "kind"), [("clusterroles", CLUSTER_ROLE), ("roles", ROLE)])
def test_who_may_escalate_writes_any_role(name: str, kind: Kind) -> None:
    wanted = role(READ, namespace="here" if kind is ROLE else "")
    found = holder(rule("escalate", on=[name], groups=[RBAC]))
    assert found.escalated_permissions(ANN, kind, wanted) == []
    found = holder(rule("bind", on=[name], groups=[RBAC]))
    assert found.escalated_permissions(ANN, kind, wanted) != []


def test_who_may_escalate_a_role_by_name_may_update_it_but_not_create_it() -> None:
    found = holder(rule("escalate", on=["clusterroles"], groups=[RBAC], resourceNames=["r"]))
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, role(READ)) != []
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, role(READ), role()) == []
    assert (
        found.escalated_permissions(ANN, CLUSTER_ROLE, role(READ, name="s"), role(name="s")) != []
    )


def test_who_may_bind_a_role_binds_it_without_its_rules() -> None:
    found = holder(rule("bind", on=["clusterroles"], groups=[RBAC], resourceNames=["other"]))
    made = binding(person("bob"), of="other")
    assert found.escalated_permissions(ANN, CLUSTER_ROLE_BINDING, made) == []
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE_BINDING, made) != []


def test_who_may_bind_in_a_namespace_binds_there() -> None:
    found = holder(rule("bind", on=["clusterroles"], groups=[RBAC]), namespace="here")
    made = binding(person("bob"), of="other", namespace="here")
    assert found.escalated_permissions(ANN, ROLE_BINDING, made) == []
    assert (
        found.escalated_permissions(ANN, ROLE_BINDING, binding(of="other", namespace="there")) != []
    )
    assert found.escalated_permissions(ANN, CLUSTER_ROLE_BINDING, binding(of="other")) != []


def test_a_role_of_the_cluster_is_bound_where_its_rules_are_held() -> None:
    found = holder(rule("*", on=["servers"]), namespace="here")
    assert (
        found.escalated_permissions(ANN, ROLE_BINDING, binding(of="other", namespace="here")) == []
    )
    assert (
        found.escalated_permissions(ANN, ROLE_BINDING, binding(of="other", namespace="there")) != []
    )


def test_a_role_that_is_not_there_cannot_be_bound() -> None:
    with pytest.raises(NotFound, match=f'clusterroles.{RBAC} "nowhere" not found'):
        holder().escalated_permissions(ANN, CLUSTER_ROLE_BINDING, binding(of="nowhere"))
    with pytest.raises(NotFound, match=f'roles.{RBAC} "nowhere" not found'):
        holder().escalated_permissions(
            ANN, ROLE_BINDING, binding(of="nowhere", kind=ROLE, namespace="here")
        )


def test_only_who_has_everything_has_roles_gather_others() -> None:
    told = ["must have cluster-admin privileges to use the aggregationRule"]
    everything = [rule("*", on=["*"], groups=["*"]), urls("*", verbs=["*"])]
    without_escalate = rule("get", "patch", "create", "update", on=["*"], groups=["*"])
    found = holder(without_escalate)
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, gathering({})) == told
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, role(), gathering({})) == told
    assert found.escalated_permissions(ANN, CLUSTER_ROLE, role()) == []
    assert holder(*everything).escalated_permissions(ANN, CLUSTER_ROLE, gathering({})) == []


def test_what_only_is_to_go_is_not_handed_out() -> None:
    old = merge_patch(role(READ), {"metadata": {"finalizers": ["f"], "managedFields": [1]}})
    gone = merge_patch(old, {"metadata": {"finalizers": None, "managedFields": [2]}})
    owned = merge_patch(old, {"metadata": {"ownerReferences": [{"name": "x"}]}})
    labelled = merge_patch(old, {"metadata": {"labels": {"into": "view"}}})
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE, gone, old) == []
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE, owned, old) == []
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE, labelled, old) != []


def test_a_binding_that_only_is_to_go_may_have_lost_its_role() -> None:
    old = merge_patch(binding(of="nowhere"), {"metadata": {"finalizers": ["f"]}})
    gone = binding(of="nowhere")
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE_BINDING, gone, old) == []
    with pytest.raises(NotFound):
        holder().escalated_permissions(
            ANN, CLUSTER_ROLE_BINDING, {**gone, "subjects": [person("bob")]}, old
        )


def test_roles_of_namespaces_gather_nothing() -> None:
    inside = role(READ, namespace="here", aggregationRule={"clusterRoleSelectors": [{}]})
    everything = role(rule("*", on=["*"], groups=["*"]), name="other")
    bound_here = binding(person("ann"), kind=ROLE, namespace="here")
    assert holder(READ, namespace="here").escalated_permissions(ANN, ROLE, inside) == []
    assert where_allowed(inside, everything, bound_here) == ["here"]


def test_who_may_bind_roles_of_a_namespace_binds_them_and_no_others() -> None:
    inside = role(READ, namespace="here", name="other")
    made = {kind: binding(of="other", kind=kind, namespace="here") for kind in (ROLE, CLUSTER_ROLE)}
    found = authorizer(
        inside,
        role(READ, name="other"),
        role(rule("bind", on=["roles"], groups=[RBAC]), name="held"),
        binding(person("ann"), of="held", namespace="here"),
    )
    assert found.escalated_permissions(ANN, ROLE_BINDING, made[ROLE]) == []
    assert found.escalated_permissions(ANN, ROLE_BINDING, made[CLUSTER_ROLE]) != []


def test_what_is_missing_of_one_resource_is_told_once() -> None:
    wanted = role(rule("patch", "get", on=["servers"]), rule("list", "get", on=["servers"]))
    assert holder().escalated_permissions(ANN, CLUSTER_ROLE, wanted) == [
        f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["get" "list" "patch"]}}'
    ]


def test_objects_of_other_kinds_hand_out_nothing() -> None:
    assert holder().escalated_permissions(ANN, kinds.WORKFLOW, role(READ)) == []


@settings(deadline=None, max_examples=100)
@given(POLICIES, st.one_of(A_ROLE, A_BINDING), st.sampled_from([ANN, BOB]))
def test_what_a_user_may_write_gives_him_nothing_that_he_did_not_have(
    policy: tuple[list[Object], list[Object]], made: Object, user: User
) -> None:
    objects = [*policy[0], *policy[1]]
    found = authorizer(*objects)
    kind = next(kind for kind in KINDS if kind.name == made["kind"])
    try:
        if found.escalated_permissions(user, kind, made):
            return
    except NotFound:
        return
    where = made["metadata"].get("namespace", "")
    # Under a name of its own, and with labels that are not selected: then all that it could give is
    # what it hands out itself.
    added = [merge_patch(made, {"metadata": {"name": "new", "labels": None}})]
    if "roleRef" not in made:
        role_kind = ROLE if where else CLUSTER_ROLE
        added.append(binding(person(user.name), of="new", kind=role_kind, namespace=where))
    else:
        added = [{**added[0], "subjects": [person(user.name)]}]

    assert allowed_by(authorizer(*objects, *added), user) == allowed_by(found, user)


@settings(deadline=None)
@given(st.sampled_from(BROKEN), ANYTHING)
def test_what_is_not_of_its_form_can_be_judged(
    broken: tuple[Object, tuple[Any, ...]], value: Any
) -> None:
    whole, path = broken
    made = replaced(whole, path, value)
    kind = next(kind for kind in KINDS if kind.name == whole["kind"])
    found = holder()
    for old in (None, whole):
        try:
            told = found.escalated_permissions(ANN, kind, made, old)
        except NotFound:
            continue
        escalation_message(ANN, kind, "x", told)


# Sentences


def test_a_refusal_says_who_cannot_do_what_and_where() -> None:
    x = User("x")
    assert forbidden_message(x, to("get", "workflows", "default", "w")) == (
        'workflows.dataworkflowservices.github.io "w" is forbidden: User "x" cannot get resource '
        '"workflows" in API group "dataworkflowservices.github.io" in the namespace "default"'
    )
    assert forbidden_message(x, to("list", "nodes", of="")) == (
        'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" '
        "at the cluster scope"
    )
    assert forbidden_message(x, to("update", "workflows/status", "default", "w")) == (
        'workflows.dataworkflowservices.github.io "w" is forbidden: User "x" cannot update '
        'resource "workflows/status" in API group "dataworkflowservices.github.io" '
        'in the namespace "default"'
    )
    assert forbidden_message(x, at("/metrics")) == 'forbidden: User "x" cannot get path "/metrics"'


def test_a_refusal_says_which_roles_are_missing() -> None:
    found = authorizer(
        binding(person("x")), binding(group("g"), of="s", kind=ROLE, namespace="here")
    )
    x, asked = User("x", frozenset({"g"})), to("list", "nodes", of="")
    assert forbidden_message(x, asked, found.reason(x, asked)) == (
        'nodes is forbidden: User "x" cannot list resource "nodes" in API group "" '
        f'at the cluster scope: RBAC: clusterrole.{RBAC} "r" not found'
    )
    assert found.reason(x, to("get", "servers", "here")) == (
        f'RBAC: [clusterrole.{RBAC} "r" not found, role.{RBAC} "s" not found]'
    )
    assert found.reason(BOB, asked) == ""


def test_names_of_any_kind_can_be_told() -> None:
    strange = User('a"b\n\ud800é')
    assert forbidden_message(strange, at("/é")) == (
        'forbidden: User "a\\"b\\n\\ud800\\u00e9" cannot get path "/é"'
    )


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (binding(person("ann")), 'ClusterRoleBinding "b" of ClusterRole "r" to User "ann"'),
        (
            binding(group("wlm"), namespace="here"),
            'RoleBinding "b/here" of ClusterRole "r" to Group "wlm"',
        ),
    ],
)
def test_what_is_allowed_has_a_reason(made: Object, reason: str) -> None:
    found = authorizer(role(READ), made)
    assert found.reason(ANN, to("get", "servers", "here")) == f"RBAC: allowed by {reason}"


def test_the_reason_for_an_account_tells_its_namespace() -> None:
    found = authorizer(role(READ, namespace="here"), binding(account("dm", "nnf"), kind=ROLE,
                                                             namespace="here"))  # fmt: skip
    assert found.reason(service_account("nnf", "dm"), to("get", "servers", "here")) == (
        'RBAC: allowed by RoleBinding "b/here" of Role "r" to ServiceAccount "dm/nnf"'
    )


def test_the_first_reason_is_what_is_bound_in_the_whole_cluster() -> None:
    found = authorizer(
        role(READ), binding(person("ann"), namespace="here"), binding(group("wlm"), name="c")
    )
    assert found.reason(ANN, to("get", "servers", "here")) == (
        'RBAC: allowed by ClusterRoleBinding "c" of ClusterRole "r" to Group "wlm"'
    )


def test_masters_need_no_reason() -> None:
    assert authorizer().reason(ROOT, at("/x")) == ""


def test_an_escalation_is_told_as_kubernetes_tells_it() -> None:
    missing = holder().escalated_permissions(ANN, CLUSTER_ROLE, role(READ, urls("/x")))
    assert escalation_message(ANN, CLUSTER_ROLE, "r", missing) == (
        f'clusterroles.{RBAC} "r" is forbidden: user "ann" (groups=["system:authenticated" "wlm"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        f'{{APIGroups:["{DWS}"], Resources:["servers"], Verbs:["get"]}}\n'
        '{NonResourceURLs:["/x"], Verbs:["get"]}'
    )
    missing = holder().escalated_permissions(ANN, CLUSTER_ROLE, gathering({}))
    assert escalation_message(ANN, CLUSTER_ROLE, "r", missing) == (
        f'clusterroles.{RBAC} "r" is forbidden: '
        "must have cluster-admin privileges to use the aggregationRule"
    )


# The rules of a user


def test_the_rules_of_a_user_are_those_of_the_cluster_and_of_the_namespace() -> None:
    found = authorizer(
        role(READ, urls("/x")),
        binding(person("ann")),
        binding(group("wlm"), name="again"),
        role(rule("list", on=["servers"]), urls("/y"), name="here", namespace="here"),
        binding(person("ann"), of="here", kind=ROLE, namespace="here"),
        binding(person("bob"), of="here", kind=ROLE, namespace="here", name="bobs"),
    )
    everywhere = [
        PolicyRule(verbs=("get",), api_groups=(DWS,), resources=("servers",)),
        PolicyRule(verbs=("get",), non_resource_urls=("/x",)),
    ]
    inside = PolicyRule(verbs=("list",), api_groups=(DWS,), resources=("servers",))
    assert found.rules(ANN, "there") == everywhere
    assert [one for one in found.rules(ANN, "here") if one.resources] == [everywhere[0], inside]
    assert [one.non_resource_urls for one in found.rules(ANN, "here")] == [(), ("/x",), (), ()]


def test_the_rules_of_a_master_are_everything() -> None:
    assert list(map(str, authorizer().rules(ROOT, "here"))) == [
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
        '{NonResourceURLs:["*"], Verbs:["*"]}',
    ]


# A bare cluster


def in_a_bare_cluster(user: User, *asked: Attributes) -> list[bool]:
    made = [binding(person("viewer"), of="view", namespace="here", name="viewer")]
    made += [binding(person("editor"), of="edit", namespace="here", name="editor")]
    made += [binding(person("admin"), of="admin", namespace="here", name="admin")]
    found = authorizer(*default_roles(), *made)
    return [found.allows(user, each) for each in asked]


def test_every_default_is_there_once_and_refers_to_what_is_there() -> None:
    found = default_roles()
    places = [(each["kind"], each["metadata"]["name"]) for each in found]
    assert len({*places}) == len(places)
    for each in found:
        if "roleRef" in each:
            assert ("ClusterRole", each["roleRef"]["name"]) in places


def test_every_known_user_may_look_around_and_ask_about_themselves() -> None:
    known = User("ann", frozenset({AUTHENTICATED}))
    paths = ("/api", "/apis", "/apis/x/v1", "/openapi/v3", "/version", "/healthz", "/readyz")
    reviews = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")
    assert all(in_a_bare_cluster(known, *map(at, paths)))
    assert all(
        in_a_bare_cluster(
            known,
            *(to("create", each, of="authorization.k8s.io") for each in reviews),
            to("create", "selfsubjectreviews", of="authentication.k8s.io"),
        )
    )
    assert not any(
        in_a_bare_cluster(
            known,
            at("/metrics"),
            at("/api", "post"),
            to("create", "subjectaccessreviews", of="authorization.k8s.io"),
            to("list", "namespaces", of=""),
        )
    )


def test_who_is_not_known_may_ask_for_health_and_version_alone() -> None:
    health = ("/healthz", "/livez", "/readyz", "/version", "/version/")
    assert all(in_a_bare_cluster(ANONYMOUS, *map(at, health)))
    review = to("create", "selfsubjectaccessreviews", of="authorization.k8s.io")
    assert not any(in_a_bare_cluster(ANONYMOUS, at("/api"), at("/apis"), review))


def test_viewers_editors_and_admins_may_each_do_more() -> None:
    asked = (
        to("list", "configmaps", "here", of=""),
        to("get", "secrets", "here", of=""),
        to("patch", "configmaps", "here", of=""),
        to("create", "rolebindings", "here", of=RBAC),
        to("list", "configmaps", "there", of=""),
        to("create", "rolebindings", "there", of=RBAC),
    )
    assert in_a_bare_cluster(User("viewer"), *asked) == [True, *[False] * 5]
    assert in_a_bare_cluster(User("editor"), *asked) == [*[True] * 3, *[False] * 3]
    assert in_a_bare_cluster(User("admin"), *asked) == [*[True] * 4, *[False] * 2]


def test_a_kind_joins_the_viewers_by_a_label() -> None:
    labels = {f"{RBAC}/aggregate-to-view": "true"}
    for name, verb in product(("view", "edit", "admin"), ("get", "patch")):
        found = authorizer(
            *default_roles(), role(READ, name="dws", labels=labels), binding(person("ann"), of=name)
        )
        assert found.allows(ANN, to(verb, "servers")) is (verb == "get")


def test_an_admin_of_a_namespace_hands_out_what_he_has_there() -> None:
    found = authorizer(*default_roles(), binding(person("ann"), of="admin", namespace="here"))
    made = {of: binding(person("bob"), of=of, namespace="here") for of in ("edit", "cluster-admin")}
    assert found.escalated_permissions(ANN, ROLE_BINDING, made["edit"]) == []
    assert found.escalated_permissions(ANN, ROLE_BINDING, made["cluster-admin"]) != []
