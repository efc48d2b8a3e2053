"""A kind as the server serves it, and how a CustomResourceDefinition says it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson

from warren.base.objects import Kind, Object
from warren.kube import client
from warren.kube.server.schemas import schema
from warren.kube.server.schemas.causes import Cause
from warren.kube.server.schemas.schema import CompiledSchema

ALL_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip


LOG_SUBRESOURCE: Final = "log"
"""The subresource of pods that is what they print."""


class ObjectInvalid(client.Invalid):
    """An object does not fit its schema; `causes` are all the reasons."""

    def __init__(self, group: str, kind: str, name: str, causes: Sequence[Cause]) -> None:
        message = str(causes[0]) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]"
        kind_name = f"{kind}.{group}" if group else kind
        super().__init__(f'{kind_name} "{name}" is invalid: {message}')
        self.group = group
        self.kind = kind
        self.name = name
        self.causes = causes


class Column(msgspec.Struct, frozen=True):
    """A printer column: what `kubectl get` shows."""

    name: str
    type: str
    path: str
    priority: int = 0
    cell: Callable[[Object], Any] | None = None
    """Returns the value to show, where it is more than what stands at `path`."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource as it is served."""

    group: str
    plural: str
    kind_name: str
    versions: tuple[str, ...]
    namespaced: bool
    has_status: bool
    """Whether it has the status subresource."""
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)
    """The printer columns of each version."""
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The schema of each version that has one."""
    compiled_schemas: Mapping[str, CompiledSchema] = field(default_factory=dict, compare=False)
    """The same, ready for use."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    """Names for this resource together with others, like `all`."""
    verbs: tuple[str, ...] = ALL_VERBS
    selectable_fields: tuple[str, ...] = ()
    """The paths of fields that lists and watches can choose by, besides name and namespace."""

    has_log: bool = False
    """Whether its objects print something."""

    definition_version: int = 0
    """The version of the store in which its definition was written last."""

    @property
    def subresources(self) -> dict[str, tuple[str, ...]]:
        """What can be asked of an object besides itself, by name, with the verbs for that."""
        status = {"status": ("get", "patch", "update")} if self.has_status else {}
        return {**status, **({LOG_SUBRESOURCE: ("get",)} if self.has_log else {})}

    def prune_and_default(
        self,
        version: str,
        obj: Object,
        report_unknown: Callable[[list[str]], None],
        old: Object | None = None,
    ) -> Object:
        """Return an object without unknown fields, and with defaults.

        `report_unknown` is called with the unknown fields, if there are any.

        What it shares with `old`, in whose place it comes, is known to be as it should be.
        Raises ObjectInvalid where it does not fit the schema.
        """
        compiled = self.compiled_schemas.get(version)
        if compiled is None:
            return obj
        if old is not None and not self._conforms(old, version):
            old = None
        pruned, unknown_fields = compiled.prune(obj, old)
        if unknown_fields:
            report_unknown(unknown_fields)
        defaulted: Object = compiled.apply_defaults(pruned, old)
        violations = compiled.violations(defaulted)
        if violations:
            metadata = obj.get("metadata") or {}
            raise ObjectInvalid(
                self.group, self.kind_name, str(metadata.get("name", "")), violations
            )
        return defaulted

    def _conforms(self, old: Object, version: str) -> bool:
        """Return whether a stored object is known to fit this schema, and not another."""
        same_version = old["apiVersion"].rpartition("/")[2] == version
        return same_version and int(old["metadata"]["resourceVersion"]) > self.definition_version

    def kind(self, version: str) -> Kind:
        return Kind(
            self.group, version, self.kind_name, self.plural, self.namespaced, self.has_status
        )


def from_crd(crd: Object) -> Resource:
    """Read a CustomResourceDefinition. Raises Refused for a schema that cannot be served.

    Objects are stored as they are written: the versions of a kind have the same fields here.
    """
    spec = crd["spec"]
    versions = [version for version in spec["versions"] if version["served"]]
    schemas = {
        version["name"]: version["schema"]["openAPIV3Schema"]
        for version in versions
        if version.get("schema", {}).get("openAPIV3Schema")
    }
    return Resource(
        group=spec["group"],
        plural=spec["names"]["plural"],
        kind_name=spec["names"]["kind"],
        versions=tuple(version["name"] for version in versions),
        namespaced=spec["scope"] == "Namespaced",
        has_status=any("status" in version.get("subresources", {}) for version in versions),
        columns={version["name"]: tuple(_columns(version)) for version in versions},
        schemas=schemas,
        compiled_schemas={
            version: _compile(orjson.dumps(each)) for version, each in schemas.items()
        },
        short_names=tuple(spec["names"].get("shortNames", ())),
        definition_version=int(crd["metadata"].get("resourceVersion") or 0),
        categories=tuple(spec["names"].get("categories", ())),
        selectable_fields=tuple(
            field["jsonPath"].removeprefix(".")
            for version in versions
            for field in version.get("selectableFields", ())
        ),
    )


@lru_cache(maxsize=64)
def _compile(encoded_schema: bytes) -> CompiledSchema:
    """Prepare a schema for use. Versions are often alike, and definitions are read often."""
    return schema.compile(orjson.loads(encoded_schema))


def _columns(version: Mapping[str, Any]) -> Iterator[Column]:
    for column in version.get("additionalPrinterColumns", ()):
        yield Column(column["name"], column["type"], column["jsonPath"], column.get("priority", 0))


def established_status(crd: Object, now: str) -> dict[str, Any]:
    """Return the status of a definition that is served."""
    conditions = [
        {
            "type": condition_type,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        for condition_type, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored_versions = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
    return {
        "conditions": conditions,
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored_versions,
    }
