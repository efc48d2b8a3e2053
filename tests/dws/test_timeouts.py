"""For how long Workflows may be in a state: what a clock counts, and what it ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import JOBDW, workflow
from warren.base.times import rfc3339_micro
from warren.dws import labels
from warren.dws.binding import Phase
from warren.dws.jobs.timeouts import NO_TIMEOUTS, Timeouts, deadline
from warren.dws.objects.workflows import State, Workflow

NOON = 1_790_000_000.0
ALL = Timeouts(setup=10, prerun=20, postrun=30, teardown_after=100, teardown_latest=400)


def asked(state: str, ready: bool = False, ended: float | None = None) -> Workflow:
    """Return a Workflow whose state was taken up at noon."""
    known = {} if ended is None else {labels.ENDED_AT: rfc3339_micro(ended)}
    began = {"desiredStateChange": rfc3339_micro(NOON)}
    return workflow(JOBDW, state=state, ready=ready, status=began, metadata={"annotations": known})


@pytest.mark.parametrize(
    ("phase", "state", "seconds", "type", "severity"),
    [
        (Phase.STARTING, "Setup", 10, "dws-timeout", 0),
        (Phase.STARTING, "PreRun", 20, "dws-timeout", 0),
        (Phase.ENDING, "PostRun", 30, "rabbit-timeout", 0),
    ],
)
def test_a_state_has_its_own_limit_from_when_it_began(
    phase: Phase, state: str, seconds: float, type: str, severity: int
) -> None:
    found = deadline(phase, asked(state), ALL, None)
    assert found is not None
    assert (found.at - NOON, found.type, found.severity) == (seconds, type, severity)
    assert deadline(phase, asked(state), NO_TIMEOUTS, None) is None


@pytest.mark.parametrize("phase", [*Phase])
@pytest.mark.parametrize("state", [*State])
def test_a_state_that_is_ready_or_of_which_no_beginning_is_known_has_no_limit(
    phase: Phase, state: State
) -> None:
    assert deadline(phase, asked(state, ready=True, ended=NOON), ALL, None) is None
    unknown = workflow(JOBDW, state=state, status={"desiredStateChange": None})
    assert deadline(phase, unknown, ALL, None) is None


def test_the_clock_does_not_run_while_no_controller_takes_the_state_up() -> None:
    began = {"desiredStateChange": rfc3339_micro(NOON)}
    for ready in (True, False):
        wf = workflow(JOBDW, state="Proposal", desired="Setup", ready=ready, status=began)
        assert deadline(Phase.STARTING, wf, ALL, None) is None


def test_what_users_have_written_there_is_no_moment() -> None:
    odd = {"annotations": {labels.ENDED_AT: "noon"}}
    began = {"desiredStateChange": rfc3339_micro(NOON)}
    wf = workflow(JOBDW, state="DataOut", status=began, metadata=odd)
    assert deadline(Phase.ENDING, wf, ALL, None) is None


def data_out(timeouts: Timeouts = ALL, moved: float | None = None) -> Any:
    wf = asked("DataOut", ended=NOON)
    found = deadline(Phase.ENDING, wf, timeouts, None if moved is None else NOON + moved)
    assert found is not None
    assert (found.type, found.severity) == ("teardown-timeout", 1)
    return found.at - NOON


def test_copies_that_go_on_have_more_time_up_to_the_latest() -> None:
    assert data_out() == 100
    assert data_out(moved=50) == 150
    assert data_out(moved=350) == 400
    assert data_out(moved=-50) == 100  # a copy_in that was long ago
    alone = Timeouts(teardown_after=100)
    assert data_out(alone, moved=950) == 1000
    less = Timeouts(teardown_after=100, teardown_latest=10)
    assert data_out(less, moved=50) == 100


def test_post_run_counts_for_both_and_the_first_limit_that_is_over_holds() -> None:
    wf = asked("PostRun")
    found = deadline(Phase.ENDING, wf, Timeouts(postrun=500, teardown_after=100), None)
    assert found is not None
    assert found.type == "teardown-timeout"
    found = deadline(Phase.ENDING, wf, ALL, None)
    assert found is not None
    assert found.type == "rabbit-timeout"


@given(
    st.floats(1, 1e6),
    st.none() | st.floats(1, 1e6),
    st.lists(st.floats(0, 1e6), max_size=5).map(sorted),
)
def test_more_progress_never_makes_a_deadline_earlier(
    after: float, latest: float | None, moved: list[float]
) -> None:
    timeouts = Timeouts(teardown_after=after, teardown_latest=latest)
    found = [data_out(timeouts, at) for at in moved]
    assert found == sorted(found)
    least, most = after, max(after, latest or 10 * after)
    assert all(least - 1 <= each <= most + 1 for each in found)
