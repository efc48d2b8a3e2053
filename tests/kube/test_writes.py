"""Writes over HTTPS as kubectl makes them: replaced, patched, checked, tried out, paged, swept."""

from typing import Any

import orjson
import pytest

from tests.kube.clusters import workflow
from tests.kube.test_api import MERGE, STORAGES, WORKFLOWS, Caller, told_to_one, told_to_server
from warren.base.objects import Object
from warren.dws.kinds import STORAGE, WORKFLOW
from warren.kube.admission import Review
from warren.kube.server.builtin import CRD

JSON_PATCH = {"Content-Type": "application/json-patch+json"}
TOYS = "/apis/toys.example/v1/namespaces/default/toys"


async def defined(caller: Caller, schema: dict[str, Any], **version: Any) -> None:
    """Define the kind Toy with a schema of its spec."""
    served = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": schema, "status": {"type": "object"}},
            }
        },
        **version,
    }
    definition = {
        "metadata": {"name": "toys.toys.example"},
        "spec": {
            "group": "toys.example",
            "names": {"kind": "Toy", "plural": "toys", "shortNames": ["ty"]},
            "scope": "Namespaced",
            "versions": [served],
        },
    }
    await caller.store.create(CRD, definition)


COLOR = {
    "type": "object",
    "required": ["color"],
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "count": {"type": "integer", "default": 1},
    },
}


def toy(name: str = "t", **spec: Any) -> bytes:
    return orjson.dumps({"metadata": {"name": name}, "spec": spec})


# Replacing


@told_to_server
async def test_an_object_is_replaced_by_another_of_its_name(caller: Caller) -> None:
    labels: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}}
    made = await caller.store.create(WORKFLOW, workflow(**labels))
    body = orjson.dumps({**workflow(), "spec": {"new": 1}})
    code, after = await caller.ask("PUT", f"{WORKFLOWS}/w", data=body)

    assert code == 200
    assert after["spec"] == {"new": 1}
    assert "labels" not in after["metadata"]
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert caller.store.list(WORKFLOW).items == [after]


@told_to_server
async def test_a_stale_replacement_is_a_conflict(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    newer = orjson.dumps({"metadata": {"labels": {"a": "b"}}})
    await caller.ask("PATCH", f"{WORKFLOWS}/w", data=newer, headers=MERGE)
    answer = await caller.fails("PUT", f"{WORKFLOWS}/w", data=orjson.dumps(made))

    assert answer == (409, "Conflict")


@told_to_server
async def test_status_and_the_rest_are_replaced_apart(caller: Caller) -> None:
    body = {"metadata": {"name": "r"}, "spec": {"state": "a"}, "status": {"status": "b"}}
    await caller.ask("POST", STORAGES, data=orjson.dumps(body))
    both = {**body, "spec": {"state": "new"}, "status": {"status": "new"}}

    _, after = await caller.ask("PUT", f"{STORAGES}/r/status", data=orjson.dumps(both))
    assert (after["spec"]["state"], after["status"]["status"]) == ("a", "new")

    both["status"] = {"status": "newer"}
    _, after = await caller.ask("PUT", f"{STORAGES}/r", data=orjson.dumps(both))
    assert (after["spec"]["state"], after["status"]["status"]) == ("new", "new")
    assert caller.store.list(STORAGE).items == [after]


# JSON patches


@told_to_server
async def test_a_json_patch_changes_what_its_operations_say(caller: Caller) -> None:
    await caller.store.create(WORKFLOW, workflow(spec={"list": [1, 2]}))
    patch = [
        {"op": "test", "path": "/spec/list/0", "value": 1},
        {"op": "remove", "path": "/spec/list/0"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    code, after = await caller.ask(
        "PATCH", f"{WORKFLOWS}/w", data=orjson.dumps(patch), headers=JSON_PATCH
    )

    assert (code, after["spec"], after["metadata"]["labels"]) == (200, {"list": [2]}, {"a": "b"})


@told_to_server
async def test_a_json_patch_that_cannot_be_done_changes_nothing(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    for patch in (
        [{"op": "add", "path": "/spec/x", "value": 1}, {"op": "remove", "path": "/nowhere"}],
        [{"op": "remove", "path": "/metadata"}],
        [{"op": "replace", "path": "", "value": 3}],
    ):
        data = orjson.dumps(patch)
        answer = await caller.fails("PATCH", f"{WORKFLOWS}/w", data=data, headers=JSON_PATCH)
        assert answer == (422, "Invalid")

    assert caller.store.list(WORKFLOW).items == [made]


# Schemas


@told_to_server
async def test_defaults_are_filled_in_and_unknown_fields_left_out(caller: Caller) -> None:
    await defined(caller, COLOR)
    async with caller.session.post(
        f"{caller.server}{TOYS}", data=toy(color="red", size=3)
    ) as answer:
        made = orjson.loads(await answer.read())

    assert made["spec"] == {"color": "red", "count": 1}
    assert answer.headers.getall("Warning") == ['299 - "unknown field \\"spec.size\\""']


class Doubtful:
    async def admit(self, review: Review) -> Object | None:
        for _ in range(2):  # a write that is tried again is admitted again
            review.warn("spec.color: this has no effect")
        return review.new


@told_to_one(admission=Doubtful())
async def test_what_admission_warns_of_goes_back_with_the_answer(caller: Caller) -> None:
    url = f"{caller.server}{WORKFLOWS}"
    async with caller.session.post(url, data=orjson.dumps(workflow())) as answer:
        assert answer.status == 201
        assert answer.headers.getall("Warning") == ['299 - "spec.color: this has no effect"']
    url = f"{caller.server}{WORKFLOWS}/{workflow()['metadata']['name']}"
    patch = orjson.dumps({"metadata": {"labels": {"a": "b"}}})
    async with caller.session.patch(url, data=patch, headers=MERGE) as answer:
        assert answer.headers.getall("Warning") == ['299 - "spec.color: this has no effect"']


class Wordy:
    """Warns of what a Workflow's directives say."""

    async def admit(self, review: Review) -> Object | None:
        for each in (review.new or {})["spec"].get("dwDirectives", ()):
            review.warn(each)
        return review.new


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (["a" * 4000], ["a" * 4000]),
        (["a" * 9000, "b"], ["a" * 256, "b"]),
        (["ä" * 4000], ["ä" * 256]),  # of two bytes each
        ([str(each) for each in range(200)], [str(each) for each in range(64)]),
        # Of 264 bytes each with what is around it.
        (
            [f"{each:03}{'a' * 1000}" for each in range(20)],
            [f"{each:03}{'a' * 253}" for each in range(15)],
        ),
    ],
)
@told_to_one(admission=Wordy())
async def test_an_answer_has_no_more_warnings_than_its_client_takes(
    caller: Caller, said: list[str], heard: list[str]
) -> None:
    url = f"{caller.server}{WORKFLOWS}"
    data = orjson.dumps(workflow(spec={"dwDirectives": said}))
    async with caller.session.post(url, data=data) as answer:
        assert answer.status == 201
        assert answer.headers.getall("Warning") == [f'299 - "{each}"' for each in heard]


@told_to_server
async def test_unknown_fields_are_refused_or_passed_over_as_asked(caller: Caller) -> None:
    await defined(caller, COLOR)
    body = toy(color="red", size=3)
    _, status = await caller.ask("POST", f"{TOYS}?fieldValidation=Strict", data=body)
    assert status["message"] == 'strict decoding error: unknown field "spec.size"'
    assert (await caller.get(TOYS))["items"] == []

    async with caller.session.post(
        f"{caller.server}{TOYS}?fieldValidation=Ignore", data=body
    ) as answer:
        assert (answer.status, answer.headers.getall("Warning", [])) == (201, [])


@told_to_server
async def test_what_does_not_fit_the_schema_is_invalid_with_all_causes(caller: Caller) -> None:
    await defined(caller, COLOR)
    code, status = await caller.ask("POST", TOYS, data=toy(count="many"))

    assert (code, status["reason"]) == (422, "Invalid")
    assert (status["details"]["name"], status["details"]["kind"]) == ("t", "Toy")
    causes = {each["field"]: each["reason"] for each in status["details"]["causes"]}
    assert causes == {"spec.color": "FieldValueRequired", "spec.count": "FieldValueTypeInvalid"}
    assert (await caller.get(TOYS))["items"] == []


@told_to_server
async def test_a_patch_may_not_break_the_schema_either(caller: Caller) -> None:
    await defined(caller, COLOR)
    await caller.ask("POST", TOYS, data=toy(color="red"))
    patch = orjson.dumps({"spec": {"color": "green"}})
    code, status = await caller.ask("PATCH", f"{TOYS}/t", data=patch, headers=MERGE)

    assert (code, status["reason"]) == (422, "Invalid")
    assert 'Unsupported value: "green"' in status["message"]
    assert (await caller.get(f"{TOYS}/t"))["spec"]["color"] == "red"


@told_to_server
async def test_the_schemas_are_told_as_openapi(caller: Caller) -> None:
    before = (await caller.get("/openapi/v3"))["paths"]
    assert "apis/toys.example/v1" not in before
    await defined(caller, COLOR)
    index = (await caller.get("/openapi/v3"))["paths"]
    assert index["api/v1"] == before["api/v1"]

    address = index["apis/toys.example/v1"]["serverRelativeURL"]
    document = await caller.get(address)
    (toy_schema,) = [
        each for name, each in document["components"]["schemas"].items() if name.endswith("v1.Toy")
    ]
    assert toy_schema["properties"]["spec"]["required"] == ["color"]


# Trying out


@told_to_server
async def test_what_is_only_tried_out_is_judged_and_not_written(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    dry, one = "?dryRun=All", f"{WORKFLOWS}/w"
    patch = orjson.dumps({"spec": {"tried": True}})

    code, shown = await caller.ask("PATCH", one + dry, data=patch, headers=MERGE)
    assert (code, shown["spec"]["tried"]) == (200, True)
    code, _ = await caller.ask("POST", WORKFLOWS + dry, data=orjson.dumps(workflow("other")))
    assert code == 201
    code, _ = await caller.ask("DELETE", one + dry)
    assert code == 200
    evil = orjson.dumps(workflow("x", spec={"evil": True}))
    assert (await caller.fails("POST", WORKFLOWS + dry, data=evil))[0] == 403

    assert caller.store.list(WORKFLOW).items == [made]
    assert caller.store.resource_version == made["metadata"]["resourceVersion"]


@pytest.mark.parametrize("query", ["dryRun=Some", "fieldValidation=Harsh"])
@told_to_server
async def test_ways_to_write_that_there_are_not_are_refused(caller: Caller, query: str) -> None:
    body = orjson.dumps(workflow())
    assert await caller.fails("POST", f"{WORKFLOWS}?{query}", data=body) == (400, "BadRequest")


# Many at a time


@told_to_server
async def test_a_list_comes_in_pages_that_miss_and_repeat_nothing(caller: Caller) -> None:
    for number in range(7):
        await caller.store.create(WORKFLOW, workflow(f"w{number}"))
    pages, token = [], ""
    while True:
        found = await caller.get(f"{WORKFLOWS}?limit=3&continue={token}")
        pages.append([each["metadata"]["name"] for each in found["items"]])
        token = found["metadata"].get("continue", "")
        if not token:
            break
        assert found["metadata"]["remainingItemCount"] == 7 - sum(map(len, pages))

    assert pages == [["w0", "w1", "w2"], ["w3", "w4", "w5"], ["w6"]]


@told_to_server
async def test_a_collection_is_deleted_as_far_as_it_is_chosen(caller: Caller) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        metadata = {"labels": {"color": color}, "finalizers": ["x/y"] if name == "c" else []}
        await caller.store.create(WORKFLOW, workflow(name, metadata=metadata))
    code, answer = await caller.ask("DELETE", f"{WORKFLOWS}?labelSelector=color=red")

    assert (code, len(answer["items"])) == (200, 2)
    left = {each["metadata"]["name"]: each for each in caller.store.list(WORKFLOW).items}
    assert set(left) == {"b", "c"}
    assert "deletionTimestamp" in left["c"]["metadata"]


@told_to_server
async def test_yaml_is_read_as_json_is(caller: Caller) -> None:
    text = b"metadata: {name: y}\nspec: {a: [1, two]}\n"
    headers = {"Content-Type": "application/yaml"}
    code, made = await caller.ask("POST", WORKFLOWS, data=text, headers=headers)
    assert (code, made["spec"]) == (201, {"a": [1, "two"]})

    for bad in (b"a: [", b"!!python/object:os.system {}", b"- 1"):
        answer = await caller.fails("POST", WORKFLOWS, data=bad, headers=headers)
        assert answer == (400, "BadRequest")


# Applying


APPLY = {"Content-Type": "application/apply-patch+yaml"}


async def apply(caller: Caller, manager: str, text: str, query: str = "") -> tuple[int, Any]:
    """Apply a configuration of the toy `t`."""
    return await caller.ask(
        "PATCH", f"{TOYS}/t?fieldManager={manager}{query}", data=text.encode(), headers=APPLY
    )


@told_to_server
async def test_what_is_applied_is_made_then_changed_then_left_alone(caller: Caller) -> None:
    await defined(caller, COLOR)
    code, made = await apply(caller, "me", "spec: {color: red}")
    assert (code, made["spec"]) == (201, {"color": "red", "count": 1})

    code, after = await apply(caller, "me", "spec: {color: blue}")
    assert (code, after["spec"]["color"]) == (200, "blue")
    assert await apply(caller, "me", "spec: {color: blue}") == (200, after)
    assert caller.store.resource_version == after["metadata"]["resourceVersion"]


@told_to_server
async def test_what_another_manager_owns_is_a_conflict_that_force_settles(caller: Caller) -> None:
    await defined(caller, COLOR)
    await apply(caller, "me", "spec: {color: red}")
    code, status = await apply(caller, "you", "spec: {color: blue}")

    assert (code, status["reason"]) == (409, "Conflict")
    (cause,) = status["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.color")
    assert cause["message"] == 'conflict with "me"'

    code, after = await apply(caller, "you", "spec: {color: blue}", "&force=true")
    assert (code, after["spec"]["color"]) == (200, "blue")
    assert (await apply(caller, "me", "spec: {color: red}"))[0] == 409


@told_to_server
async def test_other_writers_are_owners_too(caller: Caller) -> None:
    await defined(caller, COLOR)
    await apply(caller, "me", "spec: {color: red}")
    patch = orjson.dumps({"spec": {"color": "blue"}})
    await caller.ask("PATCH", f"{TOYS}/t?fieldManager=editor", data=patch, headers=MERGE)
    code, status = await apply(caller, "me", "spec: {color: red}")

    assert code == 409
    assert '"editor" using toys.example/v1: .spec.color' in status["message"]


@told_to_server
async def test_what_is_applied_must_fit_the_schema_and_name_its_manager(caller: Caller) -> None:
    await defined(caller, COLOR)
    assert (await apply(caller, "me", "spec: {color: green}"))[0] == 422
    assert (await apply(caller, "", "spec: {color: red}"))[0] == 400
    assert (await apply(caller, "me", "- 1"))[0] == 400
    assert (await apply(caller, "me", "kind: Other"))[0] == 400
    assert (await apply(caller, "me", "spec: {color: red}", "&dryRun=All"))[0] == 201
    assert (await caller.get(TOYS))["items"] == []


@told_to_server
async def test_status_is_applied_apart(caller: Caller) -> None:
    await defined(caller, COLOR, subresources={"status": {}})
    address = f"{TOYS}/t/status?fieldManager=me"
    body = b"status: {}\nspec: {color: blue}\n"
    assert (await caller.ask("PATCH", address, data=body, headers=APPLY))[0] == 404

    await apply(caller, "me", "spec: {color: red}\nstatus: {}")
    _, after = await caller.ask("PATCH", address, data=body, headers=APPLY)
    assert (after["spec"]["color"], after["status"]) == ("red", {})


@told_to_server
async def test_an_object_from_before_its_definition_changed_loses_what_is_not_defined_any_more(
    caller: Caller,
) -> None:
    await defined(caller, COLOR)
    await caller.ask("POST", TOYS, data=toy(color="red"))
    crd = f"/apis/{CRD.group}/v1/{CRD.plural}/toys.toys.example"
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/count"
    operations = orjson.dumps([{"op": "remove", "path": path}])
    assert (await caller.ask("PATCH", crd, data=operations, headers=JSON_PATCH))[0] == 200

    patch = orjson.dumps({"metadata": {"labels": {"a": "b"}}})
    _, changed = await caller.ask("PATCH", f"{TOYS}/t", data=patch, headers=MERGE)

    assert changed["spec"] == {"color": "red"}
