"""What holds a job with directives, in whatever state it is found."""

import pytest
from msgspec.structs import replace

from warren.lifecycle.job import Job, JobException
from warren.lifecycle.states import State
from warren.lifecycle.storageholds import (
    AddDependency,
    FinishProlog,
    HoldNames,
    StartEpilog,
    StartProlog,
    decide,
)
from warren.rfc.fluid import JobId

HOLDS = HoldNames(dependency="storage", prolog="setup", epilog="teardown")
JOB = Job(id=JobId(1), userid=1000, urgency=16)


def test_a_new_job_is_held_once() -> None:
    job = replace(JOB, state=State.DEPEND)
    held = replace(job, ever_dependencies=frozenset({"storage"}))

    assert decide(job, HOLDS, executing=False) == [AddDependency()]
    assert decide(held, HOLDS, executing=False) == []


def test_a_job_with_nodes_is_kept_from_starting_once() -> None:
    job = replace(JOB, state=State.RUN)
    kept = replace(job, ever_prologs=frozenset({"setup"}))

    assert decide(job, HOLDS, executing=False) == [StartProlog()]
    assert decide(kept, HOLDS, executing=False) == []


def test_a_job_that_fails_in_its_prolog_is_let_go_and_then_held_for_its_storage() -> None:
    job = replace(JOB, state=State.CLEANUP, prologs=frozenset({"setup"}))

    assert decide(job, HOLDS, executing=False) == [FinishProlog(), StartEpilog(job_started=False)]


def test_storage_is_kept_while_tasks_run_though_the_job_has_failed() -> None:
    fatal = JobException(type="cancel", severity=0, note="")
    job = replace(JOB, state=State.CLEANUP, started=True, exceptions=(fatal,))

    assert decide(job, HOLDS, executing=True) == []
    assert decide(replace(job, wait_status=15), HOLDS, executing=True) == [
        StartEpilog(job_started=True)
    ]


def test_a_job_that_was_being_started_is_waited_for() -> None:
    job = replace(JOB, state=State.CLEANUP)

    assert decide(job, HOLDS, executing=True) == []
    assert decide(job, HOLDS, executing=False) == [StartEpilog(job_started=False)]


def test_after_a_restart_a_started_job_is_not_taken_for_one_that_never_ran() -> None:
    job = replace(JOB, state=State.CLEANUP, started=True)

    assert decide(job, HOLDS, executing=False) == []


def test_an_ending_job_is_held_once() -> None:
    job = replace(JOB, state=State.CLEANUP, wait_status=0, ever_epilogs=frozenset({"teardown"}))

    assert decide(job, HOLDS, executing=False) == []


@pytest.mark.parametrize("state", [State.NEW, State.PRIORITY, State.SCHED, State.INACTIVE])
def test_other_states_ask_for_nothing(state: State) -> None:
    assert decide(replace(JOB, state=state), HOLDS, executing=False) == []
