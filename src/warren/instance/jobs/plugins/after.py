"""Dependencies on other jobs: `after`, `afterstart`, `afterany`, `afterok` and their like (RFC 26).

Who waits for whom is in the jobspecs, and what came of it in the logs: what is kept here is
made again from them after a restart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from warren.instance.jobs.jobtap import Callbacks, Jobtap, Rejected
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import dependency, fluid
from warren.rfc.dependency import Dependency
from warren.rfc.fluid import JobId

SCHEMES: Final = ("after", "afterstart", "afterany", "afterok", "afternotok", "afterexcept")


class Answer(Enum):
    """What a job that is waited for means to one that waits."""

    WAIT = auto()
    MET = auto()
    NEVER = auto()


def judge(scheme: str, antecedent: Job) -> Answer:
    """Return whether a dependency on a job is met. Neither met nor never met changes again."""
    over = antecedent.state is State.INACTIVE
    # One that never had its resources has not failed at what it was to do.
    failed = over and State.RUN in antecedent.times
    match scheme:
        case "after" | "afterstart":
            met = antecedent.started
        case "afterany":
            met = over
        case "afterok":
            met = antecedent.result is Result.COMPLETED
        case "afternotok":
            met = failed and antecedent.result is not Result.COMPLETED
        case _:
            met = failed and antecedent.fatal_exception is not None
    if met:
        return Answer.MET
    return Answer.NEVER if over else Answer.WAIT


@dataclass(frozen=True)
class _Waits:
    """One dependency of a job: the other, and how."""

    antecedent: JobId
    scheme: str


class After:
    """The plugin."""

    name: Final = "dependency-after"

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._waits: dict[JobId, dict[str, _Waits]] = {}
        """What jobs wait for, by description."""
        self._waited: dict[JobId, set[JobId]] = {}
        """Who waits for a job."""

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            **{f"job.dependency.{scheme}": self._depend for scheme in SCHEMES},
            "job.state.depend": self._settle,
            "job.restart": self._settle,
            "job.event.start": self._changed,
            "job.state.inactive": self._changed,
            "job.destroy": self._forget,
        }

    def _depend(self, job: Job, wanted: Dependency) -> None:
        """Hold a job. Raises Rejected for a job that it cannot wait for."""
        antecedent = fluid.parse(wanted.value)
        found = self._tap.job(antecedent)
        allowed = found is not None and job.userid in (found.userid, self._owner)
        if not allowed and job.state is State.NEW:
            raise Rejected(f"{wanted.scheme}:{wanted.value}: no such job, or another user's")
        description = dependency.description(wanted)
        self._waits.setdefault(job.id, {})[description] = _Waits(antecedent, wanted.scheme)
        self._waited.setdefault(antecedent, set()).add(job.id)
        self._tap.dependency_add(job.id, description)

    def _changed(self, antecedent: Job) -> None:
        for waiting in sorted(self._waited.get(antecedent.id, ())):
            for description, waits in self._outstanding(waiting).items():
                if waits.antecedent == antecedent.id:
                    self._answer(waiting, description, judge(waits.scheme, antecedent))

    def _settle(self, job: Job) -> None:
        """Look at everything that a job waits for, as it is now."""
        for description, waits in self._outstanding(job.id).items():
            antecedent = self._tap.job(waits.antecedent)
            # One that was lost in a restart never does anything again.
            answer = Answer.NEVER if antecedent is None else judge(waits.scheme, antecedent)
            self._answer(job.id, description, answer)

    def _answer(self, job: JobId, description: str, answer: Answer) -> None:
        pending = self._tap.with_pending_events(job)
        if pending is None or pending.state is not State.DEPEND:
            return  # another of its dependencies has ended it
        if answer is Answer.MET:
            self._tap.dependency_remove(job, description)
        elif answer is Answer.NEVER:
            note = f"dependency {description} can never be met"
            self._tap.raise_exception(job, "dependency", 0, note)

    def _outstanding(self, job: JobId) -> Mapping[str, _Waits]:
        """Return what still holds a job; nothing before it is validated, or once it is over."""
        pending = self._tap.with_pending_events(job)
        if pending is None or pending.state is not State.DEPEND:
            return {}
        waits = self._waits.get(job, {})
        return {name: waits[name] for name in waits if name in pending.dependencies}

    def _forget(self, job: Job) -> None:
        for waits in self._waits.pop(job.id, {}).values():
            waiting = self._waited.get(waits.antecedent, set())
            waiting.discard(job.id)
            if not waiting:
                self._waited.pop(waits.antecedent, None)
