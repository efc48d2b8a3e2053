"""Kubernetes' own kinds: values that are no strings, and objects that stay what they are."""

import base64
from typing import Any

import pytest

from tests.kube.test_api import MERGE, Caller, told_to_server

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
HELD = "Forbidden: field is immutable when `immutable` is set"


def named(**rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, **rest}


async def refused(caller: Caller, method: str, path: str, **options: Any) -> list[tuple[str, str]]:
    code, status = await caller.ask(method, path, **options)
    assert (code, status["reason"]) == (422, "Invalid"), status
    return [(each["field"], each["message"]) for each in status["details"]["causes"]]


@pytest.mark.parametrize("path", [CONFIGMAPS, SECRETS])
@told_to_server
async def test_what_is_immutable_is_not_changed(caller: Caller, path: str) -> None:
    where = f"{path}/c"
    data = {"a": base64.b64encode(b"1").decode()}
    code, made = await caller.ask("POST", path, json=named(data=data, immutable=True))
    assert code == 201
    patch: dict[str, Any]
    for patch in ({"data": {"a": "Mg=="}}, {"data": {"b": "Mg=="}}, {"data": None}):
        assert await refused(caller, "PATCH", where, json=patch, headers=MERGE) == [("data", HELD)]
    for patch in ({"immutable": False}, {"immutable": None}):
        causes = await refused(caller, "PATCH", where, json=patch, headers=MERGE)
        assert causes == [("immutable", HELD)]
    whole = {**made, "data": {}, "immutable": False}
    assert [field for field, _ in await refused(caller, "PUT", where, json=whole)] == [
        "immutable",
        "data",
    ]
    code, status = await caller.ask("PATCH", where, json={"data": {"a": "Mg=="}}, headers=MERGE)
    assert f'"c" is invalid: data: {HELD}' in status["message"]
    assert await caller.get(where) == made

    labelled = {"metadata": {"labels": {"color": "red"}}}
    assert (await caller.ask("PATCH", where, json=labelled, headers=MERGE))[0] == 200
    assert (await caller.ask("DELETE", where))[0] == 200


@told_to_server
async def test_what_is_not_immutable_can_be_made_so(caller: Caller) -> None:
    await caller.ask("POST", CONFIGMAPS, json=named(data={"a": "1"}, immutable=False))
    where = f"{CONFIGMAPS}/c"
    patch = {"data": {"a": "2"}, "immutable": True}
    assert (await caller.ask("PATCH", where, json=patch, headers=MERGE))[0] == 200
    causes = await refused(
        caller, "PATCH", where, json={"binaryData": {"b": "Mg=="}}, headers=MERGE
    )
    assert causes == [("binaryData", HELD)]


@told_to_server
async def test_a_secret_stays_of_its_type(caller: Caller) -> None:
    await caller.ask("POST", SECRETS, json=named(type="kubernetes.io/tls"))
    patch = {"type": "Opaque"}
    assert await refused(caller, "PATCH", f"{SECRETS}/c", json=patch, headers=MERGE) == [
        ("type", 'Invalid value: "Opaque": field is immutable')
    ]


@pytest.mark.parametrize(
    ("value", "type_"), [(True, "boolean"), (8080, "integer"), ({}, "object"), (["a"], "array")]
)
@told_to_server
async def test_what_is_no_string_is_refused_with_its_field(
    caller: Caller, value: Any, type_: str
) -> None:
    for path, field in (
        (SECRETS, "stringData"),
        (SECRETS, "data"),
        (CONFIGMAPS, "data"),
        (CONFIGMAPS, "binaryData"),
    ):
        at = f"{field}[x]"
        message = f'Invalid value: "{type_}": {at} in body must be of type string: "{type_}"'
        obj = named(**{field: {"x": value, "y": "z"}})
        assert await refused(caller, "POST", path, json=obj) == [(at, message)]
        assert (await caller.ask("POST", path, json=named()))[0] == 201
        patch = {field: {"x": value}}
        causes = await refused(caller, "PATCH", f"{path}/c", json=patch, headers=MERGE)
        assert causes == [(at, message)]
        assert (await caller.ask("DELETE", f"{path}/c"))[0] == 200


@told_to_server
async def test_yaml_of_a_boolean_is_no_string_of_a_secret(caller: Caller) -> None:
    body = b"{apiVersion: v1, kind: Secret, metadata: {name: c}, stringData: {x: yes}}"
    headers = {"Content-Type": "application/yaml"}
    [(field, _)] = await refused(caller, "POST", SECRETS, data=body, headers=headers)
    assert field == "stringData[x]"


@told_to_server
async def test_what_holds_no_values_is_refused(caller: Caller) -> None:
    [(field, message)] = await refused(caller, "POST", CONFIGMAPS, json=named(data=["a"]))
    assert field == "data"
    assert "must be of type object" in message


@told_to_server
async def test_a_null_of_a_secret_is_the_empty_string(caller: Caller) -> None:
    code, made = await caller.ask("POST", SECRETS, json=named(stringData={"x": None, "y": "z"}))
    assert (code, made["data"]) == (201, {"x": "", "y": "eg=="})
