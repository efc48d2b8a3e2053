"""How the processes of a job are ended."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from warren.lifecycle.kill_escalation import KILL_SHELLS_AFTER, MAX_PAUSE, KillAction, escalation


def test_tasks_are_killed_before_shells_and_shells_before_it_is_given_up() -> None:
    steps = list(escalation(5.0, 8))

    moments = list(accumulate(wait for wait, _ in steps))
    found = [(moment, action.name) for moment, (_, action) in zip(moments, steps, strict=True)]
    assert found == [
        *((at, "KILL_TASKS") for at in (5, 10, 15, 20)),
        *((at, "KILL_SHELLS") for at in (25, 75, 175, 375, 675, 975, 1275, 1575)),
        (1875, "GIVE_UP"),
    ]


@given(st.floats(0.1, 100), st.integers(1, 50))
def test_whatever_a_site_wants_no_job_is_held_for_ever(kill_timeout: float, attempts: int) -> None:
    steps = list(escalation(kill_timeout, attempts))

    assert [action for _, action in steps].count(KillAction.KILL_SHELLS) == attempts
    assert steps[-1][1] is KillAction.GIVE_UP
    longest = max(MAX_PAUSE, KILL_SHELLS_AFTER * kill_timeout)
    assert all(0 < wait <= longest for wait, _ in steps)
