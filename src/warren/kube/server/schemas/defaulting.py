"""What the API fills into objects of Kubernetes' own kinds. Pure."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from warren.base.objects import Kind, Object

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label by which selectors know a namespace."""

_RBAC: Final = "rbac.authorization.k8s.io"


def fill_in(kind: Kind, obj: Object) -> Object:
    """Return an object with the defaults of its kind; one that lacks none is given back itself."""
    fill = _FILLS.get((kind.group, kind.plural))
    return obj if fill is None else fill(obj)


def _namespace(obj: Object) -> Object:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(_NAME_LABEL) == metadata.get("name"):
        return obj
    return {
        **obj,
        "metadata": {**metadata, "labels": {**labels, _NAME_LABEL: metadata.get("name")}},
    }


def _secret(obj: Object) -> Object:
    new = {**obj, "type": obj.get("type") or "Opaque"}
    string_data = new.pop("stringData", None)
    if isinstance(string_data, Mapping):
        encoded_data = {
            name: base64.b64encode((value or "").encode()).decode()
            for name, value in string_data.items()
        }
        new["data"] = {**(obj.get("data") or {}), **encoded_data}
    return new


def _binding(obj: Object) -> Object:
    new = dict(obj)
    role = obj.get("roleRef")
    if isinstance(role, Mapping):
        new["roleRef"] = {"apiGroup": _RBAC, **role}
    subjects = obj.get("subjects")
    if isinstance(subjects, list | tuple):
        new["subjects"] = [_subject(each) for each in subjects]
    return new


def _subject(subject: Any) -> Any:
    if isinstance(subject, Mapping) and subject.get("kind") in ("User", "Group"):
        return {"apiGroup": _RBAC, **subject}
    return subject


_FILLS: Final[Mapping[tuple[str, str], Callable[[Object], Object]]] = {
    ("", "namespaces"): _namespace,
    ("", "secrets"): _secret,
    (_RBAC, "rolebindings"): _binding,
    (_RBAC, "clusterrolebindings"): _binding,
}
