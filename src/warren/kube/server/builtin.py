"""The built-in kinds of the API server: those of Kubernetes that storage systems use.

They have no schemas here: what is written is what is stored, but for what
`schemas/builtinfields.py` refuses.
"""

from collections.abc import Iterator
from typing import Final

from warren.base.objects import Kind
from warren.kube.leader import LEASE
from warren.kube.server.access import reviews
from warren.kube.server.printing import AGE, BINDING, CREATED, DATA, EVENT, JOB, NODE, WEBHOOKS
from warren.kube.server.resources import Column, Resource

NAMESPACE: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False, status=True)
POD: Final = Kind("", "v1", "Pod", "pods", status=True)
CRD: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    status=True,
)

_RBAC: Final = "rbac.authorization.k8s.io"
_HOOKS: Final = "admissionregistration.k8s.io"


def _of(
    kind: Kind,
    *short_names: str,
    columns: tuple[Column, ...] = (AGE,),
    selectable: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    logs: bool = False,
) -> Resource:
    return Resource(
        group=kind.group,
        plural=kind.plural,
        name=kind.name,
        versions=(kind.version,),
        namespaced=kind.namespaced,
        status=kind.status,
        short_names=short_names,
        categories=categories,
        logs=logs,
        columns={kind.version: columns},
        selectable=selectable,
    )


def _text(name: str, path: str) -> Column:
    return Column(name, "string", path)


_ALL: Final = ("all",)


def _resources() -> Iterator[Resource]:
    def core(name: str, plural: str, *, namespaced: bool = True, status: bool = False) -> Kind:
        return Kind("", "v1", name, plural, namespaced, status)

    phase = _text("Status", ".status.phase")
    yield _of(NAMESPACE, "ns", selectable=("status.phase",), columns=(phase, AGE))
    yield _of(CRD, "crd", "crds", columns=(CREATED,))
    node = core("Node", "nodes", namespaced=False, status=True)
    yield _of(node, "no", selectable=("spec.unschedulable",), columns=NODE)
    yield _of(
        POD,
        "po",
        selectable=("spec.nodeName", "status.phase"),
        columns=(phase, AGE),
        categories=_ALL,
        logs=True,
    )
    secret = (_text("Type", ".type"), DATA, AGE)
    yield _of(core("Secret", "secrets"), selectable=("type",), columns=secret)
    yield _of(core("ConfigMap", "configmaps"), "cm", columns=(DATA, AGE))
    yield _of(core("ServiceAccount", "serviceaccounts"), "sa")
    yield _of(
        core("Service", "services", status=True),
        "svc",
        columns=(_text("Type", ".spec.type"), _text("Cluster-IP", ".spec.clusterIP"), AGE),
        categories=_ALL,
    )
    yield _of(
        core("Event", "events"),
        "ev",
        selectable=(
            *(f"involvedObject.{name}" for name in ("kind", "name", "namespace", "uid")),
            "reason",
            "type",
        ),
        columns=EVENT,
    )
    yield _of(LEASE, columns=(_text("Holder", ".spec.holderIdentity"), AGE))
    job = Kind("batch", "v1", "Job", "jobs", status=True)
    yield _of(job, columns=JOB, categories=_ALL)
    for name, plural, namespaced in (
        ("Role", "roles", True),
        ("ClusterRole", "clusterroles", False),
    ):
        yield _of(Kind(_RBAC, "v1", name, plural, namespaced), columns=(CREATED,))
    for name, plural, namespaced in (
        ("RoleBinding", "rolebindings", True),
        ("ClusterRoleBinding", "clusterrolebindings", False),
    ):
        yield _of(Kind(_RBAC, "v1", name, plural, namespaced), columns=BINDING)
    for name in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        kind = Kind(_HOOKS, "v1", name, f"{name.lower()}s", namespaced=False)
        yield _of(kind, columns=(WEBHOOKS, AGE))


BUILT_IN: Final = tuple(_resources())

REVIEWS: Final = tuple(
    Resource(
        group=kind.group,
        plural=kind.plural,
        name=kind.name,
        versions=(kind.version,),
        namespaced=kind.namespaced,
        status=False,
        verbs=reviews.VERBS,
    )
    for kind in reviews.KINDS
)
"""The kinds of reviews, which are answered and never stored."""
