"""The jobs that are over, in the order in which they ended.

A listing wants the latest few of very many, so that this is an index: arrays, a few bytes
a job, with what counting them needs. It does not know when a job is purged; whoever reads
it drops what is gone.
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator

from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc.fluid import JobId

_UNKNOWN = -1


class Ended:
    """Inactive jobs by the moment of their end."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._moments = array("d")
        self._ids = array("Q")
        self._results = array("b")
        self._queues = array("h")
        self._names: list[str] = []
        for job in sorted(jobs, key=lambda job: (job.times[State.INACTIVE], job.id)):
            self.add(job)

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, job: Job) -> None:
        """Take a job that is over."""
        moment = job.times[State.INACTIVE]
        # Mostly at the end; but the clock may have been set back.
        place = bisect_right(self._moments, moment)
        assert job.result is not None
        self._moments.insert(place, moment)
        self._ids.insert(place, job.id)
        self._results.insert(place, job.result.bit)
        self._queues.insert(place, _UNKNOWN)

    def latest(self, since: float = 0.0) -> Iterator[JobId]:
        """Give the jobs that ended after a moment, the latest first.

        What is added or dropped in the meantime does not disturb it.
        """
        first = bisect_right(self._moments, since)
        for job in reversed(self._ids[first:]):
            yield JobId(job)

    @property
    def first(self) -> JobId | None:
        """The job that ended first."""
        return JobId(self._ids[0]) if self._ids else None

    def drop(self, gone: Collection[JobId]) -> None:
        """Forget jobs."""
        kept = [place for place, job in enumerate(self._ids) if job not in gone]
        self._moments = array("d", (self._moments[place] for place in kept))
        self._ids = array("Q", (self._ids[place] for place in kept))
        self._results = array("b", (self._results[place] for place in kept))
        self._queues = array("h", (self._queues[place] for place in kept))

    def counted(self, queue: Callable[[JobId], str | None] | None) -> Iterator[tuple[str, int]]:
        """Give each job's queue and the bit of its result; each queue is asked for once.

        Without `queue`, all jobs are in the queue "".
        """
        if queue is None:
            yield from (("", result) for result in self._results)
            return
        for place, known in enumerate(self._queues):
            if known == _UNKNOWN:
                known = self._queues[place] = self._number(queue(JobId(self._ids[place])) or "")
            yield self._names[known], self._results[place]

    def _number(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)
