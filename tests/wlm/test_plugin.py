"""What the `dws` plugin does with a job, in whatever state it finds it."""

from dataclasses import replace

import pytest

from warren.lifecycle.job import Job, Problem
from warren.lifecycle.states import State
from warren.rfc.fluid import JobId
from warren.wlm.codec import DEPENDENCY, EPILOG, PROLOG
from warren.wlm.embedded.plugin import Hold, HoldEnd, HoldStart, LetStart, decide

JOB = Job(id=JobId(1), userid=1000, urgency=16)


def test_a_new_job_is_held_once() -> None:
    job = replace(JOB, state=State.DEPEND)
    held = replace(job, ever_depended=frozenset({DEPENDENCY}))

    assert decide(job, executing=False) == [Hold()]
    assert decide(held, executing=False) == []


def test_a_job_with_nodes_is_kept_from_starting_once() -> None:
    job = replace(JOB, state=State.RUN)
    kept = replace(job, ever_prologs=frozenset({PROLOG}))

    assert decide(job, executing=False) == [HoldStart()]
    assert decide(kept, executing=False) == []


def test_a_job_that_fails_in_its_prolog_is_let_go_and_then_held_for_its_storage() -> None:
    job = replace(JOB, state=State.CLEANUP, prologs=frozenset({PROLOG}))

    assert decide(job, executing=False) == [LetStart(), HoldEnd(started=False)]


def test_storage_is_kept_while_tasks_run_though_the_job_has_failed() -> None:
    fatal = Problem(type="cancel", severity=0, note="")
    job = replace(JOB, state=State.CLEANUP, started=True, problems=(fatal,))

    assert decide(job, executing=True) == []
    assert decide(replace(job, status=15), executing=True) == [HoldEnd(started=True)]


def test_a_job_that_was_being_started_is_waited_for() -> None:
    job = replace(JOB, state=State.CLEANUP)

    assert decide(job, executing=True) == []
    assert decide(job, executing=False) == [HoldEnd(started=False)]


def test_after_a_restart_a_started_job_is_not_taken_for_one_that_never_ran() -> None:
    job = replace(JOB, state=State.CLEANUP, started=True)

    assert decide(job, executing=False) == []


def test_an_ending_job_is_held_once() -> None:
    job = replace(JOB, state=State.CLEANUP, status=0, ever_epilogs=frozenset({EPILOG}))

    assert decide(job, executing=False) == []


@pytest.mark.parametrize("state", [State.NEW, State.PRIORITY, State.SCHED, State.INACTIVE])
def test_other_states_ask_for_nothing(state: State) -> None:
    assert decide(replace(JOB, state=state), executing=False) == []
