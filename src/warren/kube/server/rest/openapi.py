"""The OpenAPI v3 documents that clients ask for before they write (`/openapi/v3`).

kubectl reads three things in them: whether an operation takes `dryRun` and `fieldValidation`,
which kinds of patches it takes, and, for `explain`, the schemas. One document is about one group
and version; the index names them all.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from warren.base.objects import Kind
from warren.kube.server.resources import Resource

PATCH_CONTENT_TYPES: Final = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
"""The kinds of patches that operations are said to take. Without strategic merge patches among
them, no client that looks here sends one."""

_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_GVK: Final = "x-kubernetes-group-version-kind"
_JSON: Final = "application/json"
_UNSPECIFIED: Final[Mapping[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}


VERSION_2_CONTENT_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_EMPTY_VERSION_AND_TITLE: Final = ("2.0", "Warren")


def empty_document() -> bytes:
    """Return a document of OpenAPI version 2 (`/openapi/v2`) that describes nothing, in protobuf.

    kubectl checks the objects of a `kind: List` against it before it sends them, and passes
    over what is not in it. The server checks them anyway.
    """
    version, title = (each.encode() for each in _EMPTY_VERSION_AND_TITLE)
    info = _bytes_field(1, title) + _bytes_field(2, version)
    return _bytes_field(1, version) + _bytes_field(2, info)


def _bytes_field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


def group_version_path(group: str, version: str) -> str:
    """Return the path of a group and version, below the root and below `/openapi/v3/` alike."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


def index(documents: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the index (`/openapi/v3`) of encoded documents, which are named by their paths.

    Clients keep a document for as long as its address is the same: the hash is in it.
    """
    paths = {}
    for path, encoded in documents.items():
        digest = hashlib.sha256(encoded).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def document(
    group: str,
    version: str,
    resources: Iterable[Resource],
    schemas: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the document of a group and version (`/openapi/v3/apis/GROUP/VERSION`).

    `resources` may be of any group. `schemas` are those of this version, by plural; what has
    none may have any fields.
    """
    paths: dict[str, Any] = {}
    components = dict(_SHARED_SCHEMAS)
    for resource in resources:
        if resource.group == group and version in resource.versions:
            kind = resource.kind(version)
            schema = schemas.get(resource.plural, _UNSPECIFIED)
            components[schema_name(kind)] = _object_schema(kind, schema)
            components[f"{schema_name(kind)}List"] = _list_schema(kind)
            paths.update(_paths(kind))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Warren", "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }


def schema_name(kind: Kind) -> str:
    """Return the name of a kind's schema: `io.github.dataworkflowservices.v1alpha7.Workflow`."""
    domain = ".".join(reversed(kind.group.split("."))) if kind.group else "io.k8s.api.core"
    return f"{domain}.{kind.version}.{kind.name}"


# Verbs


class _Verb(msgspec.Struct, frozen=True, kw_only=True):
    """What can be done on a path: with which queries, what is sent, and how it ends well."""

    action: str
    queries: tuple[str, ...] = ()
    content_types: tuple[str, ...] = ()
    code: int = 200


_QUERY_TYPES: Final = {
    "allowWatchBookmarks": "boolean",
    "dryRun": "string",
    "fieldManager": "string",
    "fieldSelector": "string",
    "fieldValidation": "string",
    "force": "boolean",
    "labelSelector": "string",
    "resourceVersion": "string",
    "timeoutSeconds": "integer",
    "watch": "boolean",
}
_LIST_QUERIES: Final = (
    "allowWatchBookmarks", "fieldSelector", "labelSelector", "resourceVersion", "timeoutSeconds",
    "watch",
)  # fmt: skip
_WRITE_QUERIES: Final = ("dryRun", "fieldManager", "fieldValidation")
_VERBS: Final = {
    "list": _Verb(action="list", queries=_LIST_QUERIES),
    "read": _Verb(action="get"),
    "create": _Verb(action="post", queries=_WRITE_QUERIES, content_types=(_JSON,), code=201),
    "replace": _Verb(action="put", queries=_WRITE_QUERIES, content_types=(_JSON,)),
    "patch": _Verb(
        action="patch", queries=(*_WRITE_QUERIES, "force"), content_types=PATCH_CONTENT_TYPES
    ),
    "delete": _Verb(action="delete", queries=("dryRun",)),
}


# Schemas


def _object_schema(kind: Kind, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kind's schema with what every object has, which definitions need not say."""
    declared = schema.get("properties", {})
    properties = {
        "apiVersion": {"type": "string", **declared.get("apiVersion", {})},
        "kind": {"type": "string", **declared.get("kind", {})},
        "metadata": {"allOf": [_ref(f"{_META}.ObjectMeta")], "description": "Standard metadata."},
    }
    return {**schema, "properties": {**declared, **properties}, _GVK: [_gvk(kind)]}


def _list_schema(kind: Kind) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"{kind.name}List is a list of {kind.name}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [_ref(f"{_META}.ListMeta")]},
            "items": {"type": "array", "items": _ref(schema_name(kind))},
        },
        _GVK: [{**_gvk(kind), "kind": f"{kind.name}List"}],
    }


def _gvk(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _pairs(description: str) -> dict[str, Any]:
    values = {"type": "string"}
    return {"type": "object", "additionalProperties": values, "description": description}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


def _time(description: str) -> dict[str, Any]:
    return {"type": "string", "format": "date-time", "description": description}


_SHARED_SCHEMAS: Final[Mapping[str, Any]] = {
    f"{_META}.ObjectMeta": {
        "type": "object",
        "description": "What every object has.",
        "properties": {
            "annotations": _pairs("Notes of tools; no selector looks at them."),
            "creationTimestamp": _time("When the object was made."),
            "deletionGracePeriodSeconds": _number("How long its deletion may take."),
            "deletionTimestamp": _time("When its deletion was asked for."),
            "finalizers": _texts("What must be removed before the object is deleted."),
            "generateName": _text("What the server begins a name with, if none is given."),
            "generation": _number("How often what is wanted has changed."),
            "labels": _pairs("What selectors look at."),
            "managedFields": {
                "type": "array",
                "description": "Which manager has set which fields.",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
            "name": _text("The name, unique in the namespace. It never changes."),
            "namespace": _text("The namespace. It never changes."),
            "ownerReferences": {
                "type": "array",
                "description": "The objects with which this one goes.",
                "items": _ref(f"{_META}.OwnerReference"),
            },
            "resourceVersion": _text("The version, for writes that must not be stale."),
            "uid": _text("What tells the object from others that had the name."),
        },
    },
    f"{_META}.OwnerReference": {
        "type": "object",
        "description": "An object with which another goes.",
        "required": ["apiVersion", "kind", "name", "uid"],
        "properties": {
            "apiVersion": _text("The owner's group and version."),
            "blockOwnerDeletion": {"type": "boolean", "description": "Whether the owner waits."},
            "controller": {"type": "boolean", "description": "Whether the owner is in charge."},
            "kind": _text("The owner's kind."),
            "name": _text("The owner's name."),
            "uid": _text("The owner's uid."),
        },
    },
    f"{_META}.ListMeta": {
        "type": "object",
        "description": "What every list has.",
        "properties": {
            "continue": _text("Where the next part begins, if there is one."),
            "remainingItemCount": _number("How many follow."),
            "resourceVersion": _text("The version from which a watch goes on."),
        },
    },
    f"{_META}.Patch": {"type": "object", "description": "Changes to an object."},
    f"{_META}.Status": {
        "type": "object",
        "description": "How a request ended that gives no object.",
        "properties": {
            "apiVersion": {"type": "string"},
            "code": {"type": "integer", "format": "int32"},
            "details": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "kind": {"type": "string"},
            "message": {"type": "string"},
            "metadata": _ref(f"{_META}.ListMeta"),
            "reason": {"type": "string"},
            "status": {"type": "string"},
        },
        _GVK: [{"group": "", "version": "v1", "kind": "Status"}],
    },
}


# Paths


def _paths(kind: Kind) -> dict[str, Any]:
    root = f"/{group_version_path(kind.group, kind.version)}"
    scope_path = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    collection_path = f"{scope_path}/{kind.plural}"
    object_path = f"{collection_path}/{{name}}"
    paths = {collection_path: _collection(kind), object_path: _single(kind)}
    if kind.namespaced:
        list_everywhere = {"get": _operation(kind, "list", "ForAllNamespaces")}
        paths[f"{root}/{kind.plural}"] = list_everywhere
    if kind.status:
        paths[f"{object_path}/status"] = _read_and_change(kind)
    return paths


def _collection(kind: Kind) -> dict[str, Any]:
    return {
        "parameters": _path_parameters(kind),
        "get": _operation(kind, "list"),
        "post": _operation(kind, "create"),
    }


def _single(kind: Kind) -> dict[str, Any]:
    return {**_read_and_change(kind, ""), "delete": _operation(kind, "delete")}


def _read_and_change(kind: Kind, suffix: str = "Status") -> dict[str, Any]:
    return {
        "parameters": [*_path_parameters(kind), _parameter("name", "path")],
        "get": _operation(kind, "read", suffix),
        "put": _operation(kind, "replace", suffix),
        "patch": _operation(kind, "patch", suffix),
    }


def _path_parameters(kind: Kind) -> list[dict[str, Any]]:
    return [_parameter("namespace", "path")] if kind.namespaced else []


def _operation(kind: Kind, name: str, suffix: str = "") -> dict[str, Any]:
    verb = _VERBS[name]
    group = "".join(part.title() for part in (kind.group or "core").split("."))
    scope = "Namespaced" if kind.namespaced else ""
    answer_schema = _ref(f"{schema_name(kind)}List" if name == "list" else schema_name(kind))
    operation = {
        "operationId": f"{name}{group}{kind.version.title()}{scope}{kind.name}{suffix}",
        "parameters": [_parameter(query, "query", _QUERY_TYPES[query]) for query in verb.queries],
        "responses": {
            str(verb.code): {"description": "OK", "content": {_JSON: {"schema": answer_schema}}}
        },
        "x-kubernetes-action": verb.action,
        _GVK: _gvk(kind),
    }
    if verb.content_types:
        body = {"schema": _ref(f"{_META}.Patch" if name == "patch" else schema_name(kind))}
        content = dict.fromkeys(verb.content_types, body)
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameter(name: str, location: str, type: str = "string") -> dict[str, Any]:
    parameter = {"name": name, "in": location, "schema": {"type": type}}
    return {**parameter, "required": True} if location == "path" else parameter
