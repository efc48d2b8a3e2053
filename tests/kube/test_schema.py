"""Structural schemas: pruning, defaulting, and what is wrong with an object."""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from warren.kube.client import Refused
from warren.kube.server.schemas import schema
from warren.kube.server.schemas.causes import Cause
from warren.kube.server.schemas.schema import CompiledSchema

CRDS = Path(__file__).parents[3] / "shared/vectors/crds"
real = pytest.mark.skipif(not CRDS.is_dir(), reason=f"the real definitions are not in {CRDS}")

STRING = {"type": "string"}
COUNT = {"type": "integer"}


def spec(**properties: Any) -> CompiledSchema:
    """Compile a schema that specifies these fields of `spec`."""
    return schema.compile(
        {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": properties}},
        }
    )


def field(definition: dict[str, Any]) -> CompiledSchema:
    """Compile a schema that specifies `spec.x`."""
    return spec(x=definition)


def causes(definition: dict[str, Any], value: Any) -> list[Cause]:
    """Return what is wrong with a value of `spec.x`."""
    return field(definition).violations({"spec": {"x": value}})


def objects(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


def listed(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


# Pruning


def test_unknown_fields_are_pruned_and_told() -> None:
    compiled = spec(known=STRING, inner=objects(properties={"a": STRING}))
    obj = {"spec": {"known": "k", "bogus": {"a": 1}, "inner": {"a": "a", "b": "b"}}, "other": 1}

    pruned, unknown = compiled.prune(obj)

    assert pruned == {"spec": {"known": "k", "inner": {"a": "a"}}}
    assert sorted(unknown) == ["other", "spec.bogus", "spec.inner.b"]


def test_unknown_fields_of_items_are_told_with_their_index() -> None:
    compiled = field(listed(objects(properties={"a": STRING})))

    pruned, unknown = compiled.prune({"spec": {"x": [{"a": "1"}, {"a": "2", "b": 3}]}})

    assert pruned == {"spec": {"x": [{"a": "1"}, {"a": "2"}]}}
    assert unknown == ["spec.x[1].b"]


def test_what_every_object_has_stays_at_the_root_alone() -> None:
    compiled = schema.compile(objects(properties={"metadata": objects(), "spec": objects()}))
    own = {"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "n", "labels": {"a": "b"}}}

    pruned, unknown = compiled.prune({**own, "spec": {"kind": "K", "metadata": {}}})

    assert pruned == {**own, "spec": {}}
    assert unknown == ["spec.kind", "spec.metadata"]


def test_an_embedded_object_keeps_what_every_object_has() -> None:
    compiled = field(
        objects(**{"x-kubernetes-embedded-resource": True, "properties": {"spec": objects()}})
    )
    own = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}

    pruned, unknown = compiled.prune({"spec": {"x": {**own, "spec": {}, "bogus": 1}}})

    assert pruned == {"spec": {"x": {**own, "spec": {}}}}
    assert unknown == ["spec.x.bogus"]


def test_an_embedded_object_must_say_what_it_is() -> None:
    wrong = causes(objects(**{"x-kubernetes-embedded-resource": True}), {"kind": "Pod"})

    assert wrong == [Cause("spec.x.apiVersion", "FieldValueRequired", "Required value")]


def test_unknown_fields_stay_where_they_are_to_be_preserved() -> None:
    inner = objects(properties={"a": STRING})
    compiled = field(
        objects(**{"x-kubernetes-preserve-unknown-fields": True, "properties": {"known": inner}})
    )
    obj = {"spec": {"x": {"free": {"deep": [1]}, "known": {"a": "a", "b": "b"}}}}

    pruned, unknown = compiled.prune(obj)

    assert pruned == {"spec": {"x": {"free": {"deep": [1]}, "known": {"a": "a"}}}}
    assert unknown == ["spec.x.known.b"]


@pytest.mark.parametrize(
    ("values", "kept"),
    [(objects(properties={"a": STRING}), {"any": {"a": "1"}}), (True, {"any": {"a": "1", "b": 2}})],
)
def test_a_map_keeps_all_its_names(values: Any, kept: Any) -> None:
    compiled = field(objects(additionalProperties=values))

    assert compiled.prune({"spec": {"x": {"any": {"a": "1", "b": 2}}}})[0] == {"spec": {"x": kept}}


def test_an_object_without_unknown_fields_is_itself() -> None:
    obj = {"spec": {"x": [{"a": "1"}]}}

    assert field(listed(objects(properties={"a": STRING}))).prune(obj)[0] is obj


# Defaulting


@pytest.mark.parametrize(
    ("definition", "given", "after"),
    [
        ({**COUNT, "default": 3}, {}, {"x": 3}),
        ({**COUNT, "default": 3}, {"x": 0}, {"x": 0}),
        ({**COUNT, "default": 3}, {"x": None}, {"x": 3}),
        ({**COUNT, "default": 3, "nullable": True}, {"x": None}, {"x": None}),
        ({**COUNT, "default": 3, "nullable": True}, {}, {"x": 3}),
        (COUNT, {"x": None}, {}),
        ({**COUNT, "nullable": True}, {"x": None}, {"x": None}),
        (objects(properties={"a": {**COUNT, "default": 1}}), {}, {}),
        (objects(properties={"a": {**COUNT, "default": 1}}), {"x": {}}, {"x": {"a": 1}}),
        (
            objects(default={}, properties={"a": {**COUNT, "default": 1}}),
            {},
            {"x": {"a": 1}},
        ),
        (
            listed(objects(properties={"a": {**COUNT, "default": 1}})),
            {"x": [{}, {"a": 2}, None]},
            {"x": [{"a": 1}, {"a": 2}, None]},
        ),
        (listed({**COUNT, "default": 1}), {"x": [None, 2]}, {"x": [1, 2]}),
        (listed({**COUNT, "nullable": True, "default": 1}), {"x": [None]}, {"x": [None]}),
        (objects(additionalProperties=COUNT), {"x": {"a": None, "b": 1}}, {"x": {"b": 1}}),
        (
            objects(additionalProperties={**COUNT, "default": 7}),
            {"x": {"a": None}},
            {"x": {"a": 7}},
        ),
        ({"x-kubernetes-preserve-unknown-fields": True}, {"x": {"a": None}}, {"x": {"a": None}}),
    ],
)
def test_defaults_stand_where_fields_are_missing(
    definition: dict[str, Any], given: Any, after: Any
) -> None:
    assert field(definition).apply_defaults({"spec": given}) == {"spec": after}


def test_defaults_make_no_objects_that_are_missing() -> None:
    assert field({**COUNT, "default": 3}).apply_defaults({}) == {}


def test_an_object_that_lacks_nothing_is_itself() -> None:
    obj = {"spec": {"x": [{"a": 1}]}}

    assert (
        field(listed(objects(properties={"a": {**COUNT, "default": 1}}))).apply_defaults(obj) is obj
    )


# What is wrong


def test_a_missing_field_is_required() -> None:
    compiled = schema.compile(objects(required=["spec"]))

    assert compiled.violations({}) == [Cause("spec", "FieldValueRequired", "Required value")]


def test_a_missing_field_is_named_by_its_path() -> None:
    items = objects(required=["label"], properties={"label": STRING})
    compiled = spec(allocationSets=listed(items))

    wrong = compiled.violations({"spec": {"allocationSets": [{}, {"label": "a"}, {}]}})

    assert [str(one) for one in wrong] == [
        "spec.allocationSets[0].label: Required value",
        "spec.allocationSets[2].label: Required value",
    ]


@pytest.mark.parametrize(
    ("definition", "value", "reason", "message"),
    [
        (
            {**STRING, "enum": ["Proposal", "Setup"]},
            "Bogus",
            "NotSupported",
            'Unsupported value: "Bogus": supported values: "Proposal", "Setup"',
        ),
        (
            {**COUNT, "enum": [1, 2]},
            3,
            "NotSupported",
            'Unsupported value: 3: supported values: "1", "2"',
        ),
        (
            COUNT,
            "seven",
            "TypeInvalid",
            'Invalid value: "string": spec.x in body must be of type integer: "string"',
        ),
        (
            STRING,
            1.5,
            "TypeInvalid",
            'Invalid value: "number": spec.x in body must be of type string: "number"',
        ),
        (
            {"x-kubernetes-int-or-string": True},
            True,
            "TypeInvalid",
            'Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean"',
        ),
        (
            {"x-kubernetes-int-or-string": True, "anyOf": [COUNT, STRING]},
            [],
            "TypeInvalid",
            'Invalid value: "array": spec.x in body must be of type integer,string: "array"',
        ),
        (
            {**STRING, "nullable": True},
            1,
            "TypeInvalid",
            'Invalid value: "integer": spec.x in body must be of type string: "integer"',
        ),
        (
            {**STRING, "pattern": "^[a-z]{2}$"},
            "A",
            "Invalid",
            "Invalid value: \"A\": spec.x in body should match '^[a-z]{2}$'",
        ),
        (
            {**STRING, "format": "date-time"},
            "today",
            "TypeInvalid",
            'Invalid value: "today": spec.x in body must be of type date-time: "today"',
        ),
        (
            {**STRING, "minLength": 2},
            "ä",
            "Invalid",
            'Invalid value: "ä": spec.x in body should be at least 2 chars long',
        ),
        ({**STRING, "maxLength": 2}, "abc", "TooLong", "Too long: may not be more than 2 bytes"),
        (
            {**COUNT, "minimum": 1},
            0,
            "Invalid",
            "Invalid value: 0: spec.x in body should be greater than or equal to 1",
        ),
        (
            {**COUNT, "minimum": 1, "exclusiveMinimum": True},
            1,
            "Invalid",
            "Invalid value: 1: spec.x in body should be greater than 1",
        ),
        (
            {**COUNT, "maximum": 9, "format": "int32"},
            10,
            "Invalid",
            "Invalid value: 10: spec.x in body should be less than or equal to 9",
        ),
        (
            {**COUNT, "maximum": 9, "exclusiveMaximum": True, "format": "int32"},
            9,
            "Invalid",
            "Invalid value: 9: spec.x in body should be less than 9",
        ),
        (
            {**COUNT, "format": "int32"},
            2**31,
            "Invalid",
            "Invalid value: 2147483648: spec.x in body must be of type integer with format int32",
        ),
        (
            {**COUNT, "format": "int64"},
            -(2**63) - 1,
            "Invalid",
            "Invalid value: -9223372036854775809: "
            "spec.x in body must be of type integer with format int64",
        ),
        (
            {**COUNT, "multipleOf": 4},
            6,
            "Invalid",
            "Invalid value: 6: spec.x in body should be a multiple of 4",
        ),
        (
            listed(STRING, maxItems=1),
            ["a", "b"],
            "TooMany",
            "Too many: 2: must have at most 1 item",
        ),
        (
            listed(STRING, minItems=2),
            ["a"],
            "Invalid",
            "Invalid value: 1: spec.x in body should have at least 2 items",
        ),
        (
            objects(additionalProperties=STRING, maxProperties=2),
            {"a": "1", "b": "2", "c": "3"},
            "TooMany",
            "Too many: 3: must have at most 2 items",
        ),
        (
            objects(additionalProperties=STRING, minProperties=1),
            {},
            "Invalid",
            "Invalid value: 0: spec.x in body should have at least 1 properties",
        ),
        (
            {**COUNT, "anyOf": [{"minimum": 5}, {"maximum": 1}]},
            3,
            "Invalid",
            "Invalid value: 3: spec.x in body must validate at least one schema (anyOf)",
        ),
        (
            {**COUNT, "oneOf": [{"minimum": 1}, {"maximum": 5}]},
            3,
            "Invalid",
            "Invalid value: 3: spec.x in body must validate one and only one schema (oneOf)",
        ),
        (
            {**COUNT, "not": {"minimum": 1}},
            3,
            "Invalid",
            "Invalid value: 3: spec.x in body must not validate the schema (not)",
        ),
        (
            {**STRING, "allOf": [{"maxLength": 9}, {"pattern": "^a"}]},
            "b",
            "Invalid",
            "Invalid value: \"b\": spec.x in body should match '^a'",
        ),
    ],
)
def test_a_bad_value_is_explained_as_kubernetes_does(
    definition: dict[str, Any], value: Any, reason: str, message: str
) -> None:
    assert causes(definition, value) == [Cause("spec.x", f"FieldValue{reason}", message)]


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        (COUNT, 1.0),
        ({"x-kubernetes-int-or-string": True}, 5),
        ({"x-kubernetes-int-or-string": True, "anyOf": [COUNT, STRING]}, "5%"),
        ({**STRING, "nullable": True}, None),
        ({**STRING, "format": "date-time"}, "2026-11-21T10:00:00.123456Z"),
        ({**STRING, "format": "of our own"}, "anything"),
        ({**STRING, "format": "regex"}, "("),  # known to JSON Schema, but not to Kubernetes
        (objects(additionalProperties=True), {"a": 1}),
        ({**STRING, "minLength": 2}, "äö"),
        ({**COUNT, "format": "int32"}, -(2**31)),
        ({**COUNT, "minimum": 1}, 1),
        ({"x-kubernetes-preserve-unknown-fields": True}, [{"a": 1}]),
        (listed(STRING), ("a", "b")),
        (objects(), {"unknown": 1}),
    ],
)
def test_nothing_is_wrong_with_a_good_value(definition: dict[str, Any], value: Any) -> None:
    assert causes(definition, value) == []


def test_all_that_is_wrong_is_told_by_field() -> None:
    compiled = spec(b=COUNT, a=STRING, c=COUNT)

    wrong = compiled.violations({"spec": {"b": "x", "c": 1, "a": 1}})

    assert [one.field for one in wrong] == ["spec.a", "spec.b"]


def test_what_cannot_be_checked_is_refused() -> None:
    compiled = field(listed(objects(), **{"x-kubernetes-list-type": "set"}))
    deep: dict[str, Any] = {}
    for _ in range(1000):
        deep = {"a": deep}

    for value in (deep, {"a": {1, 2}}):
        with pytest.raises(Refused, match="cannot be checked: "):
            compiled.violations({"spec": {"x": [value]}})


# Lists whose items are unique

SET = listed(STRING, **{"x-kubernetes-list-type": "set"})
MAP = listed(
    objects(properties={"name": STRING, "port": COUNT, "value": STRING}),
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"]},
)


def duplicate(where: str, value: str) -> Cause:
    return Cause(where, "FieldValueDuplicate", f"Duplicate value: {value}")


def test_a_set_has_no_item_twice() -> None:
    assert causes(SET, ["a", "b"]) == []
    assert causes(SET, ["a", "b", "a", "a"]) == [
        duplicate("spec.x[2]", '"a"'),
        duplicate("spec.x[3]", '"a"'),
    ]


def test_items_are_alike_in_whatever_order_they_come() -> None:
    items = objects(additionalProperties=COUNT)

    assert causes({**SET, "items": items}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}]) == [
        duplicate("spec.x[1]", '{"b":2,"a":1}')
    ]


def test_a_map_has_no_keys_twice() -> None:
    one, other = {"name": "a", "port": 1, "value": "x"}, {"name": "a", "port": 2, "value": "x"}
    assert causes(MAP, [one, other, {"name": "a"}]) == []
    assert causes(MAP, [one, other, {**one, "value": "y"}]) == [
        duplicate("spec.x[2]", '{"name":"a","port":1}')
    ]


def test_other_lists_may_repeat_themselves() -> None:
    assert causes(listed(STRING), ["a", "a"]) == []


def test_duplicates_are_found_below_lists_and_maps() -> None:
    compiled = field(listed(objects(additionalProperties=SET)))

    assert compiled.violations({"spec": {"x": [{}, {"k": ["a", "a"]}]}}) == [
        duplicate("spec.x[1][k][1]", '"a"')
    ]


def test_items_of_a_wrong_type_are_no_duplicates() -> None:
    assert {one.reason for one in causes(MAP, ["a", "a"])} == {"FieldValueTypeInvalid"}


# What cannot be served


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({}, "properties[x].type: Required value"),
        ({"description": "no type", "properties": {}}, "properties[x].type: Required value"),
        ({"type": "text"}, "properties[x].type: Unsupported value: 'text'"),
        ({"type": ["string", "null"]}, "properties[x].type: Unsupported value"),
        ({"type": "array"}, "properties[x].items: Required value"),
        (listed({}), "properties[x].items.type: Required value"),
        (objects(additionalProperties={}), "properties[x].additionalProperties.type: Required"),
        (objects(properties={"a": {}}), "properties[x].properties[a].type: Required value"),
        (objects(properties=[]), "properties[x].properties: Invalid value"),
        (objects(properties={}, additionalProperties=STRING), "additionalProperties: Forbidden"),
        ({**STRING, "pattern": "("}, "properties[x].pattern: "),
        ({**STRING, "pattern": "(?=a)"}, "properties[x].pattern: "),
        ({**STRING, "minLength": "2"}, "properties[x].minLength: "),
        ({**STRING, "allOf": [{"pattern": "("}]}, "properties[x].allOf[0].pattern: "),
        ({**STRING, "anyOf": {}}, "properties[x].anyOf: "),
        ({**STRING, "oneOf": ["a"]}, "properties[x].oneOf[0]"),
        ({**STRING, "allOf": [False]}, "properties[x].allOf[0]"),
        ({**STRING, "not": False}, "properties[x].not"),
        (objects(allOf=[{"properties": {"a": False}}]), "properties[x].allOf[0].properties[a]"),
        (objects(allOf=[{"properties": []}]), "properties[x].allOf[0].properties"),
        (objects(additionalProperties=False), "properties[x].additionalProperties: Forbidden"),
        (objects(required="a"), "properties[x].required: "),
        ({"$ref": "#/definitions/a"}, "properties[x].$ref: Forbidden"),
        ("string", "properties[x]: Invalid value: this is not a schema"),
        ({**COUNT, "default": "1"}, "properties[x].default: Invalid value"),
        (objects(default={"b": 1}), "properties[x].default: Invalid value: b is an unknown field"),
        (listed(STRING, **{"x-kubernetes-list-type": "bag"}), "list-type: Unsupported value"),
        (listed(objects(), **{"x-kubernetes-list-type": "map"}), "list-map-keys: Required value"),
        (
            listed(
                objects(properties={"a": STRING}),
                **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]},
            ),
            "list-map-keys: Required value",
        ),
    ],
)
def test_a_schema_that_cannot_be_served_is_refused(definition: Any, why: str) -> None:
    with pytest.raises(Refused) as refused:
        field(definition)

    assert str(refused.value).startswith("openAPIV3Schema.properties[spec].properties[x]")
    assert why in str(refused.value)


@pytest.mark.parametrize("root", [{}, {"type": "string"}, []])
def test_the_root_is_an_object(root: Any) -> None:
    with pytest.raises(Refused, match=r"^schema\.type: "):
        schema.compile(root, "schema")


def test_a_schema_without_a_bottom_is_refused() -> None:
    deep: dict[str, Any] = STRING
    for _ in range(5000):
        deep = objects(properties={"a": deep})

    with pytest.raises(Refused, match="nested too deeply"):
        schema.compile(deep)


# Whatever the schema, whatever the object

NAMES = st.sampled_from("abcde")
KEEP = "x-kubernetes-preserve-unknown-fields"
SCALARS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(dict, type=st.just("string"), nullable=st.booleans()),
    st.builds(dict, type=st.just("integer"), default=st.integers(0, 9)),
    st.builds(dict, type=st.just("boolean"), default=st.booleans(), nullable=st.booleans()),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-preserve-unknown-fields": True}),
)


def larger(smaller: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(NAMES, smaller, max_size=3)
    return st.one_of(
        st.builds(objects, properties=properties),
        st.builds(objects, properties=properties, default=st.just({})),
        st.builds(lambda p: objects(properties=p, **{KEEP: True}), properties),
        st.builds(objects, additionalProperties=smaller),
        st.builds(listed, smaller),
    )


SCHEMAS = st.builds(
    objects,
    properties=st.dictionaries(NAMES, st.recursive(SCALARS, larger, max_leaves=8), max_size=4),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("xy", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=15,
)
OBJECTS = st.dictionaries(NAMES, JSON, max_size=4)


def fitting(definition: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that a schema admits."""
    match definition.get("type"):
        case "string":
            return st.text("xy", max_size=2)
        case "integer":
            return st.integers(-9, 9)
        case "boolean":
            return st.booleans()
        case "array":
            return st.lists(fitting(definition["items"]), max_size=3)
        case "object" if "additionalProperties" in definition:
            return st.dictionaries(NAMES, fitting(definition["additionalProperties"]), max_size=3)
        case "object":
            properties = definition["properties"]
            return st.fixed_dictionaries(
                {}, optional={name: fitting(inner) for name, inner in properties.items()}
            )
        case _:
            return st.integers(-9, 9) if "x-kubernetes-int-or-string" in definition else JSON


@given(SCHEMAS, OBJECTS)
def test_pruning_twice_is_pruning_once(definition: dict[str, Any], obj: dict[str, Any]) -> None:
    compiled = schema.compile(definition)
    once, _ = compiled.prune(obj)
    twice, unknown = compiled.prune(once)

    assert twice is once
    assert unknown == []


@given(SCHEMAS, OBJECTS)
def test_defaulting_twice_is_defaulting_once(
    definition: dict[str, Any], obj: dict[str, Any]
) -> None:
    compiled = schema.compile(definition)
    once = compiled.apply_defaults(obj)

    assert compiled.apply_defaults(once) is once


@given(SCHEMAS, OBJECTS)
def test_defaults_are_never_pruned(definition: dict[str, Any], obj: dict[str, Any]) -> None:
    compiled = schema.compile(definition)
    defaulted = compiled.apply_defaults(compiled.prune(obj)[0])

    assert compiled.prune(defaulted) == (defaulted, [])


@given(SCHEMAS, OBJECTS)
def test_something_is_pruned_exactly_when_something_is_unknown(
    definition: dict[str, Any], obj: dict[str, Any]
) -> None:
    pruned, unknown = schema.compile(definition).prune(obj)

    assert (pruned is obj) == (not unknown)
    assert [path for path in unknown if path in set(paths(pruned))] == []
    assert set(unknown) <= set(paths(obj))


def paths(value: Any, path: str = "") -> Iterator[str]:
    yield path
    if isinstance(value, dict):
        for name, item in value.items():
            yield from paths(item, f"{path}.{name}".removeprefix("."))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths(item, f"{path}[{index}]")


@given(SCHEMAS, OBJECTS)
def test_nothing_modifies_its_argument(definition: dict[str, Any], obj: dict[str, Any]) -> None:
    schema_before, before = copy.deepcopy(definition), copy.deepcopy(obj)
    compiled = schema.compile(definition)
    compiled.prune(obj)
    compiled.apply_defaults(obj)
    compiled.violations(obj)

    assert obj == before
    assert definition == schema_before


@given(st.data())
def test_what_a_schema_admits_is_neither_pruned_nor_wrong(data: st.DataObject) -> None:
    definition = data.draw(SCHEMAS)
    obj = data.draw(fitting(definition))
    compiled = schema.compile(definition)

    assert compiled.prune(obj)[0] is obj
    assert compiled.violations(obj) == []
    assert compiled.violations(compiled.apply_defaults(obj)) == []


# Real definitions


@cache
def definitions() -> dict[str, Any]:
    found = (yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted(CRDS.glob("*.yaml")))
    return {crd["spec"]["names"]["kind"]: crd["spec"] for crd in found}


def served(kind: str) -> CompiledSchema:
    """Compile the newest version of a real definition."""
    return schema.compile(definitions()[kind]["versions"][-1]["schema"]["openAPIV3Schema"])


WORKFLOW: dict[str, Any] = {
    "apiVersion": "dataworkflowservices.github.io/v1alpha7",
    "kind": "Workflow",
    "metadata": {"name": "fluxjob-1", "namespace": "default"},
    "spec": {
        "desiredState": "Proposal",
        "dwDirectives": ["#DW jobdw type=xfs capacity=1GiB name=scratch"],
        "wlmID": "flux",
        "jobID": "ƒ2oLkTLb",
        "userID": 1000,
        "groupID": 1000,
    },
    "status": {
        "state": "Proposal",
        "ready": False,
        "desiredStateChange": "2026-11-21T10:00:00.000000Z",
        "directiveBreakdowns": [
            {"kind": "DirectiveBreakdown", "name": f"fluxjob-1-{i}", "namespace": "default"}
            for i in range(4)
        ],
        "drivers": [
            {
                "driverID": f"nnf-{i}",
                "dwdIndex": i,
                "watchState": state,
                "lastHB": 0,
                "completed": False,
                "status": "Pending",
                "taskID": "",
            }
            for i in range(4)
            for state in ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")
        ],
        "env": {"DW_JOB_scratch": "/mnt/nnf/1/0", "DW_WORKFLOW_NAME": "fluxjob-1"},
    },
}


@real
def test_every_real_definition_can_be_served() -> None:
    assert len(definitions()) == 18
    for crd in definitions().values():
        for version in crd["versions"]:
            schema.compile(version["schema"]["openAPIV3Schema"])


@real
def test_a_real_workflow_is_defaulted_and_nothing_is_wrong_with_it() -> None:
    compiled = served("Workflow")
    pruned, unknown = compiled.prune(WORKFLOW)
    defaulted = compiled.apply_defaults(pruned)

    assert pruned is WORKFLOW
    assert unknown == []
    assert defaulted["spec"] == {**WORKFLOW["spec"], "hurry": False, "forceReady": False}
    assert compiled.violations(defaulted) == []


@real
def test_what_is_wrong_with_a_real_workflow_is_told() -> None:
    compiled = served("Workflow")
    bad = {**WORKFLOW["spec"], "desiredState": "Bogus", "userID": "me", "dwDirectives": None}

    wrong = compiled.violations(compiled.apply_defaults({**WORKFLOW, "spec": bad}))

    assert [str(one) for one in wrong] == [
        'spec.desiredState: Unsupported value: "Bogus": supported values: "Proposal", "Setup", '
        '"DataIn", "PreRun", "PostRun", "DataOut", "Teardown"',
        "spec.dwDirectives: Required value",
        'spec.userID: Invalid value: "string": '
        'spec.userID in body must be of type integer: "string"',
    ]


# What is known already


def test_what_is_shared_with_a_known_object_is_not_looked_at_again() -> None:
    spec, status = objects(properties={"kept": STRING}), objects(properties={"of": STRING})
    compiled = schema.compile(objects(properties={"spec": spec, "status": status}))
    known = {"spec": {"kept": "a", "unknown": "b"}, "status": {"of": "c"}}
    new = {"spec": known["spec"], "status": {"of": "d", "also": "e"}}

    assert compiled.prune(new, known) == ({**new, "status": {"of": "d"}}, ["status.also"])
    assert compiled.prune(new)[1] == ["spec.unknown", "status.also"]


def test_defaults_are_filled_into_what_is_not_shared() -> None:
    filled = objects(properties={"a": {**STRING, "default": "x"}})
    compiled = schema.compile(objects(properties={"one": filled, "other": filled}))
    known: dict[str, Any] = {"one": {}, "other": {}}
    new = {"one": known["one"], "other": {}}

    assert compiled.apply_defaults(new, known) == {"one": {}, "other": {"a": "x"}}
