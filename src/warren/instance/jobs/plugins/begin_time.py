"""The dependency `begin-time`: a job waits for a moment of the wall clock."""

from collections.abc import Callable
from functools import partial
from typing import Final

from warren.instance.jobs.jobtap import Callbacks, Jobtap
from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc import dependency
from warren.rfc.dependency import Dependency
from warren.rfc.fluid import JobId


class BeginTime:
    """The plugin."""

    name: Final = "begin-time"

    def __init__(self) -> None:
        self._cancels: dict[JobId, list[Callable[[], None]]] = {}
        """What cancels the timers of jobs: their moments may be years ahead."""

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            "job.dependency.begin-time": self._depend,
            "job.destroy": self._forget,
        }

    def _depend(self, job: Job, wanted: Dependency) -> None:
        description = dependency.description(wanted)
        self._tap.dependency_add(job.id, description)
        # Also a moment that has passed: by then the job is validated, or all jobs are known again.
        action = partial(self._on_moment, job.id, description)
        cancel = self._tap.call_at(float(wanted.value), action)
        self._cancels.setdefault(job.id, []).append(cancel)

    def _on_moment(self, job: JobId, description: str) -> None:
        pending = self._tap.with_pending_events(job)
        # Two moments may have one description, to a millisecond: the first of them counts.
        waits = pending is not None and pending.state is State.DEPEND
        if waits and pending and description in pending.dependencies:
            self._tap.dependency_remove(job, description)

    def _forget(self, job: Job) -> None:
        for cancel in self._cancels.pop(job.id, []):
            cancel()
