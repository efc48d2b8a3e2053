"""A job as its event log tells it."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lifecycle.stories import CONTEXTS, ID, LIFE, SUBMIT, event, job
from warren.lifecycle.job import (
    IllegalEvent,
    Job,
    JobException,
    finish_status,
    from_submit,
    replay,
    update,
)
from warren.lifecycle.states import Result, State
from warren.lifecycle.urgency import MAX_PRIORITY, priority
from warren.rfc import eventlog
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.jobflags import DEBUG

RUNNING = LIFE[: LIFE.index("finish")]


# How it begins


def test_a_job_begins_new_with_what_submit_says() -> None:
    begun = from_submit(ID, SUBMIT)
    assert (begun.state, begun.userid, begun.urgency) == (State.NEW, 5588, 16)
    assert begun.times == {State.NEW: 1.0}


def test_a_job_begins_with_no_other_event() -> None:
    with pytest.raises(IllegalEvent, match="a job begins with 'submit', not 'validate'"):
        from_submit(ID, event("validate"))


def test_a_submission_of_a_later_version_is_refused() -> None:
    later = Event(1.0, "submit", {**SUBMIT.context, "version": 2})
    with pytest.raises(IllegalEvent, match="version 2 is not understood"):
        from_submit(ID, later)


def test_a_submission_of_the_time_before_versions_waits_for_its_dependencies() -> None:
    context = {key: value for key, value in SUBMIT.context.items() if key != "version"}
    begun = from_submit(ID, Event(1.0, "submit", context))
    assert begun.state is State.DEPEND
    assert update(begun, event("depend")).state is State.PRIORITY


@pytest.mark.parametrize(
    "wrong",
    [
        *[{"urgency": 32}, {"urgency": -1}, {"urgency": True}, {"urgency": "16"}],
        *[{"userid": -1}, {"userid": 1.5}, {"userid": None}, {"flags": "debug"}],
    ],
)
def test_a_submission_that_says_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadFormat, match="'submit' has a bad context"):
        from_submit(ID, Event(1.0, "submit", {**SUBMIT.context, **wrong}))


@pytest.mark.parametrize("missing", ["userid", "urgency"])
def test_a_submission_that_lacks_something_is_refused(missing: str) -> None:
    context = {key: value for key, value in SUBMIT.context.items() if key != missing}
    with pytest.raises(BadFormat, match=f"'submit' lacks '{missing}'"):
        from_submit(ID, Event(1.0, "submit", context))


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(BadFormat, match="empty"):
        replay(ID, [])


# How it goes on


def test_a_rabbit_job_lives_its_whole_life() -> None:
    ended = job(*LIFE)
    assert (ended.state, ended.result) == (State.INACTIVE, Result.COMPLETED)
    assert list(ended.times) == list(State)
    assert not ended.allocated


def test_a_dependency_that_was_met_once_holds_the_job_no_more() -> None:
    again = job("dependency-add", "dependency-remove", "dependency-add", "validate")
    assert again.dependencies == frozenset()
    assert update(again, event("depend")).state is State.PRIORITY


def test_a_job_does_not_leave_depend_while_a_dependency_is_outstanding() -> None:
    held = job("dependency-add", "validate")
    with pytest.raises(IllegalEvent, match=r"dependencies outstanding: \['dws-create'\]"):
        update(held, event("depend"))


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ((), "dependency-remove"),
        (("validate", "depend"), "prolog-finish"),
        ((*RUNNING, "finish"), "epilog-finish"),
    ],
)
def test_what_has_not_begun_cannot_end(before: tuple[str, ...], name: str) -> None:
    with pytest.raises(IllegalEvent, match="is not outstanding"):
        update(job(*before), event(name))


@pytest.mark.parametrize(
    ("before", "bad"),
    [
        ((), Event(2.0, "dependency-add", {})),
        ((), Event(2.0, "dependency-add", {"description": []})),
        ((), Event(2.0, "exception", {})),
        ((), Event(2.0, "exception", {"type": "cancel"})),
        ((), Event(2.0, "annotations", {"annotations": 7})),
        (("validate", "depend"), Event(2.0, "priority", {})),
        (("validate", "depend", "priority"), Event(2.0, "alloc", {"annotations": 7})),
        (RUNNING, Event(2.0, "finish", {})),
        (RUNNING, Event(2.0, "release", {"ranks": "all"})),
        (RUNNING, Event(2.0, "release", {"ranks": "3-1", "final": False})),
        (RUNNING, Event(2.0, "resource-update", {"expiration": -1})),
        (RUNNING, Event(2.0, "resource-update", {"expiration": "soon"})),
        ((), Event(2.0, "set-flags", {"flags": ["purple"]})),
        ((), Event(2.0, "set-flags", {})),
        ((), Event(2.0, "jobspec-update", {})),
        ((), Event(2.0, "exception", {"type": "cancel", "severity": 8})),
        ((), Event(2.0, "exception", {"type": 7, "severity": 0})),
        ((), Event(2.0, "exception", {"type": "a", "severity": 0, "wait_status": "9"})),
        (("validate",), Event(2.0, "urgency", {"urgency": 32})),
        (("validate", "depend"), Event(2.0, "priority", {"priority": 2**32})),
    ],
)
def test_an_event_with_a_bad_context_is_refused_and_changes_nothing(
    before: tuple[str, ...], bad: Event
) -> None:
    known = job(*before)
    copy = job(*before)
    with pytest.raises(BadFormat, match=f"event '{bad.name}' has a bad context"):
        update(known, bad)
    assert known == copy


def test_null_takes_a_memo_and_an_annotation_away() -> None:
    told = job(
        event("memo", rabbits="r0", kept=1),
        event("annotations", annotations={"sched": "x", "user": "y"}),
        event("memo", rabbits=None),
        event("annotations", annotations={"sched": None}),
        event("annotations", annotations=None),
    )
    assert told.memo == {"kept": 1}
    assert told.annotations == {"user": "y"}


def test_memos_and_annotations_are_merged_object_by_object() -> None:
    told = job(
        event("memo", rabbits={"a": 1, "b": {"c": 2}}),
        event("memo", rabbits={"a": None, "b": {"d": 3}}),
        event("annotations", annotations={"sched": {"reason_pending": "busy", "t": 1}}),
        event("annotations", annotations={"sched": {"reason_pending": None, "t": None}}),
    )
    assert told.memo == {"rabbits": {"b": {"c": 2, "d": 3}}}
    assert told.annotations == {}


def test_a_memo_of_endless_depth_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(BadFormat, match="nested more than 32 deep"):
        update(job(), Event(2.0, "memo", deep))


def test_flags_are_set_and_never_taken_back() -> None:
    flagged = job("set-flags", Event(2.0, "set-flags", {"flags": ["debug", "immutable"]}))
    assert (flagged.alloc_bypass, flagged.immutable, flagged.flags) == (True, True, DEBUG)
    assert update(flagged, Event(3.0, "set-flags", {"flags": []})) == flagged


def test_a_restart_leaves_a_queued_job_without_a_priority() -> None:
    assert job("validate", "depend", "priority", "flux-restart").priority is None


def test_a_node_is_given_back_once() -> None:
    freed = job(*STARTED, "finish", "partial-free")
    assert freed.freed_ranks == {1}
    with pytest.raises(IllegalEvent, match="ranks 1 were freed before"):
        update(freed, Event(3.0, "partial-free", {"ranks": "1-2"}))


@pytest.mark.parametrize(
    ("problem", "status", "wanted"),
    [
        (None, 0, 0),
        (None, 256, 256),
        ({"severity": 1}, 0, 0),
        ({}, 0, 256),
        ({}, 15, 15),
        ({"wait_status": 9}, 0, (128 + 9) << 8),
        ({"wait_status": 9}, 15, (128 + 9) << 8),
        ({"wait_status": 512}, 15, 512),
        ({"wait_status": 0}, 15, 256),
    ],
)
def test_a_fatal_exception_has_the_last_word_on_the_status(
    problem: dict[str, Any] | None, status: int, wanted: int
) -> None:
    met = [] if problem is None else [event("exception", **problem)]
    assert finish_status(job(*STARTED, *met), status) == wanted


@pytest.mark.parametrize(
    ("urgency", "answered", "wanted"),
    [
        *[(16, None, 16), (16, 5, 5), (16, -5, 0), (16, 2**40, MAX_PRIORITY)],
        *[
            (0, None, 0),
            (0, 50, 0),
            (31, None, MAX_PRIORITY),
            (31, 5, MAX_PRIORITY),
            (30, None, 30),
        ],
    ],
)
def test_urgency_becomes_a_priority(urgency: int, answered: int | None, wanted: int) -> None:
    assert priority(urgency, answered) == wanted


def test_the_last_update_of_a_jobspec_counts() -> None:
    told = job(
        Event(2.0, "jobspec-update", {"attributes.system.duration": 5, "a": 1}),
        Event(3.0, "jobspec-update", {"a": 2}),
    )
    assert told.updates == {"attributes.system.duration": 5, "a": 2}


def test_a_later_release_does_not_take_back_the_last_one() -> None:
    released = job(*RUNNING, "release", event("release", final=False))
    assert released.all_released


def test_an_exception_keeps_its_words_and_knows_whether_an_epilog_had_begun() -> None:
    late = event("exception", type="exec", severity=0, note="gone", wait_status=9)
    told = job(*RUNNING, "exception", "epilog-start", late)
    assert told.exceptions == (
        JobException(type="cancel", severity=0, note=""),
        JobException(type="exec", severity=0, note="gone", wait_status=9, during_epilog=True),
    )
    assert told.fatal_exception is told.exceptions[0]


# How it ends


def fatal(kind: str) -> Event:
    return event("exception", type=kind)


CLEAN = ["free", "clean"]
QUEUED = ["validate", "depend", "priority"]
STARTED = [*QUEUED, "alloc", "start"]


@pytest.mark.parametrize(
    ("story", "result"),
    [
        ([*STARTED, event("finish", status=0), *CLEAN], Result.COMPLETED),
        ([*STARTED, event("finish", status=256), *CLEAN], Result.FAILED),
        ([*STARTED, event("finish", status=0), fatal("cancel"), *CLEAN], Result.CANCELED),
        ([*STARTED, event("finish", status=0), fatal("exception"), *CLEAN], Result.FAILED),
        (
            [*STARTED, event("finish", status=0), event("exception", severity=1), *CLEAN],
            Result.COMPLETED,
        ),
        ([*STARTED, fatal("cancel"), event("finish", status=15), *CLEAN], Result.CANCELED),
        ([*STARTED, fatal("timeout"), event("finish", status=14), *CLEAN], Result.TIMEOUT),
        ([*STARTED, fatal("exec"), event("finish", status=9), *CLEAN], Result.FAILED),
        ([*STARTED, fatal("exec"), fatal("cancel"), *CLEAN], Result.FAILED),
        ([*STARTED, event("exception", severity=1), "finish", *CLEAN], Result.COMPLETED),
        ([*QUEUED, fatal("cancel"), "clean"], Result.CANCELED),
        ([*QUEUED, fatal("alloc"), "clean"], Result.FAILED),
        (["validate", fatal("dependency"), "clean"], Result.FAILED),
    ],
)
def test_a_job_ends_as_its_first_fatal_exception_or_its_status_says(
    story: list[Any], result: Result
) -> None:
    ended = job(*story)
    assert ended.result is result
    assert job(*story[:-1]).result is None  # not before it is over


def test_a_job_that_was_refused_while_new_stays_new() -> None:
    assert job(fatal("cancel")).state is State.NEW


# Properties

happenings = st.sampled_from(
    [Event(2.0, name, context) for name, contexts in CONTEXTS.items() for context in contexts]
)


def lived(events: list[Event]) -> tuple[Job, list[Event]]:
    """Live through what is legal of these events; return the job, and its log."""
    known, log = from_submit(ID, SUBMIT), [SUBMIT]
    for number, each in enumerate(events):
        happens = Event(2.0 + number, each.name, each.context)
        before = known
        try:
            known = update(known, happens)
        except IllegalEvent:
            assert known is before
        else:
            log.append(happens)
    return known, log


@given(st.lists(happenings, max_size=40))
def test_a_log_read_back_tells_the_life_that_was_lived(events: list[Event]) -> None:
    known, log = lived(events)

    text = "".join(map(eventlog.encode, log))

    assert replay(ID, eventlog.decode(text)) == known


@given(st.lists(happenings, max_size=40))
def test_a_job_enters_a_later_state_only_by_way_of_the_table(events: list[Event]) -> None:
    _, log = lived(events)
    states = [replay(ID, log[: n + 1]).state for n in range(len(log))]
    for one, other in pairwise(states):
        order = list(State)
        back = (one, other) == (State.SCHED, State.PRIORITY)
        assert back or order.index(one) <= order.index(other)
