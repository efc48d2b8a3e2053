"""The RBAC objects of a cluster: what each of Warren's components may do.

What each role may do stands in `deploy/rbac`. Made here is only what depends on the shape of
the cluster: the agent of a node has its role in the namespace of that node, and nowhere else.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from warren.base.objects import Object
from warren.controllers import heartbeats
from warren.daemons.clusterobjects import manifests
from warren.daemons.clustershape import ClusterShape
from warren.daemons.users import node_user
from warren.dws import kinds

COMPUTE_ROLE: Final = "warren-compute"
RABBIT_ROLE: Final = "warren-rabbit"
PODS_ROLE: Final = "warren-pods"

_RBAC: Final = "rbac.authorization.k8s.io"


def objects(shape: ClusterShape) -> Iterator[Object]:
    """Return all roles and bindings, with the namespaces they need, in an order to make them in.

    Those of nodes are in the nodes' namespaces, which `clusterobjects.establish` makes.
    """
    yield from manifests("rbac")
    for chassis in shape.chassis():
        yield from agent_roles([chassis.rabbit], chassis.hosts)
        if shape.agents:
            yield from _kubelet_roles(chassis.rabbit)


def revoked_objects(shape: ClusterShape) -> Iterator[Object]:
    """Return the roles and bindings to delete in a cluster without agents of its own.

    It may have had agents before, and its Secrets stay on its machine.
    """
    for chassis in shape.chassis() if not shape.agents else ():
        yield from _kubelet_roles(chassis.rabbit)


def agent_roles(
    rabbits: Iterable[str], computes: Iterable[str], service_account: str | None = None
) -> Iterator[Object]:
    """Return the roles and bindings of the agents of nodes, in the namespaces of these nodes.

    Agents are the nodes' users, or the service account of this name in each of the namespaces.
    """
    for rabbit in rabbits:
        subject = _subject(rabbit, service_account)
        yield _role_binding(rabbit, RABBIT_ROLE, subject)
        yield from _lease_roles(rabbit, subject)
    for compute in computes:
        yield _role_binding(compute, COMPUTE_ROLE, _subject(compute, service_account))


def _subject(node: str, service_account: str | None) -> Object:
    if service_account is not None:
        return {"kind": "ServiceAccount", "name": service_account, "namespace": node}
    return {"apiGroup": _RBAC, "kind": "User", "name": node_user(node)}


def _role_binding(node: str, role: str, subject: Object) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": node},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def _lease_roles(rabbit: str, subject: Object) -> Iterator[Object]:
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
        "subjects": [subject],
    }


def _kubelet_roles(rabbit: str) -> Iterator[Object]:
    """Let the agent of a rabbit be that rabbit's kubelet: its Node, and where pods are."""
    user = {"apiGroup": _RBAC, "kind": "User", "name": node_user(rabbit)}
    meta = {"name": f"warren-node-{rabbit}"}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": meta,
        "rules": [
            # A creation cannot be held to a name: the name is not known where it is authorized.
            # All are watched, for there are few, and they change rarely.
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
