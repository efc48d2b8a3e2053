"""The OpenAPI v3 documents, as kubectl looks things up in them."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Kind
from warren.dws.kinds import STORAGE, WORKFLOW
from warren.kube.server.builtin import BUILT_IN, CRD, NAMESPACE
from warren.kube.server.resources import Resource
from warren.kube.server.rest import openapi

SCHEMA = {
    "type": "object",
    "description": "A job's storage.",
    "required": ["spec"],
    "properties": {
        "apiVersion": {"type": "string", "description": "Which version this is."},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "description": "What is wanted.",
            "properties": {"jobID": {"x-kubernetes-int-or-string": True}},
        },
    },
}


def resource(kind: Kind, **more: Any) -> Resource:
    about: dict[str, Any] = {
        "group": kind.group,
        "plural": kind.plural,
        "kind_name": kind.name,
        "versions": (kind.version,),
        "namespaced": kind.namespaced,
        "has_status": kind.status,
    }
    return Resource(**{**about, **more})


def document(kind: Kind = WORKFLOW, **more: Any) -> dict[str, Any]:
    """Return the document in which a kind is."""
    resources = [*BUILT_IN, resource(kind, **more)]
    return openapi.document(kind.group, kind.version, resources, {kind.plural: SCHEMA})


def gvk(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def operations(told: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in told["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def queries(operation: Mapping[str, Any]) -> set[str]:
    return {one["name"] for one in operation["parameters"] if one["in"] == "query"}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "$ref":
                yield item
            yield from references(item)
    if isinstance(value, list):
        for item in value:
            yield from references(item)


WORKFLOWS = f"/apis/{WORKFLOW.group}/{WORKFLOW.version}/namespaces/{{namespace}}/workflows"


# The index


def test_the_index_leads_to_every_document() -> None:
    told = openapi.index({"api/v1": b"one", "apis/g.example/v1": b"other"})

    assert list(told["paths"]) == ["api/v1", "apis/g.example/v1"]
    for where, entry in told["paths"].items():
        assert entry["serverRelativeURL"].startswith(f"/openapi/v3/{where}?hash=")


@given(st.binary(max_size=9), st.binary(max_size=9))
def test_a_document_has_the_same_address_while_it_is_the_same(one: bytes, other: bytes) -> None:
    assert (openapi.index({"api/v1": one}) == openapi.index({"api/v1": other})) == (one == other)


@pytest.mark.parametrize(
    ("group", "version", "place"),
    [("", "v1", "api/v1"), ("g.example", "v1beta1", "apis/g.example/v1beta1")],
)
def test_a_group_has_its_place(group: str, version: str, place: str) -> None:
    assert openapi.group_version_path(group, version) == place


# Operations


@pytest.mark.parametrize("kind", [WORKFLOW, STORAGE, NAMESPACE, CRD], ids=str)
def test_a_patch_may_be_dry_strict_managed_and_forced(kind: Kind) -> None:
    # kubectl looks at the first patch of the kind that it meets: the status counts, too.
    patches = [one for _, method, one in operations(document(kind)) if method == "patch"]
    mine = [one for one in patches if one["x-kubernetes-group-version-kind"] == gvk(kind)]

    assert mine
    for patch in mine:
        assert queries(patch) == {"dryRun", "fieldValidation", "fieldManager", "force"}


def test_other_writes_may_be_dry_and_strict() -> None:
    paths = document()["paths"]

    for operation in (paths[WORKFLOWS]["post"], paths[f"{WORKFLOWS}/{{name}}"]["put"]):
        assert queries(operation) == {"dryRun", "fieldValidation", "fieldManager"}
    assert queries(paths[f"{WORKFLOWS}/{{name}}"]["delete"]) == {"dryRun"}


def test_no_strategic_merge_patches_are_asked_for() -> None:
    patch = document()["paths"][f"{WORKFLOWS}/{{name}}"]["patch"]

    assert set(patch["requestBody"]["content"]) == set(openapi.PATCH_CONTENT_TYPES)
    assert not [kind for kind in openapi.PATCH_CONTENT_TYPES if "strategic" in kind]


def test_a_namespaced_resource_has_its_paths() -> None:
    told = {path: set(item) - {"parameters"} for path, item in document()["paths"].items()}

    assert told == {
        WORKFLOWS: {"get", "post"},
        f"{WORKFLOWS}/{{name}}": {"get", "put", "patch", "delete"},
        f"/apis/{WORKFLOW.group}/{WORKFLOW.version}/workflows": {"get"},
    }


def test_a_status_that_is_apart_has_a_path() -> None:
    paths = document(has_status=True)["paths"]

    assert set(paths[f"{WORKFLOWS}/{{name}}/status"]) == {"parameters", "get", "put", "patch"}


def test_a_cluster_wide_resource_is_in_no_namespace() -> None:
    paths = document(NAMESPACE)["paths"]

    own = {path for path in paths if path.startswith("/api/v1/namespaces/{name}")}
    assert own == {"/api/v1/namespaces/{name}", "/api/v1/namespaces/{name}/status"}
    assert "/api/v1/namespaces" in paths


def test_every_step_of_a_path_is_a_parameter() -> None:
    for told in (document(has_status=True), document(NAMESPACE), document(CRD)):
        for path, item in told["paths"].items():
            named = {one["name"] for one in item.get("parameters", []) if one["required"]}
            assert named == {step[1:-1] for step in path.split("/") if step.startswith("{")}


def test_operations_say_their_kind_and_have_names_of_their_own() -> None:
    told = list(operations(document(has_status=True)))

    assert {tuple(one["x-kubernetes-group-version-kind"].values()) for _, _, one in told} == {
        (WORKFLOW.group, WORKFLOW.version, WORKFLOW.name)
    }
    assert len({one["operationId"] for _, _, one in told}) == len(told)


# Schemas


def test_a_kind_is_found_by_its_group_and_version() -> None:
    schemas = document()["components"]["schemas"]

    name = "io.github.dataworkflowservices.v1alpha7.Workflow"
    assert openapi.schema_name(WORKFLOW) == name
    assert schemas[name]["x-kubernetes-group-version-kind"] == [gvk(WORKFLOW)]
    assert schemas[name]["properties"]["spec"] == SCHEMA["properties"]["spec"]  # type: ignore[index]
    assert schemas[name]["required"] == ["spec"]
    assert openapi.schema_name(NAMESPACE) == "io.k8s.api.core.v1.Namespace"


def test_every_object_has_metadata_and_says_what_it_is() -> None:
    for kind, said in ((WORKFLOW, SCHEMA), (NAMESPACE, None)):
        schemas = {kind.plural: said} if said else {}
        told = openapi.document(kind.group, kind.version, [resource(kind)], schemas)
        properties = told["components"]["schemas"][openapi.schema_name(kind)]["properties"]

        assert properties["apiVersion"]["type"] == properties["kind"]["type"] == "string"
        (reference,) = references(properties["metadata"])
        assert reference.endswith(".ObjectMeta")


def test_a_description_of_the_definition_is_kept() -> None:
    schema = document()["components"]["schemas"][openapi.schema_name(WORKFLOW)]

    assert schema["properties"]["apiVersion"]["description"] == "Which version this is."
    assert schema["description"] == "A job's storage."


def test_a_kind_without_a_schema_may_have_any_fields() -> None:
    told = openapi.document("", "v1", BUILT_IN, {})

    assert told["components"]["schemas"]["io.k8s.api.core.v1.Namespace"][
        "x-kubernetes-preserve-unknown-fields"
    ]


def test_every_reference_leads_somewhere() -> None:
    for told in (document(has_status=True), document(NAMESPACE), document(CRD)):
        schemas = told["components"]["schemas"]
        for reference in references(told):
            assert reference.removeprefix("#/components/schemas/") in schemas


def test_only_one_group_and_version_is_told() -> None:
    resources = [resource(WORKFLOW, versions=("v1", "v2")), *BUILT_IN]
    told = openapi.document(WORKFLOW.group, "v2", resources, {})

    assert told["paths"]
    assert all(path.startswith(f"/apis/{WORKFLOW.group}/v2/") for path in told["paths"])
    assert openapi.document(WORKFLOW.group, "v3", resources, {})["paths"] == {}


def test_definitions_are_not_modified() -> None:
    before = orjson.dumps(SCHEMA)
    document()

    assert orjson.dumps(SCHEMA) == before


def test_the_same_resources_make_the_same_document() -> None:
    assert orjson.dumps(document()) == orjson.dumps(document())
