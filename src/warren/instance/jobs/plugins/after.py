"""Dependencies on other jobs: `after`, `afterstart`, `afterany`, `afterok` and their like (RFC 26).

Which job waits for which is in the jobspecs, and what came of it in the logs: what is kept here
is made again from them after a restart.
"""

from enum import Enum, auto
from functools import partial
from typing import Final

import msgspec

from warren.instance.jobs.jobtap import Callbacks, Jobtap, Rejected
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import dependency, fluid
from warren.rfc.dependency import Dependency
from warren.rfc.fluid import JobId

SCHEMES: Final = ("after", "afterstart", "afterany", "afterok", "afternotok", "afterexcept")

_LONGEST_SPELLING: Final = 64
"""Characters of an id that are shown as given: every user has them in every list of jobs."""


class DependencyState(Enum):
    """What a job that is waited for means to one that waits."""

    WAIT = auto()
    MET = auto()
    NEVER = auto()


def dependency_state(scheme: str, antecedent: Job) -> DependencyState:
    """Return whether a dependency on a job is met. Neither met nor never met changes again."""
    is_over = antecedent.state is State.INACTIVE
    # One that never had its resources has not failed at what it was to do.
    has_run = is_over and State.RUN in antecedent.times
    match scheme:
        case "after" | "afterstart":
            met = antecedent.started
        case "afterany":
            met = is_over
        case "afterok":
            met = antecedent.result is Result.COMPLETED
        case "afternotok":
            met = has_run and antecedent.result is not Result.COMPLETED
        case _:
            met = has_run and antecedent.fatal_exception is not None
    if met:
        return DependencyState.MET
    return DependencyState.NEVER if is_over else DependencyState.WAIT


class _DependsOn(msgspec.Struct, frozen=True):
    """One dependency of a job: the other, and how."""

    antecedent: JobId
    scheme: str

    @property
    def meaning(self) -> str:
        """The description that is one for all spellings of the other's id."""
        return dependency.description(Dependency(self.scheme, fluid.f58(self.antecedent)))


class _Waiting(msgspec.Struct):
    """What a job waits for."""

    by_description: dict[str, _DependsOn] = msgspec.field(default_factory=dict)
    meanings: set[str] = msgspec.field(default_factory=set)


class After:
    """The plugin."""

    name: Final = "dependency-after"

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._waiting: dict[JobId, _Waiting] = {}
        self._dependents: dict[JobId, dict[JobId, dict[str, str]]] = {}
        """The schemes by which jobs wait for a job, by description."""

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            **{f"job.dependency.{scheme}": self._depend for scheme in SCHEMES},
            "job.state.depend": self._check_all,
            "job.restart": self._check_all,
            "job.event.start": self._on_change,
            "job.state.inactive": self._on_change,
            "job.destroy": self._forget,
        }

    def _depend(self, job: Job, wanted: Dependency) -> None:
        """Hold a job. Raises Rejected for a job that it cannot wait for."""
        depends_on = _DependsOn(fluid.parse(wanted.value), wanted.scheme)
        found = self._tap.job(depends_on.antecedent)
        allowed = found is not None and job.userid in (found.userid, self._owner)
        if not allowed and job.state is State.NEW:
            raise Rejected(f"{wanted.scheme}:{wanted.value}: no such job, or another user's")
        description = dependency.description(wanted)
        waiting = self._waiting.setdefault(job.id, _Waiting())
        # Each id has very many spellings. What the log says is held, though, as before an upgrade.
        if description not in job.ever_dependencies:
            if depends_on.meaning in waiting.meanings:
                return
            if len(wanted.value) > _LONGEST_SPELLING:
                description = depends_on.meaning
        waiting.meanings.add(depends_on.meaning)
        waiting.by_description[description] = depends_on
        dependents = self._dependents.setdefault(depends_on.antecedent, {})
        dependents.setdefault(job.id, {})[description] = wanted.scheme
        self._tap.dependency_add(job.id, description)

    def _on_change(self, antecedent: Job) -> None:
        states = {scheme: dependency_state(scheme, antecedent) for scheme in SCHEMES}
        for job, schemes in sorted(self._dependents.get(antecedent.id, {}).items()):
            for description, scheme in schemes.items():
                self._act_later(job, description, states[scheme])

    def _check_all(self, job: Job) -> None:
        """Look at everything that a job waits for, as it is now."""
        waiting = self._waiting.get(job.id)
        for description, depends_on in waiting.by_description.items() if waiting else ():
            antecedent = self._tap.job(depends_on.antecedent)
            # One that was lost in a restart never does anything again.
            state = (
                DependencyState.NEVER
                if antecedent is None
                else dependency_state(depends_on.scheme, antecedent)
            )
            self._act_later(job.id, description, state)

    def _act_later(self, job: JobId, description: str, state: DependencyState) -> None:
        """Have a dependency settled in turns with all else: there may be many, also of one job.

        Others may depend on that job in turn. A restart looks at all of them again.
        """
        if state is not DependencyState.WAIT:
            self._tap.call_at(0.0, partial(self._act_on, job, description, state))

    def _act_on(self, job: JobId, description: str, state: DependencyState) -> None:
        pending = self._tap.with_pending_events(job)
        if pending is None or pending.state is not State.DEPEND:
            return  # it is not validated yet, or another of its dependencies has ended it
        if description not in pending.dependencies:
            return
        if state is DependencyState.MET:
            self._tap.dependency_remove(job, description)
        else:
            note = f"dependency {description} can never be met"
            self._tap.raise_exception(job, "dependency", 0, note)

    def _forget(self, job: Job) -> None:
        waiting = self._waiting.pop(job.id, _Waiting())
        for antecedent in {each.antecedent for each in waiting.by_description.values()}:
            dependents = self._dependents[antecedent]
            del dependents[job.id]
            if not dependents:
                del self._dependents[antecedent]
