"""Faults at places that were chosen: the job ends as if nothing had happened."""

from collections import Counter

import pytest

from tests.faults.proxy import (
    BROKEN,
    BUSY_FOR_NOW,
    CHANGED,
    CUT_OFF,
    GONE,
    LOST,
    MAY_NOT,
    TOO_OLD,
    TWICE,
    Belated,
    Fate,
    Late,
    Mishap,
)
from tests.faults.schedules import Line, Script, first, the
from tests.faults.stories import ALLOCATIONS, HOSTS, Story, assert_right, live
from tests.harness.world import JOB_KINDS
from warren.base.objects import Kind
from warren.dws import kinds
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result

SYSTEM = (kinds.STORAGE, kinds.NNF_NODE)
WATCHED = (*JOB_KINDS, *SYSTEM, kinds.SYSTEM_CONFIGURATION)
WRITTEN = {
    "create": (*JOB_KINDS, *SYSTEM),
    "patch": (*JOB_KINDS, *SYSTEM, kinds.SYSTEM_CONFIGURATION),
    # What belongs to a Workflow alone is removed by the first of us, at times by the API itself.
    "delete": tuple({*JOB_KINDS} - {kinds.COMPUTES, kinds.BREAKDOWN, kinds.SERVERS}),
}
"""What components write, and how."""


def lived(story: Story, *lines: Line, outages: tuple[tuple[float, float], ...] = ()) -> Story:
    """Live through a script, all of which must come true."""
    script = Script(*lines, outages=outages)
    live(story, script)
    assert not script.left, [str(line) for line in script.left]
    if not any(isinstance(line.what, Belated) for line in lines):
        assert not story.outlived
    return story


# Everywhere at once


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(GONE, id="refused"),
        pytest.param(BROKEN, id="500"),
        pytest.param(BUSY_FOR_NOW, id="429 with Retry-After"),
        pytest.param(CHANGED, id="409"),
        pytest.param(MAY_NOT, id="403"),
        pytest.param(LOST, id="answer lost"),
        pytest.param(TWICE, id="done twice"),
        pytest.param(Late(there=40), id="never there in time"),
        pytest.param(Late(back=40), id="never back in time"),
        pytest.param(Late(there=10, back=10), id="slow"),
        pytest.param(Belated(20), id="done later"),
    ],
)
def test_whatever_befalls_the_first_write_of_every_sort_the_job_completes(what: Mishap) -> None:
    verbs = ("patch", "delete") if what is CHANGED else ("create", "patch", "delete")
    lines = [the(1, verb, kind, what) for verb in verbs for kind in WRITTEN[verb]]

    assert_right(lived(Story(), *lines))


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(Fate(events=1), id="ended in peace"),
        pytest.param(Fate(events=1, ends=CUT_OFF), id="cut off"),
        pytest.param(Fate(events=0, ends=TOO_OLD), id="410 at once"),
        pytest.param(Fate(events=1, ends=TOO_OLD), id="410 later"),
        pytest.param(Fate(events=0, ends=MAY_NOT), id="403"),
        pytest.param(Fate(events=1, silent=True), id="silent"),
        pytest.param(Fate(lag=1), id="slow"),
        pytest.param(Fate(again=5), id="told again"),
        pytest.param(Fate(swapped=True), id="out of order"),
    ],
)
def test_whatever_befalls_the_first_watches_of_every_kind_the_job_completes(
    fate: Fate,
) -> None:
    assert_right(lived(Story(), *(the(1, "watch", kind, fate) for kind in WATCHED)))


@pytest.mark.parametrize(
    "what", [GONE, MAY_NOT, Late(back=40)], ids=["refused", "403", "never back in time"]
)
def test_whatever_befalls_the_first_lists_the_job_completes(what: Mishap) -> None:
    assert_right(lived(Story(), *(first(3, "list", kind, what) for kind in WATCHED)))


# Kinds that run apart


@pytest.mark.parametrize("kind", JOB_KINDS, ids=str)
def test_each_kind_may_be_behind_all_others(kind: Kind) -> None:
    """What is seen of one thing is never taken for all that is to be seen of it."""
    assert_right(lived(Story(), the(1, "watch", kind, Fate(lag=7))))


def test_a_conductor_that_does_not_see_the_workflow_does_not_talk_of_it_all_the_time() -> None:
    story = lived(Story(), the(1, "watch", kinds.WORKFLOW, Fate(events=0, silent=True)))

    assert_right(story)
    assert Counter(story.events)["memo"] == 2


def test_what_was_never_seen_does_not_keep_its_workflow_when_it_goes() -> None:
    """The Computes come and go while their watch is silent: no news of them ever comes."""
    unseen = the(1, "watch", kinds.COMPUTES, Fate(events=0, silent=True))
    story = lived(Story(cancelled=0.001), unseen)

    assert story.job.fatal_exception.type == "cancel"


@pytest.mark.parametrize(
    "kind", [kinds.NNF_STORAGE, kinds.NNF_ACCESS, kinds.NNF_DATA_MOVEMENT], ids=str
)
def test_no_workflow_goes_before_what_it_has_not_seen(kind: Kind) -> None:
    unseen = the(1, "watch", kind, Fate(events=0, silent=True))
    story = lived(Story(cancelled=30), unseen)

    assert story.job.fatal_exception.type == "cancel"


# Outages


@pytest.mark.parametrize("begin", [0.5, 2.0], ids=["at its copies", "at its tasks"])
def test_a_job_lives_through_an_outage_of_an_hour(begin: float) -> None:
    story = lived(Story(), outages=((begin, begin + 3600),))

    assert_right(story)
    assert story.seconds > 3600


def test_a_copy_goes_on_while_the_api_is_down_and_is_not_made_again() -> None:
    # Copies begin within the first second, and take a hundred.
    story = lived(Story(copying=100), outages=((50, 90), (180, 280)))

    assert_right(story)
    assert story.copied == ALLOCATIONS


def test_a_copy_whose_progress_is_not_heard_is_not_made_again() -> None:
    # The first four reports say that the copies have begun.
    deaf = Line(5, 12, "patch", kinds.NNF_DATA_MOVEMENT, BROKEN)
    story = lived(Story(), deaf)

    assert_right(story)
    assert story.copied == ALLOCATIONS


def test_tasks_run_on_while_the_api_is_down() -> None:
    story = lived(Story(play=TaskBehavior(seconds=60)), outages=((30, 600),))

    assert_right(story)
    assert story.started[0] >= HOSTS


# What comes when it is not waited for any more


@pytest.mark.parametrize(
    "kind", [kinds.NNF_NODE_STORAGE, kinds.CLIENT_MOUNT, kinds.NNF_DATA_MOVEMENT], ids=str
)
def test_what_is_made_after_its_owner_has_gone_goes_as_well(kind: Kind) -> None:
    story = Story(cancelled=20.0)
    lived(story, first(100, "create", kind, Belated(600)))

    assert story.seconds > 600
    assert story.job.fatal_exception.type == "cancel"


# Other ends


@pytest.mark.parametrize("what", [GONE, LOST, TWICE, Belated(20)], ids=str)
def test_a_job_that_fails_has_its_results_copied_out_through_faults(what: Mishap) -> None:
    lines = [the(1, verb, kind, what) for verb in ("patch", "delete") for kind in WRITTEN[verb]]
    story = lived(Story(play=TaskBehavior(status=3 << 8)), *lines)

    assert story.job.result is Result.FAILED
    assert set(story.copied) == set(ALLOCATIONS)


@pytest.mark.parametrize(
    ("delay", "what"),
    [(0.01, LOST), (0.5, GONE), (1.5, TWICE), (5.0, LOST), (30.0, Late(back=40)), (40.0, GONE)],
    ids=str,
)
def test_a_job_that_is_cancelled_through_faults_leaves_nothing(delay: float, what: Mishap) -> None:
    verbs = ("create", "patch", "delete")
    lines = [first(2, verb, kind, what) for verb in verbs for kind in JOB_KINDS]
    story = Story(cancelled=delay, play=TaskBehavior(seconds=1000))
    live(story, Script(*lines))

    assert story.met
    assert story.job.fatal_exception.type == "cancel"
