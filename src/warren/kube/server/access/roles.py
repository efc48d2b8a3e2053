"""The roles and bindings that every cluster starts with, as far as they matter to this one.

Their names and what they allow are those of Kubernetes, because people and manifests rely on both.
"""

from collections.abc import Sequence
from typing import Any, Final

from warren.base.objects import Kind, Object
from warren.kube.server.access.authorization import (
    AUTHENTICATED,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    MASTERS,
    UNAUTHENTICATED,
)
from warren.kube.server.access.grants import RBAC

_HEALTH_PATHS: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY_PATHS: Final = ("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*")
_OWN_REVIEWS: Final = ("selfsubjectaccessreviews", "selfsubjectrulesreviews")

_READ_VERBS: Final = ("get", "list", "watch")
_WRITE_VERBS: Final = ("create", "delete", "deletecollection", "patch", "update")
# All but secrets: a user that reads them may act as others.
_VIEWED_RESOURCES: Final = (
    "configmaps", "endpoints", "events", "namespaces", "namespaces/status",
    "persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log", "pods/status",
    "resourcequotas", "resourcequotas/status", "serviceaccounts", "services", "services/status",
)  # fmt: skip
_EDITED_RESOURCES: Final = (
    "configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "secrets",
    "serviceaccounts", "services",
)  # fmt: skip


def default_roles() -> list[Object]:
    """Return the ClusterRoles of a bare cluster, and after them its ClusterRoleBindings."""
    return [
        _role("cluster-admin", _resource_rule("*", ["*"], ["*"]), _url_rule(["*"], ["*"])),
        _role("system:discovery", _url_rule(sorted((*_HEALTH_PATHS, *_DISCOVERY_PATHS)), ["get"])),
        _role("system:public-info-viewer", _url_rule(_HEALTH_PATHS, ["get"])),
        _role(
            "system:basic-user",
            _resource_rule("authorization.k8s.io", _OWN_REVIEWS, ["create"]),
            _resource_rule("authentication.k8s.io", ["selfsubjectreviews"], ["create"]),
        ),
        # Each part goes into one of the three, and each of the three into the next one; other
        # kinds join them with roles of their own that carry these labels.
        _aggregated_role("view", aggregates_to="edit"),
        _aggregated_role("edit", aggregates_to="admin"),
        _aggregated_role("admin"),
        _role_aggregated_to("view", _resource_rule("", _VIEWED_RESOURCES, _READ_VERBS)),
        _role_aggregated_to(
            "edit",
            _resource_rule("", ["secrets"], _READ_VERBS),
            _resource_rule("", _EDITED_RESOURCES, _WRITE_VERBS),
        ),
        _role_aggregated_to(
            "admin",
            _resource_rule(RBAC, ["rolebindings", "roles"], sorted((*_READ_VERBS, *_WRITE_VERBS))),
            _resource_rule("authorization.k8s.io", ["localsubjectaccessreviews"], ["create"]),
        ),
        _binding("cluster-admin", MASTERS),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:basic-user", AUTHENTICATED),
    ]


def _role(name: str, *rules: Object, aggregates_to: str = "", **fields: Any) -> Object:
    labels = _aggregation_label(aggregates_to) if aggregates_to else {}
    return _object(CLUSTER_ROLE, name, labels, rules=list(rules), **fields)


def _role_aggregated_to(name: str, *rules: Object) -> Object:
    return _role(f"system:aggregate-to-{name}", *rules, aggregates_to=name)


def _aggregated_role(name: str, aggregates_to: str = "") -> Object:
    selectors = [{"matchLabels": _aggregation_label(name)}]
    return _role(
        name, aggregates_to=aggregates_to, aggregationRule={"clusterRoleSelectors": selectors}
    )


def _binding(role: str, *groups: str) -> Object:
    return _object(
        CLUSTER_ROLE_BINDING,
        role,
        {},
        roleRef={"apiGroup": RBAC, "kind": CLUSTER_ROLE.name, "name": role},
        subjects=[{"apiGroup": RBAC, "kind": "Group", "name": group} for group in groups],
    )


def _object(kind: Kind, name: str, labels: Object, **fields: Any) -> Object:
    metadata = {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **labels}}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **fields}


def _aggregation_label(name: str) -> dict[str, str]:
    return {f"{RBAC}/aggregate-to-{name}": "true"}


def _resource_rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _url_rule(urls: Sequence[str], verbs: Sequence[str]) -> Object:
    return {"nonResourceURLs": list(urls), "verbs": list(verbs)}
