"""The states of a job and what leads from one to the next, as tables (RFC 21).

Everything that moves a job stands here. `job.update` applies the tables; the
documentation's diagram and the exhaustive tests are made from them.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job is in its life."""

    NEW = "NEW"
    DEPEND = "DEPEND"
    PRIORITY = "PRIORITY"
    SCHED = "SCHED"
    RUN = "RUN"
    CLEANUP = "CLEANUP"
    INACTIVE = "INACTIVE"

    @property
    def bit(self) -> int:
        """The state's bit, as RPCs spell sets of states."""
        return 1 << list(State).index(self)

    @property
    def letter(self) -> str:
        """The state as one letter, as listings show it; INACTIVE shows its result instead."""
        return self.value[0]


PENDING: Final = frozenset({State.DEPEND, State.PRIORITY, State.SCHED})
RUNNING: Final = frozenset({State.RUN, State.CLEANUP})
ACTIVE: Final = PENDING | RUNNING | {State.NEW}

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    (State.NEW, "validate"): State.DEPEND,
    (State.DEPEND, "depend"): State.PRIORITY,
    (State.PRIORITY, "priority"): State.SCHED,
    (State.SCHED, "alloc"): State.RUN,
    (State.SCHED, "urgency"): State.PRIORITY,
    (State.SCHED, "jobspec-update"): State.PRIORITY,
    (State.SCHED, "flux-restart"): State.PRIORITY,
    (State.RUN, "finish"): State.CLEANUP,
    (State.CLEANUP, "clean"): State.INACTIVE,
}

ON_FATAL_EXCEPTION: Final[Mapping[State, State]] = {
    State.DEPEND: State.CLEANUP,
    State.PRIORITY: State.CLEANUP,
    State.SCHED: State.CLEANUP,
    State.RUN: State.CLEANUP,
}
"""Where an exception of severity 0 leads. In NEW the job is refused instead."""

ALLOWED: Final[Mapping[str, frozenset[State]]] = {
    "validate": frozenset({State.NEW}),
    "invalidate": frozenset({State.NEW}),
    "dependency-add": frozenset({State.NEW, State.DEPEND}),
    "dependency-remove": frozenset({State.NEW, State.DEPEND}),
    "depend": frozenset({State.DEPEND}),
    "priority": frozenset({State.PRIORITY, State.SCHED}),
    "urgency": PENDING,
    "jobspec-update": ACTIVE - {State.CLEANUP},
    "resource-update": RUNNING,
    "flux-restart": frozenset({State.SCHED}),
    "alloc": frozenset({State.SCHED}),
    "prolog-start": ACTIVE - {State.CLEANUP},
    "prolog-finish": ACTIVE,
    "start": RUNNING,
    "finish": RUNNING,
    "epilog-start": frozenset({State.CLEANUP}),
    "epilog-finish": frozenset({State.CLEANUP}),
    "release": RUNNING,
    "partial-free": frozenset({State.CLEANUP}),
    "free": frozenset({State.CLEANUP}),
    "clean": frozenset({State.CLEANUP}),
}
"""In which states an event may come. Events that are not named here may come while active."""


class Result(StrEnum):
    """How a job ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    TIMEOUT = "TIMEOUT"

    @property
    def abbreviation(self) -> str:
        return {"COMPLETED": "CD", "FAILED": "F", "CANCELED": "CA", "TIMEOUT": "TO"}[self.value]

    @property
    def bit(self) -> int:
        return 1 << list(Result).index(self)
