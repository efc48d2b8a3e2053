"""Which kinds the server knows: a few of its own, and one for each CustomResourceDefinition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warren.base.objects import Kind, Object

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
CRD = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    status=True,
)


@dataclass(frozen=True)
class Column:
    """A printer column: what `kubectl get` shows."""

    name: str
    type: str
    path: str
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource as it is served."""

    group: str
    plural: str
    name: str
    versions: tuple[str, ...]
    namespaced: bool
    status: bool
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)

    def kind(self, version: str) -> Kind:
        return Kind(self.group, version, self.name, self.plural, self.namespaced, self.status)


BUILT_IN = tuple(
    Resource(
        group=kind.group,
        plural=kind.plural,
        name=kind.name,
        versions=(kind.version,),
        namespaced=kind.namespaced,
        status=kind.status,
    )
    for kind in (NAMESPACE, CRD)
)


def from_crd(crd: Object) -> Resource:
    """Read a CustomResourceDefinition. All served versions share one schema here."""
    spec = crd["spec"]
    versions = [version for version in spec["versions"] if version["served"]]
    return Resource(
        group=spec["group"],
        plural=spec["names"]["plural"],
        name=spec["names"]["kind"],
        versions=tuple(version["name"] for version in versions),
        namespaced=spec["scope"] == "Namespaced",
        status=any("status" in version.get("subresources", {}) for version in versions),
        columns={version["name"]: tuple(_columns(version)) for version in versions},
    )


def _columns(version: Mapping[str, Any]) -> Iterator[Column]:
    for column in version.get("additionalPrinterColumns", ()):
        yield Column(column["name"], column["type"], column["jsonPath"], column.get("priority", 0))


def established(crd: Object, now: str) -> dict[str, Any]:
    """Give the status of a definition that is served."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
    return {
        "conditions": conditions,
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored,
    }
