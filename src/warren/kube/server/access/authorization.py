"""Role-based access control (RBAC): which users may do what, as in Kubernetes.

The module reads roles and bindings through a function that it is given, and answers. It knows
nothing of requests, and takes a user as it is told. An object that is not of the form of its kind
grants nothing, and spoils nothing for the others.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.objects import Kind, Object
from warren.kube.admission import User
from warren.kube.client import NotFound
from warren.kube.server.access.grants import (
    RBAC,
    Policy,
    PolicyRule,
    quoted,
    quoted_list,
    read_binding,
    read_role,
    service_account_name,
)

ROLE: Final = Kind(RBAC, "v1", "Role", "roles")
CLUSTER_ROLE: Final = Kind(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
ROLE_BINDING: Final = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE_BINDING: Final = Kind(
    RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
KINDS: Final = (ROLE, CLUSTER_ROLE, ROLE_BINDING, CLUSTER_ROLE_BINDING)

MASTERS: Final = "system:masters"
"""The group that may do everything, whatever roles say."""
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"

_MAX_USERS: Final = 1024
"""Users whose grants are kept compiled. Any user may be asked about, so there must be an end."""

Lister = Callable[[Kind], Iterable[Object]]
"""Returns all stored objects of a kind."""


ANONYMOUS: Final = User("system:anonymous", frozenset({UNAUTHENTICATED}))
"""The user of requests without credentials."""


def service_account(namespace: str, name: str) -> User:
    """Return the user that a ServiceAccount authenticates as."""
    all_of_them = "system:serviceaccounts"
    groups = frozenset({all_of_them, f"{all_of_them}:{namespace}", AUTHENTICATED})
    return User(service_account_name(namespace, name), groups)


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: a verb on resources, or on a `path` and nothing else."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    """Empty for cluster-wide kinds, and for all namespaces at once."""
    path: str | None = None


_EVERYTHING: Final = (
    PolicyRule(verbs=("*",), api_groups=("*",), resources=("*",)),
    PolicyRule(verbs=("*",), non_resource_urls=("*",)),
)


class Authorizer:
    """Answers for the roles and bindings that are stored."""

    def __init__(self, list_objects: Lister) -> None:
        self._policy = cache(lambda: _read_policy(list_objects))
        self._scopes_of = lru_cache(maxsize=_MAX_USERS)(self._compile)

    def forget_policy(self) -> None:
        """Forget what was read. To be called whenever an object of one of `KINDS` has changed."""
        self._policy.cache_clear()
        self._scopes_of.cache_clear()

    def allows(self, user: User, attributes: Attributes) -> bool:
        """Return whether a user may do something."""
        if MASTERS in user.groups:
            return True
        scopes = self._scopes_of(user)
        if scopes[""].allows(attributes):
            return True
        namespace_scope = scopes.get(attributes.namespace) if attributes.namespace else None
        return namespace_scope is not None and namespace_scope.allows(attributes)

    def reason(self, user: User, attributes: Attributes) -> str:
        """Return which binding allows something, or which roles are missing, if that is why not.

        For reviews: it takes much longer than `allows`.
        """
        if MASTERS in user.groups:
            return ""
        applicable_grants = [
            grant
            for grant in self._policy().grants(user.name, user.groups)
            if grant.namespace in ("", attributes.namespace)
        ]
        for grant in applicable_grants:
            if _Scope(grant.rules or ()).allows(attributes):
                return f"RBAC: allowed by {grant.description}"
        missing = sorted(
            {
                f"{grant.role_description} not found"
                for grant in applicable_grants
                if grant.rules is None
            }
        )
        if len(missing) > 1:
            return f"RBAC: [{', '.join(missing)}]"
        return "".join(f"RBAC: {each}" for each in missing)

    def rules(self, user: User, namespace: str) -> list[PolicyRule]:
        """Return all that a user may do in a namespace."""
        if MASTERS in user.groups:
            return list(_EVERYTHING)
        # A path is in no namespace: what a namespace's binding says of paths it cannot grant.
        unique_rules = {
            replace(rule, non_resource_urls=()) if grant.namespace else rule: None
            for grant in self._policy().grants(user.name, user.groups)
            if grant.namespace in ("", namespace)
            for rule in grant.rules or ()
        }
        return list(unique_rules)

    def escalated_permissions(
        self, user: User, kind: Kind, obj: Object, old: Object | None = None
    ) -> list[str]:
        """Return what a user would hand out with a role or a binding and does not have.

        `old` is what the object takes the place of. Objects of other kinds hand out nothing.
        Raises NotFound where the role is not there that is to be bound.
        """
        if MASTERS in user.groups:
            return []
        if kind in (ROLE, CLUSTER_ROLE):
            return self._escalated_by_role(user, kind, obj, old)
        if kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
            return self._escalated_by_binding(user, kind, obj, old)
        return []

    def _escalated_by_role(
        self, user: User, kind: Kind, obj: Object, old: Object | None
    ) -> list[str]:
        role = read_role(obj)
        if role is None or _comparable(obj) == _comparable(old):
            return []
        namespace = _namespace_of(kind, role.namespace, old)
        # A create request names nothing yet: leave by name is for what is there.
        name = "" if old is None else role.name
        attributes = Attributes(
            verb="escalate", group=RBAC, resource=kind.plural, name=name, namespace=namespace
        )
        if self.allows(user, attributes):
            return []
        missing = self._missing(user, namespace, role.rules)
        if missing or kind != CLUSTER_ROLE:
            return missing
        # What it will aggregate is not known, nor what it has aggregated so far. A user who may do
        # everything may escalate, and does not come here.
        old_role = None if old is None else read_role(old)
        aggregates = role.aggregation_selectors is not None or (
            old_role is not None and old_role.aggregation_selectors is not None
        )
        return [_NEEDS_CLUSTER_ADMIN] if aggregates else []

    def _escalated_by_binding(
        self, user: User, kind: Kind, obj: Object, old: Object | None
    ) -> list[str]:
        binding = read_binding(obj)
        if binding is None or _comparable(obj) == _comparable(old):
            return []
        namespace = _namespace_of(kind, binding.namespace, old)
        bound = ROLE if binding.role_kind == ROLE.name else CLUSTER_ROLE
        name = binding.role_name
        attributes = Attributes(
            verb="bind", group=RBAC, resource=bound.plural, name=name, namespace=namespace
        )
        if self.allows(user, attributes):
            return []
        rules = self._policy().rules_bound(binding, namespace)
        if rules is None:
            raise NotFound(f"{bound} {quoted(name)} not found")
        return self._missing(user, namespace, rules)

    def _missing(self, user: User, namespace: str, rules: Iterable[PolicyRule]) -> list[str]:
        """Return what of these rules a user does not have in a namespace."""
        scopes = self._scopes_of(user)
        applicable_scopes = [scopes[""]]
        if namespace and namespace in scopes:
            applicable_scopes.append(scopes[namespace])
        missing: dict[PolicyRule, set[str]] = {}
        for rule in rules:
            for part in rule.parts():
                lacking = {
                    verb
                    for verb in part.verbs
                    if not any(scope.has(verb, part) for scope in applicable_scopes)
                }
                if lacking:
                    missing.setdefault(replace(part, verbs=()), set()).update(lacking)
        return sorted(
            str(replace(part, verbs=tuple(sorted(verbs)))) for part, verbs in missing.items()
        )

    def _compile(self, user: User) -> Mapping[str, "_Scope"]:
        """Return what a user may do by namespace, and under the empty name everywhere."""
        rules: dict[str, list[PolicyRule]] = {"": []}
        for grant in self._policy().grants(user.name, user.groups):
            rules.setdefault(grant.namespace, []).extend(grant.rules or ())
        return {namespace: _Scope(granted) for namespace, granted in rules.items()}


# Compiled rules


class _Verbs:
    """The verbs for one resource of one group: those for all its objects, and those by name."""

    __slots__ = ("by_name", "for_all_objects")

    def __init__(self) -> None:
        self.for_all_objects: set[str] = set()
        self.by_name: dict[str, set[str]] = {}

    def allows(self, verb: str, name: str | None) -> bool:
        """Return whether a verb is allowed; without a name, whether it is for all objects."""
        if verb in self.for_all_objects or "*" in self.for_all_objects:
            return True
        verbs_by_name = None if name is None else self.by_name.get(name)
        return verbs_by_name is not None and (verb in verbs_by_name or "*" in verbs_by_name)


class _Scope:
    """Rules, filed so that a request looks at a few of them however many there are."""

    def __init__(self, rules: Iterable[PolicyRule]) -> None:
        self._verbs_by_resource: dict[tuple[str, str], _Verbs] = {}
        self._verbs_by_path: dict[str, set[str]] = {}
        self._verbs_by_prefix: dict[str, set[str]] = {}
        for rule in rules:
            self._index(rule)

    def allows(self, attributes: Attributes) -> bool:
        if attributes.path is not None:
            return self._allows_path(attributes.verb, attributes.path)
        return self._allows_resource(
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
            attributes.name,
        )

    def has(self, verb: str, part: PolicyRule) -> bool:
        """Return whether all that a part of a rule says is allowed; a `*` is by a `*` alone."""
        if part.non_resource_urls:
            return self._allows_path(verb, part.non_resource_urls[0])
        resource, _, subresource = part.resources[0].partition("/")
        name = part.resource_names[0] if part.resource_names else None
        return self._allows_resource(verb, part.api_groups[0], resource, subresource, name)

    def _index(self, rule: PolicyRule) -> None:
        for group_resource in product(rule.api_groups, rule.resources):
            verbs = self._verbs_by_resource.setdefault(group_resource, _Verbs())
            if not rule.resource_names:
                verbs.for_all_objects.update(rule.verbs)
            for name in rule.resource_names:
                verbs.by_name.setdefault(name, set()).update(rule.verbs)
        for url in rule.non_resource_urls:
            if url.endswith("*"):
                self._verbs_by_prefix.setdefault(url.rstrip("*"), set()).update(rule.verbs)
            else:
                self._verbs_by_path.setdefault(url, set()).update(rule.verbs)

    def _allows_resource(
        self, verb: str, group: str, resource: str, subresource: str, name: str | None
    ) -> bool:
        if subresource:
            spellings: tuple[str, ...] = (f"{resource}/{subresource}", "*", f"*/{subresource}")
        else:
            spellings = (resource, "*")
        find = self._verbs_by_resource.get
        for api_group in (group, "*"):
            for spelled in spellings:
                verbs = find((api_group, spelled))
                if verbs is not None and verbs.allows(verb, name):
                    return True
        return False

    def _allows_path(self, verb: str, path: str) -> bool:
        verbs = self._verbs_by_path.get(path)
        if verbs is not None and (verb in verbs or "*" in verbs):
            return True
        return any(
            path.startswith(prefix) and (verb in verbs or "*" in verbs)
            for prefix, verbs in self._verbs_by_prefix.items()
        )


def _read_policy(list_objects: Lister) -> Policy:
    return Policy(
        roles=list_objects(ROLE),
        cluster_roles=list_objects(CLUSTER_ROLE),
        role_bindings=list_objects(ROLE_BINDING),
        cluster_role_bindings=list_objects(CLUSTER_ROLE_BINDING),
    )


def _namespace_of(kind: Kind, namespace: str, old: Object | None) -> str:
    """Return the namespace of what is written, which is where it was if it was anywhere."""
    if not kind.namespaced:
        return ""
    return str(old["metadata"]["namespace"]) if old is not None else namespace or "default"


def _comparable(obj: Object | None) -> Any:
    """Return an object without its field managers, and what says how long it stays."""
    if obj is None:
        return None
    ignored_fields = ("finalizers", "ownerReferences", "managedFields")
    metadata = {
        name: value for name, value in obj["metadata"].items() if name not in ignored_fields
    }
    return {**obj, "metadata": metadata}


# Sentences, which people and programs know from Kubernetes

_NEEDS_CLUSTER_ADMIN: Final = "must have cluster-admin privileges to use the aggregationRule"


def forbidden_message(user: User, attributes: Attributes, reason: str = "") -> str:
    """Return the message for a forbidden request; `reason` is that of `Authorizer.reason`."""
    who = f"User {quoted(user.name)} cannot {attributes.verb}"
    tail = f": {reason}" if reason else ""
    if attributes.path is not None:
        return f"forbidden: {who} path {quoted(attributes.path)}{tail}"
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    where = (
        f"in the namespace {quoted(attributes.namespace)}"
        if attributes.namespace
        else "at the cluster scope"
    )
    what = f"resource {quoted(resource)} in API group {quoted(attributes.group)} {where}"
    resource_name = (
        f"{attributes.resource}.{attributes.group}" if attributes.group else attributes.resource
    )
    return _refusal(resource_name, attributes.name, f"{who} {what}{tail}")


def escalation_message(user: User, kind: Kind, name: str, missing: Iterable[str]) -> str:
    """Return the message for a role or binding, and what `escalated_permissions` found missing."""
    permissions = list(missing)
    if permissions == [_NEEDS_CLUSTER_ADMIN]:
        return _refusal(str(kind), name, _NEEDS_CLUSTER_ADMIN)
    who = f"user {quoted(user.name)} (groups={quoted_list(sorted(user.groups))})"
    permission_lines = "\n".join(permissions)
    return _refusal(
        str(kind),
        name,
        f"{who} is attempting to grant RBAC permissions not currently held:\n{permission_lines}",
    )


def _refusal(resource_name: str, name: str, why: str) -> str:
    return (
        f"{resource_name} {quoted(name)} is forbidden: {why}"
        if name
        else f"{resource_name} is forbidden: {why}"
    )
