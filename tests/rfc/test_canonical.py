"""Jobspecs by the letter: canonical (RFC 14) and version 1 (RFC 25)."""

import copy
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.rfc.jobspecs import CORE, NODE, SLOT, spec, system, task
from tests.rfc.vectors import vector
from warren.rfc import canonical, jobspec, version1
from warren.rfc.errors import BadFormat

GPU = {"type": "gpu", "count": 1}


def deep(depth: int) -> dict[str, Any]:
    vertex: dict[str, Any] = SLOT
    for _ in range(depth - 2):
        vertex = {"type": "rack", "count": 1, "with": [vertex]}
    return vertex


def refusal(check: Callable[[Any], Any], value: Any) -> str | None:
    try:
        assert check(value) is value
    except BadFormat as error:
        return str(error).removeprefix("jobspec: ")
    return None


# The RFCs' own vectors, and their schemas as oracles


def schema(number: int) -> jsonschema_rs.Draft7Validator:
    return _schema(vector(f"rfc/spec_{number}/schema.json"))


@cache
def _schema(path: Path) -> jsonschema_rs.Draft7Validator:
    dependencies = json.loads((path.parent.parent / "spec_26" / "schema.json").read_text())

    def read(each: dict[str, Any]) -> dict[str, Any]:
        if each.get("$ref") == "file:data/spec_26/schema.json":
            return {key: value for key, value in dependencies.items() if key != "$schema"}
        if "pattern" in each:  # spelled for a POSIX reader, where a bracket closes nothing at first
            each["pattern"] = (
                each["pattern"].replace("[^][]", r"[^\]\[]").replace("]?$", r"\]?$")
                .replace("]$|", r"\]$|")
            )  # fmt: skip
        return each

    return jsonschema_rs.Draft7Validator(json.loads(path.read_text(), object_hook=read))


VECTORS = [
    *("14/example1", "14/example2", "25/example1"),
    *(f"14/use_case_1.{number}" for number in range(1, 9)),
    *(f"14/use_case_2.{number}" for number in range(1, 10)),
    *(f"25/use_case_{number}" for number in ("1.1", "2.1", "2.2", "2.3", "2.4")),
]


@pytest.mark.parametrize("name", VECTORS)
def test_the_vectors_are_canonical_and_version_1_where_the_schema_says_so(name: str) -> None:
    found = yaml.safe_load(vector(f"rfc/spec_{name}.yaml").read_text())

    assert refusal(canonical.check, found) is None
    assert schema(14).is_valid(found)
    assert (refusal(version1.check, found) is None) is schema(25).is_valid(found)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a value."""
    inner = list(value.items() if isinstance(value, dict) else enumerate(value))
    found = [path] if path else []
    for key, child in inner:
        found += places(child, (*path, key)) if isinstance(child, dict | list) else [(*path, key)]
    return found


RICH = spec(
    {"type": "node", "count": 2, "unit": "u", "with": [
        {**SLOT, "count": 2, "exclusive": True, "with": [CORE, GPU]}
    ]},
    tasks=task(count={"total": 4}),
    attributes={"user": {}, **system(
        cwd="/w", environment={"A": "b"}, constraints={"properties": ["p"]},
        dependencies=[{"scheme": "string", "value": "x", "type": "in", "scope": "user"}],
    )},
)  # fmt: skip
RANGE = {"min": 1, "max": 4, "operator": "+", "operand": 1}
junk = st.sampled_from(
    [None, True, 0, -1, 1, 2, 1.5, "", "task", "slot", "node", "core", "4,9", "2+", "1-5:2", [],
     ["x"], {}, {"a": 1}, {"min": 2}, RANGE, CORE, GPU, SLOT, [SLOT], [CORE], [NODE], [CORE, GPU],
     {"per_slot": 2}, {"total": 9}, {"per_resource": {"type": "core", "count": 1}}]
)  # fmt: skip
added = st.sampled_from(["id", "label", "unit", "exclusive", "with", "system", "extra", "count"])
changes = st.lists(
    st.tuples(st.sampled_from(places(RICH)), junk | st.just("remove"), st.none() | added),
    min_size=1, max_size=2,
)  # fmt: skip


def changed(plan: list[tuple[tuple[Any, ...], Any, str | None]]) -> dict[str, Any]:
    """Return the rich jobspec with other things in some places."""
    made = copy.deepcopy(RICH)
    for (*parents, last), value, key in plan:
        place: Any = made
        try:
            for parent in parents:
                place = place[parent]
            if key is not None and isinstance(place, dict):
                place[key] = copy.deepcopy(value)
            elif value == "remove":
                del place[last]
            else:
                place[last] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue
    return made


# What the RFCs say in words, and their schemas do not.
STRICTER_14 = (
    "is the label of another resource", "is not the label of a slot", "a slot holds something",
    "is no resource of the task's slot", "is not a list of at least one task", "is nested more",
    "is neither a string nor null", "is not an operator", "constraints.", "is no range",
    "is not exactly one of per_slot, per_resource and total", "holds several operators",
    "dependencies[0].", "is not true or false",
)  # fmt: skip
STRICTER_25 = (
    *STRICTER_14, "attributes.system is missing", "attributes.system.duration is missing",
    "is neither a core nor a core and a gpu", "is less than the 2 nodes",
    # A member that version 1 has no word for, and which canonical jobspecs have.
    "attributes.system.dependencies", "attributes.system.constraints",
    # Schema 25 also takes a command as one text.
    "command is not a list",
)  # fmt: skip


@given(changes)
def test_what_is_accepted_as_canonical_the_schema_accepts_and_nearly_the_other_way(
    plan: list[Any],
) -> None:
    made = changed(plan)
    found = refusal(canonical.check, made)
    if schema(14).is_valid(made):
        assert found is None or any(words in found for words in STRICTER_14)
    elif found is None:
        # RFC 26 lets a dependency have more keys than the schema of its OpenMP kind.
        assert "system" in made["attributes"]
        assert made["attributes"]["system"].pop("dependencies")
        assert schema(14).is_valid(made)


@given(changes)
def test_what_is_accepted_as_version_1_the_schema_accepts_and_nearly_the_other_way(
    plan: list[Any],
) -> None:
    made = changed(plan)
    found = refusal(version1.check, made)
    if schema(25).is_valid(made):
        assert found is None or any(words in found for words in STRICTER_25)
    elif found is None:
        # The words of RFC 25 let a node be exclusive, its schema does not.
        assume(made["resources"][0]["type"] == "node")
        assert made["resources"][0].pop("exclusive") is not None
        assert schema(25).is_valid(made)


@pytest.mark.parametrize("count", ["5", "3-30", "[3-30]"])
def test_a_count_that_is_both_a_list_and_a_range_is_read_though_the_schema_refuses_it(
    count: str,
) -> None:
    made = spec({**SLOT, "count": count})
    assert refusal(canonical.check, made) is None
    assert not schema(14).is_valid(made)


# The place of a mistake


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (None, "jobspec is not an object"),
        ({}, "version is missing"),
        (spec(version="1"), "version is not a whole number"),
        (spec(version=True), "version is not a whole number"),
        (spec(resources=[]), "resources is not a list of at least one resource"),
        (spec(7), "resources[0] is not an object"),
        (spec({"count": 1}), "resources[0].type is missing"),
        (spec({"type": "core"}), "resources[0].count is missing"),
        (spec({**NODE, "with": [{**SLOT, "with": [CORE, {**GPU, "count": 0}]}]}),
         "resources[0].with[0].with[1].count is not a whole number from 1"),
        (spec({**SLOT, "count": {"min": 1, "max": 2}}), "resources[0].count.operator is missing"),
        (spec({**SLOT, "count": "3-x"}), "resources[0].count is no range '3-x': unexpected 'x'"),
        (spec({**SLOT, "size": 1}), "resources[0].size is not a key that may stand here"),
        (spec({**SLOT, "unit": 1}), "resources[0].unit is not a string"),
        (spec({**SLOT, "exclusive": 1}), "resources[0].exclusive is not true or false"),
        (spec({**SLOT, "with": {}}), "resources[0].with is not a list"),
        (spec({**SLOT, "with": []}), "resources[0].with is missing or empty"),
        (spec({"type": "slot", "count": 1, "with": [CORE]}), "resources[0].label is missing"),
        (spec({**NODE, "label": "task"}), "resources[0].with[0].label is the label of another"),
        (spec(deep(100)), None),
        (spec(deep(101)), "resources is nested more than 100 deep"),
        (spec(tasks=[]), "tasks is not a list of at least one task"),
        (spec(tasks=["true"]), "tasks[0] is not an object"),
        (spec(tasks=[{}]), "tasks[0].command is missing"),
        (spec(tasks=task(command="true")), "tasks[0].command is not a list of at least one word"),
        (spec(tasks=task(slot=1)), "tasks[0].slot is not a string"),
        (spec(tasks=[*task(), *task(slot="other")]), "tasks[1].slot is not the label of a slot"),
        (spec(tasks=task(count={})), "tasks[0].count is not exactly one of per_slot"),
        (spec(tasks=task(count={"a": 1})), "tasks[0].count is not exactly one of per_slot"),
        (spec(tasks=task(count={"total": "1"})), "tasks[0].count.total is not a whole number"),
        (spec(tasks=task(count={"per_resource": 1})), "tasks[0].count.per_resource is not an obj"),
        (spec(tasks=task(count={"per_resource": {"type": "gpu", "count": 1}})),
         "tasks[0].count.per_resource.type is no resource of the task's slot"),
        (spec(tasks=task(count={"per_resource": {"type": "core"}})),
         "tasks[0].count.per_resource.count is not a whole number"),
        (spec(tasks=task(distribution=1)), "tasks[0].distribution is not a string"),
        (spec(tasks=task(attributes={"a": 1})), "tasks[0].attributes.a is not a string"),
        (spec(tasks=task(attributes={"environment": {"A": 1}})),
         "tasks[0].attributes.environment.A is neither a string nor null"),
        (spec(attributes=None), None),
        (spec(attributes=[]), "attributes is neither an object nor null"),
        (spec(attributes={"other": {}}), "attributes.other is not a key that may stand here"),
        (spec(attributes={"user": 1}), "attributes.user is not an object"),
        (spec(attributes=system(duration=-1)), "attributes.system.duration is not a number"),
        (spec(attributes=system(queue=1)), "attributes.system.queue is not a string"),
        (spec(attributes=system(job=1)), "attributes.system.job is not an object"),
        (spec(attributes=system(job={"name": 1})), "attributes.system.job.name is not a string"),
        (spec(attributes=system(shell={"options": 1})), "attributes.system.shell.options is not"),
        (spec(attributes=system(environment={"A": None, "dw": "x"}, dw="#DW")), None),
        (spec(attributes=system(constraints={"and": [{"ranks": ["x"]}]})),
         "attributes.system.constraints.and[0].ranks[0] is no idset 'x'"),
        (spec(attributes=system(dependencies=[])), "attributes.system.dependencies is not a list"),
        (spec(attributes=system(dependencies=[{"scheme": "afterok", "value": "?"}])),
         "attributes.system.dependencies[0].value: '?' is not a job id"),
    ],
)  # fmt: skip
def test_a_jobspec_that_is_not_canonical_is_refused_with_the_place_of_the_mistake(
    bad: Any, problem: str | None
) -> None:
    found = refusal(canonical.check, bad)
    assert found == problem or (found and problem and found.startswith(problem))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (spec(NODE), None),
        (spec({**NODE, "exclusive": True}), None),
        (spec({**SLOT, "exclusive": True, "with": [GPU, CORE]}), None),
        (spec(version=2), "version is not 1"),
        (spec(SLOT, {**SLOT, "label": "b"}), "resources is not exactly one resource"),
        (spec({"type": "rack", "count": 1, "with": [SLOT]}), "resources[0].type is neither node"),
        (spec({**NODE, "with": [CORE, SLOT]}), "resources[0].with is not exactly one slot"),
        (spec({**NODE, "id": "n"}), "resources[0].id may not stand on a node in version 1"),
        (spec({**SLOT, "count": "2"}), "resources[0].count is not a whole number"),
        (spec({**SLOT, "with": [NODE | {"with": []}]}), "resources[0].with is neither a core nor"),
        (spec({**SLOT, "with": [CORE, CORE]}), "resources[0].with is neither a core nor"),
        (spec({**SLOT, "with": [CORE | {"with": []}]}), "resources[0].with[0].with may not stand"),
        (spec({**SLOT, "with": [CORE | {"exclusive": True}]}), "resources[0].with[0].exclusive"),
        (spec(tasks=task() * 2), "tasks is not exactly one task"),
        (spec(tasks=task(distribution="")), "tasks[0].distribution may not stand on a task"),
        (spec(tasks=task(count={"per_slot": 2})), "tasks[0].count is neither per_slot 1 nor"),
        (spec(NODE, tasks=task(count={"total": 1})), "tasks[0].count.total is less than the 2"),
        (spec(attributes=None), "attributes.system is missing"),
        (spec(attributes={"system": {}}), "attributes.system.duration is missing"),
    ],
)  # fmt: skip
def test_a_jobspec_that_is_not_version_1_is_refused_with_the_place_of_the_mistake(
    bad: Any, problem: str | None
) -> None:
    assert refusal(canonical.check, {**bad, "version": 999}) is None
    found = refusal(version1.check, bad)
    assert found == problem or (found and problem and found.startswith(problem))


@pytest.mark.parametrize(
    "options", [{}, {"tasks": 3, "cores": 2}, {"nodes": 2}, {"nodes": 2, "tasks": 3}]
)
def test_what_we_make_is_version_1(options: dict[str, Any]) -> None:
    made = jobspec.make(["true"], name="n", cwd="/w", environment={"A": "b"}, **options)
    assert refusal(version1.check, made) is None
