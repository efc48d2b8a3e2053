"""What is known of an active job, and what it will be when its pending events are applied."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from tests.lifecycle import stories
from warren.base.errors import UserMistake
from warren.instance.jobs.known import ActiveJob
from warren.lifecycle.job import Job, update
from warren.rfc.eventlog import Event

ADD = stories.event("dependency-add", description="a")
REMOVE = stories.event("dependency-remove", description="a")
VALIDATE = stories.event("validate")
MEMO = stories.event("memo", a=1)

steps = st.lists(
    st.one_of(
        st.sampled_from([ADD, REMOVE, VALIDATE, MEMO]),
        st.sampled_from(["ask", "apply", "refuse", "volatile"]),
    ),
    max_size=30,
)


def applied(job: Job, event: Event) -> Job:
    with suppress(UserMistake):
        return update(job, event)
    return job


@given(steps)
def test_pending_events_are_foreseen_as_if_each_question_applied_all_of_them(
    steps: list[Event | str],
) -> None:
    active_job = ActiveJob(job=stories.job(), jobspec={})

    def check() -> None:
        anew = active_job.job
        for event in active_job.pending_events:
            anew = applied(anew, event)
        assert active_job.with_pending_events() == anew

    for step in steps:
        match step:
            case Event():
                active_job.pending_events.append(step)
            case "ask":
                check()
            case "volatile":
                active_job.job = update(
                    active_job.job, stories.event("annotations", annotations={"a": 1})
                )
                active_job.forget_foreseen()
            case "apply" if active_job.pending_events:
                active_job.job = applied(active_job.job, active_job.next_pending_event())
            case "refuse" if active_job.pending_events:
                active_job.next_pending_event()
                active_job.forget_foreseen()
    check()
