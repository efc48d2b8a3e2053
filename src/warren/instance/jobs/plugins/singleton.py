"""The dependency `singleton`: of a user's jobs of one name, one at a time.

A job waits while another active one has its name, unless that one waits as well; of those
that wait, the oldest goes first.
"""

from typing import Final

from warren.instance.jobs.jobtap import Callbacks, Jobtap, Rejected
from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.rfc import dependency
from warren.rfc import jobspec as jobspecs
from warren.rfc.dependency import Dependency
from warren.rfc.fluid import JobId

DESCRIPTION: Final = "singleton"

_Key = tuple[int, str]
"""What jobs have in common of which one runs at a time: their user, and their name."""


class SameNameJobs:
    """The active jobs of one name, and which of them wait."""

    def __init__(self) -> None:
        self.active: set[JobId] = set()
        self.waiting: set[JobId] = set()

    def next_to_release(self) -> JobId | None:
        """Return the job that may go on, if all of them wait."""
        all_wait = self.waiting and len(self.waiting) == len(self.active)
        return min(self.waiting) if all_wait else None


class Singleton:
    """The plugin."""

    name: Final = "dependency-singleton"

    def __init__(self) -> None:
        self._keys: dict[JobId, _Key] = {}
        self._same_name: dict[_Key, SameNameJobs] = {}

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            "job.dependency.singleton": self._depend,
            "job.new": self._add,
            "job.state.depend": self._release_next,
            "job.restart": self._release_next,
            "job.destroy": self._remove,
        }

    def _depend(self, job: Job, wanted: Dependency) -> None:
        """Hold a job. Raises Rejected where it has no name."""
        if self._key(job) is None:
            raise Rejected("singleton: the job has no name, and others of its name are waited for")
        self._tap.dependency_add(job.id, dependency.description(wanted))

    def _key(self, job: Job) -> _Key | None:
        name = jobspecs.system(self._tap.jobspec(job.id)).get("job", {}).get("name")
        return (job.userid, name) if isinstance(name, str) and name else None

    def _add(self, job: Job) -> None:
        key = self._key(job)
        if key is None:
            return
        self._keys[job.id] = key
        same_name = self._same_name.setdefault(key, SameNameJobs())
        same_name.active.add(job.id)
        pending = self._tap.with_pending_events(job.id)
        if pending is not None and DESCRIPTION in pending.dependencies:
            same_name.waiting.add(job.id)

    def _remove(self, job: Job) -> None:
        key = self._keys.pop(job.id, None)
        if key is not None:
            same_name = self._same_name[key]
            same_name.active.discard(job.id)
            same_name.waiting.discard(job.id)
            self._release_one(same_name)
            if not same_name.active:
                del self._same_name[key]

    def _release_next(self, job: Job) -> None:
        key = self._keys.get(job.id)
        if key is not None:
            self._release_one(self._same_name[key])

    def _release_one(self, same_name: SameNameJobs) -> None:
        first = same_name.next_to_release()
        found = None if first is None else self._tap.with_pending_events(first)
        if first is not None and found is not None and found.state is State.DEPEND:
            same_name.waiting.discard(first)
            self._tap.dependency_remove(first, DESCRIPTION)
