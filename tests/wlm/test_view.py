"""A job's events, seen as the conductor sees a job."""

from contextlib import suppress
from itertools import product
from typing import Any

import pytest

from tests.lifecycle import stories
from warren.dws.binding import Phase
from warren.lifecycle.job import IllegalEvent, Job, replay, update
from warren.rfc import fluid, jobspec
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.wlm import jobdirectives, view
from warren.wlm.jobs import IGNORED_EVENTS

SUBMIT = Event(1.0, "submit", {"userid": 1000, "urgency": 16, "flags": 0, "version": 1})
STORY = [
    (Event(1.0, "validate"), Phase.NEW),
    (Event(1.0, "dependency-add", {"description": "dws-create"}), Phase.HELD),
    (Event(1.0, "dependency-remove", {"description": "dws-create"}), Phase.NEW),
    (Event(1.0, "depend"), Phase.QUEUED),
    (Event(1.0, "priority", {"priority": 16}), Phase.QUEUED),
    (Event(1.0, "alloc"), Phase.QUEUED),
    (Event(1.0, "prolog-start", {"description": "dws-setup"}), Phase.STARTING),
    (Event(1.0, "prolog-finish", {"description": "dws-setup", "status": 0}), Phase.QUEUED),
    (Event(1.0, "start"), Phase.RUNNING),
    (Event(1.0, "finish", {"status": 0}), Phase.RUNNING),
    (Event(1.0, "epilog-start", {"description": "dws-epilog"}), Phase.ENDING),
    (Event(1.0, "release", {"ranks": "all", "final": True}), Phase.ENDING),
    (Event(1.0, "epilog-finish", {"description": "dws-epilog", "status": 0}), Phase.OVER),
    (Event(1.0, "free"), Phase.OVER),
    (Event(1.0, "clean"), Phase.OVER),
]


def after(count: int, *more: Event) -> Job:
    return replay(JobId(1), [SUBMIT, *(event for event, _ in STORY[:count]), *more])


def test_every_event_of_a_life_leads_to_its_phase() -> None:
    phases = [view.phase(after(count + 1)) for count in range(len(STORY))]

    assert phases == [phase for _, phase in STORY]


def test_what_the_conductor_is_not_told_of_changes_nothing_that_it_sees() -> None:
    spec, tried = jobspec.make(["true"], nodes=1), set()
    prefixes = product(range(len(STORY) + 1), ([], [stories.event("exception")]))
    for (count, exceptions), name in product(prefixes, IGNORED_EVENTS):
        for context in stories.CONTEXTS[name]:
            with suppress(IllegalEvent):
                before = after(count, *exceptions)
                job = update(before, Event(1.0, name, context))
                tried.add(name)
                seen = [view.conductor_view(each, spec, None, 100, 0) for each in (before, job)]
                assert seen[0] == seen[1], (count, name)
    assert tried == IGNORED_EVENTS


@pytest.mark.parametrize(
    ("dependencies", "urgency", "seen"),
    [
        (["dws-create"], 16, 16),
        ([], 16, 16),
        (["dws-create"], 0, 0),
        (["dws-create", "after-success=2"], 16, 0),
        (["begin-time=5"], 31, 0),
    ],
)
def test_a_job_that_something_else_holds_is_not_urgent(
    dependencies: list[str], urgency: int, seen: int
) -> None:
    added = [Event(1.0, "dependency-add", {"description": each}) for each in dependencies]
    job = after(1, *added, Event(1.0, "urgency", {"urgency": urgency}))
    spec = jobspec.make(["true"], nodes=1)

    assert view.conductor_view(job, spec, None, 100, 0).urgency == seen


def test_the_conductor_knows_when_a_job_was_submitted() -> None:
    spec = jobspec.make(["true"], nodes=1)

    assert view.conductor_view(after(7), spec, None, 100, 0).submitted == SUBMIT.timestamp


@pytest.mark.parametrize(("queue", "seen"), [("batch", "batch"), (None, ""), (["batch"], "")])
def test_the_queue_of_a_job_is_what_its_jobspec_says(queue: Any, seen: str) -> None:
    spec = jobspec.make(["true"], nodes=1, attributes={"queue": queue})

    assert view.conductor_view(after(1), spec, None, 100, 0).queue == seen


@pytest.mark.parametrize(
    ("r", "why"),
    [
        ({"version": 2}, "R: version is 2, not 1"),
        ({"version": 1, "execution": {"nodelist": [5]}}, "nodelist[0] is 5, not a hostlist"),
        ({"version": 1, "execution": {"nodelist": ["n["]}}, "R: execution.nodelist[0]: "),
    ],
)
def test_a_job_with_an_r_that_cannot_be_read_is_seen_and_says_why(r: Any, why: str) -> None:
    spec = jobspec.make(["true"], nodes=1)
    seen = view.conductor_view(after(7), spec, r, 100, 0)

    assert seen.phase is Phase.STARTING
    assert seen.nodes == ()
    assert why in (seen.unreadable_reason or "")


def test_storage_is_not_taken_down_before_the_jobs_daemons_have_stopped() -> None:
    stop = {"description": "dws-daemons-stop"}
    stopping = after(11, Event(1.0, "epilog-start", stop))
    stopped = after(
        11, Event(1.0, "epilog-start", stop), Event(1.0, "epilog-finish", {**stop, "status": 0})
    )

    assert (view.phase(stopping), view.phase(stopped)) == (Phase.RUNNING, Phase.ENDING)


def test_an_exception_while_the_job_ends_abandons_what_is_left() -> None:
    exception = Event(1.0, "exception", {"type": "cancel", "severity": 0, "note": ""})
    spec = jobspec.make(["true"], nodes=1)
    before = view.conductor_view(after(9, exception), spec, None, 100, 0)
    during = view.conductor_view(after(11, exception), spec, None, 100, 0)

    assert (before.failed, before.has_failed_while_ending, before.has_exception_while_ending) == (
        True,
        False,
        False,
    )
    assert (during.failed, during.has_failed_while_ending, during.has_exception_while_ending) == (
        True,
        True,
        True,
    )


def test_a_warning_while_the_job_ends_abandons_nothing() -> None:
    exception = Event(1.0, "exception", {"type": "exception", "severity": 1, "note": ""})
    seen = view.conductor_view(after(11, exception), jobspec.make(["true"], nodes=1), None, 100, 0)

    assert (seen.failed, seen.has_failed_while_ending, seen.has_exception_while_ending) == (
        False,
        False,
        True,
    )


@pytest.mark.parametrize(
    ("dw", "found"),
    [
        ("#DW jobdw a=b", ("#DW jobdw a=b",)),
        ("#DW one #DW two", ("#DW one", "#DW two")),
        ("#DW one\n#DW\ttwo", ("#DW one", "#DW two")),
        (["#DW one", "#DW two #DW three"], ("#DW one", "#DW two", "#DW three")),
        ("preset", ("preset",)),
        ("", ()),
        (3, ()),
    ],
)
def test_directives_come_in_every_shape_that_the_field_uses(
    dw: object, found: tuple[str, ...]
) -> None:
    assert jobdirectives.directives(jobspec.make(["true"], attributes={"dw": dw})) == found


def test_a_job_without_the_attribute_has_no_directives_at_all() -> None:
    assert jobdirectives.directives(jobspec.make(["true"])) is None


def test_the_jobs_that_a_job_waits_for_are_told_in_every_spelling_of_their_ids() -> None:
    waits = [
        {"scheme": "afterok", "value": "ƒ7"},
        {"scheme": "after", "value": "12"},
        {"scheme": "begin-time", "value": "12"},
        {"scheme": "fluid", "value": "9"},
        {"scheme": "afterany", "value": "job"},
    ]
    spec = jobspec.make(["true"], attributes={"dependencies": waits})
    assert view.awaited_jobs(spec) == [fluid.parse("ƒ7"), 12]
    assert view.awaited_jobs(jobspec.make(["true"])) == []


@pytest.mark.parametrize(
    ("directive", "phase"),
    [
        ("#DW jobdw type=xfs capacity=1GiB name=ab", Phase.HELD),
        ("#DW create_persistent type=xfs capacity=1GiB name=ab", Phase.HELD),
        ("#DW persistentdw name=ab", Phase.NEW),
        ("#DW destroy_persistent name=ab", Phase.NEW),
    ],
)
def test_storage_of_earlier_jobs_is_not_asked_for_before_these_have_done_their_part(
    directive: str, phase: Phase
) -> None:
    spec = jobspec.make(["true"], nodes=1, attributes={"dw": directive})
    held = after(2)
    assert view.conductor_view(held, spec, None, 0, 0).phase is Phase.HELD
    waiting = after(2, Event(1.0, "dependency-add", {"description": "after-success=1"}))
    assert view.conductor_view(waiting, spec, None, 0, 0).phase is phase


@pytest.mark.parametrize(("given", "seen"), [(None, None), (5, 5.0), ("never", None), (-1, None)])
def test_when_storage_expires_is_read_of_a_job_that_was_not_looked_at(
    given: object, seen: float | None
) -> None:
    attributes = {"dw": "#DW create_persistent"} | ({} if given is None else {"dw_expires": given})
    spec = jobspec.make(["true"], nodes=1, attributes=attributes)
    assert view.conductor_view(after(1), spec, None, 0, 0).expires == seen


def test_one_wish_that_cannot_be_read_takes_no_other_away() -> None:
    wishes = {"dw_expires": "never", "dw_failure_tolerance": 3, "dw_unsaved_results": "drop"}
    spec = jobspec.make(["true"], nodes=1, attributes=wishes)
    seen = view.conductor_view(after(1), spec, None, 0, 0)
    assert (seen.expires, seen.max_lost_nodes, seen.unsaved_policy) == (None, 3, "drop")


def test_a_job_has_lost_the_nodes_that_the_instance_or_its_owner_says() -> None:
    def told(note: str, **who: int) -> Event:
        context = {"type": "dws-node-failure", "severity": 1, "note": note, **who}
        return Event(1.0, "exception", context)

    spec = jobspec.make(["true"], nodes=1, attributes={"dw_failure_tolerance": 3})
    events = [told("n[0-1]"), told("n2", userid=7), told("n3", userid=1000), told("n[")]
    seen = view.conductor_view(after(7, *events), spec, None, 0, 7)

    assert (seen.max_lost_nodes, seen.lost_nodes) == (3, frozenset({"n0", "n1", "n2"}))
