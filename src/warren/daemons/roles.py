"""Who may do what: the RBAC objects of a cluster, for those who are Warren's own.

What each role may do stands in `deploy/rbac`. Made here is only what depends on the site: the
agent of a node has its role in the namespace of that node, and nowhere else.
"""

from collections.abc import Iterator
from typing import Final

from warren.base.objects import Object
from warren.controllers import heartbeats
from warren.daemons.cluster import manifests
from warren.daemons.site import Site
from warren.daemons.users import node_user
from warren.dws import kinds

COMPUTE_ROLE: Final = "warren-compute"
RABBIT_ROLE: Final = "warren-rabbit"
PODS_ROLE: Final = "warren-pods"

_RBAC: Final = "rbac.authorization.k8s.io"


def objects(site: Site) -> Iterator[Object]:
    """Return all roles and bindings, with the namespaces they need, in an order to make them in.

    Those of nodes are in the nodes' namespaces, which are the cluster's (`cluster.establish`).
    """
    yield from manifests("rbac")
    for chassis in site.chassis():
        yield _binding(chassis.rabbit, RABBIT_ROLE)
        yield from _lease(chassis.rabbit)
        yield from _node(chassis.rabbit)
        for host in chassis.hosts:
            yield _binding(host, COMPUTE_ROLE)


def _binding(node: str, role: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": node},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": node_user(node)}],
    }


def _lease(rabbit: str) -> Iterator[Object]:
    """Let the agent of a rabbit renew that rabbit's Lease, and no other."""
    meta = {"name": f"warren-node-{rabbit}", "namespace": heartbeats.NAMESPACE}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": meta,
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [rabbit],
                "verbs": ["patch"],
            }
        ],
    }
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": meta["name"]},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": node_user(rabbit)}],
    }


def _node(rabbit: str) -> Iterator[Object]:
    """Let the agent of a rabbit be that rabbit's kubelet: its Node, and where pods are."""
    user = {"apiGroup": _RBAC, "kind": "User", "name": node_user(rabbit)}
    meta = {"name": f"warren-node-{rabbit}"}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": meta,
        "rules": [
            # A creation cannot be held to a name: the name is not known where it is authorized.
            # All are watched, for there are few, and their news is rare.
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["create", "list", "watch"]},
            {
                "apiGroups": [""],
                "resources": ["nodes/status"],
                "resourceNames": [rabbit],
                "verbs": ["patch"],
            },
        ],
    }
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": meta["name"]},
        "subjects": [user],
    }
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{PODS_ROLE}-{rabbit}", "namespace": kinds.DEFAULT_NAMESPACE},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": PODS_ROLE},
        "subjects": [user],
    }
