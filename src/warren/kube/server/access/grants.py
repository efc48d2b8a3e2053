"""What roles and bindings say: which rules are granted to which users, and where.

An object that is not of the form of its kind grants nothing, and spoils nothing for the others.
The user that asks, and what for, is not known here.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Annotated, Final, Literal

import msgspec

from warren.base.objects import Object
from warren.kube.server.selectors import LabelSelector, Operator, Requirement

RBAC: Final = "rbac.authorization.k8s.io"


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a role allows: every verb on every resource of every group, or on every URL."""

    verbs: tuple[str, ...]
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    """Empty for all objects, also for those that have no name yet."""
    non_resource_urls: tuple[str, ...] = ()

    def parts(self) -> Iterator["PolicyRule"]:
        """Return the same as rules of one resource of one group, or of one URL, each."""
        names: list[tuple[str, ...]] = [(name,) for name in self.resource_names] or [()]
        for group, resource, name in product(self.api_groups, self.resources, names):
            yield PolicyRule(
                verbs=self.verbs, api_groups=(group,), resources=(resource,), resource_names=name
            )
        for url in self.non_resource_urls:
            yield PolicyRule(verbs=self.verbs, non_resource_urls=(url,))

    def __str__(self) -> str:
        fields = {
            "APIGroups": self.api_groups,
            "Resources": self.resources,
            "NonResourceURLs": self.non_resource_urls,
            "ResourceNames": self.resource_names,
            "Verbs": self.verbs,
        }
        field_texts = [f"{name}:{quoted_list(values)}" for name, values in fields.items() if values]
        return f"{{{', '.join(field_texts)}}}"


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a Role or of a ClusterRole."""

    namespace: str
    name: str
    labels: dict[str, str]
    rules: tuple[PolicyRule, ...]
    aggregation_selectors: tuple[LabelSelector, ...] | None
    """Which roles it aggregates: then its own rules do not count. None where it does not."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What matters of a RoleBinding or of a ClusterRoleBinding."""

    namespace: str
    name: str
    role_kind: str
    role_name: str
    subjects: tuple[tuple["Subject", str], ...]
    """Each with how messages name it."""


Subject = tuple[Literal["User", "Group"], str]
"""A user or a group. A ServiceAccount is the user that it authenticates as."""


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What one binding gives to one subject."""

    namespace: str
    """Empty for the whole cluster."""
    rules: tuple[PolicyRule, ...] | None
    """None where the role is not there."""
    role_description: str
    """The role, as messages name it where it is not there."""
    description: str
    """The binding, its role and its subject, as messages name them."""


class Policy:
    """All that roles and bindings say at one time."""

    def __init__(
        self,
        *,
        roles: Iterable[Object],
        cluster_roles: Iterable[Object],
        role_bindings: Iterable[Object],
        cluster_role_bindings: Iterable[Object],
    ) -> None:
        self._rules_by_role = dict(_rules_by_role(roles, cluster_roles))
        self._grants_by_subject: dict[Subject, list[Grant]] = {}
        for obj in cluster_role_bindings:
            binding = read_binding(obj)
            if binding is not None:
                self._add_grants("ClusterRoleBinding", "", binding)
        for obj in role_bindings:
            binding = read_binding(obj)
            # One that is in no namespace must not become one of the whole cluster.
            if binding is not None and binding.namespace:
                self._add_grants("RoleBinding", binding.namespace, binding)

    def grants(self, user: str, groups: Iterable[str]) -> list[Grant]:
        """Return what is granted to a user, or to one of its groups; of the whole cluster first."""
        subjects: list[Subject] = [("User", user), *(("Group", group) for group in sorted(groups))]
        found = [
            grant for subject in subjects for grant in self._grants_by_subject.get(subject, ())
        ]
        return sorted(found, key=lambda grant: grant.namespace)

    def rules_bound(self, binding: Binding, namespace: str) -> tuple[PolicyRule, ...] | None:
        """Return the rules of the role that a binding means in a namespace; None without a role."""
        role_namespace = namespace if binding.role_kind == "Role" else ""
        return self._rules_by_role.get((binding.role_kind, role_namespace, binding.role_name))

    def _add_grants(self, kind: str, namespace: str, binding: Binding) -> None:
        rules = self.rules_bound(binding, namespace)
        name = f"{binding.name}/{namespace}" if namespace else binding.name
        role = quoted(binding.role_name)
        for subject, description in binding.subjects:
            grant = Grant(
                namespace=namespace,
                rules=rules,
                role_description=f"{binding.role_kind.lower()}.{RBAC} {role}",
                description=f"{kind} {quoted(name)} of {binding.role_kind} {role} to {description}",
            )
            self._grants_by_subject.setdefault(subject, []).append(grant)


def _rules_by_role(
    roles: Iterable[Object], cluster_roles: Iterable[Object]
) -> Iterator[tuple[tuple[str, str, str], tuple[PolicyRule, ...]]]:
    """Return the rules of each role by its kind, namespace and name."""
    for obj in roles:
        role = read_role(obj)
        # One without a namespace is of no use: a binding of the whole cluster would find it.
        if role is not None and role.namespace:
            yield ("Role", role.namespace, role.name), role.rules
    readable_cluster_roles = [role for role in map(read_role, cluster_roles) if role is not None]
    for role in readable_cluster_roles:
        yield ("ClusterRole", "", role.name), _aggregated_rules(role, readable_cluster_roles)


def _aggregated_rules(role: Role, cluster_roles: Iterable[Role]) -> tuple[PolicyRule, ...]:
    """Return the rules of a role, or of all that it aggregates, which may aggregate others."""
    rules: dict[PolicyRule, None] = {}
    role_queue, seen_names = [role], {role.name}
    for each in role_queue:
        if each.aggregation_selectors is None:
            rules.update(dict.fromkeys(each.rules))
            continue
        for other in cluster_roles:
            chosen = any(selector.matches(other.labels) for selector in each.aggregation_selectors)
            if chosen and other.name not in seen_names:
                seen_names.add(other.name)
                role_queue.append(other)
    return tuple(rules)


# Forms of objects. A null is a field that is not there.

_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Names = tuple[str, ...] | None
_Group = Literal["", "rbac.authorization.k8s.io"]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str | None = None
    labels: dict[str, str | None] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    verbs: _Names = None
    api_groups: _Names = None
    resources: _Names = None
    resource_names: _Names = None
    non_resource_urls: _Names = msgspec.field(name="nonResourceURLs", default=None)


class _Expression(msgspec.Struct):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: _Names = None

    def __post_init__(self) -> None:
        # Not to be passed over: what is asked to be in no set at all would be everything.
        if bool(self.values) is not (self.operator in ("In", "NotIn")):
            raise ValueError(f"{self.operator} does not go with these values")


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str | None] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Aggregation(msgspec.Struct, rename="camel"):
    cluster_role_selectors: tuple[_Selector, ...] | None = None


class _Role(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    rules: tuple[_Rule, ...] | None = None
    aggregation_rule: _Aggregation | None = None


class _Reference(msgspec.Struct, rename="camel"):
    kind: Literal["Role", "ClusterRole"]
    name: _Name
    api_group: _Group | None = None


class _User(msgspec.Struct, rename="camel", tag_field="kind", tag="User"):
    name: _Name
    api_group: _Group | None = None


class _UserGroup(msgspec.Struct, rename="camel", tag_field="kind", tag="Group"):
    name: _Name
    api_group: _Group | None = None


class _Account(msgspec.Struct, rename="camel", tag_field="kind", tag="ServiceAccount"):
    name: _Name
    namespace: str | None = None
    api_group: Literal[""] | None = None


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    role_ref: _Reference
    subjects: tuple[_User | _UserGroup | _Account, ...] | None = None


_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


def read_role(obj: Object) -> Role | None:
    """Read a Role or a ClusterRole; None where it does not have the form of one."""
    try:
        form = msgspec.convert(obj, _Role)
    except msgspec.ValidationError:
        return None
    aggregation = form.aggregation_rule
    return Role(
        namespace=form.metadata.namespace or "",
        name=form.metadata.name,
        labels=_labels(form.metadata.labels),
        rules=tuple(map(_rule, form.rules or ())),
        aggregation_selectors=(
            None
            if aggregation is None
            else tuple(map(_selector, aggregation.cluster_role_selectors or ()))
        ),
    )


def read_binding(obj: Object) -> Binding | None:
    """Read a RoleBinding or a ClusterRoleBinding; None where it does not have the form of one."""
    try:
        form = msgspec.convert(obj, _Binding)
    except msgspec.ValidationError:
        return None
    namespace = form.metadata.namespace or ""
    subjects = (_subject(each, namespace) for each in form.subjects or ())
    return Binding(
        namespace=namespace,
        name=form.metadata.name,
        role_kind=form.role_ref.kind,
        role_name=form.role_ref.name,
        subjects=tuple(each for each in subjects if each is not None),
    )


def _rule(form: _Rule) -> PolicyRule:
    return PolicyRule(
        verbs=form.verbs or (),
        api_groups=form.api_groups or (),
        resources=form.resources or (),
        resource_names=form.resource_names or (),
        non_resource_urls=form.non_resource_urls or (),
    )


def _selector(form: _Selector) -> LabelSelector:
    equal = [
        Requirement(key, Operator.EQUALS, (value,))
        for key, value in _labels(form.match_labels).items()
    ]
    expressions = [
        Requirement(each.key, _OPERATORS[each.operator], each.values or ())
        for each in form.match_expressions or ()
    ]
    return LabelSelector((*equal, *expressions))


def _labels(form: dict[str, str | None] | None) -> dict[str, str]:
    return {key: value or "" for key, value in (form or {}).items()}


def _subject(form: _User | _UserGroup | _Account, namespace: str) -> tuple[Subject, str] | None:
    """Return a subject, and the words for it; None for an account of no namespace."""
    match form:
        case _User():
            return ("User", form.name), f"User {quoted(form.name)}"
        case _UserGroup():
            return ("Group", form.name), f"Group {quoted(form.name)}"
        case _Account():
            account_namespace = form.namespace or namespace
            description = f"ServiceAccount {quoted(f'{form.name}/{account_namespace}')}"
            return (
                (("User", service_account_name(account_namespace, form.name)), description)
                if account_namespace
                else None
            )


def service_account_name(namespace: str, name: str) -> str:
    """Return the name of the user that a ServiceAccount authenticates as."""
    return f"system:serviceaccount:{namespace}:{name}"


# Spelling


def quoted_list(values: Iterable[str]) -> str:
    """Spell texts as Kubernetes does in its sentences."""
    return f"[{' '.join(map(quoted, values))}]"


def quoted(text: str) -> str:
    """Spell a text within a sentence."""
    # What a client sends need not be text that can be shown, or even encoded.
    return json.dumps(text, ensure_ascii=not text.isprintable())
