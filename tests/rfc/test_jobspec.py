"""Jobspecs (RFC 14, 25): made, checked and counted."""

import copy
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.rfc.jobspecs import CORE, NODE, SLOT, spec, system, task
from tests.rfc.vectors import vector
from warren.rfc import jobspec
from warren.rfc.errors import BadFormat

# Made


@pytest.mark.parametrize(
    ("options", "counted"),
    [
        ({}, (None, 1, 1, False, 1)),
        ({"tasks": 3, "cores": 2}, (None, 3, 2, False, 3)),
        ({"nodes": 2}, (2, 2, 1, True, 2)),
        ({"nodes": 2, "tasks": 2}, (2, 2, 1, False, 2)),
        ({"nodes": 2, "tasks": 2, "exclusive": True}, (2, 2, 1, True, 2)),
        ({"nodes": 2, "tasks": 8, "cores": 3}, (2, 8, 3, False, 8)),
        ({"nodes": 2, "tasks": 3}, (2, 4, 1, False, 3)),
    ],
)
def test_what_is_made_passes_the_check_and_counts_as_it_was_asked(
    options: dict[str, Any], counted: tuple[Any, ...]
) -> None:
    made = jobspec.check(jobspec.make(["true"], **options))

    found = jobspec.resource_counts(made)

    assert (found.nodes, found.slots, found.cores_per_slot, found.exclusive, found.tasks) == counted


def test_fewer_tasks_than_nodes_cannot_be_asked_for() -> None:
    with pytest.raises(BadFormat, match="3 tasks cannot be spread over 4 nodes: ask for -n 4"):
        jobspec.make(["true"], nodes=4, tasks=3)


def test_options_become_system_attributes() -> None:
    made = jobspec.make(
        ["true"], duration=5.0, cwd="/w", environment={"A": "1"}, name="n", attributes={"dw": "x"}
    )
    assert jobspec.system(made) == {
        "duration": 5.0,
        "cwd": "/w",
        "environment": {"A": "1"},
        "job": {"name": "n"},
        "dw": "x",
    }


# Checked


def rack(depth: int) -> dict[str, Any]:
    vertex: dict[str, Any] = SLOT
    for _ in range(depth - 2):
        vertex = {"type": "rack", "count": 1, "with": [vertex]}
    return vertex


def test_resources_are_not_nested_without_end() -> None:
    assert jobspec.check(spec(rack(100)))
    for depth in (101, 2000):
        with pytest.raises(BadFormat, match="resources is nested more than 100 deep"):
            jobspec.check(spec(rack(depth)))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (None, "jobspec is not an object"),
        ([], "jobspec is not an object"),
        (spec(version=2), "version is not 1"),
        (spec(resources=[]), "resources is not a list of resources"),
        (spec(resources={}), "resources is not a list of resources"),
        (spec(7), "resources[0] is not an object"),
        (spec({"count": 1}), "resources[0].type is not a string"),
        (spec({**SLOT, "count": 0}), "resources[0].count is not a whole number from 1"),
        (spec({**SLOT, "count": True}), "resources[0].count is neither a whole number"),
        (spec({**SLOT, "count": "many"}), "resources[0].count is no range"),
        (spec({**NODE, "with": {}}), "resources[0].with is not a list"),
        (spec({**NODE, "with": [{"type": "core"}]}), "resources[0].with[0].count is neither"),
        (spec({**SLOT, "label": None}), "resources[0].label is missing"),
        (spec({**CORE, "label": []}, SLOT), "resources[0].label is not a string"),
        (spec({**SLOT, "exclusive": []}), "resources[0].exclusive is not true or false"),
        (spec({**SLOT, "with": []}), "resources[0].with is empty"),
        (spec(tasks=[]), "tasks does not hold exactly one task"),
        (spec(tasks=task() * 2), "tasks does not hold exactly one task"),
        (spec(tasks=["true"]), "tasks[0] is not an object"),
        (spec(tasks=task(command="true")), "tasks[0].command is not a list of words"),
        (spec(tasks=task(command=[])), "tasks[0].command is not a list of words"),
        (spec(tasks=task(command=["a", 1])), "tasks[0].command is not a list of words"),
        (spec(tasks=task(slot=None)), "tasks[0].slot is not a string"),
        (spec(tasks=task(count={})), "tasks[0].count is not one count"),
        (spec(tasks=task(count={"per_slot": 1, "total": 1})), "tasks[0].count is not one count"),
        (spec(tasks=task(count={"per_slot": 0})), "tasks[0].count is none of per_slot, total"),
        (spec(tasks=task(count={"total": 0})), "tasks[0].count is none of per_slot, total and"),
        (spec(tasks=task(count={"per_resource": {"type": "core"}})), "tasks[0].count is none of"),
        (spec(attributes=None), "attributes is not an object"),
        (spec(attributes={}), "attributes.system is not an object"),
        (spec(attributes=system(duration="1m")), "attributes.system.duration is not a number"),
        (spec(attributes=system(duration=-1)), "attributes.system.duration is not a number"),
        (spec(attributes=system(duration=True)), "attributes.system.duration is not a number"),
        (spec(attributes=system(environment=[])), "attributes.system.environment does not map"),
        (spec(attributes=system(environment={"A": 1})), "attributes.system.environment does not"),
        (spec(attributes=system(job="name")), "attributes.system.job is not an object"),
        (spec(tasks=task(slot="other")), "resources holds 0 slots labelled 'other', not 1"),
        (spec(SLOT, SLOT), "resources holds 2 slots labelled 'task', not 1"),
        (spec({**CORE, "label": "task"}), "resources holds 0 slots labelled 'task', not 1"),
        (spec({**SLOT, "with": [{"type": "gpu", "count": 1}]}), "the task slot holds no core"),
    ],
)
def test_a_bad_jobspec_is_refused_with_the_place_of_the_mistake(bad: Any, problem: str) -> None:
    with pytest.raises(BadFormat) as refused:
        jobspec.check(bad)
    assert str(refused.value).removeprefix("jobspec: ").startswith(problem)


@pytest.mark.parametrize(
    "use_case",
    ["example1", "use_case_1.1", "use_case_2.1", "use_case_2.2", "use_case_2.3", "use_case_2.4"],
)
def test_the_use_cases_of_rfc_25_are_accepted(use_case: str) -> None:
    found = yaml.safe_load(vector(f"rfc/spec_25/{use_case}.yaml").read_text())
    assert jobspec.check(found) is found


@pytest.mark.parametrize(
    "use_case", [*(f"1.{number}" for number in range(1, 9)), *(f"2.{n}" for n in range(1, 10))]
)
def test_the_use_cases_of_rfc_14_that_go_beyond_version_1_are_refused_in_words(
    use_case: str,
) -> None:
    found = yaml.safe_load(vector(f"rfc/spec_14/use_case_{use_case}.yaml").read_text())
    with pytest.raises(BadFormat, match=r"^jobspec: "):
        jobspec.check(found)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [path] if path else []
    if isinstance(value, dict | list):
        for key, child in list(inner):
            found += (
                places(child, (*path, key)) if isinstance(child, dict | list) else [(*path, key)]
            )
    return found


GOOD = spec(NODE, attributes=system(environment={"A": "b"}, job={"name": "n"}))
junk = st.sampled_from([None, True, 0, -1, 2, 1.5, "", "task", "slot", [], ["x"], {}, {"a": 1}])


@given(st.lists(st.tuples(st.sampled_from(places(GOOD)), junk | st.just("remove")), max_size=3))
def test_a_jobspec_with_anything_anywhere_never_does_worse_than_be_refused(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    broken = copy.deepcopy(GOOD)
    for (*parents, last), value in changes:
        place = broken
        try:
            for parent in parents:
                place = place[parent]
            if value == "remove":
                del place[last]
            else:
                place[last] = value
        except (KeyError, IndexError, TypeError):
            continue
    try:
        accepted = jobspec.check(broken)
    except BadFormat:
        return
    assert jobspec.resource_counts(accepted).slots >= 1
    assert jobspec.name(accepted) is not None


# Counted and changed


def test_a_jobspec_with_flash_beside_each_node_counts_as_before() -> None:
    rewritten = spec(
        {
            "type": "slot",
            "count": 2,
            "label": "rabbit",
            "with": [
                {**NODE, "count": 1, "exclusive": True},
                {"type": "ssd", "count": 8, "exclusive": True},
            ],
        }
    )
    plain = spec({**NODE, "exclusive": True})
    assert jobspec.resource_counts(jobspec.check(rewritten)) == jobspec.resource_counts(plain)


def test_sockets_between_node_and_slot_multiply() -> None:
    found = jobspec.resource_counts(
        spec({**NODE, "with": [{"type": "socket", "count": 2, "with": [{**SLOT, "count": 3}]}]})
    )
    assert (found.nodes, found.slots) == (2, 12)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "true"),
        ({"tasks": task(command=["/usr/bin/sleep", "1"])}, "sleep"),
        ({"attributes": system(job={"name": "mine"})}, "mine"),
        ({"attributes": system(job={})}, "true"),
    ],
)
def test_a_job_is_named_as_it_asks_or_after_its_program(changes: dict[str, Any], name: str) -> None:
    assert jobspec.name(spec(**changes)) == name


def test_the_environment_is_left_out_of_what_the_kvs_keeps() -> None:
    whole = spec(attributes=system(environment={"SECRET": "1"}, cwd="/w"))

    kept = jobspec.without_environment(whole)

    assert jobspec.system(kept) == {"duration": 60, "cwd": "/w"}
    assert "environment" in jobspec.system(whole)


def test_updates_reach_into_the_jobspec_and_leave_the_old_one_as_it_was() -> None:
    old = spec()
    before = copy.deepcopy(old)

    new = jobspec.update(
        old, {"attributes.system.duration": 5, "attributes.user.a.b": 1, "resources": [NODE]}
    )

    assert new["attributes"] == {"system": {"duration": 5}, "user": {"a": {"b": 1}}}
    assert new["resources"] == [NODE]
    assert old == before


@pytest.mark.parametrize(
    ("changed", "counted"),
    [
        ({"slots": "2-4", "count": {"per_slot": 1}}, (2, 2, True)),
        ({"slots": {"min": 3}, "count": {"per_slot": 2}}, (3, 6, True)),
        ({"count": {"per_slot": 2}}, (2, 4, False)),
        ({"count": {"per_resource": {"type": "core", "count": 2}}}, (2, 8, False)),
        ({"options": {"per-resource": {"type": "core"}}}, (2, 4, False)),
        ({"options": {"per-resource": {"type": "node", "count": 3}}}, (2, 3, False)),
        ({"options": {"per-resource": "node"}}, (2, 2, False)),
    ],
)
def test_whatever_can_be_scheduled_is_accepted_and_counted(
    changed: dict[str, Any], counted: tuple[int, int, bool]
) -> None:
    slot = {"type": "slot", "label": "task", "count": changed.get("slots", 2),
            "with": [{"type": "core", "count": 2}]}  # fmt: skip
    accepted = jobspec.check(
        spec(
            slot,
            tasks=task(count=changed.get("count", {"per_slot": 1})),
            attributes=system(
                environment={"A": None}, shell={"options": changed.get("options", {})}
            ),
        )
    )
    found = jobspec.resource_counts(accepted)
    assert (found.slots, found.tasks, found.moldable) == counted


@pytest.mark.parametrize(
    ("path", "most"), [("job.name", 1024), ("project", 1024), ("bank", 1024), ("cwd", 4096)]
)
def test_what_all_users_read_of_a_job_is_not_long(path: str, most: int) -> None:
    above, _, name = path.rpartition(".")
    for length in (most, most + 1):
        value = {name: "x" * length}
        spec = jobspec.make(["true"], attributes={above: value} if above else value)
        if length > most:
            words = rf"attributes\.system\.{path} has {length} characters, and {most} at most"
            with pytest.raises(BadFormat, match=words):
                jobspec.check(spec)
        else:
            jobspec.check(spec)


def test_a_job_without_a_name_has_its_programs_and_no_longer_one_than_a_file_has() -> None:
    assert jobspec.name(jobspec.make(["/bin/true"])) == "true"
    assert jobspec.name(jobspec.make(["x" * 300])) == "x" * 255
