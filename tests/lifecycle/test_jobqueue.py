"""What a queue makes of a jobspec (flux-rfc-spec section 20)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.base.errors import UserMistake
from warren.lifecycle.jobqueue import (
    apply_queue,
    expand_updates,
    with_properties,
    without_properties,
)
from warren.lifecycle.policy import QueueLimits
from warren.rfc import canonical, constraint, jobspec
from warren.rfc.constraint import Node
from warren.rfc.errors import BadFormat

BATCH = QueueLimits(name="batch", properties=("batch", "big"), default_duration=3600.0)
TERMS: dict[str | None, QueueLimits] = {
    "batch": BATCH,
    "debug": QueueLimits(name="debug", properties=("+debug",)),
    "any": QueueLimits(),
}
ALONE: dict[str | None, QueueLimits] = {None: QueueLimits()}


def spec(**system: Any) -> dict[str, Any]:
    return jobspec.make(["app"], tasks=1, attributes=system)


def system(made: Any) -> dict[str, Any]:
    found: dict[str, Any] = made["attributes"]["system"]
    return found


# Defaults


def test_a_job_that_names_no_queue_has_the_default() -> None:
    assert system(apply_queue(spec(), TERMS, "any"))["queue"] == "any"
    assert system(apply_queue(spec(queue="debug"), TERMS, "any"))["queue"] == "debug"


@pytest.mark.parametrize("duration", [0, 0.0, None])
def test_a_job_without_a_time_limit_has_that_of_its_queue(duration: float | None) -> None:
    asked = spec()
    if duration is None:
        del system(asked)["duration"]
    else:
        system(asked)["duration"] = duration

    assert system(apply_queue(asked, TERMS, "batch"))["duration"] == 3600.0
    assert apply_queue(asked, ALONE, None) is asked


def test_a_time_limit_of_its_own_stays() -> None:
    assert system(apply_queue(spec(duration=60.0), TERMS, "batch"))["duration"] == 60.0


def test_where_there_are_no_queues_and_no_defaults_nothing_is_made() -> None:
    asked = spec()

    assert apply_queue(asked, ALONE, None) is asked


@pytest.mark.parametrize(
    ("queue", "queue_limits", "words"),
    [
        ("x", TERMS, "There is no queue 'x': name one of batch, debug, any."),
        ("x", ALONE, "There is no queue 'x': there are none."),
        (None, TERMS, "The job names no queue: name one of batch, debug, any."),
    ],
)
def test_a_queue_that_is_not_there_is_refused(
    queue: str | None, queue_limits: dict[str | None, QueueLimits], words: str
) -> None:
    with pytest.raises(UserMistake) as refused:
        apply_queue(spec(queue=queue) if queue else spec(), queue_limits, None)

    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([], "jobspec: jobspec is not an object"),
        ({}, "jobspec: attributes is not an object"),
        ({"attributes": {"system": 5}}, "jobspec: attributes.system is not an object"),
        (spec(queue=5), "jobspec: attributes.system.queue is not a string"),
        (
            spec(queue="batch", constraints={"properties": "x"}),
            "jobspec: attributes.system.constraints.properties is not a list",
        ),
        (
            spec(queue="batch", constraints=None),
            "jobspec: attributes.system.constraints is not an object",
        ),
    ],
)
def test_of_what_is_read_the_place_of_a_mistake_is_told(wrong: Any, words: str) -> None:
    with pytest.raises(BadFormat) as refused:
        apply_queue(wrong, TERMS, None)

    assert str(refused.value) == words


# Constraints


@pytest.mark.parametrize(
    ("own", "made"),
    [
        ({}, {"properties": ["batch", "big"]}),
        ({"properties": ["x"]}, {"properties": ["x", "batch", "big"]}),
        ({"properties": ["big", "x"]}, {"properties": ["big", "x", "batch"]}),
        (
            {"hostlist": ["n1"]},
            {"and": [{"hostlist": ["n1"]}, {"properties": ["batch", "big"]}]},
        ),
        (
            {"or": [{"properties": ["batch"]}, {"ranks": ["1"]}]},
            {
                "and": [
                    {"or": [{"properties": ["batch"]}, {"ranks": ["1"]}]},
                    {"properties": ["batch", "big"]},
                ]
            },
        ),
        (
            {"and": [{"ranks": ["1"]}, {"properties": ["batch", "big", "x"]}]},
            {"and": [{"ranks": ["1"]}, {"properties": ["batch", "big", "x"]}]},
        ),
    ],
)
def test_a_queue_adds_its_properties_to_the_constraints(own: Any, made: Any) -> None:
    asked = spec(queue="batch", constraints=own)

    assert system(apply_queue(asked, TERMS, None))["constraints"] == made


@pytest.mark.parametrize("queue", [{}, {"queue": "batch"}])
def test_constraints_of_an_author_are_not_long_whatever_the_queue_adds(queue: Any) -> None:
    fits, longer = ({"properties": ["x" * count]} for count in (65_500, 65_540))
    assert apply_queue(spec(**queue, constraints=fits), TERMS, "any")
    said = "constraints has 65559 bytes, and 65536 at most: name hosts as a list"
    with pytest.raises(UserMistake, match=said):
        apply_queue(spec(**queue, constraints=longer), TERMS, "any")
    with pytest.raises(UserMistake, match=said):
        expand_updates(spec(queue="any"), {"attributes.system.constraints": longer}, TERMS)


PROPERTIES = st.lists(st.sampled_from(["batch", "big", "x", "^y"]), max_size=3)
CONSTRAINTS = st.recursive(
    st.one_of(
        st.just({}),
        st.builds(lambda names: {"properties": names}, PROPERTIES),
        st.sampled_from([{"hostlist": ["n1"]}, {"ranks": ["0-1"]}]),
    ),
    lambda inner: st.builds(
        lambda operator, values: {operator: values},
        st.sampled_from(["and", "or", "not"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)
SYSTEMS = st.fixed_dictionaries(
    {},
    optional={
        "queue": st.sampled_from(["batch", "debug", "any"]),
        "constraints": CONSTRAINTS,
        "duration": st.sampled_from([0, 60.0]),
    },
)
NODES = [
    Node(rank, f"n{rank}", frozenset(names))
    for rank in range(3)
    for names in ((), ("batch",), ("batch", "big"), ("batch", "big", "x"), ("batch", "big", "y"))
]


@settings(deadline=None)
@given(SYSTEMS)
def test_what_was_made_is_a_jobspec_and_is_made_once(asked: dict[str, Any]) -> None:
    once = apply_queue(spec(**asked), TERMS, "batch")

    assert canonical.check(once) is once
    assert apply_queue(once, TERMS, "batch") is once


@settings(deadline=None)
@given(CONSTRAINTS)
def test_nodes_have_to_be_both_of_the_job_and_of_the_queue(own: Any) -> None:
    made = with_properties(own, ("batch", "big"))

    for node in NODES:
        both = constraint.matches(own, node) and {"batch", "big"} <= node.properties
        assert constraint.matches(made, node) is both


FOREIGN = CONSTRAINTS.filter(lambda own: "batch" not in str(own) and "big" not in str(own))


@settings(deadline=None)
@given(FOREIGN)
def test_where_nothing_was_added_nothing_is_taken_away(own: Any) -> None:
    assert without_properties(own, ("batch", "big")) is own


@settings(deadline=None)
@given(FOREIGN)
def test_what_a_queue_has_added_can_be_taken_away(own: Any) -> None:
    again = without_properties(with_properties(own, ("batch", "big")), ("batch", "big"))

    for node in NODES:
        assert constraint.matches(again, node) is constraint.matches(own, node)


# Updates


def test_a_job_that_changes_its_queue_changes_its_nodes() -> None:
    job = apply_queue(spec(queue="batch", constraints={"properties": ["x"]}), TERMS, None)

    assert expand_updates(job, {"attributes.system.queue": "debug"}, TERMS) == {
        "attributes.system.queue": "debug",
        "attributes.system.constraints": {"properties": ["x", "+debug"]},
    }


def test_a_job_that_leaves_for_a_queue_with_any_nodes_has_no_constraints() -> None:
    job = apply_queue(spec(queue="batch"), TERMS, None)

    assert expand_updates(job, {"attributes.system.queue": "any"}, TERMS) == {
        "attributes.system.queue": "any",
        "attributes.system.constraints": {},
    }


def test_new_constraints_do_not_lead_out_of_a_queue() -> None:
    job = apply_queue(spec(queue="debug"), TERMS, None)

    assert expand_updates(job, {"attributes.system.constraints": {"ranks": ["1"]}}, TERMS) == {
        "attributes.system.constraints": {"and": [{"ranks": ["1"]}, {"properties": ["+debug"]}]},
    }


def test_an_update_that_concerns_no_nodes_stays_as_it_is() -> None:
    job = spec(queue="batch")  # from before the queue required anything

    assert expand_updates(job, {"attributes.system.duration": 5}, TERMS) == {
        "attributes.system.duration": 5
    }


def test_a_job_can_be_brought_out_of_a_queue_that_is_no_more() -> None:
    job = spec(queue="gone", constraints={"properties": ["gone"]})

    assert expand_updates(job, {"attributes.system.queue": "debug"}, TERMS) == {
        "attributes.system.queue": "debug",
        "attributes.system.constraints": {"properties": ["gone", "+debug"]},
    }


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"attributes.system.queue": "x"}, "There is no queue 'x'"),
        ({"attributes.system.queue": 5}, "attributes.system.queue is not a string"),
        ({"attributes.system.constraints": 5}, "attributes.system.constraints is not an object"),
    ],
)
def test_an_update_to_what_cannot_be_is_refused(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        expand_updates(spec(queue="batch"), asked, TERMS)


@settings(deadline=None)
@given(SYSTEMS, st.sampled_from(["batch", "debug", "any"]))
def test_an_updated_job_is_as_if_its_queue_had_been_this_one(
    asked: dict[str, Any], queue: str
) -> None:
    job = apply_queue(spec(**{**asked, "duration": 60.0}), TERMS, "batch")
    updated = jobspec.update(job, expand_updates(job, {"attributes.system.queue": queue}, TERMS))

    assert canonical.check(updated) is updated
    assert apply_queue(updated, TERMS, None) == updated
