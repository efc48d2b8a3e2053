"""Rules in CEL are not evaluated, and the author of a definition is told so."""

from typing import Any

from tests.kube.test_api import MERGE, Caller, told_to_server
from warren.kube.server.schemas.celrules import warnings

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RULES = [{"rule": "self.least <= self.most", "message": "least is at most most"}]


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    root = {"type": "object", **schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "toys.ruled.example"},
        "spec": {
            "group": "ruled.example",
            "scope": "Namespaced",
            "names": {"kind": "Toy", "plural": "toys", "singular": "toy"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def ruled(**more: Any) -> dict[str, Any]:
    return {"type": "object", "x-kubernetes-validations": RULES, **more}


ROOT = "spec.versions[0].schema.openAPIV3Schema"
SAID = "rules in CEL are not evaluated here: what they alone forbid is let in"


@told_to_server
async def test_the_author_of_a_definition_with_rules_is_warned(caller: Caller) -> None:
    crd = definition({"properties": {"spec": ruled()}})
    warning = f'299 - "{ROOT}.properties[spec].x-kubernetes-validations: {SAID}"'

    async def told(method: str, path: str, **options: Any) -> list[str]:
        async with caller.session.request(method, caller.server + path, **options) as response:
            assert response.status in (200, 201), await response.text()
            return response.headers.getall("Warning", [])

    assert await told("POST", f"{CRDS}?dryRun=All", json=crd) == [warning]
    assert await told("POST", CRDS, json=crd) == [warning]
    where = f"{CRDS}/toys.ruled.example"
    patch = {"metadata": {"labels": {"color": "red"}}}
    assert await told("PATCH", where, json=patch, headers=MERGE) == [warning]
    apply = {"Content-Type": "application/apply-patch+yaml"}
    applied = f"{where}?fieldManager=me&force=true"
    assert await told("PATCH", applied, json=crd, headers=apply) == [warning]
    assert await told("GET", where) == []
    plain = definition({"properties": {"spec": {"type": "object"}}})
    assert await told("PUT", where, json=plain) == []


def test_rules_are_found_wherever_they_stand() -> None:
    schema = {
        "x-kubernetes-validations": RULES,
        "properties": {
            "list": {"type": "array", "items": ruled()},
            "map": {"type": "object", "additionalProperties": ruled()},
            "any": {"anyOf": [{}, {"x-kubernetes-validations": RULES}]},
            "x-kubernetes-validations": {"type": "string"},
            "none": {"type": "array", "x-kubernetes-validations": []},
        },
    }
    [warning] = warnings(definition(schema))
    places = [
        f"{ROOT}.x-kubernetes-validations",
        f"{ROOT}.properties[list].items.x-kubernetes-validations",
        f"{ROOT}.properties[map].additionalProperties.x-kubernetes-validations",
    ]
    assert warning == f"{', '.join(places)} and 1 more: {SAID}"


def test_a_definition_without_rules_is_no_cause_for_a_warning() -> None:
    crd = definition({"x-kubernetes-preserve-unknown-fields": True})
    assert warnings(crd) == []
    del crd["spec"]["versions"][0]["schema"]
    assert warnings(crd) == []
