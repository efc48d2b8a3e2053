"""The built-in kinds of the API server: those of Kubernetes that storage systems use.

They have no schemas here: what is written is what is stored, but for what
`schemas/builtinfields.py` refuses.
"""

from collections.abc import Iterator
from typing import Final

from warren.base.objects import Kind
from warren.kube.leader import LEASE
from warren.kube.server.access import reviews
from warren.kube.server.printing import (
    AGE_COLUMN,
    BINDING_COLUMNS,
    CREATED_COLUMN,
    DATA_COLUMN,
    EVENT_COLUMNS,
    JOB_COLUMNS,
    NODE_COLUMNS,
    WEBHOOKS_COLUMN,
)
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
_ADMISSION_GROUP: Final = "admissionregistration.k8s.io"


def _resource(
    kind: Kind,
    *short_names: str,
    columns: tuple[Column, ...] = (AGE_COLUMN,),
    selectable_fields: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    has_log: bool = False,
) -> Resource:
    return Resource(
        group=kind.group,
        plural=kind.plural,
        kind_name=kind.name,
        versions=(kind.version,),
        namespaced=kind.namespaced,
        has_status=kind.status,
        short_names=short_names,
        categories=categories,
        has_log=has_log,
        columns={kind.version: columns},
        selectable_fields=selectable_fields,
    )


def _text_column(name: str, path: str) -> Column:
    return Column(name, "string", path)


_ALL_CATEGORY: Final = ("all",)


def _resources() -> Iterator[Resource]:
    def core(name: str, plural: str, *, namespaced: bool = True, status: bool = False) -> Kind:
        return Kind("", "v1", name, plural, namespaced, status)

    phase_column = _text_column("Status", ".status.phase")
    yield _resource(
        NAMESPACE, "ns", selectable_fields=("status.phase",), columns=(phase_column, AGE_COLUMN)
    )
    yield _resource(CRD, "crd", "crds", columns=(CREATED_COLUMN,))
    node = core("Node", "nodes", namespaced=False, status=True)
    yield _resource(node, "no", selectable_fields=("spec.unschedulable",), columns=NODE_COLUMNS)
    yield _resource(
        POD,
        "po",
        selectable_fields=("spec.nodeName", "status.phase"),
        columns=(phase_column, AGE_COLUMN),
        categories=_ALL_CATEGORY,
        has_log=True,
    )
    secret_columns = (_text_column("Type", ".type"), DATA_COLUMN, AGE_COLUMN)
    yield _resource(core("Secret", "secrets"), selectable_fields=("type",), columns=secret_columns)
    yield _resource(core("ConfigMap", "configmaps"), "cm", columns=(DATA_COLUMN, AGE_COLUMN))
    yield _resource(core("ServiceAccount", "serviceaccounts"), "sa")
    yield _resource(
        core("Service", "services", status=True),
        "svc",
        columns=(
            _text_column("Type", ".spec.type"),
            _text_column("Cluster-IP", ".spec.clusterIP"),
            AGE_COLUMN,
        ),
        categories=_ALL_CATEGORY,
    )
    yield _resource(
        core("Event", "events"),
        "ev",
        selectable_fields=(
            *(f"involvedObject.{name}" for name in ("kind", "name", "namespace", "uid")),
            "reason",
            "type",
        ),
        columns=EVENT_COLUMNS,
    )
    yield _resource(LEASE, columns=(_text_column("Holder", ".spec.holderIdentity"), AGE_COLUMN))
    job = Kind("batch", "v1", "Job", "jobs", status=True)
    yield _resource(job, columns=JOB_COLUMNS, categories=_ALL_CATEGORY)
    for name, plural, namespaced in (
        ("Role", "roles", True),
        ("ClusterRole", "clusterroles", False),
    ):
        yield _resource(Kind(_RBAC, "v1", name, plural, namespaced), columns=(CREATED_COLUMN,))
    for name, plural, namespaced in (
        ("RoleBinding", "rolebindings", True),
        ("ClusterRoleBinding", "clusterrolebindings", False),
    ):
        yield _resource(Kind(_RBAC, "v1", name, plural, namespaced), columns=BINDING_COLUMNS)
    for name in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        kind = Kind(_ADMISSION_GROUP, "v1", name, f"{name.lower()}s", namespaced=False)
        yield _resource(kind, columns=(WEBHOOKS_COLUMN, AGE_COLUMN))


BUILT_IN: Final = tuple(_resources())

REVIEWS: Final = tuple(
    Resource(
        group=kind.group,
        plural=kind.plural,
        kind_name=kind.name,
        versions=(kind.version,),
        namespaced=kind.namespaced,
        has_status=False,
        verbs=reviews.REVIEW_VERBS,
    )
    for kind in reviews.REVIEW_KINDS
)
"""The kinds of reviews, which are answered and never stored."""
