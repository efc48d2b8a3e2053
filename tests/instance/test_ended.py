"""The index of jobs that are over, against a list that is sorted each time."""

from hypothesis import given
from hypothesis import strategies as st

from warren.instance.ended import Ended
from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc.fluid import JobId

MOMENTS = st.integers(1, 5).map(float)


def over(number: int, moment: float, *, status: int = 0) -> Job:
    return Job(
        id=JobId(2**63 + number),  # ids take all of 64 bits
        userid=1,
        urgency=16,
        state=State.INACTIVE,
        started=True,
        status=status,
        times={State.INACTIVE: moment},
    )


@given(st.lists(MOMENTS), st.lists(MOMENTS), st.sets(st.integers(0, 10)), MOMENTS)
def test_the_latest_come_first_however_they_came_in(
    before: list[float], added: list[float], gone: set[int], since: float
) -> None:
    jobs = [over(number, moment) for number, moment in enumerate((*before, *added))]
    index = Ended(jobs[: len(before)])
    for job in jobs[len(before) :]:
        index.add(job)
    index.drop({JobId(2**63 + number) for number in gone})

    left = [job for number, job in enumerate(jobs) if number not in gone]
    found = list(index.latest(since))
    ends = {job.id: job.times[State.INACTIVE] for job in left}
    assert len(index) == len(left)
    assert sorted(found) == sorted(job for job, end in ends.items() if end > since)
    assert [ends[job] for job in found] == sorted((ends[job] for job in found), reverse=True)


@given(st.lists(st.tuples(MOMENTS, st.integers(0, 1), st.sampled_from(["a", "b", None]))))
def test_every_job_is_counted_in_its_queue_by_its_result(
    made: list[tuple[float, int, str | None]],
) -> None:
    jobs = [over(number, moment, status=code) for number, (moment, code, _) in enumerate(made)]
    queues = {job.id: queue for job, (_, _, queue) in zip(jobs, made, strict=True)}
    index = Ended()
    asked: list[JobId] = []

    def queue(job: JobId) -> str | None:
        asked.append(job)
        return queues[job]

    for job in jobs:
        index.add(job)
        list(index.counted(queue))
    results = [(queue or "", 2 if code else 1) for _, code, queue in made]
    assert sorted(index.counted(queue)) == sorted(results)
    assert sorted(index.counted(None)) == sorted(("", result) for _, result in results)
    assert sorted(asked) == sorted(queues)


def test_a_walk_is_not_disturbed_by_what_happens_meanwhile() -> None:
    index = Ended(over(number, float(number)) for number in range(1, 4))
    walk = index.latest()
    first = next(walk)
    index.add(over(9, 9.0))
    index.drop({JobId(2**63 + 1)})

    assert [first, *walk] == [2**63 + 3, 2**63 + 2, 2**63 + 1]
