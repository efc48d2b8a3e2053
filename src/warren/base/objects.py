"""Objects as Kubernetes shapes them, as plain values, and the three ways to change them.

Decisions return `Create`, `Change` and `Remove`; `warren.kube` performs them.
Nothing here knows how an object is stored, watched or sent.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import msgspec

Object = Mapping[str, Any]
"""A Kubernetes object as decoded JSON. Shared between readers, therefore never modified."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of object and where the API serves it."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    status: bool = False
    """Whether status is a subresource: written through `/status`, and there alone."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Key(NamedTuple):
    """Where an object of a kind is; the namespace is empty for cluster-wide kinds."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the key that a text stands for, as `str` writes it."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Make this object. That it exists already is as good."""

    kind: Kind
    object: Object

    @property
    def key(self) -> Key:
        return key_of(self.object)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Merge `patch` (RFC 7386) into the object, if it still has this `resource_version`."""

    kind: Kind
    key: Key
    patch: Object
    resource_version: str | None = None
    """The resourceVersion the decision was made on; None where no reader could be wrong."""
    status: bool = False
    """Write through the status subresource."""


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for deletion. That it is gone already is as good."""

    kind: Kind
    key: Key
    uid: str | None = None
    """Of the object that is meant; None where any of that name is."""


Write = Create | Change | Remove


def key_of(obj: Object) -> Key:
    """Return the key of an object from its metadata."""
    metadata = obj["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386). Neither argument is modified; unchanged parts are shared."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result
