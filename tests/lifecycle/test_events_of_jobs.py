"""What each event leaves in a job, to the last field."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from tests.lifecycle.stories import ID, LIFE, SUBMIT, event, job
from warren.lifecycle.job import (
    IllegalEvent,
    check_depth,
    from_submit,
    merge_annotations,
    update,
)
from warren.lifecycle.states import State
from warren.lifecycle.urgency import DEFAULT, EXPEDITE, HOLD, MAX_PRIORITY
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.jobflags import DEBUG, NOVALIDATE, WAITABLE

UPTO_ALLOC = LIFE[: LIFE.index("alloc") + 1]


def submitted(**context: Any) -> Event:
    return Event(1.0, "submit", {**SUBMIT.context, **context})


def test_flags_and_urgencies_are_those_of_flux() -> None:
    flagged = from_submit(ID, submitted(flags=2 | 4 | 8, urgency=16))
    assert flagged.flags == DEBUG | WAITABLE | NOVALIDATE
    assert (DEBUG, WAITABLE, NOVALIDATE) == (2, 4, 8)
    assert (HOLD, DEFAULT, EXPEDITE, MAX_PRIORITY) == (0, 16, 31, 4294967295)


def test_a_submission_without_flags_has_none() -> None:
    context = {name: value for name, value in SUBMIT.context.items() if name != "flags"}
    assert from_submit(ID, Event(1.0, "submit", context)).flags == 0
    assert from_submit(ID, submitted(flags=6)).flags == 6


def test_a_submission_of_the_time_before_versions_has_waited_since_it_was_made() -> None:
    context = {name: value for name, value in SUBMIT.context.items() if name != "version"}
    times = from_submit(ID, Event(3.0, "submit", context)).times
    assert times == {State.NEW: 3.0, State.DEPEND: 3.0}
    assert from_submit(ID, SUBMIT).times == {State.NEW: 1.0}


@pytest.mark.parametrize("field", ["userid", "flags"])
def test_numbers_of_32_bits_are_the_greatest(field: str) -> None:
    assert getattr(from_submit(ID, submitted(**{field: 2**32 - 1})), field) == 2**32 - 1
    with pytest.raises(BadFormat, match="bad context"):
        from_submit(ID, submitted(**{field: 2**32}))


def test_the_greatest_priority_and_wait_status_are_taken_and_none_that_are_greater() -> None:
    queued = job("validate", "depend")
    assert update(queued, event("priority", priority=MAX_PRIORITY)).priority == MAX_PRIORITY
    running = job(*UPTO_ALLOC, "start")
    assert update(running, event("finish", status=2**31 - 1)).wait_status == 2**31 - 1
    met = update(running, event("exception", wait_status=2**31 - 1))
    assert met.exceptions[-1].wait_status == 2**31 - 1
    for late in (event("finish", status=2**31), event("exception", wait_status=2**31)):
        with pytest.raises(BadFormat, match="bad context"):
            update(running, late)
    with pytest.raises(BadFormat, match="bad context"):
        update(queued, event("priority", priority=MAX_PRIORITY + 1))


@pytest.mark.parametrize(
    ("flags", "set_"),
    [
        (["debug"], (DEBUG, False, False)),
        (["immutable"], (0, False, True)),
        (["alloc-bypass"], (0, True, False)),
        (["debug", "immutable", "alloc-bypass"], (DEBUG, True, True)),
        ([], (0, False, False)),
    ],
)
def test_flags_are_set_by_name_and_stay(flags: list[str], set_: tuple[int, bool, bool]) -> None:
    once = job(event("set-flags", flags=flags))
    again = update(once, event("set-flags", flags=[]))
    for known in (once, again):
        assert (known.flags, known.alloc_bypass, known.immutable) == set_


def test_a_flag_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadFormat, match="bad context"):
        job(event("set-flags", flags=["fast"]))


@pytest.mark.parametrize(("expiration", "kept"), [(0, 0.0), (0.5, 0.5), (10, 10.0)])
def test_the_end_of_a_job_is_a_time_and_0_is_never(expiration: float, kept: float) -> None:
    found = job(*UPTO_ALLOC, event("resource-update", expiration=expiration)).expiration
    assert found == kept
    assert type(found) is float


@pytest.mark.parametrize("expiration", [-1, inf, True, "1", None])
def test_what_is_no_time_is_no_end_of_a_job(expiration: Any) -> None:
    with pytest.raises(BadFormat, match="bad context"):
        job(*UPTO_ALLOC, event("resource-update", expiration=expiration))


def test_annotations_are_merged_and_taken_away_by_null() -> None:
    known = job("validate", event("annotations", annotations={"sched": {"a": 1, "b": 2}}))
    assert merge_annotations(known, {"sched": {"a": None}, "x": 1}) == {"sched": {"b": 2}, "x": 1}
    assert merge_annotations(known, {"sched": {"a": None, "b": None}}) == {}
    assert known.annotations == {"sched": {"a": 1, "b": 2}}


def nested(depth: int) -> dict[str, Any]:
    return {"a": 1} if depth == 1 else {"a": nested(depth - 1)}


def listed(depth: int) -> Any:
    return 1 if depth == 0 else [listed(depth - 1)]


@pytest.mark.parametrize("make", [listed, lambda depth: [{"b": listed(depth - 2)}]])
def test_lists_are_given_no_deeper_than_objects(make: Callable[[int], Any]) -> None:
    """All users have them in their lists of jobs, and clients read so many levels at most."""
    check_depth({"a": make(31)})
    with pytest.raises(ValueError, match="objects and lists are nested more than 32 deep"):
        check_depth({"a": make(32)})


def test_lists_of_an_old_log_may_be_deeper() -> None:
    assert job("validate", event("memo", a=listed(100))).memo["a"]


def test_objects_are_nested_no_deeper_than_32() -> None:
    assert job("validate", event("memo", **nested(32))).memo["a"]
    with pytest.raises(BadFormat, match="bad context"):
        job("validate", event("memo", **nested(33)))


# To the end


def test_a_job_is_over_when_all_that_it_waits_for_is() -> None:
    """The last transitions, event by event."""
    known = job(*LIFE[: LIFE.index("start") + 1])
    assert known.state is State.RUN
    for name, state in (
        ("finish", State.CLEANUP),
        ("epilog-start", State.CLEANUP),
        ("release", State.CLEANUP),
        ("epilog-finish", State.CLEANUP),
        ("free", State.CLEANUP),
        ("clean", State.INACTIVE),
    ):
        known = update(known, event(name))
        assert known.state is state, name
    assert (known.allocated, known.all_released, known.epilogs) == (False, True, frozenset())
    assert known.ever_epilogs == {"dws-epilog"}
    assert known.wait_status == 0
    with pytest.raises(IllegalEvent):
        update(known, event("memo"))


def test_ranks_are_freed_once() -> None:
    known = job(*LIFE[: LIFE.index("free")], event("partial-free", ranks="1-2"))
    assert known.freed_ranks == {1, 2}
    assert update(known, event("partial-free", ranks="0")).freed_ranks == {0, 1, 2}
    with pytest.raises(IllegalEvent, match="ranks 2 were freed before"):
        update(known, event("partial-free", ranks="2-3"))


def test_execution_lets_go_rank_by_rank_and_then_of_all() -> None:
    running = job(*UPTO_ALLOC, "start", "finish")
    some = update(running, event("release", ranks="0,2", final=False))
    assert (some.released_ranks, some.all_released) == (frozenset({0, 2}), False)
    assert update(some, event("release", ranks="1", final=False)).released_ranks == {0, 1, 2}
    unknown = update(some, event("release", ranks="all", final=False))
    assert (unknown.released_ranks, unknown.all_released) == (frozenset({0, 2}), False)
    assert update(some, event("release", ranks="all", final=True)).all_released


def test_a_job_that_the_scheduler_cannot_let_keep_its_resources_has_none() -> None:
    running = job(*UPTO_ALLOC)
    assert running.allocated
    assert not update(running, event("exception", type="scheduler-restart")).allocated
    assert update(running, event("exception", type="cancel")).allocated


@pytest.mark.parametrize("context", [{"userid": 5588}, {"userid": 0}, {"severity": 7}])
def test_what_users_say_of_the_scheduler_takes_no_resources_from_a_job(
    context: dict[str, Any],
) -> None:
    running = job(*UPTO_ALLOC, "start")
    said = event("exception", **{"type": "scheduler-restart", **context})
    assert update(running, said).allocated
    assert update(
        update(running, said), event("exception", type="scheduler-restart")
    ).allocated is (False)


def test_an_exception_during_an_epilog_is_known_as_one() -> None:
    before = job(*UPTO_ALLOC, "start", "finish")
    assert not update(before, event("exception")).exceptions[-1].during_epilog
    after = update(before, event("epilog-start"))
    assert update(after, event("exception")).exceptions[-1].during_epilog


def test_what_a_scheduler_has_said_before_is_no_more_once_there_are_resources() -> None:
    said = event("annotations", annotations={"sched": {"reason_pending": "busy"}})
    before = job("validate", "depend", "priority", said)
    assert update(before, event("alloc")).annotations == before.annotations
    new = event("alloc", annotations={"sched": {"resource_summary": "n0"}})
    assert update(before, new).annotations == {"sched": {"resource_summary": "n0"}}
    assert update(before, event("alloc", annotations=None)).annotations == {}
