"""Queues, limits and constraints at their edges."""

from typing import Any

import pytest

from tests.lifecycle import stories
from tests.lifecycle.test_listing import Listed
from tests.lifecycle.test_perilog import BOTH, FREED, after
from warren.lifecycle.job import update
from warren.lifecycle.jobqueue import expand_updates, with_properties, without_properties
from warren.lifecycle.limits import refusal, sizes
from warren.lifecycle.perilog import EPILOG, Cancel, PostFinish, Progress, Run, Settings, decide
from warren.lifecycle.policy import QueueLimits
from warren.lifecycle.queues import QueueState, is_eligible, require_queue, status
from warren.lifecycle.selection import ALL_STATES, MAX_COMPARISONS, Selection
from warren.lifecycle.states import State
from warren.rfc import jobspec
from warren.rfc.errors import BadFormat

UP = QueueState(enable=True, start=True)
STOPPED = QueueState(enable=True, start=False, stop_reason="repair")
QUIET = QueueState(enable=True, start=False, stop_reason=None)
SHUT = QueueState(enable=False, start=True, disable_reason="full")

LIMITS: dict[str | None, QueueLimits] = {
    "p": QueueLimits(name="p"),
    "c": QueueLimits(name="c", parent="p"),
}


@pytest.mark.parametrize(
    ("parent", "child", "told"),
    [
        (UP, UP, {"enable": True, "start": True, "parent": "p"}),
        (UP, STOPPED, {"enable": True, "start": False, "stop_reason": "repair", "parent": "p"}),
        (UP, QUIET, {"enable": True, "start": False, "parent": "p"}),
        (
            STOPPED,
            UP,
            {
                "enable": True,
                "start": False,
                "stop_reason": "repair",
                "blocked": "parent",
                "parent": "p",
            },
        ),
        (QUIET, UP, {"enable": True, "start": False, "blocked": "parent", "parent": "p"}),
        (
            UP,
            SHUT,
            {"enable": False, "start": True, "disable_reason": "full", "parent": "p"},
        ),
    ],
)
def test_a_queue_is_shown_with_what_keeps_its_jobs(
    parent: QueueState, child: QueueState, told: dict[str, Any]
) -> None:
    states: dict[str | None, QueueState] = {"p": parent, "c": child}

    assert status(states, LIMITS, "c") == told
    assert "parent" not in status(states, LIMITS, "p")
    assert is_eligible(states, LIMITS, "c") is (parent.start and child.start)
    assert is_eligible(states, LIMITS, "p") is parent.start
    assert is_eligible(states, LIMITS, "gone") is False


def test_the_anonymous_queue_is_named_by_nothing_where_it_is_there() -> None:
    assert require_queue({None: UP}, None) is None
    with pytest.raises(Exception, match="There are named queues"):
        require_queue({"a": UP}, None)
    with pytest.raises(Exception, match="There is no queue 'b'"):
        require_queue({"a": UP}, "b")


# Limits


def spec(**options: Any) -> dict[str, Any]:
    return jobspec.make(["app"], **options)


def test_a_job_without_a_time_limit_is_beyond_any() -> None:
    held = QueueLimits(name="q", max_duration=60)
    assert refusal(spec(), held) == "The job has no time limit, and queue q allows 1m."
    assert refusal(spec(duration=61), held) is not None
    assert refusal(spec(duration=60), held) is None
    bare = spec()
    bare["attributes"]["system"].pop("duration", None)
    assert refusal(bare, held) is not None
    assert refusal(bare, QueueLimits()) is None


@pytest.mark.parametrize(
    ("least", "most", "refused"),
    [
        ({}, {}, False),
        ({"nnodes": 3}, {}, True),
        ({}, {"nnodes": 1}, True),
        ({}, {"nnodes": 2}, False),
    ],
)
def test_either_end_of_a_size_is_a_limit(
    least: dict[str, int], most: dict[str, int], refused: bool
) -> None:
    said = refusal(spec(nodes=2), QueueLimits(min_sizes=least, max_sizes=most))
    assert (said is not None) is refused


def test_counts_that_leave_a_choice_are_counted_at_either_end() -> None:
    resources = [{"type": "node", "count": "2-4", "with": [{"type": "core", "count": 3}]}]
    made = {"resources": resources}
    assert sizes(made) == {"nnodes": 2, "ncores": 6, "ngpus": 0}
    assert sizes(made, greatest=True) == {"nnodes": 4, "ncores": 12, "ngpus": 0}


# Constraints of queues


@pytest.mark.parametrize(
    ("own", "properties", "made"),
    [
        ({}, ("a",), {"properties": ["a"]}),
        ({"properties": ["a"]}, ("a",), {"properties": ["a"]}),
        ({"properties": ["b"]}, ("a",), {"properties": ["b", "a"]}),
        ({"ranks": ["1"]}, ("a",), {"and": [{"ranks": ["1"]}, {"properties": ["a"]}]}),
        ({"ranks": ["1"]}, (), {"ranks": ["1"]}),
    ],
)
def test_what_a_queue_requires_is_added_and_can_be_taken_away(
    own: dict[str, Any], properties: tuple[str, ...], made: dict[str, Any]
) -> None:
    assert with_properties(own, properties) == made
    again = without_properties(made, properties)
    assert again == (own if "a" not in own.get("properties", ()) else {})


@pytest.mark.parametrize(
    ("own", "left"),
    [
        (
            {"and": [{"ranks": ["1"]}, {"hostlist": ["n"]}, {"properties": ["a"]}]},
            {"and": [{"ranks": ["1"]}, {"hostlist": ["n"]}]},
        ),
        ({"and": [{"properties": ["a"]}, {"properties": ["a"]}]}, {}),
        ({"and": [{"properties": ["a", "b"]}]}, {"properties": ["b"]}),
    ],
)
def test_what_is_left_of_a_conjunction_is_as_plain_as_it_can_be(
    own: dict[str, Any], left: dict[str, Any]
) -> None:
    assert without_properties(own, ["a"]) == left


QUEUES: dict[str | None, QueueLimits] = {
    "a": QueueLimits(name="a", properties=("a",)),
    "b": QueueLimits(name="b", properties=("b",)),
    "plain": QueueLimits(name="plain"),
}
QUEUE, CONSTRAINTS = "attributes.system.queue", "attributes.system.constraints"


@pytest.mark.parametrize(
    ("was", "constraints", "asked", "made"),
    [
        (
            "a",
            {"properties": ["a"]},
            {QUEUE: "b"},
            {QUEUE: "b", CONSTRAINTS: {"properties": ["b"]}},
        ),
        ("a", {"properties": ["a"]}, {QUEUE: "plain"}, {QUEUE: "plain", CONSTRAINTS: {}}),
        ("a", {"properties": ["a"]}, {QUEUE: "a"}, {QUEUE: "a"}),
        ("plain", {}, {QUEUE: "plain"}, {QUEUE: "plain"}),
        ("plain", {}, {CONSTRAINTS: {}}, {CONSTRAINTS: {}}),
        ("a", {"properties": ["a"]}, {CONSTRAINTS: {}}, {CONSTRAINTS: {"properties": ["a"]}}),
        (
            "a",
            {"properties": ["a"]},
            {"attributes.system.duration": 5},
            {"attributes.system.duration": 5},
        ),
    ],
)
def test_another_queue_brings_what_it_requires_in_place_of_the_old_ones(
    was: str, constraints: dict[str, Any], asked: dict[str, Any], made: dict[str, Any]
) -> None:
    job = spec(attributes={"queue": was, **({"constraints": constraints} if constraints else {})})
    assert expand_updates(job, asked, QUEUES) == made


# Commands around jobs


def test_an_epilog_is_cut_short_by_a_fatal_exception_of_its_own_time_alone() -> None:
    cancelling = Settings(has_prolog=True, has_epilog=True, cancel_epilog=True)
    running = Progress(running=frozenset({EPILOG}))
    ended = after(FREED, "start", "finish")
    failed_before = update(ended, stories.event("exception", severity=0))
    for before, meanwhile, unwanted in (
        (ended, None, False),
        (failed_before, None, False),
        (ended, stories.event("exception", severity=3), False),
        (ended, stories.event("exception", severity=0), True),
    ):
        job = update(before, stories.event("epilog-start", description=EPILOG))
        if meanwhile is not None:
            job = update(job, meanwhile)
        assert decide(job, cancelling, running) == ([Cancel(EPILOG)] if unwanted else [])
        assert decide(job, cancelling, Progress()) == (
            [PostFinish(EPILOG, 1)] if unwanted else [Run(EPILOG)]
        )
        assert decide(job, BOTH, running) == []


@pytest.mark.parametrize("events", [(), ("validate",), ("validate", "depend", "priority")])
def test_nothing_is_run_around_a_job_that_has_no_nodes(events: tuple[str, ...]) -> None:
    assert decide(stories.job(*events), BOTH, Progress()) == []


# Selections


def test_states_that_there_are_not_select_nothing_more() -> None:
    chosen = Selection({"states": [State.RUN.bit | 1 << 20]}, 10)
    assert chosen.states == State.RUN.bit
    assert Selection({"states": [1 << 20]}, 10).states == 0
    assert Selection({"not": [{"states": [1 << 20]}]}, 10).states == ALL_STATES


def test_what_one_part_selects_in_all_its_states_the_whole_does_too() -> None:
    every = {"or": [{"states": ["run"]}, {"states": ["depend"]}]}
    assert Selection({"not": [every]}, 10).states == ALL_STATES & ~(
        State.RUN.bit | State.DEPEND.bit
    )
    assert Selection({"or": [every, {"name": ["x"]}]}, 10).states == ALL_STATES


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"and": [found]}
    return found


def test_constraints_are_nested_less_than_100_deep() -> None:
    assert Selection(nested(99), 10).selects(Listed())
    with pytest.raises(BadFormat, match="nested more than 100 deep"):
        Selection(nested(100), 10)


def test_what_is_left_of_the_comparisons_is_counted() -> None:
    chosen = Selection({"userid": [1]}, 2)
    assert chosen.comparisons_left == 2
    chosen.selects(Listed())
    assert chosen.comparisons_left == 1
    assert MAX_COMPARISONS == 1000000
