"""The dependency `begin-time`: a job waits for a moment of the wall clock."""

from collections.abc import Callable
from functools import partial
from typing import Final

from warren.base.clock import Clock
from warren.instance.jobs.jobtap import Callbacks, Jobtap
from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc import dependency
from warren.rfc.dependency import Dependency
from warren.rfc.fluid import JobId


class BeginTime:
    """The plugin."""

    name: Final = "begin-time"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moments: dict[JobId, dict[str, float]] = {}
        """When jobs may begin, by description."""
        self._cancels: dict[JobId, list[Callable[[], None]]] = {}
        """What cancels the timers of jobs: their moments may be years ahead."""

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            "job.dependency.begin-time": self._depend,
            "job.state.depend": self._remove_passed,
            "job.restart": self._remove_passed,
            "job.destroy": self._forget,
        }

    def _depend(self, job: Job, wanted: Dependency) -> None:
        description = dependency.description(wanted)
        moment = float(wanted.value)
        self._moments.setdefault(job.id, {})[description] = moment
        self._tap.dependency_add(job.id, description)
        cancel = self._tap.call_at(moment, partial(self._on_moment, job.id))
        self._cancels.setdefault(job.id, []).append(cancel)

    def _on_moment(self, job: JobId) -> None:
        found = self._tap.with_pending_events(job)
        if found is not None:
            self._remove_passed(found)

    def _remove_passed(self, job: Job) -> None:
        now = self._clock.now()
        for description, moment in self._moments.get(job.id, {}).items():
            pending = self._tap.with_pending_events(job.id)
            waits = pending is not None and pending.state is State.DEPEND
            if waits and pending and description in pending.dependencies and moment <= now:
                self._tap.dependency_remove(job.id, description)

    def _forget(self, job: Job) -> None:
        self._moments.pop(job.id, None)
        for cancel in self._cancels.pop(job.id, []):
            cancel()
