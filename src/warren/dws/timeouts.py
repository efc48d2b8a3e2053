"""For how long a job's Workflow may be in a state (coral2-spec section 6, ADR 066).

A clock begins when its state is asked for, which is written on the Workflow: it goes on after any
restart, and ends with the state.
"""

from dataclasses import dataclass
from typing import Final

from warren.base.times import parse_rfc3339
from warren.dws import labels
from warren.dws.binding import Phase
from warren.dws.objects import State, Workflow

_SETUP: Final = "File system creation took too long"
_PRERUN: Final = "timed out waiting for mounts"
_POSTRUN: Final = "unmounts timed out, skipping data movement"
_TEARDOWN_AFTER: Final = "skipping rabbit data movement"


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """What a site allows, in seconds; None is no limit."""

    transient: float | None = 10.0
    """For a condition that may heal."""
    setup: float | None = None
    prerun: float | None = None
    postrun: float | None = None
    teardown_after: float | None = None
    """For PostRun and DataOut together, and anew with each progress of a copy."""
    teardown_latest: float | None = None
    """For both together, however well copies go on; None is ten times `teardown_after`."""


NO_TIMEOUTS: Final = Timeouts()


@dataclass(frozen=True)
class Deadline:
    """When a state has taken too long, in seconds since the epoch, and what the job is told."""

    at: float
    type: str
    words: str
    severity: int = 0
    """1: the job has not failed by it, and Teardown is asked for."""


def deadline(
    phase: Phase, workflow: Workflow, timeouts: Timeouts, moved: float | None
) -> Deadline | None:
    """Return the first deadline of the state that a Workflow is asked for, if there is one.

    `moved` is when copies of the job last went on. A state that is ready has none.
    """
    wanted = workflow.spec.desired_state
    asked = _moment(workflow, labels.ASKED_AT)
    if asked is None or (workflow.status.state is wanted and workflow.status.ready):
        return None
    found: list[Deadline] = []
    match phase, wanted:
        case Phase.STARTING, State.SETUP if timeouts.setup:
            found.append(Deadline(asked + timeouts.setup, "dws-timeout", _SETUP))
        case Phase.STARTING, State.PRE_RUN if timeouts.prerun:
            found.append(Deadline(asked + timeouts.prerun, "dws-timeout", _PRERUN))
        case Phase.ENDING, State.POST_RUN if timeouts.postrun:
            found.append(Deadline(asked + timeouts.postrun, "rabbit-timeout", _POSTRUN))
        case _:
            pass
    ended = _moment(workflow, labels.ENDED_AT)
    if (
        timeouts.teardown_after
        and ended is not None
        and phase is Phase.ENDING
        and wanted in (State.POST_RUN, State.DATA_OUT)
    ):
        latest = ended + (timeouts.teardown_latest or 10 * timeouts.teardown_after)
        extended = max(ended, moved or ended) + timeouts.teardown_after
        at = min(extended, max(latest, ended + timeouts.teardown_after))
        found.append(Deadline(at, "teardown-timeout", _TEARDOWN_AFTER, severity=1))
    return min(found, key=lambda each: each.at, default=None)


def _moment(workflow: Workflow, annotation: str) -> float | None:
    """Return what an annotation says; None where it is not there, or says nothing."""
    try:
        return parse_rfc3339(workflow.metadata.annotations.get(annotation, ""))
    except ValueError:
        return None
