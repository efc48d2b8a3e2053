"""What is done about a site's commands around a job, in whatever state it is found."""

import random

import pytest
from msgspec.structs import replace

from tests.lifecycle import stories
from warren.lifecycle.job import Job, update
from warren.lifecycle.perilog import (
    EPILOG,
    PROLOG,
    Action,
    Cancel,
    PostFinish,
    PostStart,
    Progress,
    Run,
    Settings,
    decide,
)
from warren.lifecycle.states import State

BOTH = Settings(has_prolog=True, has_epilog=True)
BEFORE = stories.job("validate", "depend", "priority", "alloc")
HELD = update(BEFORE, stories.event("prolog-start", description=PROLOG))
FREED = update(HELD, stories.event("prolog-finish", description=PROLOG, status=0))
CANCELLED = stories.event("exception", type="cancel")


def after(job: Job, *events: str) -> Job:
    for name in events:
        job = update(job, stories.event(name))
    return job


def test_a_job_with_nodes_is_held_for_its_prolog_once() -> None:
    assert decide(BEFORE, BOTH, Progress()) == [PostStart(PROLOG)]
    assert decide(HELD, BOTH, Progress()) == [Run(PROLOG)]
    assert decide(HELD, BOTH, Progress(running=frozenset({PROLOG}))) == []
    assert decide(HELD, BOTH, Progress(prolog_status=0)) == [PostFinish(PROLOG, 0)]
    assert decide(FREED, BOTH, Progress()) == []


def test_a_prolog_behind_another_holds_the_job_at_once_and_is_run_when_that_one_is_over() -> None:
    settings = replace(BOTH, earlier_prolog="other")
    other = stories.event("prolog-start", description="other")
    over = stories.event("prolog-finish", description="other", status=0)

    assert decide(BEFORE, settings, Progress()) == [PostStart(PROLOG)]
    assert decide(HELD, settings, Progress()) == []
    assert decide(update(HELD, other), settings, Progress()) == []
    assert decide(update(update(HELD, other), over), settings, Progress()) == [Run(PROLOG)]


def test_commands_of_other_names_have_holds_of_their_own() -> None:
    settings = replace(BOTH, prolog_name="start", epilog_name="stop")

    assert decide(HELD, settings, Progress()) == [PostStart("start")]
    held = update(HELD, stories.event("prolog-start", description="start"))
    assert decide(held, settings, Progress()) == [Run("start")]
    ended = after(update(FREED, stories.event("start")), "finish")
    assert decide(ended, settings, Progress()) == [PostStart("stop")]


def test_a_job_that_came_to_its_nodes_before_there_was_a_prolog_is_not_held() -> None:
    assert decide(BEFORE, BOTH, Progress(executing=True)) == []
    assert decide(after(BEFORE, "start"), BOTH, Progress()) == []


def test_a_job_whose_tasks_have_ended_is_held_for_its_epilog_once() -> None:
    ended = after(FREED, "start", "finish")
    held = update(ended, stories.event("epilog-start", description=EPILOG))
    let_go = update(held, stories.event("epilog-finish", description=EPILOG, status=0))

    assert decide(ended, BOTH, Progress(executing=True)) == [PostStart(EPILOG)]
    assert decide(held, BOTH, Progress()) == [Run(EPILOG)]
    assert decide(held, BOTH, Progress(running=frozenset({EPILOG}))) == []
    assert decide(let_go, BOTH, Progress()) == []


def test_tasks_are_waited_for_though_the_job_has_failed() -> None:
    failed = update(after(FREED, "start"), CANCELLED)
    being_started = update(FREED, CANCELLED)

    assert decide(failed, BOTH, Progress(executing=True)) == []
    assert decide(being_started, BOTH, Progress(executing=True)) == []
    assert decide(being_started, BOTH, Progress()) == [PostStart(EPILOG)]


def test_a_job_that_fails_in_its_prolog_has_its_epilog_announced_before_it_is_let_go() -> None:
    failed = update(HELD, CANCELLED)
    running = Progress(running=frozenset({PROLOG}))

    assert decide(failed, BOTH, running) == [Cancel(PROLOG)]
    assert decide(failed, replace(BOTH, cancel_prolog=False), running) == []
    assert decide(failed, BOTH, Progress(prolog_status=15)) == [PostStart(EPILOG)]
    announced = update(failed, stories.event("epilog-start", description=EPILOG))
    assert decide(announced, BOTH, Progress(prolog_status=15)) == [PostFinish(PROLOG, 15)]
    assert decide(failed, Settings(has_prolog=True), Progress(prolog_status=15)) == [
        PostFinish(PROLOG, 15)
    ]


def test_a_prolog_that_was_cut_short_and_is_wanted_no_more_is_not_run_again() -> None:
    failed = update(HELD, CANCELLED)

    assert decide(failed, BOTH, Progress()) == [PostStart(EPILOG)]
    announced = update(failed, stories.event("epilog-start", description=EPILOG))
    assert decide(announced, BOTH, Progress()) == [PostFinish(PROLOG, 1)]


def test_an_epilog_is_ended_by_an_exception_only_where_the_site_wants_that() -> None:
    ended = after(FREED, "start", "finish")
    held = update(ended, stories.event("epilog-start", description=EPILOG))
    failed = update(held, CANCELLED)
    running, impatient = Progress(running=frozenset({EPILOG})), replace(BOTH, cancel_epilog=True)

    assert decide(failed, BOTH, running) == []
    assert decide(failed, BOTH, Progress()) == [Run(EPILOG)]
    assert decide(failed, impatient, running) == [Cancel(EPILOG)]
    assert decide(failed, impatient, Progress()) == [PostFinish(EPILOG, 1)]
    assert decide(held, impatient, running) == []


def test_what_a_job_is_held_for_by_a_command_that_there_is_no_more_lets_it_go() -> None:
    ended = after(FREED, "start", "finish")
    held = update(ended, stories.event("epilog-start", description=EPILOG))

    assert decide(HELD, Settings(), Progress()) == [PostFinish(PROLOG, 0)]
    assert decide(held, Settings(), Progress()) == [PostFinish(EPILOG, 0)]


def test_without_commands_nothing_is_done() -> None:
    for job in (BEFORE, after(BEFORE, "start"), after(BEFORE, "start", "finish")):
        assert decide(job, Settings(), Progress()) == []


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_and_however_often_it_is_forgotten_a_job_ends(seed: int) -> None:
    dice = random.Random(seed)
    settings = Settings(
        has_prolog=dice.random() < 0.8,
        has_epilog=dice.random() < 0.8,
        cancel_prolog=dice.random() < 0.5,
        cancel_epilog=dice.random() < 0.5,
    )
    job, under_way = BEFORE, Progress()
    order: list[Action] = []
    for _ in range(100):
        actions = decide(job, settings, under_way)
        order.extend(actions)
        for action in actions:
            job, under_way = done(job, under_way, action)
        if dice.random() < 0.1:
            under_way = Progress()  # restarted
        elif under_way.running and dice.random() < 0.5:
            job, under_way = command_ended(job, under_way, dice.choice([0, 256]))
        elif dice.random() < 0.1 and job.fatal_exception is None:
            job = update(job, CANCELLED)
        elif not (job.prologs or job.epilogs) and job.state is State.RUN:
            job = after(job, "finish" if job.started else "start")
        if job.state is State.CLEANUP and job.started and job.wait_status is None:
            job = after(job, "finish")
    assert job.prologs | job.epilogs == frozenset()
    assert decide(job, settings, under_way) == []
    if settings.has_epilog and (job.wait_status is not None or PROLOG in job.ever_prologs):
        assert EPILOG in job.ever_epilogs
    names = [type(action) for action in order]
    assert names.count(PostStart) == len(job.ever_prologs) + len(job.ever_epilogs)


def done(job: Job, under_way: Progress, action: Action) -> tuple[Job, Progress]:
    """Do as the plugin does."""
    match action:
        case PostStart(description):
            kind = "prolog" if description == PROLOG else "epilog"
            return update(job, stories.event(f"{kind}-start", description=description)), under_way
        case Run(description):
            return job, replace(under_way, running=under_way.running | {description})
        case PostFinish(description, status):
            kind = "prolog" if description == PROLOG else "epilog"
            event = stories.event(f"{kind}-finish", description=description, status=status)
            return update(job, event), under_way
        case Cancel():
            return job, under_way


def command_ended(job: Job, under_way: Progress, status: int) -> tuple[Job, Progress]:
    (description,) = under_way.running
    under_way = replace(under_way, running=frozenset())
    if description == EPILOG:
        event = stories.event("epilog-finish", description=EPILOG, status=status)
        return update(job, event), under_way
    if status and job.state is State.RUN:
        job = update(job, stories.event("exception", type="prolog"))
    return job, replace(under_way, prolog_status=status)
