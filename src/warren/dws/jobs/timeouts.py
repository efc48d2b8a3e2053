"""For how long a job's Workflow may be in a state (coral2-spec section 6, ADR 066).

A clock begins when the controllers take up its state, which the Workflow's status says: it goes on
after any restart, ends with the state, and does not run while no controller works.
"""

from typing import Final

import msgspec

from warren.base.times import parse_rfc3339
from warren.dws import labels
from warren.dws.binding import Phase
from warren.dws.objects.workflows import State, Workflow

_SETUP_NOTE: Final = "File system creation took too long"
_PRERUN_NOTE: Final = "timed out waiting for mounts"
_POSTRUN_NOTE: Final = "unmounts timed out, skipping data movement"
_TEARDOWN_NOTE: Final = "skipping rabbit data movement"


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
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

    @property
    def limits_states(self) -> bool:
        """Whether there is a limit for any state."""
        return bool(self.setup or self.prerun or self.postrun or self.teardown_after)


NO_TIMEOUTS: Final = Timeouts()


class Deadline(msgspec.Struct, frozen=True):
    """When a state has taken too long, in seconds since the epoch, and what the job is told."""

    at: float
    type: str
    """Of the exception."""
    note: str
    severity: int = 0
    """1: the job has not failed by it, and Teardown is asked for."""


def deadline(
    phase: Phase, workflow: Workflow, timeouts: Timeouts, last_copy_progress_at: float | None
) -> Deadline | None:
    """Return the first deadline of the state that a Workflow is asked for, if there is one.

    `last_copy_progress_at` is when copies of the job last went on. A state that is ready has no
    deadline, nor has one that no controller has taken up.
    """
    desired, status = workflow.spec.desired_state, workflow.status
    began = _moment(status.desired_state_change)
    if status.state is not desired or status.ready or began is None:
        return None
    deadlines: list[Deadline] = []
    match phase, desired:
        case Phase.STARTING, State.SETUP if timeouts.setup:
            deadlines.append(Deadline(began + timeouts.setup, "dws-timeout", _SETUP_NOTE))
        case Phase.STARTING, State.PRE_RUN if timeouts.prerun:
            deadlines.append(Deadline(began + timeouts.prerun, "dws-timeout", _PRERUN_NOTE))
        case Phase.ENDING, State.POST_RUN if timeouts.postrun:
            deadlines.append(Deadline(began + timeouts.postrun, "rabbit-timeout", _POSTRUN_NOTE))
        case _:
            pass
    end_text = workflow.metadata.annotations.get(labels.ENDED_AT)
    ended_at = began if desired is State.POST_RUN else _moment(end_text)
    if (
        timeouts.teardown_after
        and ended_at is not None
        and phase is Phase.ENDING
        and desired in (State.POST_RUN, State.DATA_OUT)
    ):
        latest = ended_at + (timeouts.teardown_latest or 10 * timeouts.teardown_after)
        extended = max(ended_at, last_copy_progress_at or ended_at) + timeouts.teardown_after
        at = min(extended, max(latest, ended_at + timeouts.teardown_after))
        deadlines.append(Deadline(at, "teardown-timeout", _TEARDOWN_NOTE, severity=1))
    return min(deadlines, key=lambda each: each.at, default=None)


def _moment(text: str | None) -> float | None:
    """Return the moment that a text says; None where it says none."""
    try:
        return parse_rfc3339(text or "")
    except ValueError:
        return None
