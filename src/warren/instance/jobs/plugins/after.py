"""Dependencies on other jobs: `after`, `afterstart`, `afterany`, `afterok` and their like (RFC 26).

Which job waits for which is in the jobspecs, and what came of it in the logs: what is kept here
is made again from them after a restart.
"""

from collections.abc import Mapping
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

_JOBS_AT_ONCE: Final = 50
"""Jobs that are told at once what has become of one that they wait for: there may be thousands."""


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


class After:
    """The plugin."""

    name: Final = "dependency-after"

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._dependencies: dict[JobId, dict[str, _DependsOn]] = {}
        """What jobs wait for, by description."""
        self._dependents: dict[JobId, set[JobId]] = {}
        """The jobs that wait for a job."""

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
        antecedent = fluid.parse(wanted.value)
        found = self._tap.job(antecedent)
        allowed = found is not None and job.userid in (found.userid, self._owner)
        if not allowed and job.state is State.NEW:
            raise Rejected(f"{wanted.scheme}:{wanted.value}: no such job, or another user's")
        description = dependency.description(wanted)
        self._dependencies.setdefault(job.id, {})[description] = _DependsOn(
            antecedent, wanted.scheme
        )
        self._dependents.setdefault(antecedent, set()).add(job.id)
        self._tap.dependency_add(job.id, description)

    def _on_change(self, antecedent: Job) -> None:
        dependents = sorted(self._dependents.get(antecedent.id, ()))
        for job in dependents[:_JOBS_AT_ONCE]:
            self._tell(job, antecedent)
        for job in dependents[_JOBS_AT_ONCE:]:
            # In turns with all else.
            self._tap.call_at(0.0, partial(self._tell, job, antecedent))

    def _tell(self, dependent: JobId, antecedent: Job) -> None:
        """Tell a job what another has become that it may wait for."""
        for description, depends_on in self._outstanding(dependent).items():
            if depends_on.antecedent == antecedent.id:
                self._act_on(
                    dependent, description, dependency_state(depends_on.scheme, antecedent)
                )

    def _check_all(self, job: Job) -> None:
        """Look at everything that a job waits for, as it is now."""
        for description, depends_on in self._outstanding(job.id).items():
            antecedent = self._tap.job(depends_on.antecedent)
            # One that was lost in a restart never does anything again.
            state = (
                DependencyState.NEVER
                if antecedent is None
                else dependency_state(depends_on.scheme, antecedent)
            )
            self._act_on(job.id, description, state)

    def _act_on(self, job: JobId, description: str, state: DependencyState) -> None:
        pending = self._tap.with_pending_events(job)
        if pending is None or pending.state is not State.DEPEND:
            return  # another of its dependencies has ended it
        if state is DependencyState.MET:
            self._tap.dependency_remove(job, description)
        elif state is DependencyState.NEVER:
            note = f"dependency {description} can never be met"
            self._tap.raise_exception(job, "dependency", 0, note)

    def _outstanding(self, job: JobId) -> Mapping[str, _DependsOn]:
        """Return what still holds a job; nothing before it is validated, or once it is over."""
        pending = self._tap.with_pending_events(job)
        if pending is None or pending.state is not State.DEPEND:
            return {}
        by_description = self._dependencies.get(job, {})
        return {
            name: by_description[name] for name in by_description if name in pending.dependencies
        }

    def _forget(self, job: Job) -> None:
        for depends_on in self._dependencies.pop(job.id, {}).values():
            dependents = self._dependents.get(depends_on.antecedent, set())
            dependents.discard(job.id)
            if not dependents:
                self._dependents.pop(depends_on.antecedent, None)
