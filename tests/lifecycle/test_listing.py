"""What a listing says of jobs that wait, have ended, or have records that cannot be read."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.lifecycle.stories import LIFE, event, job
from warren.lifecycle import attributes
from warren.lifecycle.attributes import ATTRIBUTES
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec, resource_set
from warren.rfc.errors import BadFormat

WAITING = job("validate")
DONE = job(*LIFE)
ON_TWO = [resource_set.NodeResources(3, "n3", (0, 1)), resource_set.NodeResources(4, "n4", (0, 1))]


class Listed:
    def __init__(self, known: Job = WAITING, r: Mapping[str, Any] | None = None, **spec: Any):
        self.job = known
        self.jobspec: Mapping[str, Any] = jobspec.make(["app"], **spec)
        self.r = r


def told(each: Any, *names: str) -> dict[str, Any]:
    found = attributes.job_attributes(each, names)
    assert found.pop("id") == each.job.id
    return found


def test_a_name_that_is_one_of_them_is_chosen_in_its_place() -> None:
    assert attributes.attribute_names(["state", "name"]) == ["state", "name"]
    others = [each for each in ATTRIBUTES if each != "name"]
    assert attributes.attribute_names(["name", "all"]) == ["name", *others]


@pytest.mark.parametrize("name", ["colour", 3, None, ["name"]])
def test_what_is_no_attribute_is_refused(name: Any) -> None:
    with pytest.raises(BadFormat, match="no attribute"):
        attributes.attribute_names([name])


def test_a_record_that_cannot_be_read_costs_what_would_come_of_it_and_is_told() -> None:
    broken = Listed()
    broken.jobspec = {"attributes": {}}
    found = told(broken, "name", "state", "cwd")

    assert set(found) == {"state", "damage"}
    assert found["damage"].startswith("a record has no place for KeyError(")


def test_of_several_damages_the_first_is_told_and_in_its_own_words_where_it_has_some() -> None:
    broken = Listed(r={"version": 7})
    broken.jobspec = {"attributes": {}}
    first = told(broken, "ranks", "cwd")["damage"]

    assert "a record has no place" not in first
    with pytest.raises(BadFormat) as refused:
        resource_set.decode_nodes({"version": 7})
    assert first == str(refused.value)


def test_a_job_whose_records_cannot_be_read_passes_no_test() -> None:
    def test(each: Any) -> bool:
        raise KeyError("attributes")

    assert attributes.passes(Listed(), test) is False
    assert attributes.passes(Listed(), lambda each: True) is True


def test_a_job_without_resources_has_no_nodes_and_nothing_of_them() -> None:
    each = Listed(tasks=2)

    assert attributes.nodes(each) == []
    assert attributes.ranks(each) == frozenset()
    assert told(each, "ranks", "nodelist", "expiration") == {}
    assert told(each, "ntasks") == {"ntasks": 2}


def test_a_job_with_resources_has_nodes_and_ranks_and_perhaps_an_end() -> None:
    each = Listed(r=resource_set.encode_nodes(ON_TWO))
    assert (attributes.nodes(each), attributes.ranks(each)) == (
        ["n3", "n4"],
        frozenset({3, 4}),
    )
    assert told(each, "expiration") == {"expiration": 0.0}


@pytest.mark.parametrize(
    ("known", "success", "result"),
    [
        (WAITING, None, None),
        (DONE, True, Result.COMPLETED.bit),
        (replace(DONE, wait_status=256), False, Result.FAILED.bit),
        (job("validate", event("exception"), "clean"), False, Result.CANCELED.bit),
    ],
)
def test_a_job_that_is_over_has_a_result_and_one_that_is_not_has_none(
    known: Job, success: bool | None, result: int | None
) -> None:
    expected = {} if result is None else {"success": success, "result": result}
    assert told(Listed(known), "success", "result") == expected


def problems(*severities: int) -> Job:
    met = [
        event("exception", type=f"t{number}", severity=severity, note=f"note {number}")
        for number, severity in enumerate(severities)
    ]
    return job("validate", *met)


@pytest.mark.parametrize(
    ("severities", "first"), [((3,), 0), ((3, 1, 2), 1), ((2, 2), 0), ((7, 1), 1), ((1, 7), 0)]
)
def test_of_several_exceptions_the_gravest_is_told(severities: tuple[int, ...], first: int) -> None:
    names = ("exception_type", "exception_severity", "exception_note", "exception_occurred")

    assert told(Listed(problems(*severities)), *names) == {
        "exception_type": f"t{first}",
        "exception_severity": severities[first],
        "exception_note": f"note {first}",
        "exception_occurred": True,
    }


def test_without_an_exception_there_is_nothing_to_tell_of_one() -> None:
    names = ("exception_type", "exception_severity", "exception_note", "exception_occurred")
    assert told(Listed(), *names) == {"exception_occurred": False}


def test_a_job_without_annotations_has_none_and_a_memo_is_told_as_the_users() -> None:
    memo = job("validate", event("memo", a="b"))
    assert told(Listed(), "annotations") == {}
    both = {"sched": {"x": 1}}
    noted = job("validate", event("annotations", annotations=both))
    assert told(Listed(noted), "annotations") == {"annotations": both}
    found = told(Listed(memo), "annotations")["annotations"]
    assert found["user"]["a"] == "b"


def test_each_moment_is_that_of_its_state() -> None:
    each = Listed(replace(WAITING, times={state: n + 1.0 for n, state in enumerate(State)}))
    names = {"t_submit": State.NEW} | {
        f"t_{state.lower()}": state for state in State if state is not State.NEW
    }

    assert "t_new" not in ATTRIBUTES
    assert told(each, *names) == {name: each.job.times[state] for name, state in names.items()}
    assert attributes.timestamp(each, "t_submit") == each.job.times[State.NEW]


def test_tasks_of_each_core_are_counted_where_the_cores_are_known() -> None:
    each = Listed(r=resource_set.encode_nodes(ON_TWO), nodes=2)
    options = {"per-resource": {"type": "core", "count": 3}}
    system = each.jobspec["attributes"]["system"]
    system.setdefault("shell", {}).setdefault("options", {}).update(options)

    assert told(each, "ntasks") == {"ntasks": 12}
    options["per-resource"]["type"] = "node"
    assert told(each, "ntasks") == {"ntasks": 6}
